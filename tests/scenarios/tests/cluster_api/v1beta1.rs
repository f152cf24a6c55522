//! The rules that differ at v1beta1, where Cluster and Machine are served at this version alone.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::machine::Phase;
use scenarios::World;
use serde_json::json;

use crate::contract::{DOMAIN, baremetal_cluster, ready};

async fn with_hosts(names: &[&str]) -> World {
    let mut world = World::with_cluster_api("v1beta1").await;
    world.create_prerequisites(names).await;
    world
}

#[tokio::test(start_paused = true)]
async fn machine_runs_and_gives_its_host_back() {
    let world = with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    let machine = world.machine("m-1").unwrap();
    assert_eq!(machine.spec.provider_id.as_deref(), Some("baremetal:///host-1"));
    let status = machine.status.unwrap();
    assert!(status.ready && status.initialization.unwrap().provisioned == Some(true));
    assert_eq!(ready(&world), ("True".to_owned(), "Running".to_owned()));
    assert_eq!(baremetal_cluster(&world, "c1")["status"]["ready"], true);
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    assert_eq!(world.plans().len(), 2);
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn infra_machine_waits_for_infrastructure_ready() {
    let world = with_hosts(&["host-1"]).await;
    world.set_infrastructure_provisioned("c1", false);
    world.apply_machine("m-1").await;
    let action = "see the conditions of its infrastructure object";
    world.wait_for_reason("m-1", Type::Ready, Reason::ClusterInfrastructureWaiting, action).await;
    world.wait_idle().await;
    assert!(world.inventory("host-1").unwrap().claim().is_none());
    world.set_infrastructure_provisioned("c1", true);
    world.wait_running("m-1").await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn infra_machine_waits_for_bootstrap_data() {
    let world = with_hosts(&["host-1"]).await;
    world.apply_bare_machine("m-1", "pool", "v1").await;
    world.wait_for_reason("m-1", Type::BootstrapReady, Reason::BootstrapWaiting, "create it").await;
    world.apply_bootstrap("m-1", &scenarios::bootstrap_data()).await;
    world.wait_running("m-1").await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn infra_cluster_failure_domains_are_a_map() {
    let world = with_hosts(&["host-1", "host-2"]).await;
    for (host, domain) in [("host-1", "d1"), ("host-2", "d2")] {
        let labels = json!({ "metadata": { "labels": { DOMAIN: domain } } });
        world.patch("MachineInventory", host, labels).await;
    }
    let domains = json!({ "d1": { "controlPlane": true }, "d2": { "controlPlane": true } });
    world
        .wait_until("two domains", |world| {
            baremetal_cluster(world, "c1")["status"]["failureDomains"] == domains
        })
        .await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn pausing_of_cluster_holds_its_machines() {
    let world = with_hosts(&["host-1"]).await;
    world.patch("Cluster", "c1", json!({ "spec": { "paused": true } })).await;
    world.apply_machine("m-1").await;
    let is_paused =
        |world: &World| world.machine_condition("m-1", Type::Paused).is_some_and(|c| c.status == "True");
    world.wait_until("it is paused", is_paused).await;
    world.wait_idle().await;
    assert!(world.inventory("host-1").unwrap().claim().is_none());
    world.patch("Cluster", "c1", json!({ "spec": { "paused": false } })).await;
    world.wait_until("m-1 runs", |world| world.phase("m-1") == Some(Phase::Running)).await;
    world.check_invariants().await;
}
