//! The rules of the coordinator and its requests are the same, on a real API
//! server and limited to one namespace.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use control_plane::apply;
use control_plane::audit::Mark;
use control_plane::etcd::Key;
use control_plane::parts::Part;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use e2e::host::{Host, Simulated};
use e2e::lifecycle::{Lifecycle, NAMESPACE};
use e2e::manifests::RIGHTS;
use e2e::replicas::{NAMESPACE as OWN, USER};
use e2e::watching::until;
use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::common::Setup;

const DEADLINE: Duration = Duration::from_mins(2);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The rules of the roles with the coordinator's name, as the audit log names what
/// they allow; a `ClusterRole` is bound in [`NAMESPACE`].
fn list_rights() -> BTreeSet<String> {
    let strings = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    let mut rights = BTreeSet::new();
    let roles = apply::parse_manifest(RIGHTS).unwrap();
    for role in roles.iter().filter(|role| role.name_any() == "baremetal-coordinator") {
        let namespace = role.namespace().unwrap_or_else(|| NAMESPACE.to_owned());
        for rule in role.data["rules"].as_array().into_iter().flatten() {
            for group in strings(&rule["apiGroups"]) {
                for resource in strings(&rule["resources"]) {
                    let verbs = strings(&rule["verbs"]);
                    rights.extend(verbs.iter().map(|verb| format!("{namespace} {verb} {group}/{resource}")));
                }
            }
        }
    }
    rights
}

async fn patch<K>(setup: &Setup, name: &str, patch: Value) -> anyhow::Result<()>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(setup.environment.management.admin.clone(), NAMESPACE);
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// What operators may ask for. The second token is a repetition of its Event.
async fn ask_for_rebuilds(setup: &Setup) -> anyhow::Result<()> {
    let registrations: Api<MachineRegistration> =
        Api::namespaced(setup.environment.management.admin.clone(), NAMESPACE);
    for _ in 0..2 {
        let rotate = json!({ "metadata": { "annotations": { annotation::ROTATE_TOKEN: "" } } });
        patch::<MachineRegistration>(setup, "lab", rotate).await?;
        let is_done = |registration: &MachineRegistration| {
            !registration.annotations().contains_key(annotation::ROTATE_TOKEN)
        };
        until(&registrations, "lab", DEADLINE, is_done).await?;
    }
    patch::<SeedImage>(setup, "lab", json!({ "spec": { "retriggerBuild": true } })).await
}

/// A pool holds the host, and vanishes: the next one has to know that it is gone.
async fn lose_pool(setup: &Setup, host: &str) -> anyhow::Result<()> {
    let management = &setup.environment.management;
    let pool = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
        "kind": "MachineInventoryPool",
        "metadata": { "name": "former", "namespace": NAMESPACE },
        "spec": { "clusterName": "lab", "machineInventories": [{ "name": host }] },
    });
    management.apply(&pool.to_string()).await?;
    let inventories: Api<MachineInventory> = Api::namespaced(management.admin.clone(), NAMESPACE);
    let is_held = |inventory: &MachineInventory| {
        inventory.annotations().get(annotation::POOL).is_some_and(|pool| pool == "former")
    };
    until(&inventories, host, DEADLINE, is_held).await?;
    take_out(setup, "machineinventorypools", "former").await
}

async fn take_out(setup: &Setup, plural: &str, name: &str) -> anyhow::Result<()> {
    let key = Key::new(&format!("infrastructure.cluster.x-k8s.io/{plural}"), NAMESPACE, name);
    let missing = setup.environment.management.control_plane.take_out(&[key]).await?;
    ensure!(missing.is_empty(), "{plural} {name} was not there");
    Ok(())
}

async fn use_rights(setup: &Setup) -> anyhow::Result<()> {
    let mut host = Host::Simulated(Simulated::new(setup.environment.workload.clone(), 1)?);
    let mut lifecycle = Lifecycle::new(&setup.environment, &mut host, setup.progress.clone());
    let iso = lifecycle.create_seed(&setup.base).await?;
    let inventory = lifecycle.register(&iso).await?;
    setup.progress.step("tokens and ISO are made again, and a pool vanishes");
    ask_for_rebuilds(setup).await?;
    lose_pool(setup, &inventory.name_any()).await?;
    lifecycle.apply_cluster(&[inventory.name_any()], 1).await?;
    lifecycle.await_node(&inventory, 0).await?;
    setup.progress.step("the machine of a host vanishes");
    let machine = lifecycle.await_machine().await?;
    take_out(setup, "baremetalmachines", &machine.name_any()).await?;
    await_rights(setup).await?;
    check_events(setup).await?;
    check_metrics(setup).await
}

/// The metrics of all replicas.
async fn read_metrics(setup: &Setup) -> anyhow::Result<String> {
    let mut text = String::new();
    for replica in &setup.environment.management.replicas {
        text += &replica.metrics().await?;
    }
    Ok(text)
}

fn sum_series(text: &str, series: &str) -> f64 {
    let name = format!("baremetal_coordinator_{series} ");
    text.lines().filter_map(|line| line.strip_prefix(&name)?.parse::<f64>().ok()).sum()
}

/// The replicas together export every metric that a lifecycle changes.
async fn check_metrics(setup: &Setup) -> anyhow::Result<()> {
    setup.progress.step("the metrics tell of the lifecycle");
    let deadline = Instant::now() + DEADLINE;
    // A busy machine may change the leader: none leads for a moment.
    let text = loop {
        let text = read_metrics(setup).await?;
        if (sum_series(&text, "leader") - 1.0).abs() < f64::EPSILON {
            break text;
        }
        ensure!(Instant::now() < deadline, "one replica leads:\n{text}");
        sleep(POLL_INTERVAL).await;
    };
    for series in [
        "sessions",
        "plans_total{kind=\"reprovision\",result=\"applied\",reason=\"\"}",
        "step_duration_seconds_count{step=\"write-seed\",result=\"done\"}",
        "reconcile_duration_seconds_count{kind=\"BaremetalMachine\",result=\"done\"}",
        "api_requests_total{verb=\"patch\",resource=\"machineinventories/status\",code=\"200\"}",
        "api_requests_total{verb=\"create\",resource=\"events\",code=\"201\"}",
        "authority_expiry_timestamp_seconds",
    ] {
        ensure!(sum_series(&text, series) > 0.0, "{series} is not counted:\n{text}");
    }
    ensure!(text.contains("_hosts{state="), "no host is counted:\n{text}");
    ensure!(text.contains("_queue_depth{kind=\"MachineInventory\"}"), "no queue is shown:\n{text}");
    Ok(())
}

/// The Events as kubectl sorts them: the newest last, a repetition at its last time.
async fn check_events(setup: &Setup) -> anyhow::Result<()> {
    setup.progress.step("kubectl sorts the Events by their last time");
    let environment = &setup.environment;
    let output = Command::new(environment.parts.path(Part::Kubectl)?)
        .arg("--kubeconfig")
        .arg(environment.management.control_plane.admin_kubeconfig())
        .args(["--namespace", NAMESPACE, "get", "events", "--sort-by=.lastTimestamp", "--output=json"])
        .output()
        .await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout)?;
    let items = list["items"].as_array().context("no list")?;
    let ours: Vec<_> =
        items.iter().filter(|event| event["reportingComponent"] == "baremetal-coordinator").collect();
    let times: Vec<_> = ours.iter().filter_map(|event| event["lastTimestamp"].as_str()).collect();
    ensure!(times.len() == ours.len() && times.is_sorted(), "not by their last time: {ours:#?}");
    let position = |reason: &str| {
        ours.iter().position(|event| event["reason"] == reason).with_context(|| format!("no {reason}"))
    };
    ensure!(position("TokenRotated")? < position("Provisioned")?, "a wrong order: {ours:#?}");
    // Each replica counts its own.
    let rotations = ours.iter().filter(|event| event["reason"] == "TokenRotated");
    let count: u64 = rotations.filter_map(|event| event["count"].as_u64()).sum();
    ensure!(count == 2, "the repetition is not counted: {ours:#?}");
    Ok(())
}

/// Every rule is used, and every request has a rule.
async fn await_rights(setup: &Setup) -> anyhow::Result<()> {
    let audit = setup.environment.management.control_plane.audit();
    let (rights, deadline) = (list_rights(), Instant::now() + DEADLINE);
    ensure!(rights.iter().any(|right| right.starts_with(OWN)) && rights.len() > 40, "{rights:?}");
    loop {
        let seen = audit.rights(USER, Mark::default())?;
        ensure!(seen.forbidden.is_empty(), "rules are missing: {:?}", seen.forbidden);
        let beyond: Vec<_> = seen.used.difference(&rights).collect();
        ensure!(beyond.is_empty(), "requests that no rule of the manifest names: {beyond:?}");
        let unused: Vec<_> = rights.difference(&seen.used).collect();
        if unused.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "rules that no request uses: {unused:?}");
        sleep(POLL_INTERVAL).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limited_coordinator_uses_each_of_its_rights() {
    let setup = Setup::start_limited(&[NAMESPACE]).await;
    setup.check(use_rights(&setup).await);
}
