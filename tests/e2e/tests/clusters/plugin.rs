//! `kubectl baremetal` through the life of hosts: what it shows, what it changes,
//! how it ends.

pub(crate) mod program;
mod support;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use coordinator_api::inventory::{Approval, MachineInventory};
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::annotation;
use coordinator_api::registration::MachineRegistration;
use e2e::fleet::Fleet;
use e2e::host::{Host as _, Simulated};
use e2e::lifecycle::{
    Lifecycle, NAMESPACE, await_attached, await_node_ref, cluster_api, is_free, is_running,
};
use e2e::watching::{until, until_all};
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::common::{Setup, await_event, await_viewer};
use program::Plugin;

const DEADLINE: Duration = Duration::from_mins(4);

/// Done, failed, wrong arguments, not found, refused, an operator has to act.
const DONE: i32 = 0;
const FAILED: i32 = 1;
const USAGE: i32 = 2;
const NOT_FOUND: i32 = 3;
const REFUSED: i32 = 4;
const ACT: i32 = 11;

struct Story<'a> {
    setup: &'a Setup,
    plugin: Plugin,
    fleet: Fleet,
    /// Its first host.
    host: String,
}

impl Story<'_> {
    fn step(&self, what: &str) {
        self.setup.progress.step(what);
    }

    fn inventories(&self) -> Api<MachineInventory> {
        Api::namespaced(self.setup.environment.management.admin.clone(), NAMESPACE)
    }

    fn machines(&self) -> Api<BaremetalMachine> {
        Api::namespaced(self.setup.environment.management.admin.clone(), NAMESPACE)
    }

    async fn scale(&self, replicas: usize) -> anyhow::Result<()> {
        let api = cluster_api(&self.setup.environment.management.admin, "MachineDeployment");
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        api.patch("workers", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The one machine that runs, once Cluster API knows its Node.
    async fn await_machine(&self) -> anyhow::Result<String> {
        let name = until_all(&self.machines(), watcher::Config::default(), DEADLINE, |machines| {
            Ok(machines.values().find(|machine| is_running(machine)).map(BaremetalMachine::name_any))
        })
        .await?;
        await_node_ref(&self.setup.environment.management.admin, &name).await?;
        Ok(name)
    }

    async fn await_machines(&self, count: usize) -> anyhow::Result<()> {
        let all =
            |machines: &std::collections::BTreeMap<String, _>| Ok((machines.len() == count).then_some(()));
        until_all(&self.machines(), watcher::Config::default(), DEADLINE, all).await
    }

    async fn row_of(&self, host: &str) -> anyhow::Result<Value> {
        let text = self.plugin.expect("hosts -o json", DONE, &[]).await?;
        let rows: Vec<Value> = serde_json::from_str(&text)?;
        rows.into_iter().find(|row| row["name"] == host).with_context(|| format!("{host} is not in {text}"))
    }
}

async fn check_ends(story: &Story<'_>) -> anyhow::Result<()> {
    let (plugin, host) = (&story.plugin, &story.host);
    story.step("kubectl baremetal: a free host, and how commands end");
    plugin.expect("hosts", DONE, &["NAME", "NEXT ACTION", host, "Available"]).await?;
    plugin.expect("hosts --state failed --attention", DONE, &["no host matches"]).await?;
    plugin.expect("hosts -A -o wide", DONE, &["NAMESPACE", "default", "Emulated"]).await?;
    plugin.expect("hosts -o yaml", DONE, &[&format!("name: {host}")]).await?;
    plugin.expect(&format!("why host/{host}"), DONE, &["nothing is in the way"]).await?;
    plugin.expect(&format!("why machineinventory {host} -o json"), DONE, &["\"attention\":\"none\""]).await?;
    plugin.expect(&format!("describe {host}"), DONE, &["Identity", "Session", "Installed=True"]).await?;
    plugin.expect(&format!("logs {host}"), NOT_FOUND, &["never had a plan"]).await?;
    plugin.expect("completion bash", DONE, &["kubectl-baremetal"]).await?;
    let want = format!("host/{host}\n:4\n");
    let deadline = Instant::now() + DEADLINE;
    // A completion that takes long offers nothing.
    loop {
        let offered = plugin.complete(&format!("why host/{}", &host[..6])).await?;
        if offered == want {
            break;
        }
        ensure!(Instant::now() < deadline, "kubectl is offered {offered:?}");
    }
    plugin.expect("why", USAGE, &["OBJECT"]).await?;
    plugin.expect("why pod/x", NOT_FOUND, &["is not a known kind"]).await?;
    plugin.expect("why machine/x", NOT_FOUND, &["does not exist in namespace default"]).await?;
    plugin.expect("hosts --context nowhere", FAILED, &["kubeconfig"]).await?;
    plugin.expect(&format!("release {host} --yes"), REFUSED, &["is free"]).await?;
    plugin.expect(&format!("approve {host} --yes"), REFUSED, &["admitted already"]).await?;
    Ok(())
}

/// Another host registers and waits for an operator.
async fn check_admission(story: &Story<'_>, second: &mut Simulated) -> anyhow::Result<()> {
    let environment = &story.setup.environment;
    story.step("kubectl baremetal: a host waits for approval and is approved");
    let registrations: Api<MachineRegistration> =
        Api::namespaced(environment.management.admin.clone(), NAMESPACE);
    let manual = Patch::Merge(json!({ "spec": { "approval": "Manual" } }));
    registrations.patch("lab", &PatchParams::default(), &manual).await?;
    second.boot(&environment.directory.path().join("seed.iso")).await?;
    let (plugin, name) = (&story.plugin, second.inventory());
    let is_pending = |inventory: &MachineInventory| inventory.approval() == Approval::Pending;
    let pending = until(&story.inventories(), &name, DEADLINE, is_pending).await?;
    let hash = pending.spec.tpm_hash.context("a host without identity")?;
    plugin.expect("hosts --state pending --attention", DONE, &[&name, "ApprovalPending"]).await?;
    let action = format!("kubectl baremetal approve {name}");
    plugin.expect(&format!("why host/{name}"), ACT, &["ApprovalPending", &action]).await?;
    let other = if hash.starts_with('f') { "0" } else { "f" };
    let refused = format!("approve {name} --identity {other}");
    plugin.expect(&refused, REFUSED, &["another host has registered under its name"]).await?;
    plugin.expect("approve --registration lab", REFUSED, &["confirm by --yes"]).await?;
    plugin.expect("approve --registration lab --dry-run", DONE, &["(dry run)"]).await?;
    let still = story.inventories().get(&name).await?;
    ensure!(is_pending(&still), "a dry run approved the host");
    plugin
        .expect(&format!("approve {name} --identity {}", &hash[..12]), DONE, &["the host continues"])
        .await?;
    await_attached(&story.inventories(), &name, DEADLINE).await?;
    plugin.expect("approve --registration lab --yes", DONE, &["no host waits for approval"]).await?;
    Ok(())
}

/// One machine runs, another one has no host.
async fn check_cluster(story: &Story<'_>, second: &mut Simulated) -> anyhow::Result<String> {
    let (setup, plugin, host) = (story.setup, &story.plugin, &story.host);
    let mut watched = plugin.start("hosts --watch -o json")?;
    let mut lifecycle = Lifecycle::new(&setup.environment, second, setup.progress.clone());
    lifecycle.apply_cluster(std::slice::from_ref(host), 1).await?;
    let mut drawn = plugin.start("tree lab --watch")?;
    let machine = story.await_machine().await?;
    story.step("kubectl baremetal: a machine runs, another one has no host");
    let is_running = |line: &str| line.contains(host.as_str()) && line.contains("\"Running\"");
    watched.until_line("the host to run", is_running).await?;
    let has_node = |line: &str| line.contains(&format!("machine/{machine}")) && line.contains("Node");
    drawn.until_line("the Node", has_node).await?;
    let row = story.row_of(host).await?;
    ensure!(
        row["state"] == "Running" && row["pool"] == "workers" && row["machine"] == machine.as_str(),
        "{row}"
    );
    plugin.expect(&format!("why machine/{machine}"), DONE, &["nothing is in the way"]).await?;
    plugin.expect(&format!("why {machine}"), USAGE, &["KIND/NAME"]).await?;
    let steps = ["request-cleanup", "upgrade-system", "verify-system", "done", "applied"];
    plugin.expect(&format!("logs {host}"), DONE, &steps).await?;
    plugin.expect("tree lab", DONE, &["cluster/lab", &machine, host, "Applied"]).await?;
    plugin.expect("tree nothing", NOT_FOUND, &["does not exist"]).await?;
    story.scale(2).await?;
    let waits = |waiting: &BaremetalMachine| {
        let conditions = waiting.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|condition| condition.reason == "PoolExhausted")
    };
    let waiting = until_all(&story.machines(), watcher::Config::default(), DEADLINE, |machines| {
        Ok(machines.values().find(|machine| waits(machine)).map(BaremetalMachine::name_any))
    })
    .await?;
    let chain = ["machine/", "InventoryAllocated=False PoolExhausted", "1 held by machines", "add a host"];
    plugin.expect(&format!("why machine/{waiting}"), ACT, &chain).await?;
    plugin.expect("why cluster/lab", ACT, &["machinedeployment/workers", "PoolExhausted"]).await?;
    story.scale(1).await?;
    story.await_machines(1).await?;
    Ok(machine)
}

async fn check_drain(story: &Story<'_>, machine: &str) -> anyhow::Result<()> {
    let (plugin, host) = (&story.plugin, &story.host);
    story.step("kubectl baremetal: the host is drained and released");
    plugin.expect(&format!("reinstall {host} --yes"), REFUSED, &["drain-and-release"]).await?;
    plugin.expect(&format!("release {host} --without-clean --yes"), REFUSED, &["is not in deletion"]).await?;
    let line = format!("drain-and-release {host} --scale-down");
    plugin.expect(&line, REFUSED, &[machine, "confirm by --yes"]).await?;
    plugin
        .expect(&format!("{line} --dry-run"), DONE, &["scale machinedeployment/workers to 0 (dry run)"])
        .await?;
    story.await_machines(1).await?;
    plugin.expect(&format!("{line} --yes"), DONE, &["next: `kubectl baremetal logs"]).await?;
    plugin.expect(&format!("logs {host} --follow"), DONE, &["remove-node-state", "applied"]).await?;
    until(&story.inventories(), host, DEADLINE, is_free).await?;
    await_event(&story.setup.environment.management.admin, host, "Released").await?;
    plugin.expect(&format!("describe {host}"), DONE, &["Events", "Released", "clean"]).await?;
    ensure!(story.row_of(host).await?["state"] == "Available", "{}", story.row_of(host).await?);
    Ok(())
}

/// Whether the end of the session is recorded.
fn has_left(inventory: &MachineInventory) -> bool {
    let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
    host.and_then(|host| host.session.as_ref()).is_some_and(|session| session.ended.is_some())
}

/// A machine is released without a drain; then one whose host is dead.
async fn check_release(story: &mut Story<'_>) -> anyhow::Result<()> {
    let host = story.host.clone();
    story.scale(1).await?;
    story.await_machine().await?;
    story.step("kubectl baremetal: a host is released, waited for");
    let line = format!("release {host} --scale-down --yes --wait");
    story.plugin.expect(&line, DONE, &["exclude-node-draining", "is available"]).await?;
    story.scale(1).await?;
    let machine = story.await_machine().await?;
    story.step("kubectl baremetal: the host is dead, and given up");
    story.fleet.host(&host)?.power_off();
    until(&story.inventories(), &host, DEADLINE, has_left).await?;
    story.plugin.expect(&format!("release {host} --scale-down --yes"), DONE, &[]).await?;
    let is_deleting = |machine: &BaremetalMachine| machine.metadata.deletion_timestamp.is_some();
    until(&story.machines(), &machine, DEADLINE, is_deleting).await?;
    let line = format!("release {host} --without-clean");
    story.plugin.expect(&line, REFUSED, &["powered off for good", "--yes"]).await?;
    story.plugin.expect(&format!("{line} --yes"), DONE, &["release-without-clean="]).await?;
    story.await_machines(0).await?;
    story.plugin.expect(&format!("why host/{host}"), ACT, &["Abandoned", "repair the host"]).await?;
    story.fleet.host(&host)?.power_on();
    until(&story.inventories(), &host, DEADLINE, is_free).await?;
    story.step("kubectl baremetal: a free host is to be installed again");
    story.plugin.expect(&format!("reinstall {host} --dry-run"), DONE, &["(dry run)"]).await?;
    let reinstall = async || {
        story
            .inventories()
            .get(&host)
            .await
            .map(|host| host.annotations().get(annotation::REINSTALL).cloned())
    };
    ensure!(reinstall().await?.is_none(), "a dry run asked for an install");
    let line = format!("reinstall {host} --yes --device /dev/disk/by-id/one");
    story.plugin.expect(&line, DONE, &["boot the seed ISO"]).await?;
    ensure!(reinstall().await?.as_deref() == Some("/dev/disk/by-id/one"), "{:?}", reinstall().await?);
    Ok(())
}

/// What users without all rights see.
async fn check_rights(story: &Story<'_>) -> anyhow::Result<()> {
    story.step("kubectl baremetal: the rights are those of the kubeconfig");
    let management = &story.setup.environment.management;
    management.apply(include_str!("plugin/viewer.yaml")).await?;
    await_viewer(management).await?;
    let guest = Plugin::new(management.control_plane.kubeconfig("guest", "none")?)?;
    guest.expect("hosts", FAILED, &["forbidden", "ask for a role"]).await?;
    let viewer = Plugin::new(management.control_plane.kubeconfig("viewer", "none")?)?;
    viewer.expect("hosts", DONE, &[&story.host]).await?;
    let host = &story.host;
    viewer.expect(&format!("logs {host}"), DONE, &["the steps are not shown", "forbidden"]).await?;
    viewer.expect(&format!("why host/{host}"), DONE, &["left out", "nothing is in the way"]).await?;
    viewer.expect(&format!("release {host} --yes"), REFUSED, &["cannot be read"]).await?;
    Ok(())
}

async fn run_story(setup: &Setup) -> anyhow::Result<()> {
    let environment = &setup.environment;
    let fleet = Fleet::register(environment, &setup.progress, &setup.base, 1).await?;
    let plugin = Plugin::new(environment.management.control_plane.admin_kubeconfig())?;
    let host = fleet.names().first().cloned().context("a fleet without hosts")?;
    let mut story = Story { setup, plugin, fleet, host };
    let mut second = Simulated::new(environment.workload.clone(), 2)?;
    check_ends(&story).await?;
    check_admission(&story, &mut second).await?;
    let machine = check_cluster(&story, &mut second).await?;
    check_rights(&story).await?;
    support::check_bundle(&story).await?;
    check_drain(&story, &machine).await?;
    check_release(&mut story).await
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_shows_and_changes_the_life_of_hosts() {
    let setup = Setup::start().await;
    setup.check(run_story(&setup).await);
}
