//! What the coordinator says when it turns a host away, as the host's console
//! shows it; and what a cluster shows when an API server turns the coordinator away.

use agent::client::error::CallError;
use agent::state::duty;
use coordinator::rpc::RpcError;
use coordinator::workload::HOLDER_LEASE;
use coordinator_api::cluster::BaremetalCluster;
use coordinator_api::conditions::{Reason, Type, find_condition};
use fake_apiserver::{Matching, Refusal as Rejection, Verb};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use proto::refusal::Refusal;
use proto::v1alpha1::LoadBalancerState;
use scenarios::{NAMESPACE, World};
use serde_json::json;
use tonic::Status;

const CLUSTERS: &str = "baremetalclusters.infrastructure.cluster.x-k8s.io";
const INVENTORIES: &str = "machineinventories.elemental.cattle.io";

#[test]
fn refusal_is_one_line_without_repetition() {
    for &refusal in Refusal::ALL {
        let status = Status::from(RpcError::from_refusal(refusal, "what it was"));
        let shown = CallError::from(status).to_string();
        let want = format!("refused ({}): what it was; next: {}", refusal.code(), refusal.next_action());
        assert_eq!(shown, want);
    }
}

#[test]
fn internal_error_names_a_next_action() {
    let shown = CallError::from(Status::from(RpcError::ShuttingDown)).to_string();
    assert!(shown.contains("shutting down") && shown.contains("; next: none at first"), "{shown}");
}

fn cluster_condition(world: &World, kind: Type) -> Option<Condition> {
    let cluster: BaremetalCluster = serde_json::from_value(world.get_object(CLUSTERS, "c1")?).unwrap();
    find_condition(&cluster.status?.conditions, kind).cloned()
}

/// Waits for the reason of the cluster's `Ready`; the answer is its message.
async fn wait_ready(world: &World, reason: Reason) -> String {
    let found = |world: &World| {
        let ready = cluster_condition(world, Type::Ready)?;
        (ready.reason == reason.as_str()).then_some(ready.message)
    };
    world.wait_until(reason.as_str(), |world| found(world).is_some()).await;
    found(world).unwrap()
}

/// A cluster whose endpoint is an address of its hosts, with a control-plane machine that runs.
async fn with_control_plane() -> World {
    let world = World::with_internal_endpoint().await;
    world.apply_control_plane_machine("m-1").await;
    world.wait_running("m-1").await;
    world.wait_until("the host has its duty", |world| kept_generation(world) > 0).await;
    world.wait_idle().await;
    world
}

fn kept_generation(world: &World) -> u64 {
    duty::kept_generation(&world.host("host-1").disk())
}

/// As the unit of the duty does, which no simulated host runs.
fn hold_address(world: &World) {
    let root = world.host("host-1").disk();
    let (generation, interface) = (duty::kept_generation(&root), "eno1".to_owned());
    std::fs::create_dir_all(root.load_balancer()).unwrap();
    let state = LoadBalancerState { generation, interface, is_holder: true, ..Default::default() };
    duty::write_state(&root, &state);
    world.host("host-1").kill_agent();
}

#[tokio::test(start_paused = true)]
async fn cluster_shows_refused_duties_until_they_are_written() {
    let world = with_control_plane().await;
    let before = kept_generation(&world);
    let writes = Matching::any().user("coordinator").verb(Verb::Patch).resource("machineinventories");
    let refused = world.fake.faults().fail(writes.subresource("status"), usize::MAX, Rejection::Forbidden);
    // The host needs another duty, of a higher generation.
    world.fake.edit((INVENTORIES, NAMESPACE, "host-1"), |object| {
        object["status"]["host"].as_object_mut().unwrap().remove("loadBalancer");
    });
    let message = wait_ready(&world, Reason::ApiRequestFailed).await;
    assert!(refused.is_met() && message.contains("MachineInventory host-1"), "{message}");
    let action = "correct what the message names";
    world
        .expect_why("baremetalcluster/c1", Reason::ApiRequestFailed, "MachineInventory host-1", action)
        .await;
    assert_eq!(kept_generation(&world), before, "nothing was announced");
    world.fake.faults().clear();
    wait_ready(&world, Reason::EndpointKnown).await;
    world.wait_until("the host has a newer duty", |world| kept_generation(world) > before).await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn refused_duty_holds_up_no_other_host() {
    let mut world = with_control_plane().await;
    world.register_hosts(&["host-2"]).await;
    let members = json!([{ "name": "host-1" }, { "name": "host-2" }]);
    world.patch("MachineInventoryPool", "pool", json!({ "spec": { "machineInventories": members } })).await;
    let writes = Matching::any().user("coordinator").verb(Verb::Patch).resource("machineinventories");
    let refused = writes.name("host-1").subresource("status");
    let refused = world.fake.faults().fail(refused, usize::MAX, Rejection::Forbidden);
    // The first host needs another duty, and the second one its first.
    world.fake.edit((INVENTORIES, NAMESPACE, "host-1"), |object| {
        object["status"]["host"].as_object_mut().unwrap().remove("loadBalancer");
    });
    world.apply_control_plane_machine("m-2").await;
    world.wait_running("m-2").await;
    world
        .wait_until("the other host has its duty", |world| {
            duty::kept_generation(&world.host("host-2").disk()) > 0
        })
        .await;
    wait_ready(&world, Reason::ApiRequestFailed).await;
    assert!(refused.is_met() && cluster_condition(&world, Type::LoadBalancerReady).is_some());
    world.fake.faults().clear();
    wait_ready(&world, Reason::EndpointKnown).await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn refused_lease_of_the_holder_is_an_event() {
    let world = with_control_plane().await;
    let leases = Matching::any().resource("leases");
    let refused = world.workload.faults().fail(leases, usize::MAX, Rejection::Forbidden);
    hold_address(&world);
    world.apply_kubeconfig().await;
    world.set_control_plane_initialized("c1");
    world.wait_until("the Lease is refused", |_| refused.is_met()).await;
    world.wait_idle().await;
    world.expect_event("BaremetalCluster", "c1", "ApiRequestFailed", HOLDER_LEASE);
    // The Lease decides nothing, so that no condition shows it.
    let shown = |kind| cluster_condition(&world, kind).unwrap().reason;
    assert_eq!(shown(Type::LoadBalancerReady), Reason::AddressHeld.as_str());
    assert_eq!(shown(Type::EndpointReady), Reason::EndpointReachable.as_str());
    assert_eq!(shown(Type::Ready), Reason::EndpointKnown.as_str());
    world.workload.faults().clear();
    let holder = |world: &World| {
        let lease = world.workload.look("leases.coordination.k8s.io", "kube-system", HOLDER_LEASE);
        lease.is_some_and(|lease| lease["spec"]["holderIdentity"] == "host-1")
    };
    world.wait_until("the Lease names the holder", holder).await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn cluster_shows_that_its_kubeconfig_is_not_readable() {
    let world = World::new().await;
    let reads = Matching::any().user("coordinator").verb(Verb::Get).resource("secrets");
    let reads = reads.name("c1-kubeconfig");
    let refused = world.fake.faults().fail(reads, usize::MAX, Rejection::Forbidden);
    world.apply_cluster("c1").await;
    let message = wait_ready(&world, Reason::ApiRequestFailed).await;
    assert!(refused.is_met() && message.contains("c1-kubeconfig"), "{message}");
    let action = "correct what the message names";
    world.expect_why("baremetalcluster/c1", Reason::ApiRequestFailed, "c1-kubeconfig", action).await;
    world.fake.faults().clear();
    wait_ready(&world, Reason::EndpointKnown).await;
    assert_eq!(
        cluster_condition(&world, Type::EndpointReady).unwrap().reason,
        Reason::KubeconfigMissing.as_str()
    );
    world.check_invariants().await;
}
