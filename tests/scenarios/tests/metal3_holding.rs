//! A machine of Metal3 has one host, whichever name of the other one is taken away.

use std::time::Duration;

use coordinator_api::conditions::Reason;
use coordinator_api::metal3::names;
use fake_apiserver::OwnerReferences;
use scenarios::{NAMESPACE, World};
use serde_json::{Value, json};

const HOSTS: &str = "baremetalhosts.metal3.io";

/// Two hosts, and a machine.
async fn with_machine(rest: Value) -> World {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1", "host-2"]).await;
    world.apply_metal3_cluster("c1").await;
    world.apply_metal3_machine("m-1", rest).await;
    world
}

/// The image of the machine is written to its host.
async fn provisioning() -> (World, String) {
    let world = with_machine(json!({})).await;
    let is_written =
        |world: &World| world.host_of("m-1").is_some_and(|host| world.host_state(&host) == "provisioning");
    world.wait_until("the image is written", is_written).await;
    let host = world.host_of("m-1").unwrap();
    (world, host)
}

/// The machine runs on its first host.
async fn running() -> (World, String) {
    let world = with_machine(json!({})).await;
    world.wait_metal3_ready("m-1").await;
    world.wait_idle().await;
    let host = world.host_of("m-1").unwrap();
    (world, host)
}

fn other_than(host: &str) -> &'static str {
    if host == "bmh-host-1" { "bmh-host-2" } else { "bmh-host-1" }
}

async fn name_host(world: &World, host: Option<&str>) {
    let host = host.map(|host| format!("{NAMESPACE}/{host}"));
    let names = json!({ names::HOST_OF_MACHINE: host, names::CHOSEN_HOST: host });
    world.patch("Metal3Machine", "m-1", json!({ "metadata": { "annotations": names } })).await;
}

async fn forget_machine(world: &World, host: &str) {
    world.patch("BareMetalHost", host, json!({ "spec": { "consumerRef": null } })).await;
}

fn consumer(world: &World, host: &str) -> Value {
    world.get_object(HOSTS, host).unwrap()["spec"]["consumerRef"]["name"].clone()
}

/// The machine runs on its first host, and no other one was touched.
async fn expect_one_host(world: World, host: &str) {
    world.wait_metal3_ready("m-1").await;
    world.wait_idle().await;
    assert_eq!((world.host_of("m-1").as_deref(), consumer(&world, host)), (Some(host), json!("m-1")));
    assert_eq!(world.host_state(other_than(host)), "available");
    let inventory = host.strip_prefix("bmh-").unwrap();
    let plans = world.plans();
    assert!(plans.iter().all(|(secret, ..)| secret == inventory), "{plans:?}");
    world.expect_nothing("Metal3Machine/m-1").await;
    world.expect_nothing(&format!("BareMetalHost/{host}")).await;
    world.check_invariants().await;
}

// Fault: an operator removes `consumerRef` of the host while the image of its machine is written.
// Shown: nothing: the claim of the host comes back.
#[tokio::test(start_paused = true)]
async fn lost_consumer_comes_back() {
    let (world, host) = provisioning().await;
    forget_machine(&world, &host).await;
    expect_one_host(world, &host).await;
}

// Fault: the annotations that name the host are removed while the image of the machine is written.
// Shown: nothing: the name comes back from the host.
#[tokio::test(start_paused = true)]
async fn lost_name_comes_back() {
    let (world, host) = provisioning().await;
    name_host(&world, None).await;
    expect_one_host(world, &host).await;
}

// Fault: machine and host lose every name of the other one, while the coordinator is away.
// Shown: nothing: both come back from the claim of the inventory.
#[tokio::test(start_paused = true)]
async fn both_names_come_back() {
    let (world, host) = provisioning().await;
    world.kill_coordinator("coordinator");
    name_host(&world, None).await;
    forget_machine(&world, &host).await;
    world.start_coordinator("coordinator");
    expect_one_host(world, &host).await;
}

// Fault: an old manifest of the host is written over the new one while the image of its machine is written.
// Shown: the host is cleaned and gets the image of the same machine again.
#[tokio::test(start_paused = true)]
async fn replaced_host_returns_to_its_machine() {
    let (world, host) = provisioning().await;
    let spec = json!({ "consumerRef": null, "image": null, "userData": null });
    let old = json!({ "metadata": { "labels": null }, "spec": spec });
    world.patch("BareMetalHost", &host, old).await;
    expect_one_host(world, &host).await;
}

// Fault: an operator writes the name of a free host into a machine that has one.
// Shown: reason `SeveralHosts` of the machine.
#[tokio::test(start_paused = true)]
async fn second_host_is_not_claimed() {
    let (world, host) = provisioning().await;
    let other = other_than(&host);
    let pin = json!({ (names::HOST_OF_MACHINE): format!("{NAMESPACE}/{other}") });
    world.patch("Metal3Machine", "m-1", json!({ "metadata": { "annotations": pin } })).await;
    let message = world.wait_metal3_reason("m-1", Reason::SeveralHosts.as_str()).await;
    assert!(message.contains(&host) && message.contains(other), "{message}");
    world.wait_idle().await;
    world.expect_why("Metal3Machine/m-1", Reason::SeveralHosts, &host, names::HOST_OF_MACHINE).await;
    assert_eq!((consumer(&world, other), consumer(&world, &host)), (Value::Null, json!("m-1")));
    name_host(&world, Some(&host)).await;
    expect_one_host(world, &host).await;
}

// Fault: a replica that has not seen the claim of a machine chooses another host for it.
// Shown: nothing: the machine keeps the host that was claimed.
#[tokio::test(start_paused = true)]
async fn late_choice_is_taken_back() {
    let (world, host) = provisioning().await;
    name_host(&world, Some(other_than(&host))).await;
    expect_one_host(world, &host).await;
}

// Fault: machine or host of a node, or both, lose the name of the other one, and the machine is deleted.
// Shown: nothing: the host is cleaned and available.
#[tokio::test(start_paused = true)]
async fn deleted_machine_finds_its_host() {
    for (forgets_host, forgets_machine) in [(true, false), (false, true), (true, true)] {
        let (world, host) = running().await;
        world.kill_coordinator("coordinator");
        if forgets_host {
            name_host(&world, None).await;
        }
        if forgets_machine {
            forget_machine(&world, &host).await;
        }
        world.begin_metal3_deletion("m-1").await;
        world.start_coordinator("coordinator");
        world.wait_until("the machine is gone", |world| world.metal3_machine("m-1").is_none()).await;
        world.wait_until("the host is available", |world| world.host_state(&host) == "available").await;
        assert_eq!(consumer(&world, &host), Value::Null);
        let system = host.strip_prefix("bmh-").unwrap();
        assert!(!world.host(system).disk().state().node_identity().exists());
        world.expect_nothing(&format!("BareMetalHost/{host}")).await;
        world.check_invariants().await;
    }
}

// Fault: the BareMetalHost of a running machine vanishes with the annotations that name it.
// Shown: reason `InventoryMissing` of the machine, until the host is restored.
#[tokio::test(start_paused = true)]
async fn vanished_host_is_named_and_awaited() {
    let (world, host) = running().await;
    let backup = world.fake.take_out(HOSTS, NAMESPACE, &host).unwrap();
    name_host(&world, None).await;
    world.wait_metal3_reason("m-1", Reason::InventoryMissing.as_str()).await;
    world
        .expect_why("Metal3Machine/m-1", Reason::InventoryMissing, &host, "restore the MachineInventory or")
        .await;
    world.wait_idle().await;
    world.fake.put_back(backup, OwnerReferences::Keep).unwrap();
    expect_one_host(world, &host).await;
}

// Fault: an operator names a host in a machine, and the host registers later.
// Shown: reason `HostNotAvailable` of the machine, until the host is available.
#[tokio::test(start_paused = true)]
async fn pinned_machine_gets_finalizer_and_frees_its_host() {
    let mut world = World::with_metal3().await;
    world.apply_registration().await;
    world.apply_metal3_cluster("c1").await;
    world.apply_bare_metal_host("bmh-host-1", "host-1").await;
    let pin = json!({ names::HOST_OF_MACHINE: format!("{NAMESPACE}/bmh-host-1") });
    world.apply_metal3_machine("m-1", json!({ "metadata": { "annotations": pin } })).await;
    world.wait_metal3_reason("m-1", Reason::HostNotAvailable.as_str()).await;
    let cause = "MachineInventory host-1 does not exist";
    world
        .expect_why("Metal3Machine/m-1", Reason::InventoryMissing, cause, "restore the MachineInventory")
        .await;
    let finalizers = world.metal3_machine("m-1").unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!([names::MACHINE_FINALIZER]));
    world.boot_host("host-1", "hosts");
    world.wait_metal3_ready("m-1").await;
    assert_eq!(world.host_of("m-1").as_deref(), Some("bmh-host-1"));
    world.delete_metal3_machine("m-1").await;
    world.wait_until("the host is available", |world| world.host_state("bmh-host-1") == "available").await;
    assert_eq!(consumer(&world, "bmh-host-1"), Value::Null);
    world.check_invariants().await;
}

// Fault: an operator removes the finalizers of a host that runs a machine, and again when the machine is deleted.
// Shown: nothing: they come back, and the host is cleaned.
#[tokio::test(start_paused = true)]
async fn claimed_host_without_finalizers_is_cleaned() {
    let (world, host) = running().await;
    let count = |world: &World| {
        let host = world.get_object(HOSTS, &host).unwrap();
        host["metadata"]["finalizers"].as_array().map_or(0, Vec::len)
    };
    let lose = |world: &World| {
        world.fake.edit((HOSTS, NAMESPACE, &host), |object| object["metadata"]["finalizers"] = json!([]));
    };
    let held = count(&world);
    lose(&world);
    world.wait_until("the finalizers are back", |world| count(world) == held).await;
    world.wait_idle().await;
    world.expect_nothing(&format!("BareMetalHost/{host}")).await;
    // The image of the machine is removed before they are back.
    world.fake.faults().lag(Duration::from_secs(3));
    lose(&world);
    world.delete_metal3_machine("m-1").await;
    world.wait_until("the host is free", |world| world.host_state(&host) == "available").await;
    world.fake.faults().clear();
    world.check_invariants().await;
}
