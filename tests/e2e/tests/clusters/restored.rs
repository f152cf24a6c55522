//! Ownership survives: objects restored from a backup, imported from another
//! system, moved to another management cluster, and the coordinator's own
//! namespace restored. Judged by what the hosts did and by what a watch of the
//! inventories saw.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use coordinator_api::names::{annotation, registration_secret};
use e2e::backup::{Backup, Kind, Owners, SECRETS, TREE};
use e2e::environment::Management;
use e2e::fleet::Fleet;
use e2e::history::{History, Observed};
use e2e::lifecycle::{NAMESPACE, cluster_api};
use e2e::replicas;
use e2e::requests::retry;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::common::Setup;

/// Orders in which objects are created again.
const ORDERS_WITHOUT_OWNERS: [u64; 2] = [11, 12];
const ORDERS_WITH_STALE_OWNERS: [u64; 3] = [21, 22, 23];
/// Hosts, and how many of them are nodes.
const FLEET: (u8, usize) = (3, 2);
const DEADLINE: Duration = Duration::from_mins(2);
const CA: &str = "baremetal-coordinator-ca";
const OWN_KINDS: [Kind; 3] = [SECRETS, ("", "v1", "ConfigMap"), ("coordination.k8s.io", "v1", "Lease")];

/// Kinds of the tree, and Secrets.
fn everything() -> Vec<Kind> {
    TREE.into_iter().chain([SECRETS]).collect()
}

async fn start_fleet(setup: &Setup) -> Fleet {
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

fn check_history(history: &History, fleet: &Fleet) -> anyhow::Result<()> {
    let violations = history.violations(&fleet.expected());
    ensure!(violations.is_empty(), "ownership was lost:\n{}", violations.join("\n"));
    Ok(())
}

/// All that holds once hosts and machines are as before.
async fn check_survived(client: &Client, history: &History, fleet: &Fleet) -> anyhow::Result<()> {
    fleet.await_sessions(client).await?;
    fleet.await_running(client).await?;
    check_history(history, fleet)?;
    fleet.check_untouched()
}

async fn restore_in_orders(setup: &Setup, fleet: &Fleet) -> anyhow::Result<()> {
    let management = &setup.environment.management;
    let client = &management.admin;
    let backup = Backup::take(client, NAMESPACE, &everything()).await?;
    let history = History::watch(client);
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
    let history = History::watch(client);
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

/// `clusterctl move` waits until no object has its annotation.
async fn await_no_block(client: &Client) -> anyhow::Result<()> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let tree = Backup::take(client, NAMESPACE, &TREE).await?;
        let blocking = tree.filtered(|_, object| object.annotations().contains_key(annotation::BLOCK_MOVE));
        if blocking.names().is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{:?} block the move", blocking.names());
        sleep(Duration::from_millis(200)).await;
    }
}

/// The Secrets that an operator copies before a move: the CA, the tokens, and
/// bootstrap data that no provider owns.
async fn copy_secrets(from: &Client, to: &Client) -> anyhow::Result<()> {
    let own = Backup::take(from, replicas::NAMESPACE, &OWN_KINDS).await?;
    let own = own.filtered(|kind, object| {
        (kind == "Secret" && object.name_any() == CA)
            || (kind == "ConfigMap" && object.name_any() == coordinator_api::names::IMAGE_CATALOG)
    });
    let tokens = Backup::take(from, NAMESPACE, &[SECRETS]).await?.filtered(|_, secret| {
        secret.name_any().ends_with(registration_secret::SUFFIX) || secret.name_any() == "lab-join"
    });
    for secrets in [own, tokens] {
        let existing = secrets.restore(to, Owners::Dropped).await?;
        ensure!(existing.is_empty(), "{existing:?} were there before the move");
    }
    Ok(())
}

async fn move_tree(setup: &Setup, fleet: &Fleet) -> anyhow::Result<()> {
    let environment = &setup.environment;
    let first = &environment.management.admin;
    setup.progress.step("another management cluster, with a copy of the CA and the tokens");
    let mut other = environment.start_management("other").await?;
    copy_secrets(first, &other.admin).await?;
    environment.start_coordinator(&mut other).await?;
    setup.progress.step("the tree is paused and created in the other cluster");
    set_paused(first, true).await?;
    await_no_block(first).await?;
    let tree = Backup::take(first, NAMESPACE, &everything()).await?.filtered(|kind, object| {
        // Secrets that belong to the Cluster by name; nothing else owns one.
        kind != "Secret" || object.name_any() == "lab-kubeconfig"
    });
    let (before, after) = (History::watch(first), History::watch(&other.admin));
    tree.restore(&other.admin, Owners::Corrected).await?;
    environment.forwarder.set_targets(other.addresses());
    setup.progress.step("the tree is deleted in the first cluster, its finalizers do not act");
    tree.delete_without_finalizers(first).await?;
    fleet.await_sessions(&other.admin).await?;
    check_history(&before, fleet)?;
    fleet.check_untouched()?;
    setup.progress.step("the cluster is unpaused in the other cluster");
    set_paused(&other.admin, false).await?;
    check_survived(&other.admin, &after, fleet).await?;
    let sessions = fleet.await_sessions(&other.admin).await?;
    let names: Vec<_> = other.replicas.iter().map(|replica| replica.name().to_owned()).collect();
    let is_there = |replica: &str| names.iter().any(|name| replica.starts_with(name.as_str()));
    ensure!(sessions.iter().all(|session| is_there(&session.replica)), "{sessions:?} on {names:?}");
    check_history(&before, fleet)
}

// Fault: `clusterctl move` to a second management cluster.
// Shown: no host is visited; machines end Running with their providerID.
#[tokio::test(flavor = "multi_thread")]
async fn ownership_survives_move_to_other_cluster() {
    let setup = Setup::start().await;
    let fleet = start_fleet(&setup).await;
    setup.check(move_tree(&setup, &fleet).await);
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
    let backup = Backup::take(client, replicas::NAMESPACE, &OWN_KINDS).await?.filtered(|kind, object| {
        kind != "ConfigMap" || object.name_any() == coordinator_api::names::IMAGE_CATALOG
    });
    ensure!(backup.names().iter().any(|name| name.ends_with(CA)), "{:?}", backup.names());
    let history = History::watch(client);
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
