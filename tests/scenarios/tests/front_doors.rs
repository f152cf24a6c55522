//! Two kinds of machines on one host engine, and two instances of it.

use std::collections::BTreeMap;

use coordinator_api::machine::Phase;
use coordinator_api::names::{annotation, label};
use scenarios::{NAMESPACE, World, bootstrap_data};
use serde_json::{Value, json};

/// A host that is to run an image, by an inventory that a pool lists too.
async fn provision_host(world: &World, name: &str, inventory: &str) {
    world.apply_bootstrap(name, &bootstrap_data()).await;
    let metadata = json!({ "annotations": { "baremetal.cluster.io/machine-inventory": inventory } });
    let spec = json!({
        "online": true,
        "image": { "url": "oci://registry.example/os:v1" },
        "userData": { "name": format!("{name}-bootstrap"), "namespace": NAMESPACE },
    });
    world.create("BareMetalHost", name, json!({ "metadata": metadata, "spec": spec })).await;
}

#[tokio::test(start_paused = true)]
async fn one_host_is_claimed_by_one_front_door() {
    let mut world = World::with_metal3().await;
    world.create_prerequisites(&["host-1"]).await;
    tokio::join!(provision_host(&world, "bmh-1", "host-1"), world.apply_machine("m-1"));
    let running = |world: &World| {
        let by_pool = world.phase("m-1") == Some(Phase::Running);
        [by_pool, world.host_state("bmh-1") == "provisioned"].into_iter().filter(|runs| *runs).count()
    };
    world.wait_until("one of them runs", |world| running(world) == 1).await;
    world.wait_idle().await;
    assert_eq!((running(&world), world.plans().len()), (1, 1), "the other one waits");
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn pool_of_a_paused_cluster_takes_no_member() {
    let mut world = World::new().await;
    world.apply_registration().await;
    world.register_hosts(&["host-1"]).await;
    world.apply_cluster("c1").await;
    world.patch("Cluster", "c1", json!({ "spec": { "paused": true } })).await;
    world.apply_pool("pool", &["host-1"]).await;
    world.wait_idle().await;
    let holder = |world: &World| {
        let inventory = world.inventory("host-1").unwrap();
        inventory.metadata.annotations.and_then(|annotations| annotations.get(annotation::POOL).cloned())
    };
    assert_eq!(holder(&world), None);
    let pool = world.get_object("machineinventorypools.infrastructure.cluster.x-k8s.io", "pool").unwrap();
    let conditions = pool["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|shown| shown["type"] == "Paused" && shown["status"] == "True"), "{pool}");
    world.patch("Cluster", "c1", json!({ "spec": { "paused": false } })).await;
    world.wait_until("the pool holds its member", |world| holder(world).as_deref() == Some("pool")).await;
    world.check_invariants().await;
}

/// An object is for the instance with this value.
fn for_instance(value: &str) -> Value {
    json!({ "metadata": { "labels": { label::WATCH_FILTER: value } } })
}

fn list_annotations(world: &World, host: &str) -> BTreeMap<String, String> {
    world.inventory(host).and_then(|inventory| inventory.metadata.annotations).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn watch_filter_leaves_other_machines_alone() {
    let mut world = World::with_hosts(&["host-1", "host-2"]).await;
    world.filter_objects("a");
    for (machine, template, value) in [("m-1", "t-1", "b"), ("m-2", "t-2", "a")] {
        world.apply_machine(machine).await;
        world.patch("BaremetalMachine", machine, for_instance(value)).await;
        world.apply_template(template, "pool").await;
        world.patch("BaremetalMachineTemplate", template, for_instance(value)).await;
    }
    world.wait_running("m-2").await;
    world.wait_idle().await;
    let [other, own] = ["m-1", "m-2"].map(|name| world.machine(name).unwrap());
    assert_eq!(own.spec.provider_id.as_deref(), Some("baremetal:///host-1"), "no host is reserved for m-1");
    assert_eq!((other.status, other.metadata.finalizers), (None, None), "m-1 is left alone");
    assert!(world.inventory("host-2").unwrap().claim().is_none());
    let status = |template: &str| {
        let kind = "baremetalmachinetemplates.infrastructure.cluster.x-k8s.io";
        world.get_object(kind, template).unwrap()["status"].clone()
    };
    assert!(status("t-2")["capacity"]["cpu"].is_string(), "{}", status("t-2"));
    assert_eq!(status("t-1"), Value::Null);
    // The host of a machine of the other instance is that one's.
    world.patch("BaremetalMachine", "m-2", for_instance("b")).await;
    world.wait_idle().await;
    let asked = json!({ "metadata": { "annotations": { annotation::REBOOT: "" } } });
    world.patch("MachineInventory", "host-1", asked).await;
    world.wait_idle().await;
    let shown = list_annotations(&world, "host-1");
    assert!(shown.contains_key(annotation::REBOOT) && !shown.contains_key(annotation::REBOOTING_FROM));
    let boots = world.host("host-1").boots();
    world.filter_objects("b");
    let is_asked = |world: &World| list_annotations(world, "host-1").contains_key(annotation::REBOOT);
    world.wait_until("the host has rebooted", |world| !is_asked(world)).await;
    world.wait_running("m-1").await;
    assert_eq!(world.host("host-1").boots(), boots + 1);
    world.check_invariants().await;
}
