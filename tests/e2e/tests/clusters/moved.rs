//! A fleet is moved to another management cluster and back, by the real
//! `clusterctl` and the commands of the document.

use std::collections::BTreeMap;

use anyhow::ensure;
use contract::documents::{MOVE, Reader};
use control_plane::{Clusterctl, Part, Shell};
use coordinator_api::names::registration_secret;
use e2e::backup::Backup;
use e2e::environment::{Environment, Management};
use e2e::fleet::Fleet;
use e2e::history::History;
use e2e::lifecycle::NAMESPACE;
use e2e::provider;
use e2e::replicas::Replica;
use e2e::requests::retry;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use crate::common::{Setup, run_section};
use crate::restored::{check_history, check_survived, start_fleet};

/// Nothing is moved between clusters where the provider is not known.
async fn install(environment: &Environment, management: &Management) -> anyhow::Result<Clusterctl> {
    let core = ["--bootstrap", "-", "--control-plane", "-"];
    provider::install(environment, management, &provider::release()?, &core).await
}

/// Runs the commands of the document.
async fn run_move(
    environment: &Environment,
    from: &Management,
    to: &Management,
    clusterctl: &Clusterctl,
) -> anyhow::Result<()> {
    let shell = Shell::new(from.control_plane.admin_kubeconfig())?;
    shell.add_program("kubectl", &environment.parts.path(Part::Kubectl)?)?;
    shell.add_script("clusterctl", &clusterctl.script())?;
    let values = [
        ("NAMESPACE", NAMESPACE.to_owned()),
        ("NAME", "lab".to_owned()),
        ("JOIN", "lab-join".to_owned()),
        ("FILE", to.control_plane.admin_kubeconfig().display().to_string()),
    ];
    let mut reader = Reader::of(MOVE);
    run_section(&shell, &mut reader, ("docs/operations.md", "`clusterctl move`"), &values).await?;
    reader.finish()?;
    let left = Backup::take(&from.admin, NAMESPACE, &e2e::backup::TREE).await?;
    ensure!(left.names().is_empty(), "{:?} were not moved", left.names());
    Ok(())
}

/// All that holds once the hosts are with the coordinator of another cluster.
async fn check_moved(management: &Management, history: &History, fleet: &Fleet) -> anyhow::Result<()> {
    check_survived(&management.admin, history, fleet).await?;
    let sessions = fleet.await_sessions(&management.admin).await?;
    let names: Vec<_> = management.replicas.iter().map(|replica| replica.name().to_owned()).collect();
    let is_there = |replica: &str| names.iter().any(|name| replica.starts_with(name.as_str()));
    ensure!(sessions.iter().all(|session| is_there(&session.replica)), "{sessions:?} on {names:?}");
    Ok(())
}

async fn move_there_and_back(setup: &Setup, fleet: &Fleet) -> anyhow::Result<()> {
    let environment = &setup.environment;
    let first = &environment.management;
    setup.progress.step("another management cluster");
    let mut other = environment.start_management("other").await?;
    let (there, back) = (install(environment, first).await?, install(environment, &other).await?);
    let tokens = list_tokens(&first.admin).await?;
    ensure!(!tokens.is_empty(), "there is no token");

    setup.progress.step("clusterctl move");
    let (before, after) = (History::watch(&first.admin).await, History::watch(&other.admin).await);
    run_move(environment, first, &other, &there).await?;
    environment.start_coordinator(&mut other).await?;
    environment.forwarder.set_targets(other.addresses());
    check_moved(&other, &after, fleet).await?;
    check_history(&before, fleet)?;
    assert_eq!(list_tokens(&other.admin).await?, tokens, "ISOs that were made before are valid");

    setup.progress.step("clusterctl move, back");
    first.replicas.iter().try_for_each(Replica::kill)?;
    let returned = History::watch(&first.admin).await;
    run_move(environment, &other, first, &back).await?;
    first.replicas.iter().try_for_each(Replica::restart)?;
    first.coordinator_ready().await?;
    environment.forwarder.set_targets(first.addresses());
    check_moved(first, &returned, fleet).await?;
    check_history(&after, fleet)
}

/// The registration tokens, by the names of their Secrets.
async fn list_tokens(client: &Client) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let tokens = ListParams::default().fields(&format!("type={}", registration_secret::TYPE));
    let found = retry("list tokens", async || secrets.list(&tokens).await).await?.items;
    let token = |secret: Secret| {
        let name = secret.name_any();
        let value = secret.data.and_then(|mut data| data.remove(registration_secret::TOKEN));
        (name, value.unwrap_or_default().0)
    };
    Ok(found.into_iter().map(token).collect())
}

// Fault: `clusterctl move` to a second management cluster, and back.
// Shown: no host is visited; machines end Running with their providerID.
#[tokio::test(flavor = "multi_thread")]
async fn ownership_survives_move_there_and_back() {
    let setup = Setup::start().await;
    let fleet = start_fleet(&setup).await;
    setup.check(move_there_and_back(&setup, &fleet).await);
}
