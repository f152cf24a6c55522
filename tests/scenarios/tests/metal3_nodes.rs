//! The Node of a Metal3 machine: found, given its providerID, in the form that the
//! bootstrap data asks for.

use std::time::Duration;

use coordinator_api::conditions::Reason;
use fake_apiserver::Outage;
use scenarios::{World, bootstrap_data};
use serde_json::{Value, json};

const NEW: &str = "metal3://fleet/bmh-host-1/m-1";

/// A host is about to be provisioned for `m-1`, whose bootstrap data gives the kubelet these
/// arguments.
async fn begin(arguments: &str) -> World {
    let mut world = World::with_metal3().await;
    world.stop_finding_nodes();
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_metal3_cluster("c1").await;
    apply_machine(&world, "m-1", arguments).await;
    world
}

async fn apply_machine(world: &World, name: &str, arguments: &str) {
    let data = bootstrap_data().replace("kubeletExtraArgs: []", &format!("kubeletExtraArgs: {arguments}"));
    world.apply_bootstrap(name, &data).await;
    let group = "bootstrap.cluster.x-k8s.io";
    let config_ref = json!({ "apiGroup": group, "kind": "KubeadmConfig", "name": name });
    world.apply_metal3_machine_with(name, config_ref, json!({})).await;
}

fn legacy_arguments() -> &'static str {
    "[{ name: provider-id, value: \"metal3://{{ ds.meta_data.uuid }}\" }]"
}

fn uid(world: &World) -> String {
    let host = world.get_object("baremetalhosts.metal3.io", "bmh-host-1").unwrap();
    host["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn provider_id(world: &World) -> Value {
    provider_id_of(world, "m-1")
}

fn provider_id_of(world: &World, machine: &str) -> Value {
    world.metal3_machine(machine).unwrap()["spec"]["providerID"].clone()
}

fn identity(world: &World) -> String {
    std::fs::read_to_string(world.host("host-1").disk().state().node_identity()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn machine_is_ready_once_its_node_has_joined() {
    let world = begin("[]").await;
    let message = world.wait_metal3_reason("m-1", "NodeWaiting").await;
    assert!(message.contains(&uid(&world)), "{message}");
    assert_eq!(provider_id(&world), Value::Null);
    world.join_node("bmh-host-1", None, &uid(&world)).await;
    let before = world.node("bmh-host-1").unwrap();
    world.wait_metal3_ready("m-1").await;
    world
        .wait_until("the Node is linked", |world| {
            world.node("bmh-host-1").unwrap()["spec"]["providerID"] == NEW
        })
        .await;
    assert_eq!(provider_id(&world), NEW);
    let after = world.node("bmh-host-1").unwrap();
    assert_eq!(after["metadata"]["labels"], before["metadata"]["labels"]);
    assert_eq!(after["spec"]["podCIDR"], before["spec"]["podCIDR"]);
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn templates_with_the_older_form_keep_it() {
    let world = begin(legacy_arguments()).await;
    world.wait_metal3_reason("m-1", "NodeWaiting").await;
    let legacy = format!("metal3://{}", uid(&world));
    assert!(identity(&world).contains(&format!("\"{legacy}\"")), "{}", identity(&world));
    world.join_node("bmh-host-1", Some(&legacy), &uid(&world)).await;
    world.wait_metal3_ready("m-1").await;
    assert_eq!(provider_id(&world), legacy);
    world.delete_metal3_machine("m-1").await;
    world.wait_until("the host is free", |world| world.host_state("bmh-host-1") == "available").await;
    // An upgrade whose template has the older form too.
    apply_machine(&world, "m-2", legacy_arguments()).await;
    world.wait_metal3_reason("m-2", "NodeWaiting").await;
    assert!(identity(&world).contains(&format!("\"{legacy}\"")), "{}", identity(&world));
    world.join_node("bmh-host-1", Some(&legacy), &uid(&world)).await;
    world.wait_metal3_ready("m-2").await;
    assert_eq!(provider_id_of(&world, "m-2"), legacy);
    // The next one has the newer form.
    world.delete_metal3_machine("m-2").await;
    world.wait_until("the host is free again", |world| world.host_state("bmh-host-1") == "available").await;
    apply_machine(&world, "m-3", "[]").await;
    world.wait_metal3_reason("m-3", "NodeWaiting").await;
    world.join_node("bmh-host-1", None, &uid(&world)).await;
    world.wait_metal3_ready("m-3").await;
    assert_eq!(provider_id_of(&world, "m-3"), "metal3://fleet/bmh-host-1/m-3");
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn form_that_was_proposed_is_refused_by_name() {
    let arguments = "[{ name: provider-id, value: \"metal3://fleet/bmh-host-1?owner=m-1\" }]";
    let world = begin(arguments).await;
    let message = |world: &World| {
        let host = world.get_object("baremetalhosts.metal3.io", "bmh-host-1").unwrap();
        host["status"]["errorMessage"].as_str().unwrap_or_default().to_owned()
    };
    world.wait_until("the host says why", |world| message(world).contains("?owner=m-1")).await;
    assert!(message(&world).contains("ds.meta_data.providerid"), "{}", message(&world));
    assert_eq!(world.plans(), []);
    world.check_invariants().await;
}

/// Cluster API finds no Node of a machine without providerID, and the next machine of the host has its name.
#[tokio::test(start_paused = true)]
async fn node_of_unlinked_machine_goes_with_it() {
    let world = begin("[]").await;
    world.set_control_plane_initialized("c1");
    world.wait_until("the plan runs", |world| !world.plans().is_empty()).await;
    world.join_node("bmh-host-1", Some(NEW), &uid(&world)).await;
    world.join_node("other", Some("metal3://fleet/bmh-host-1/m-2"), &uid(&world)).await;
    world.delete_metal3_machine("m-1").await;
    assert!(world.node("bmh-host-1").is_none(), "the Node would keep the next machine from joining");
    assert!(world.node("other").is_some(), "it belongs to another machine");
    world.check_invariants().await;
}

// Fault: the workload cluster of a Metal3 machine does not answer, or two Nodes have the label of its host.
// Shown: condition `NodeLinked` of the machine: `WorkloadUnreachable`, `KubeconfigMissing` or `NodeAmbiguous`.
#[tokio::test(start_paused = true)]
async fn missing_and_ambiguous_nodes_are_reasons() {
    let world = begin("[]").await;
    world.workload.faults().outage(Outage::Refused);
    world.wait_metal3_reason("m-1", "WorkloadUnreachable").await;
    world
        .expect_why(
            "machine/m-1",
            Reason::WorkloadUnreachable,
            "does not answer",
            "check the control-plane endpoint",
        )
        .await;
    world.delete("Secret", "c1-kubeconfig").await;
    world.wait_metal3_reason("m-1", "KubeconfigMissing").await;
    world.expect_why("machine/m-1", Reason::KubeconfigMissing, "c1-kubeconfig", "create it").await;
    world.workload.faults().outage(Outage::Over);
    world.apply_kubeconfig().await;
    for node in ["n-1", "n-2"] {
        world.join_node(node, None, &uid(&world)).await;
    }
    let message = world.wait_metal3_reason("m-1", "NodeAmbiguous").await;
    assert!(message.contains("n-1, n-2"), "{message}");
    world
        .expect_why(
            "machine/m-1",
            Reason::NodeAmbiguous,
            "n-1, n-2",
            "delete the Node that is not of this machine",
        )
        .await;
    assert_eq!(provider_id(&world), Value::Null);
    world.check_invariants().await;
}

// Fault: the host of a running Metal3Machine has no connection for an hour.
// Shown: condition `Ready` of the MachineInventory: `HostUnreachable`; the machine stays ready, so that no health check
// deletes it.
#[tokio::test(start_paused = true)]
async fn machine_stays_ready_while_its_host_is_away() {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_metal3_cluster("c1").await;
    world.apply_metal3_machine("m-1", json!({})).await;
    world.wait_metal3_ready("m-1").await;
    world.host_mut("host-1").power_off();
    world.advance_time(Duration::from_hours(1)).await;
    let machine = world.metal3_machine("m-1").unwrap();
    let conditions = machine["status"]["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap();
    assert!(ready["status"] == "True" && machine["status"]["ready"] == true, "{ready}");
    let action = "check power, network and console";
    world.expect_why("machineinventory/host-1", Reason::HostUnreachable, "no connection", action).await;
    world.host_mut("host-1").power_on();
    world.wait_idle().await;
    world.check_invariants().await;
}
