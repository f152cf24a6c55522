//! The Node of a machine: found, given its providerID, removed with its machine.

use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use fake_apiserver::Outage;
use scenarios::World;
use serde_json::json;

const ID: &str = "baremetal:///host-1";
const UUID: &str = "metal3.io/uuid";

/// A machine runs, and Cluster API does not find its Node.
async fn running() -> World {
    let world = World::with_hosts(&["host-1"]).await;
    world.stop_finding_nodes();
    world.apply_kubeconfig().await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world
}

fn uuid(world: &World) -> String {
    world.inventory("host-1").unwrap().metadata.uid.unwrap()
}

fn linked(world: &World) -> Option<(String, String)> {
    let found = world.machine_condition("m-1", Type::NodeLinked)?;
    Some((found.status, found.reason))
}

async fn wait_for_link(world: &World, status: &str, reason: Reason) {
    let want = Some((status.to_owned(), reason.as_str().to_owned()));
    world.wait_until(&format!("NodeLinked={status} {reason:?}"), |world| linked(world) == want).await;
}

#[tokio::test(start_paused = true)]
async fn node_found_by_cluster_api_costs_no_request() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_kubeconfig().await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    wait_for_link(&world, "True", Reason::NodeFound).await;
    world.wait_idle().await;
    let asked = world.workload.journal().since(0);
    assert!(asked.iter().all(|entry| entry.request.resource != "nodes"), "{asked:?}");
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn node_without_provider_id_gets_it() {
    let world = running().await;
    let host_uuid = uuid(&world);
    world.join_node("other", None, "uid-of-another").await;
    world.join_node("n-1", None, &host_uuid).await;
    let before = world.node("n-1").unwrap();
    wait_for_link(&world, "True", Reason::NodeFound).await;
    world.wait_idle().await;
    let note = format!("Node n-1 of Cluster c1 has the providerID {ID}");
    world.expect_event("BaremetalMachine", "m-1", "NodeLinked", &note);
    let after = world.node("n-1").unwrap();
    assert_eq!(after["spec"]["providerID"], ID);
    assert_eq!(after["metadata"]["labels"], before["metadata"]["labels"]);
    assert_eq!(after["spec"]["podCIDR"], before["spec"]["podCIDR"]);
    assert!(world.node("other").unwrap()["spec"]["providerID"].is_null());
    world.check_invariants().await;
}

// Fault: the Node of a machine never joins.
// Shown: condition of the machine: `NodeWaiting`, after fifteen minutes `NodeOverdue` and an Event.
#[tokio::test(start_paused = true)]
async fn node_that_never_joins_is_overdue() {
    let world = running().await;
    wait_for_link(&world, "False", Reason::NodeWaiting).await;
    world
        .expect_why(
            "baremetalmachine/m-1",
            Reason::NodeWaiting,
            "has not registered the Node yet",
            "after fifteen minutes",
        )
        .await;
    assert_eq!(world.machine_condition("m-1", Type::Ready).unwrap().status, "True");
    let action = "see cloud-init and the kubelet on the host's console";
    world.wait_for_reason("m-1", Type::NodeLinked, Reason::NodeOverdue, action).await;
    world
        .expect_why(
            "machine/m-1",
            Reason::NodeOverdue,
            "kubeadm or the kubelet failed",
            "look at cloud-init and the kubelet",
        )
        .await;
    world.expect_event("BaremetalMachine", "m-1", "NodeOverdue", action);
    let host_uuid = uuid(&world);
    world.join_node("n-1", Some(ID), &host_uuid).await;
    wait_for_link(&world, "True", Reason::NodeFound).await;
    assert_eq!(world.machine_condition("m-1", Type::Ready).unwrap().status, "True");
    world.check_invariants().await;
}

// Fault: two Nodes have the label of one host.
// Shown: condition of the machine: `NodeAmbiguous`; no Node is written.
#[tokio::test(start_paused = true)]
async fn two_nodes_with_one_label_are_an_error() {
    let world = running().await;
    let host_uuid = uuid(&world);
    world.join_node("n-1", None, &host_uuid).await;
    world.join_node("n-2", None, &host_uuid).await;
    world.wait_for_reason("m-1", Type::NodeLinked, Reason::NodeAmbiguous, UUID).await;
    world
        .expect_why(
            "machine/m-1",
            Reason::NodeAmbiguous,
            "n-1",
            "delete the Node that is not of this machine",
        )
        .await;
    for name in ["n-1", "n-2"] {
        assert!(world.node(name).unwrap()["spec"]["providerID"].is_null(), "{name}");
    }
    world.check_invariants().await;
}

// Fault: the kubeconfig Secret is missing, or its API server does not answer.
// Shown: condition of the machine: `KubeconfigMissing` or `WorkloadUnreachable`; it stays Ready.
#[tokio::test(start_paused = true)]
async fn workload_without_an_answer_is_a_reason() {
    let world = running().await;
    world.workload.faults().outage(Outage::Refused);
    wait_for_link(&world, "Unknown", Reason::WorkloadUnreachable).await;
    world
        .expect_why(
            "baremetalmachine/m-1",
            Reason::WorkloadUnreachable,
            "does not answer",
            "check the control-plane endpoint",
        )
        .await;
    world.delete("Secret", "c1-kubeconfig").await;
    wait_for_link(&world, "Unknown", Reason::KubeconfigMissing).await;
    world.expect_why("baremetalmachine/m-1", Reason::KubeconfigMissing, "c1-kubeconfig", "create it").await;
    assert_eq!(world.machine_condition("m-1", Type::Ready).unwrap().status, "True");
    world.workload.faults().outage(Outage::Over);
    world.apply_kubeconfig().await;
    let host_uuid = uuid(&world);
    world.join_node("n-1", Some(ID), &host_uuid).await;
    wait_for_link(&world, "True", Reason::NodeFound).await;
    world.check_invariants().await;
}

/// Without a control plane object Cluster API leaves the Nodes of its Machines.
#[tokio::test(start_paused = true)]
async fn node_of_a_deleted_machine_disappears() {
    for is_managed in [false, true] {
        let world = running().await;
        let host_uuid = uuid(&world);
        world.join_node("n-1", Some(ID), &host_uuid).await;
        world.join_node("n-2", Some("baremetal:///host-2"), "uid-of-another").await;
        wait_for_link(&world, "True", Reason::NodeFound).await;
        if !is_managed {
            world.patch("Cluster", "c1", json!({ "spec": { "controlPlaneRef": null } })).await;
        }
        world.delete_machine("m-1").await;
        world.wait_released("m-1", "host-1").await;
        assert_eq!(world.node("n-1").is_some(), is_managed, "Cluster API deletes it: {is_managed}");
        assert!(world.node("n-2").is_some());
        world.check_invariants().await;
    }
}

/// Cluster API finds no Node of a machine without providerID, and the next machine of the host has its name.
#[tokio::test(start_paused = true)]
async fn node_of_unlinked_machine_goes_with_it() {
    for provider_id in [None, Some(ID)] {
        let world = World::with_hosts(&["host-1"]).await;
        world.stop_finding_nodes();
        world.apply_kubeconfig().await;
        world.set_control_plane_initialized("c1");
        world.apply_machine("m-1").await;
        world.wait_until("the plan runs", |world| !world.plans().is_empty()).await;
        world.join_node("host-1", provider_id, &uuid(&world)).await;
        world.join_node("other", None, "uid-of-another").await;
        assert!(world.machine("m-1").unwrap().spec.provider_id.is_none());
        world.delete_machine("m-1").await;
        world.wait_released("m-1", "host-1").await;
        assert!(world.node("host-1").is_none(), "{provider_id:?}: the next machine could not join");
        assert!(world.node("other").is_some(), "it belongs to another host");
        world.check_invariants().await;
    }
}

// Fault: the host of a deleted machine does not answer, and is given up.
// Shown: Event `NodeRemoved` of the machine, where Cluster API leaves the Node; the machine is gone.
#[tokio::test(start_paused = true)]
async fn node_of_an_abandoned_machine_disappears() {
    let mut world = running().await;
    let host_uuid = uuid(&world);
    world.join_node("n-1", Some(ID), &host_uuid).await;
    wait_for_link(&world, "True", Reason::NodeFound).await;
    world.patch("Cluster", "c1", json!({ "spec": { "controlPlaneRef": null } })).await;
    world.host_mut("host-1").power_off();
    world.delete_machine("m-1").await;
    world.give_up_host("BaremetalMachine", "m-1").await;
    world.wait_until("m-1 is gone", |world| world.machine("m-1").is_none()).await;
    assert!(world.node("n-1").is_none());
    world.expect_event("BaremetalMachine", "m-1", "NodeRemoved", "n-1");
    world.check_invariants().await;
}

// Fault: the workload cluster does not answer when a machine is deleted.
// Shown: condition of the machine: `WorkloadUnreachable`; after two minutes its host is released.
#[tokio::test(start_paused = true)]
async fn unreachable_workload_holds_no_release() {
    let world = running().await;
    let host_uuid = uuid(&world);
    world.join_node("n-1", Some(ID), &host_uuid).await;
    wait_for_link(&world, "True", Reason::NodeFound).await;
    world.patch("Cluster", "c1", json!({ "spec": { "controlPlaneRef": null } })).await;
    world.workload.faults().outage(Outage::Refused);
    world.delete_machine("m-1").await;
    let action = "or after two minutes";
    world.wait_for_reason("m-1", Type::NodeLinked, Reason::WorkloadUnreachable, action).await;
    world
        .expect_why(
            "machine/m-1",
            Reason::WorkloadUnreachable,
            "or after two minutes",
            "check the control-plane endpoint",
        )
        .await;
    world.wait_released("m-1", "host-1").await;
    world.advance_time(Duration::from_secs(1)).await;
    assert!(world.node("n-1").is_some());
    world.check_invariants().await;
}
