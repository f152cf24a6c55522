//! The rules that differ at v1beta1, where Cluster and Machine are served at this version alone.

use coordinator_api::conditions::Reason;
use fake_apiserver::Outage;
use scenarios::World;
use serde_json::json;

use super::contract::{DOMAIN, at_version, baremetal_cluster, condition, ready};

#[tokio::test(start_paused = true)]
async fn machine_runs_and_gives_its_host_back() {
    let world = at_version("v1beta1", &["host-1"]).await;
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
async fn infra_cluster_failure_domains_are_a_map() {
    let world = at_version("v1beta1", &["host-1", "host-2"]).await;
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
async fn infra_cluster_follows_control_plane_ready() {
    let world = at_version("v1beta1", &["host-1"]).await;
    let is_ready_because = |world: &World, reason: Reason| {
        condition(&baremetal_cluster(world, "c1"), "Ready")["reason"] == reason.as_str()
    };
    world.wait_until("it is ready", |world| is_ready_because(world, Reason::EndpointKnown)).await;
    world.workload.faults().outage(Outage::Refused);
    world.apply_kubeconfig().await;
    // Nothing has to answer before the first control plane serves.
    world.wait_idle().await;
    assert!(is_ready_because(&world, Reason::EndpointKnown));
    world.set_control_plane_initialized("c1");
    let is_down = |world: &World| is_ready_because(world, Reason::WorkloadUnreachable);
    world.wait_until("it is down", is_down).await;
    world.check_invariants().await;
}
