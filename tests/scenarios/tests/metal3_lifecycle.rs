//! What becomes of Metal3's hosts and clusters between and after machines.

use std::time::Duration;

use scenarios::World;
use serde_json::{Value, json};

const HOSTS: &str = "baremetalhosts.metal3.io";
const REUSE: &str = "infrastructure.cluster.x-k8s.io/node-reuse";
const KEPT_UNTIL: &str = "baremetal.cluster.io/kept-until";

fn host_object(world: &World, host: &str) -> Value {
    world.get_object(HOSTS, host).unwrap()
}

fn cloned() -> Value {
    json!({ "metadata": { "annotations": { "cluster.x-k8s.io/cloned-from-name": "t" } } })
}

/// A Cluster, and a machine that has left its host to its successor.
async fn begin_kept(hosts: &[&str]) -> World {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(hosts).await;
    world.apply_metal3_cluster("c1").await;
    let spec = json!({ "nodeReuse": true, "template": { "spec": {} } });
    world.create("Metal3MachineTemplate", "t", json!({ "spec": spec })).await;
    world.apply_metal3_machine("m-1", cloned()).await;
    world.wait_metal3_ready("m-1").await;
    world.delete_metal3_machine("m-1").await;
    world.wait_idle().await;
    world
}

#[tokio::test(start_paused = true)]
async fn pause_of_a_cluster_reaches_its_hosts() {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_metal3_cluster("c1").await;
    world.apply_metal3_machine("m-1", json!({})).await;
    world.wait_metal3_ready("m-1").await;
    world.wait_idle().await;
    let shown = |world: &World| {
        let annotations = host_object(world, "bmh-host-1")["metadata"]["annotations"].clone();
        let text = |key: &str| annotations[key].as_str().map(str::to_owned);
        (text("baremetalhost.metal3.io/paused"), text("clusterctl.cluster.x-k8s.io/block-move"))
    };
    assert_eq!(shown(&world), (None, Some(String::new())), "a move waits");
    world.patch("Cluster", "c1", json!({ "spec": { "paused": true } })).await;
    world.wait_idle().await;
    assert_eq!(shown(&world), (Some("metal3.io/capm3".to_owned()), None), "a move goes on");
    world.patch("Cluster", "c1", json!({ "spec": { "paused": false } })).await;
    world.wait_idle().await;
    assert_eq!(shown(&world), (None, Some(String::new())));
    world.delete_metal3_machine("m-1").await;
    world.wait_idle().await;
    assert_eq!(shown(&world), (None, None));
    world.check_invariants().await;
}

// Fault: no successor of a machine with `nodeReuse` comes.
// Shown: the BareMetalHost is free after `keep-hosts-for` of the template, 30 minutes by default.
#[tokio::test(start_paused = true)]
async fn kept_host_is_free_when_no_successor_comes() {
    let world = begin_kept(&["host-1"]).await;
    let kept = |world: &World| host_object(world, "bmh-host-1")["metadata"]["labels"][REUSE].clone();
    assert_eq!(kept(&world), "md-workers");
    let mark = world.fake.journal().mark();
    world.advance_time(Duration::from_mins(28)).await;
    assert_eq!((kept(&world), world.requests_since(mark)), (json!("md-workers"), vec![]));
    world.advance_time(Duration::from_mins(3)).await;
    let host = host_object(&world, "bmh-host-1");
    assert_eq!((kept(&world), &host["spec"]["consumerRef"]), (Value::Null, &Value::Null));
    assert_eq!(host["metadata"]["annotations"][KEPT_UNTIL], Value::Null);
    world.expect_nothing("BareMetalHost/bmh-host-1").await;
    world.check_invariants().await;
}

// Fault: a host that `nodeReuse` kept stays in `deprovisioning`.
// Shown: condition `Ready` of the successor: `NoHostAvailable`, until when it waits; then it takes another host.
#[tokio::test(start_paused = true)]
async fn successor_takes_another_host_after_a_time() {
    let world = begin_kept(&["host-1", "host-2"]).await;
    // A host of another manager, which kept it too and does not get it free.
    let metadata = json!({
        "labels": { REUSE: "md-workers" },
        "annotations": { KEPT_UNTIL: host_object(&world, "bmh-host-1")["metadata"]["annotations"][KEPT_UNTIL] },
    });
    let consumer = json!({ "kind": "Cluster", "name": "c1", "namespace": "fleet" });
    let spec = json!({ "online": true, "consumerRef": consumer });
    world.create("BareMetalHost", "ironic", json!({ "metadata": metadata, "spec": spec })).await;
    world.fake.edit((HOSTS, "fleet", "ironic"), |host| {
        host["status"] = json!({ "provisioning": { "state": "deprovisioning" } });
    });
    world.apply_metal3_machine("m-2", cloned()).await;
    world.wait_metal3_ready("m-2").await;
    assert_eq!(world.host_of("m-2").as_deref(), Some("bmh-host-1"));
    let host = host_object(&world, "bmh-host-1");
    assert_eq!(host["metadata"]["annotations"][KEPT_UNTIL], Value::Null, "it is in use");
    world.apply_metal3_machine("m-3", cloned()).await;
    let message = world.wait_metal3_reason("m-3", "NoHostAvailable").await;
    assert!(message.contains("until ") && message.contains("another host is chosen"), "{message}");
    world.expect_why("Metal3Machine/m-3", "NoHostAvailable", "until ", "").await;
    world.advance_time(Duration::from_mins(31)).await;
    world.wait_metal3_ready("m-3").await;
    assert_eq!(world.host_of("m-3").as_deref(), Some("bmh-host-2"));
    assert_eq!(host_object(&world, "ironic")["metadata"]["labels"][REUSE], "md-workers", "not ours");
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_cleaning_mode_reaches_hosts() {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_metal3_cluster("c1").await;
    world.create("Metal3MachineTemplate", "t", json!({ "spec": { "template": { "spec": {} } } })).await;
    world.apply_metal3_machine("m-1", cloned()).await;
    world.wait_metal3_ready("m-1").await;
    let shown = |world: &World| host_object(world, "bmh-host-1")["spec"]["automatedCleaningMode"].clone();
    world.wait_idle().await;
    let before = shown(&world);
    assert_ne!(before, "disabled");
    let mode = json!({ "spec": { "template": { "spec": { "automatedCleaningMode": "disabled" } } } });
    world.patch("Metal3MachineTemplate", "t", mode).await;
    world.wait_idle().await;
    assert_eq!(shown(&world), "disabled", "before: {before}");
    assert_eq!(world.metal3_machine("m-1").unwrap()["spec"]["automatedCleaningMode"], "disabled");
    world.delete_metal3_machine("m-1").await;
    world.wait_idle().await;
    world.check_invariants().await;
}
