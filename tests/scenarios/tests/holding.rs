//! One machine has one host, whichever annotation an operator or a restored backup takes away.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::machine::Phase;
use coordinator_api::names::annotation;
use kube::ResourceExt as _;
use scenarios::World;
use serde_json::{Value, json};

const OWNERS: [&str; 7] = [
    annotation::OWNER_BAREMETAL_MACHINE,
    annotation::OWNER_KIND,
    annotation::OWNER_UID,
    annotation::OWNER_MACHINE,
    annotation::OWNER_CLUSTER,
    annotation::POOL,
    annotation::CLAIM_GENERATION,
];

/// Two hosts, and a machine whose first plan runs.
async fn reprovisioning() -> (World, String) {
    let world = World::with_hosts(&["host-1", "host-2"]).await;
    world.apply_machine("m-1").await;
    let is_reprovisioning = |world: &World| world.phase("m-1") == Some(Phase::Reprovisioning);
    world.wait_until("the plan runs", is_reprovisioning).await;
    let host = host_of(&world);
    (world, host)
}

fn host_of(world: &World) -> String {
    world.machine("m-1").unwrap().metadata.annotations.unwrap()[annotation::MACHINE_INVENTORY].clone()
}

async fn forget_host(world: &World) {
    let lost = json!({ "metadata": { "annotations": { annotation::MACHINE_INVENTORY: null } } });
    world.patch("BaremetalMachine", "m-1", lost).await;
}

pub(super) async fn forget_owner(world: &World, host: &str) {
    let lost: serde_json::Map<_, _> = OWNERS.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
    world.patch("MachineInventory", host, json!({ "metadata": { "annotations": lost } })).await;
}

pub(super) async fn set_paused(world: &World, kind: &str, name: &str, is_paused: bool) {
    let value = is_paused.then_some("");
    let change = json!({ "metadata": { "annotations": { annotation::PAUSED: value } } });
    world.patch(kind, name, change).await;
}

/// The machine runs on its first host, and on no other one.
async fn expect_one_host(world: World, host: &str) {
    world.wait_running("m-1").await;
    world.wait_idle().await;
    assert_eq!(host_of(&world), host);
    let carries = |name: &&str| {
        let host = world.inventory(name).unwrap().status.unwrap().host.unwrap();
        host.carried.is_some_and(|carried| carried.node.is_some())
    };
    let nodes: Vec<_> = ["host-1", "host-2"].into_iter().filter(carries).collect();
    assert_eq!(nodes, [host], "{}", world.dump());
    world.expect_nothing("baremetalmachine/m-1").await;
    world.check_invariants().await;
}

// Fault: an operator removes the annotation that names the host while its plan runs.
// Shown: nothing: the name comes back from the claim.
#[tokio::test(start_paused = true)]
async fn lost_name_comes_back() {
    let (world, host) = reprovisioning().await;
    forget_host(&world).await;
    expect_one_host(world, &host).await;
}

// Fault: the owner annotations of a host are removed while its plan runs.
// Shown: nothing: the claim comes back from the plan of the host.
#[tokio::test(start_paused = true)]
async fn lost_claim_comes_back() {
    let (world, host) = reprovisioning().await;
    forget_owner(&world, &host).await;
    expect_one_host(world, &host).await;
}

// Fault: machine and host lose every annotation that names the other one.
// Shown: nothing: both come back from the plan of the host.
#[tokio::test(start_paused = true)]
async fn both_names_come_back() {
    for owner_first in [false, true] {
        let (world, host) = reprovisioning().await;
        if owner_first {
            forget_owner(&world, &host).await;
            forget_host(&world).await;
        } else {
            forget_host(&world).await;
            forget_owner(&world, &host).await;
        }
        expect_one_host(world, &host).await;
    }
}

// Fault: an operator writes the name of a free host into a machine that has one.
// Shown: reason `SeveralHosts` of the machine.
#[tokio::test(start_paused = true)]
async fn second_host_is_not_claimed() {
    let (world, host) = reprovisioning().await;
    let other = if host == "host-1" { "host-2" } else { "host-1" };
    let edited = json!({ "metadata": { "annotations": { annotation::MACHINE_INVENTORY: other } } });
    world.patch("BaremetalMachine", "m-1", edited).await;
    world
        .wait_for_reason("m-1", Type::InventoryAllocated, Reason::SeveralHosts, annotation::MACHINE_INVENTORY)
        .await;
    world.wait_idle().await;
    let action = annotation::MACHINE_INVENTORY;
    world.expect_why("baremetalmachine/m-1", Reason::SeveralHosts, "names this object", action).await;
    assert!(world.inventory(other).unwrap().claim().is_none());
    let back = json!({ "metadata": { "annotations": { annotation::MACHINE_INVENTORY: host } } });
    world.patch("BaremetalMachine", "m-1", back).await;
    expect_one_host(world, &host).await;
}

// Fault: the annotation that names the host is removed, and the machine is deleted.
// Shown: nothing: the host is cleaned and goes back to its pool.
#[tokio::test(start_paused = true)]
async fn deleted_machine_finds_its_host() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.restart_coordinator();
    forget_host(&world).await;
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    world.expect_nothing("machineinventory/host-1").await;
    world.check_invariants().await;
}

// Fault: a host is paused for maintenance while its pool gives hosts away.
// Shown: reason `PoolExhausted` of the machine, whose Event counts the host as paused; condition `Paused` of the
// MachineInventory, which `why` names as the cause.
#[tokio::test(start_paused = true)]
async fn paused_host_is_not_claimed() {
    let world = World::with_hosts(&["host-1"]).await;
    set_paused(&world, "MachineInventory", "host-1", true).await;
    world.wait_idle().await;
    world.apply_machine("m-1").await;
    world.wait_for_reason("m-1", Type::InventoryAllocated, Reason::PoolExhausted, "pool").await;
    world.expect_event("BaremetalMachine", "m-1", "PoolExhausted", "1 paused");
    world
        .expect_why("baremetalmachine/m-1", Reason::Paused, annotation::PAUSED, "remove the annotation")
        .await;
    set_paused(&world, "MachineInventory", "host-1", false).await;
    world.wait_running("m-1").await;
    set_paused(&world, "MachineInventory", "host-1", true).await;
    world.delete_machine("m-1").await;
    world.wait_for_reason("m-1", Type::Ready, Reason::Paused, annotation::PAUSED).await;
    set_paused(&world, "MachineInventory", "host-1", false).await;
    world.wait_released("m-1", "host-1").await;
    world.check_invariants().await;
}

// Fault: a machine is paused, and then deleted.
// Shown: condition `Paused` of the machine; its host stays its own, and is released after the pause.
#[tokio::test(start_paused = true)]
async fn paused_machine_keeps_its_host() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    set_paused(&world, "BaremetalMachine", "m-1", true).await;
    world.wait_idle().await;
    world.delete_machine("m-1").await;
    world.advance_time(std::time::Duration::from_mins(10)).await;
    assert!(world.inventory("host-1").unwrap().claim().is_some());
    world
        .expect_why("baremetalmachine/m-1", Reason::Paused, annotation::PAUSED, "remove the annotation")
        .await;
    set_paused(&world, "BaremetalMachine", "m-1", false).await;
    world.wait_released("m-1", "host-1").await;
    world.check_invariants().await;
}

/// A pool is paused while a machine waits for a host of it.
#[tokio::test(start_paused = true)]
async fn paused_pool_gives_no_host() {
    let mut world = World::with_hosts(&["host-1", "host-2"]).await;
    world.apply_machine("m-0").await;
    world.wait_until("a host is installed", |world| world.phase("m-0") == Some(Phase::Reprovisioning)).await;
    set_paused(&world, "MachineInventoryPool", "pool", true).await;
    world.register_hosts(&["host-3"]).await;
    let members: Vec<_> = ["host-1", "host-2", "host-3"].map(|name| json!({ "name": name })).into();
    let members = json!({ "spec": { "machineInventories": members } });
    world.patch("MachineInventoryPool", "pool", members).await;
    world.apply_machine("m-1").await;
    world.wait_for_reason("m-1", Type::InventoryAllocated, Reason::Paused, annotation::PAUSED).await;
    world.wait_running("m-0").await;
    let is_held =
        |world: &World| world.inventory("host-3").unwrap().annotations().contains_key(annotation::POOL);
    assert!(!is_held(&world), "it takes no member");
    set_paused(&world, "MachineInventoryPool", "pool", false).await;
    world.wait_running("m-1").await;
    world.wait_until("it takes its member", is_held).await;
    world.check_invariants().await;
}

// Fault: the machine of a host is removed by force, and its host goes on.
// Shown: reason `OwnerMissing` of the inventory, for as long as it lasts.
#[tokio::test(start_paused = true)]
async fn orphan_is_shown_and_cleaned_by_its_owner() {
    let mut world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    let machines = "baremetalmachines.infrastructure.cluster.x-k8s.io";
    world.fake.take_out(machines, scenarios::NAMESPACE, "m-1");
    let is_orphan = |world: &World| {
        world
            .host_condition("host-1", Type::Ready)
            .is_some_and(|ready| ready.status == "False" && ready.reason == "OwnerMissing")
    };
    world.wait_until("the orphan is shown", is_orphan).await;
    for hours in [1, 2] {
        // The report of the host knows nothing of its owner.
        world.host_mut("host-1").power_off();
        world.host_mut("host-1").power_on();
        world.advance_time(std::time::Duration::from_hours(1)).await;
        world.wait_idle().await;
        assert!(is_orphan(&world), "after {hours} hours: {:?}", world.host_condition("host-1", Type::Ready));
    }
    let action = "kubectl baremetal clean host-1 --owner";
    world
        .expect_why("machineinventory/host-1", Reason::OwnerMissing, "the host was not cleaned", action)
        .await;
    expect_clean_by_owner(world, "m-1").await;
}

/// The host `host-1` that states this owner is cleaned by the command, and free.
pub(super) async fn expect_clean_by_owner(world: World, owner: &str) {
    world.clean_by_owner("host-1", owner).await;
    world.wait_until("the host is free", |world| world.is_available("host-1")).await;
    let plans: Vec<_> = world.plans().into_iter().map(|(_, _, kind)| kind).collect();
    assert_eq!(plans, ["reprovision", "clean"], "{}", world.dump());
    assert!(!world.host("host-1").disk().state().node_identity().exists());
    world.expect_nothing("machineinventory/host-1").await;
    world.check_invariants().await;
}

// Fault: the machine of a host is removed by force, and its host has lost every annotation of its owner.
// Shown: condition `Ready` of the inventory: what the host states, and the command that cleans it.
#[tokio::test(start_paused = true)]
async fn orphan_without_claim_is_cleaned_by_its_owner() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    let machines = "baremetalmachines.infrastructure.cluster.x-k8s.io";
    world.fake.take_out(machines, scenarios::NAMESPACE, "m-1");
    forget_owner(&world, "host-1").await;
    world.wait_idle().await;
    let cause = "--owner BaremetalMachine/m-1`";
    let action = "kubectl baremetal clean host-1 --owner OWNER";
    world.expect_why("machineinventory/host-1", Reason::HostCarriesNode, cause, action).await;
    assert!(world.inventory("host-1").unwrap().claim().is_none());
    expect_clean_by_owner(world, "BaremetalMachine/m-1").await;
}
