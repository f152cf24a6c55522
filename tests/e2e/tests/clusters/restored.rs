//! Ownership survives: objects restored from a backup, imported from another
//! system, and the coordinator's own namespace restored. Judged by what the hosts
//! did and by what a watch of the inventories saw.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use contract::documents::{RESTORE, Reader};
use control_plane::{Part, Shell};
use coordinator_api::names::IMAGE_CATALOG;
use e2e::backup::{Backup, Kind, Owners, SECRETS, TREE};
use e2e::environment::Management;
use e2e::fleet::Fleet;
use e2e::history::{History, Observed};
use e2e::lifecycle::{NAMESPACE, cluster_api};
use e2e::replicas::{self, Replica};
use e2e::requests::retry;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::common::{Setup, run_section};

/// Orders in which objects are created again.
const ORDERS_WITHOUT_OWNERS: [u64; 2] = [11, 12];
const ORDERS_WITH_STALE_OWNERS: [u64; 3] = [21, 22, 23];
/// Hosts, and how many of them are nodes.
const FLEET: (u8, usize) = (3, 2);
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);
const CA: &str = "baremetal-coordinator-ca";
const OWN_KINDS: [Kind; 3] = [SECRETS, ("", "v1", "ConfigMap"), ("coordination.k8s.io", "v1", "Lease")];

/// Kinds of the tree, and Secrets.
fn everything() -> Vec<Kind> {
    TREE.into_iter().chain([SECRETS]).collect()
}

pub(crate) async fn start_fleet(setup: &Setup) -> Fleet {
    setup.check(Fleet::start(&setup.environment, &setup.progress, &setup.base, FLEET).await)
}

/// Takes everything out of etcd and creates `backup` instead.
async fn replace_all(management: &Management, backup: &Backup, owners: Owners) -> anyhow::Result<()> {
    let present = Backup::take(&management.admin, NAMESPACE, &everything()).await?;
    management.control_plane.take_out(&present.keys()).await?;
    let existing = backup.restore(&management.admin, owners).await?;
    if !existing.is_empty() {
        println!("recreated by the coordinator before they were restored: {existing:?}");
    }
    Ok(())
}

/// Every inventory vanished and came back as another object.
fn check_replaced(history: &History, fleet: &Fleet) -> anyhow::Result<()> {
    let observed = history.observed();
    for expected in fleet.expected() {
        let states: Vec<&Observed> = observed.iter().filter(|seen| seen.name == expected.name).collect();
        let vanished = states.iter().position(|seen| seen.is_deleted);
        let vanished = vanished.with_context(|| format!("{} never vanished", expected.name))?;
        let old = &states[vanished].uid;
        ensure!(states[vanished..].iter().any(|seen| seen.uid != *old), "{} did not return", expected.name);
    }
    Ok(())
}

pub(crate) fn check_history(history: &History, fleet: &Fleet) -> anyhow::Result<()> {
    let violations = history.violations(&fleet.expected());
    ensure!(violations.is_empty(), "ownership was lost:\n{}", violations.join("\n"));
    Ok(())
}

/// All that holds once hosts and machines are as before.
pub(crate) async fn check_survived(client: &Client, history: &History, fleet: &Fleet) -> anyhow::Result<()> {
    fleet.await_sessions(client).await?;
    fleet.await_running(client).await?;
    check_history(history, fleet)?;
    fleet.check_untouched()
}

async fn restore_in_orders(setup: &Setup, fleet: &Fleet) -> anyhow::Result<()> {
    let management = &setup.environment.management;
    let client = &management.admin;
    let backup = Backup::take(client, NAMESPACE, &everything()).await?;
    let history = History::watch(client).await;
    let orders = ORDERS_WITH_STALE_OWNERS
        .map(|seed| (seed, Owners::Stale))
        .into_iter()
        .chain(ORDERS_WITHOUT_OWNERS.map(|seed| (seed, Owners::Dropped)));
    for (seed, owners) in orders {
        let shuffled = backup.clone().shuffled(seed);
        setup.progress.step(&format!("restore with owner references {owners:?}, order {seed}"));
        println!("order {seed}: {:?}", shuffled.names());
        history.clear();
        management.cluster_api.stop_reconciling().await?;
        replace_all(management, &shuffled, owners).await?;
        if owners == Owners::Stale {
            fleet.await_held(client).await?;
            fleet.await_sessions(client).await?;
            check_history(&history, fleet)?;
            fleet.check_untouched()?;
        } else {
            management.cluster_api.restart().await?;
            check_survived(client, &history, fleet).await?;
        }
        check_replaced(&history, fleet)?;
    }
    Ok(())
}

// Fault: etcd is restored beneath the API server, in several orders, with the real garbage
// collector.
// Shown: no host is released, cleaned or given away.
#[tokio::test(flavor = "multi_thread")]
async fn ownership_survives_restore_in_any_order() {
    let setup = Setup::start().await;
    let fleet = start_fleet(&setup).await;
    setup.check(restore_in_orders(&setup, &fleet).await);
}

/// The coordinator is stopped, as the document says, and Cluster API.
async fn restore_by_commands(setup: &Setup, fleet: &Fleet) -> anyhow::Result<()> {
    let management = &setup.environment.management;
    let client = &management.admin;
    let shell = Shell::new(management.control_plane.admin_kubeconfig())?;
    shell.add_program("kubectl", &setup.environment.parts.path(Part::Kubectl)?)?;
    let mut reader = Reader::of(RESTORE);
    let namespace = [("NAMESPACE", NAMESPACE.to_owned())];
    setup.progress.step("docs/operations.md: backup");
    run_section(&shell, &mut reader, ("docs/operations.md", "Backup"), &namespace).await?;
    let history = History::watch(client).await;
    setup.progress.step("all objects vanish");
    management.cluster_api.stop_reconciling().await?;
    management.replicas.iter().try_for_each(Replica::kill)?;
    let own = Backup::take(client, replicas::NAMESPACE, &OWN_KINDS).await?.filtered(|kind, object| {
        object.name_any() == CA || (kind == "ConfigMap" && object.name_any() == IMAGE_CATALOG)
    });
    let present = Backup::take(client, NAMESPACE, &everything()).await?;
    management.control_plane.take_out(&[present.keys(), own.keys()].concat()).await?;
    setup.progress.step("docs/operations.md: restore by kubectl");
    run_section(&shell, &mut reader, ("docs/operations.md", "Restore by kubectl"), &[]).await?;
    reader.finish()?;
    management.replicas.iter().try_for_each(Replica::restart)?;
    management.coordinator_ready().await?;
    management.cluster_api.restart().await?;
    check_survived(client, &history, fleet).await?;
    check_replaced(&history, fleet)
}

// Fault: everything is lost, and restored from the files of the documented backup.
// Shown: no host is released, cleaned or given away.
#[tokio::test(flavor = "multi_thread")]
async fn documented_backup_is_restored() {
    let setup = Setup::start().await;
    let fleet = start_fleet(&setup).await;
    setup.check(restore_by_commands(&setup, &fleet).await);
}

/// What an inventory of the seeds' systems has of our annotations.
fn forget_our_annotations(object: &mut DynamicObject) {
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.retain(|key, _| !key.starts_with("baremetal.cluster.io/"));
    object.metadata.finalizers = None;
}

async fn import(setup: &Setup, fleet: &Fleet) -> anyhow::Result<()> {
    let management = &setup.environment.management;
    let client = &management.admin;
    let mut backup = Backup::take(client, NAMESPACE, &everything()).await?;
    backup.edit("MachineInventory", forget_our_annotations);
    backup.edit("BaremetalMachine", forget_our_annotations);
    backup.edit("Cluster", |cluster| cluster.data["spec"]["paused"] = json!(true));
    let history = History::watch(client).await;
    setup.progress.step("inventories with the owner annotations of other systems, cluster paused");
    replace_all(management, &backup, Owners::Corrected).await?;
    backup.restore_status(client, "BaremetalMachine").await?;
    fleet.await_sessions(client).await?;
    check_replaced(&history, fleet)?;
    check_history(&history, fleet)?;
    fleet.check_untouched()?;
    setup.progress.step("the cluster is unpaused");
    set_paused(client, false).await?;
    check_survived(client, &history, fleet).await
}

async fn set_paused(client: &Client, is_paused: bool) -> anyhow::Result<()> {
    let clusters = cluster_api(client, "Cluster");
    let patch = Patch::Merge(json!({ "spec": { "paused": is_paused } }));
    retry("pause the Cluster", async || clusters.patch("lab", &PatchParams::default(), &patch).await).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn imported_inventories_keep_their_machines() {
    let setup = Setup::start().await;
    let fleet = start_fleet(&setup).await;
    setup.check(import(&setup, &fleet).await);
}

/// UIDs of the Secret with the CA.
async fn list_ca(client: &Client) -> anyhow::Result<Vec<Secret>> {
    let api: Api<Secret> = Api::namespaced(client.clone(), replicas::NAMESPACE);
    let by_name = ListParams::default().fields(&format!("metadata.name={CA}"));
    Ok(retry("list the CA", async || api.list(&by_name).await).await?.items)
}

/// A replica that starts without the CA names it in its log and does not serve.
async fn start_without_ca(management: &Management, number: usize) -> anyhow::Result<()> {
    let replica = &management.replicas[number];
    let before = replica.log().matches(CA).count();
    replica.kill()?;
    replica.restart()?;
    let deadline = Instant::now() + DEADLINE;
    while replica.log().matches(CA).count() == before {
        ensure!(!replica.is_ready().await, "{} serves without its CA", replica.name());
        ensure!(Instant::now() < deadline, "{} does not say that its CA is missing", replica.name());
        sleep(Duration::from_millis(100)).await;
    }
    ensure!(list_ca(&management.admin).await?.is_empty(), "{} created a CA", replica.name());
    Ok(())
}

async fn restore_own_namespace(setup: &Setup, fleet: &Fleet) -> anyhow::Result<()> {
    let management = &setup.environment.management;
    let client = &management.admin;
    let backup = Backup::take(client, replicas::NAMESPACE, &OWN_KINDS)
        .await?
        .filtered(|kind, object| kind != "ConfigMap" || object.name_any() == IMAGE_CATALOG);
    ensure!(backup.names().iter().any(|name| name.ends_with(CA)), "{:?}", backup.names());
    let history = History::watch(client).await;
    setup.progress.step("CA, Leases and catalog vanish; both replicas are killed and started");
    management.control_plane.take_out(&backup.keys()).await?;
    for number in 0..management.replicas.len() {
        start_without_ca(management, number).await?;
    }
    setup.progress.step("the namespace is restored");
    let existing = backup.restore(client, Owners::Dropped).await?;
    ensure!(!existing.iter().any(|name| name.ends_with(CA)), "a new CA was created");
    for replica in &management.replicas {
        if !replica.is_running() {
            replica.restart()?;
        }
        replica.ready().await?;
    }
    check_survived(client, &history, fleet).await
}

// Fault: the namespace of the coordinator is restored.
// Shown: no host is visited.
#[tokio::test(flavor = "multi_thread")]
async fn ownership_survives_restore_of_own_namespace() {
    let setup = Setup::start().await;
    let fleet = start_fleet(&setup).await;
    setup.check(restore_own_namespace(&setup, &fleet).await);
}
