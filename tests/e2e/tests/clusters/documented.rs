//! The commands of the documents, as they stand there: from the first host to the deletion of a
//! cluster, and what operators do meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use contract::documents::{Block, Reader, STORY, fill};
use control_plane::apply::parse_manifest;
use control_plane::{Clusterctl, Part, Shell};
use coordinator_api::inventory::{Approval, MachineInventory, PlanType};
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::annotation;
use coordinator_api::registration::MachineRegistration;
use e2e::host::{Host as _, Simulated};
use e2e::lifecycle::{NAMESPACE, await_attached, is_free, is_running};
use e2e::provider;
use e2e::replicas::find_binary;
use e2e::watching::{until, until_all};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::common::Setup;

const DEADLINE: Duration = Duration::from_mins(4);
const CLUSTER: &str = "docs/first-cluster.md";
const REPLACE: &str = "docs/replace.md";
const OPERATIONS: &str = "docs/operations.md";

/// A value for a placeholder.
type Value = (&'static str, String);

struct Story<'a> {
    setup: &'a Setup,
    shell: Shell,
    /// It holds the providers that `clusterctl.yaml` names.
    _clusterctl: Clusterctl,
    reader: Reader,
    /// In the order of `HOST1` and its successors; the last one comes later.
    hosts: Vec<Simulated>,
}

impl<'a> Story<'a> {
    async fn prepare(setup: &'a Setup) -> anyhow::Result<Self> {
        let environment = &setup.environment;
        let management = &environment.management;
        setup.progress.step("the provider is installed, as docs/install.md says");
        let release = provider::release()?;
        let clusterctl = provider::install(environment, management, &release, &[]).await?;
        let shell = Shell::new(management.control_plane.admin_kubeconfig())?;
        shell.add_program("kubectl", &environment.parts.path(Part::Kubectl)?)?;
        shell.add_program("kubectl-baremetal", &find_binary("kubectl-baremetal", "kubectl-baremetal")?)?;
        shell.add_program("clusterctl", clusterctl.binary())?;
        fs::copy(clusterctl.configuration(), shell.path("clusterctl.yaml"))?;
        let hosts = (1..=6).map(|number| Simulated::new(environment.workload.clone(), number));
        let hosts = hosts.collect::<Result<_, _>>()?;
        Ok(Self { setup, shell, _clusterctl: clusterctl, reader: Reader::of(STORY), hosts })
    }

    fn inventories(&self) -> Api<MachineInventory> {
        Api::namespaced(self.setup.environment.management.admin.clone(), NAMESPACE)
    }

    fn name(&self, number: usize) -> String {
        self.hosts[number - 1].inventory()
    }

    /// What the documents name as examples.
    fn examples(&self) -> Vec<Value> {
        let endpoint = self.setup.environment.workload.endpoint();
        let mut values = vec![
            ("registry.example.com/os/node-iso:v1.36.3", self.setup.base.clone()),
            ("api.lab.example.com", endpoint.ip().to_string()),
            ("6443", endpoint.port().to_string()),
            ("/dev/sda", "/dev/vda".to_owned()),
        ];
        let hosts = ["HOST1", "HOST2", "HOST3", "HOST4", "HOST5"];
        values.extend(hosts.into_iter().enumerate().map(|(index, host)| (host, self.name(index + 1))));
        values
    }

    /// Runs the commands of a section; where the document shows how their output begins, that has
    /// to be in it.
    async fn run(&mut self, document: &str, section: &str, values: &[Value]) -> anyhow::Result<()> {
        let values = [values, self.examples().as_slice()].concat();
        let mut output = String::new();
        for block in self.reader.read(document, section)? {
            self.setup.progress.step(&format!("{document}: {section}"));
            let content = fill(&block.content, &values);
            let place = || format!("{document}, section {section}");
            if block.is_commands() {
                output = self.shell.run(&content).await.with_context(place)?;
            } else if block.language == "text" {
                check_shown(&block, &content, &output).with_context(place)?;
            }
        }
        Ok(())
    }

    async fn boot(&mut self, number: usize) -> anyhow::Result<()> {
        let iso = find_file(&self.shell.path(""), ".iso")?;
        self.hosts[number - 1].boot(&iso).await
    }

    async fn await_host(&self, number: usize) -> anyhow::Result<()> {
        await_attached(&self.inventories(), &self.name(number), DEADLINE).await?;
        Ok(())
    }

    /// The number of the host that the only worker runs on.
    async fn find_worker(&self) -> anyhow::Result<usize> {
        let mut found = vec![];
        for number in 1..=self.hosts.len() {
            let Ok(inventory) = self.inventories().get(&self.name(number)).await else { continue };
            let owner = inventory.claim().map(|claim| claim.machine).unwrap_or_default();
            if owner.starts_with("lab-workers") {
                found.push(number);
            }
        }
        ensure!(found.len() == 1, "workers on {found:?}");
        Ok(found[0])
    }

    /// Waits until exactly so many Nodes of this version are there.
    async fn await_nodes(&self, count: usize, version: &str) -> anyhow::Result<()> {
        let admin = self.setup.environment.workload.control_plane().admin().await?;
        until_all(&Api::<Node>::all(admin), watcher::Config::default(), DEADLINE, |nodes| {
            let of_version = |node: &&Node| {
                let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
                info.is_some_and(|info| info.kubelet_version == version)
            };
            let all = nodes.len() == count && nodes.values().filter(of_version).count() == count;
            Ok(all.then_some(()))
        })
        .await
    }

    /// Waits until this host is that of a machine that runs.
    async fn await_successor(&self, number: usize) -> anyhow::Result<()> {
        let admin = self.setup.environment.management.admin.clone();
        let machines: Api<BaremetalMachine> = Api::namespaced(admin, NAMESPACE);
        let provider_id = format!("baremetal:///{}", self.name(number));
        until_all(&machines, watcher::Config::default(), DEADLINE, |machines| {
            let on_host =
                |machine: &BaremetalMachine| machine.spec.provider_id.as_deref() == Some(&*provider_id);
            Ok(machines.values().any(|machine| on_host(machine) && is_running(machine)).then_some(()))
        })
        .await
    }
}

/// Compares the columns or words of the first line.
fn check_shown(block: &Block, content: &str, output: &str) -> anyhow::Result<()> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let wanted = words(content.lines().next().unwrap_or_default());
    let is_shown = output.lines().any(|line| words(line) == wanted);
    ensure!(is_shown, "{:?} is not shown:\n{output}", block.content);
    Ok(())
}

fn find_file(directory: &Path, end: &str) -> anyhow::Result<PathBuf> {
    let entries: Vec<_> = fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    let found =
        entries.into_iter().map(|entry| entry.path()).find(|path| path.to_string_lossy().ends_with(end));
    found.with_context(|| format!("no file *{end}"))
}

/// The simulation has no etcd, and no certificates of an API server that Cluster API could read.
fn adapt(manifest: &str) -> anyhow::Result<String> {
    let mut objects = parse_manifest(manifest)?;
    for object in &mut objects {
        if object.types.as_ref().is_some_and(|types| types.kind == "KubeadmControlPlane") {
            let spec = &mut object.data["spec"];
            spec["machineTemplate"]["metadata"] = json!({ "annotations": { "machine.cluster.x-k8s.io/certificates-expiry": "2099-01-01T00:00:00Z" } });
            spec["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"] = json!({ "external": {
                "endpoints": ["https://192.0.2.11:2379"],
                "caFile": "/etc/kubernetes/pki/etcd/ca.crt",
                "certFile": "/etc/kubernetes/pki/apiserver-etcd-client.crt",
                "keyFile": "/etc/kubernetes/pki/apiserver-etcd-client.key",
            } });
        }
    }
    let documents = objects.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(documents.join("\n---\n"))
}

async fn make_cluster(story: &mut Story<'_>) -> anyhow::Result<()> {
    story.run(CLUSTER, "1. Registration and ISO", &[]).await?;
    story.run(CLUSTER, "2. Download", &[]).await?;
    for number in 1..=5 {
        story.boot(number).await?;
    }
    for number in 1..=5 {
        story.await_host(number).await?;
    }
    story.run(CLUSTER, "3. Boot the hosts", &[]).await?;
    story.run(CLUSTER, "4. Image of a version", &[]).await?;
    story.run(CLUSTER, "5. Manifest of the cluster", &[]).await?;
    let manifest = story.shell.path("lab.yaml");
    fs::write(&manifest, adapt(&fs::read_to_string(&manifest)?)?)?;
    let (management, workload) = (&story.setup.environment.management, &story.setup.environment.workload);
    for secret in workload.authority_secrets(NAMESPACE, "lab")? {
        management.apply_secret(NAMESPACE, secret).await?;
    }
    story.run(CLUSTER, "6. First control plane", &[]).await?;
    story.run(CLUSTER, "7. Whole cluster", &[]).await?;
    story.await_nodes(4, "v1.36.3").await
}

async fn change_cluster(story: &mut Story<'_>) -> anyhow::Result<()> {
    story.run(CLUSTER, "8. Scale", &[]).await?;
    story.await_nodes(4, "v1.36.3").await?;
    story.run(CLUSTER, "9. Upgrade", &[]).await?;
    story.await_nodes(4, "v1.36.4").await
}

/// The sixth host waits for approval before it replaces the worker's; the spare one then replaces
/// that of a dead control plane.
async fn replace_hosts(story: &mut Story<'_>) -> anyhow::Result<()> {
    let worker = story.find_worker().await?;
    let spare = if worker == 4 { 5 } else { 4 };
    approve_host(story, 6).await?;
    let (old, new) = (story.name(worker), story.name(6));
    let workers = ("POOL", "lab-workers".to_owned());
    story.run(REPLACE, "1. The new host", &[("NEW", new.clone()), workers]).await?;
    let both = [("OLD", old), ("NEW", new)];
    story.run(REPLACE, "2. A worker that answers", &both).await?;
    story.await_successor(6).await?;
    story.hosts[worker - 1].power_off();
    story.run(REPLACE, "3. Remove a host for good", &both).await?;

    let both = [("OLD", story.name(1)), ("NEW", story.name(spare))];
    let pool = ("POOL", "lab-control-plane".to_owned());
    story.run(REPLACE, "1. The new host", &[both[1].clone(), pool]).await?;
    story.hosts[0].power_off();
    story.setup.environment.workload.lose_node(&story.name(1)).await?;
    until(&story.inventories(), &story.name(1), DEADLINE, has_left).await?;
    story.run(REPLACE, "4. A host that is dead", &both).await?;
    story.await_successor(spare).await?;
    story.run(REPLACE, "5. The successor", &both).await
}

/// Whether the end of the session is recorded.
fn has_left(inventory: &MachineInventory) -> bool {
    let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
    host.and_then(|host| host.session.as_ref()).is_some_and(|session| session.ended.is_some())
}

async fn approve_host(story: &mut Story<'_>, number: usize) -> anyhow::Result<()> {
    story.shell.run(r#"kubectl patch machineregistration lab --type=merge --patch='{"spec": {"approval": "Manual"}}'"#).await?;
    story.boot(number).await?;
    let name = story.name(number);
    let is_pending = |inventory: &MachineInventory| inventory.approval() == Approval::Pending;
    let pending = until(&story.inventories(), &name, DEADLINE, is_pending).await?;
    let hash = pending.spec.tpm_hash.context("a host without identity")?;
    let values = [("NAME", name), ("HASH", hash[..12].to_owned())];
    story.run(OPERATIONS, "A host waits for approval", &values).await?;
    story.await_host(number).await
}

/// What changes nothing of the cluster.
async fn operate(story: &mut Story<'_>) -> anyhow::Result<()> {
    let (dead, worker) = (story.name(1), story.name(6));
    story.run(OPERATIONS, "Shut a host out", &[("NAME", dead.clone())]).await?;
    ensure!(story.inventories().get(&dead).await?.approval() == Approval::Revoked, "{dead} is not revoked");
    story
        .shell
        .run(&format!(
            "kubectl annotate --overwrite machineinventory {dead} baremetal.cluster.io/approval=Approved"
        ))
        .await?;
    // Given up, it is cleaned when it returns.
    story.hosts[0].power_on();
    until(&story.inventories(), &dead, DEADLINE, is_free).await?;
    let disk = "/dev/disk/by-id/one";
    let values = [("NAME", dead.clone()), ("DISK", "one".to_owned())];
    story.run(OPERATIONS, "Install a host again", &values).await?;
    let asked = story.inventories().get(&dead).await?.annotations().get(annotation::REINSTALL).cloned();
    ensure!(asked.as_deref() == Some(disk), "{dead} is asked for {asked:?}");

    fs::copy(story.shell.path("ca.crt"), story.shell.path("vendors.pem"))?;
    fs::copy(story.shell.path("ca.crt"), story.shell.path("registry-ca.pem"))?;
    fs::create_dir_all(story.shell.path(".docker"))?;
    fs::write(story.shell.path(".docker/config.json"), r#"{"auths": {}}"#)?;
    fs::write(
        story.shell.path("plan.json"),
        r#"{"instructions": [{"name": "firmware", "command": "true"}]}"#,
    )?;
    let lab = ("NAME", "lab".to_owned());
    let namespace = ("NAMESPACE", NAMESPACE.to_owned());
    story.run(OPERATIONS, "Only TPMs of known vendors", &[namespace]).await?;
    story.run(OPERATIONS, "`RegistrySecretInvalid`, a private registry", std::slice::from_ref(&lab)).await?;
    story.run(OPERATIONS, "Run a plan of your own on a host", &[("HOST", worker.clone())]).await?;
    let is_given = |inventory: &MachineInventory| {
        inventory.plan().is_some_and(|plan| plan.kind == Some(PlanType::Custom))
    };
    until(&story.inventories(), &worker, DEADLINE, is_given).await?;
    story.run(OPERATIONS, "Rotate the registration token", &[lab]).await?;
    let admin = story.setup.environment.management.admin.clone();
    let registrations: Api<MachineRegistration> = Api::namespaced(admin.clone(), NAMESPACE);
    let is_rotated = |registration: &MachineRegistration| {
        !registration.annotations().contains_key(annotation::ROTATE_TOKEN)
    };
    until(&registrations, "lab", DEADLINE, is_rotated).await?;
    let machines: Api<BaremetalMachine> = Api::namespaced(admin, NAMESPACE);
    let machine = until_all(&machines, watcher::Config::default(), DEADLINE, |machines: &BTreeMap<_, _>| {
        Ok(machines.values().next().map(BaremetalMachine::name_any))
    })
    .await?;
    story.run("docs/observability.md", "Traces", &[("NAME", machine)]).await
}

async fn tell(setup: &Setup) -> anyhow::Result<()> {
    let mut story = Story::prepare(setup).await?;
    make_cluster(&mut story).await?;
    change_cluster(&mut story).await?;
    replace_hosts(&mut story).await?;
    operate(&mut story).await?;
    story.run(CLUSTER, "10. Delete", &[]).await?;
    Ok(story.reader.finish()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_documents_work() {
    let setup = Setup::start_for_control_planes().await;
    setup.check(tell(&setup).await);
}
