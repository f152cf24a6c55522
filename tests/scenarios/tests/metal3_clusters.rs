//! `Metal3Cluster`, and what control planes and clusters say about machines of Metal3.

use std::time::Duration;

use fake_apiserver::Outage;
use scenarios::World;
use serde_json::{Value, json};

const CLUSTERS: &str = "metal3clusters.infrastructure.cluster.x-k8s.io";
const REUSE: &str = "infrastructure.cluster.x-k8s.io/node-reuse";

fn host_labels(world: &World) -> Value {
    world.get_object("baremetalhosts.metal3.io", "bmh-host-1").unwrap()["metadata"]["labels"].clone()
}

/// Cluster `c1` whose `Metal3Cluster` has another name, and a machine that runs.
async fn begin() -> World {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    let reference =
        json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Cluster", "name": "infra" });
    let uid = world.create("Cluster", "c1", json!({ "spec": { "infrastructureRef": reference } })).await;
    let owner =
        json!({ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": uid });
    let spec = json!({ "controlPlaneEndpoint": { "host": "10.0.2.2" } });
    let object = json!({ "metadata": { "ownerReferences": [owner] }, "spec": spec });
    world.create("Metal3Cluster", "infra", object).await;
    world.apply_kubeconfig().await;
    world.apply_metal3_machine("m-1", json!({})).await;
    world.wait_metal3_ready("m-1").await;
    world.wait_idle().await;
    world
}

fn ready(world: &World) -> Option<(String, String)> {
    let cluster = world.get_object(CLUSTERS, "infra")?;
    let conditions = cluster["status"]["conditions"].as_array()?.clone();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready")?;
    Some((ready["reason"].as_str()?.to_owned(), ready["message"].as_str()?.to_owned()))
}

// Fault: a Metal3Cluster is deleted while machines of its Cluster exist.
// Shown: it stays, condition `Ready`: `MachinesLeft`; it goes with the last of them.
#[tokio::test(start_paused = true)]
async fn cluster_goes_after_its_machines() {
    let world = begin().await;
    world.delete("Metal3Cluster", "infra").await;
    world.wait_idle().await;
    let (reason, message) = ready(&world).unwrap();
    assert_eq!(reason, "MachinesLeft");
    assert!(message.contains("1 Metal3Machines"), "{message}");
    world.expect_why("Metal3Cluster/infra", "MachinesLeft", "1 Metal3Machines", "").await;
    world.delete_metal3_machine("m-1").await;
    world
        .wait_until("the Metal3Cluster is gone", |world| world.get_object(CLUSTERS, "infra").is_none())
        .await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn paused_cluster_keeps_its_finalizer() {
    let world = begin().await;
    world.delete_metal3_machine("m-1").await;
    world.patch("Cluster", "c1", json!({ "spec": { "paused": true } })).await;
    world.wait_idle().await;
    world.delete("Metal3Cluster", "infra").await;
    world.advance_time(Duration::from_mins(2)).await;
    let finalizers = &world.get_object(CLUSTERS, "infra").unwrap()["metadata"]["finalizers"];
    assert_eq!(*finalizers, json!(["metal3cluster.infrastructure.cluster.x-k8s.io"]));
    world.patch("Cluster", "c1", json!({ "spec": { "paused": false } })).await;
    world
        .wait_until("the Metal3Cluster is gone", |world| world.get_object(CLUSTERS, "infra").is_none())
        .await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn cluster_of_another_system_is_left_alone() {
    let world = World::with_metal3().await;
    let annotations = json!({ "cluster.x-k8s.io/managed-by": "terraform" });
    let spec = json!({ "controlPlaneEndpoint": { "host": "10.0.2.2" } });
    let object = json!({ "metadata": { "annotations": annotations }, "spec": spec });
    let mark = world.fake.journal().mark();
    world.create("Metal3Cluster", "infra", object).await;
    world.wait_idle().await;
    assert_eq!(world.requests_since(mark), []);
    world.check_invariants().await;
}

/// The template that the machine was cloned from keeps no hosts; that of the upgrade may.
async fn release_control_plane(world: &World, template: Option<&str>) -> Value {
    let named = |reuse: bool| json!({ "spec": { "nodeReuse": reuse, "template": { "spec": {} } } });
    world.create("Metal3MachineTemplate", "before", named(false)).await;
    world.create("Metal3MachineTemplate", "after", named(true)).await;
    let cloned = json!({ "metadata": { "annotations": { "cluster.x-k8s.io/cloned-from-name": "before" } } });
    world.patch("Metal3Machine", "m-1", cloned).await;
    let reference = json!({ "kind": "Metal3MachineTemplate", "name": template });
    let spec = json!({ "machineTemplate": { "spec": { "infrastructureRef": reference } } });
    let uid = match template {
        Some(_) => world.create("KubeadmControlPlane", "cp", json!({ "spec": spec })).await,
        None => "gone".to_owned(),
    };
    let owner = json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane", "name": "cp", "uid": uid,
    });
    world.patch("Machine", "m-1", json!({ "metadata": { "ownerReferences": [owner] } })).await;
    world.wait_idle().await;
    world.delete_metal3_machine("m-1").await;
    world.wait_idle().await;
    host_labels(world)[REUSE].clone()
}

#[tokio::test(start_paused = true)]
async fn template_of_an_upgrade_keeps_control_plane_hosts() {
    let world = begin().await;
    assert_eq!(release_control_plane(&world, Some("after")).await, "cp-cp");
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn lost_control_plane_keeps_no_hosts() {
    let world = begin().await;
    assert_eq!(release_control_plane(&world, None).await, Value::Null);
    world.check_invariants().await;
}

// Fault: labels of a Node differ from those of its BareMetalHost, or its API server does not answer.
// Shown: with `metal3-label-sync-prefixes` they are written within a minute; condition `LabelsSynced`: `WorkloadUnreachable`.
#[tokio::test(start_paused = true)]
async fn labels_of_a_host_are_on_its_node() {
    const RACK: &str = "rack.example.com/position";
    let world = begin().await;
    world.join_node("m-1", Some("metal3://fleet/bmh-host-1/m-1"), "uid").await;
    let label = |value: Value| json!({ "metadata": { "labels": { RACK: value, "other": "x" } } });
    world.patch("BareMetalHost", "bmh-host-1", label(json!("u7"))).await;
    world.wait_idle().await;
    let shown = |world: &World| world.node("m-1").unwrap()["metadata"]["labels"].clone();
    let before = shown(&world);
    assert_eq!(before[RACK], Value::Null, "nothing asks for it");
    let asked = json!({ "metal3.io/metal3-label-sync-prefixes": "rack.example.com" });
    world.patch("Metal3Cluster", "infra", json!({ "metadata": { "annotations": asked } })).await;
    world.wait_until("the Node has the label", |world| shown(world)[RACK] == "u7").await;
    assert_eq!(shown(&world)["other"], Value::Null);
    world.workload.edit(("nodes", "", "m-1"), |node| node["metadata"]["labels"][RACK] = json!("u1"));
    world.wait_until("it has the label again", |world| shown(world)[RACK] == "u7").await;
    let synced = |world: &World| {
        let machine = world.metal3_machine("m-1").unwrap();
        let conditions = machine["status"]["conditions"].as_array().unwrap().clone();
        let reason = |kind: &str| {
            let found = conditions.iter().find(|condition| condition["type"] == kind);
            found.map(|condition| condition["reason"].as_str().unwrap().to_owned())
        };
        (reason("LabelsSynced"), reason("Ready").unwrap())
    };
    assert_eq!(synced(&world), (Some("LabelsCurrent".to_owned()), "Running".to_owned()));
    world.workload.faults().outage(Outage::Refused);
    let lost = (Some("WorkloadUnreachable".to_owned()), "Running".to_owned());
    world.wait_until("the outage is shown", |world| synced(world) == lost).await;
    world.workload.faults().outage(Outage::Over);
    world.patch("BareMetalHost", "bmh-host-1", label(Value::Null)).await;
    world.wait_until("the Node has it no more", |world| shown(world)[RACK].is_null()).await;
    assert_eq!(shown(&world), before, "no other label changes");
    world.expect_nothing("Metal3Machine/m-1").await;
    world.check_invariants().await;
}
