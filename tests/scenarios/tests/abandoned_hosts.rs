//! Hosts that do not answer when their machines are deleted: they are given up, and cleaned once they return.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::AllocationState;
use coordinator_api::names::annotation;
use scenarios::{Scenario, World, kill_at_every_write};
use serde_json::json;

use crate::deletions::running;

// Fault: the host of a deleted machine does not answer.
// Shown: condition of the machine: `HostUnreachable` with the annotation that abandons the host;
// it is cleaned when it returns.
#[tokio::test(start_paused = true)]
async fn abandoned_host_is_cleaned_when_it_returns() {
    let mut world = running().await;
    world.host_mut("host-1").power_off();
    world.delete_machine("m-1").await;
    let way_out = "baremetal.cluster.io/release-without-clean";
    world.wait_for_reason("m-1", Type::PlanApplied, Reason::HostUnreachable, way_out).await;
    world
        .expect_why("machine/m-1", Reason::HostUnreachable, way_out, "check power, network and console")
        .await;
    world.give_up_host("BaremetalMachine", "m-1").await;
    world.wait_until("m-1 is gone", |world| world.machine("m-1").is_none()).await;
    let inventory = world.inventory("host-1").unwrap();
    assert!(inventory.claim().is_some(), "the host may still run the node of its owner");
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::Abandoned,
            "was removed while the host was unreachable",
            "repair the host",
        )
        .await;
    world.apply_machine("m-2").await;
    let action = "add a host to it or free one";
    world.wait_for_reason("m-2", Type::InventoryAllocated, Reason::PoolExhausted, action).await;
    world.host_mut("host-1").power_on();
    world.wait_running("m-2").await;
    let plans: Vec<_> = world.plans().into_iter().map(|(_, _, kind)| kind).collect();
    assert_eq!(plans, ["reprovision", "clean", "reprovision"], "it was cleaned before it was claimed");
    world.check_invariants().await;
}

// Fault: an operator gives a host up by its own annotation, while its machine waits for its clean.
// Shown: condition `Ready` of the MachineInventory: `Abandoned`; the machine is removed.
#[tokio::test(start_paused = true)]
async fn machine_of_a_host_given_up_goes() {
    let mut world = running().await;
    world.host_mut("host-1").power_off();
    world.delete_machine("m-1").await;
    world.wait_for_reason("m-1", Type::PlanApplied, Reason::HostUnreachable, "release-without-clean").await;
    let now = world.now().to_string();
    let given_up = json!({ "metadata": { "annotations": { annotation::ABANDONED: now } } });
    world.patch("MachineInventory", "host-1", given_up).await;
    world.wait_until("m-1 is gone", |world| world.machine("m-1").is_none()).await;
    world.wait_idle().await;
    let action = "repair the host";
    world.expect_why("machineinventory/host-1", Reason::Abandoned, "unreachable", action).await;
    world.host_mut("host-1").power_on();
    world.wait_until("the host is cleaned", |world| world.is_available("host-1")).await;
    world.check_invariants().await;
}

// Fault: the clean of an abandoned host fails.
// Shown: condition `Ready` of the inventory: the failure, and the annotation that has the host cleaned again.
#[tokio::test(start_paused = true)]
async fn failed_clean_of_abandoned_host_is_retried() {
    let mut world = running().await;
    world.host_mut("host-1").power_off();
    world.delete_machine("m-1").await;
    world.wait_for_reason("m-1", Type::PlanApplied, Reason::HostUnreachable, "release-without-clean").await;
    world.give_up_host("BaremetalMachine", "m-1").await;
    world.wait_until("m-1 is gone", |world| world.machine("m-1").is_none()).await;
    world.host("host-1").system().fail("remove-workload", 1).unwrap();
    world.host_mut("host-1").power_on();
    world
        .wait_until("the clean has failed", |world| {
            let ready = world.host_condition("host-1", Type::Ready);
            ready.is_some_and(|ready| {
                ready.message.contains("retry-plan on this object to have the host cleaned again")
            })
        })
        .await;
    let (cause, action) = ("remove-workload failed", "kubectl baremetal release host-1 --retry-clean");
    world.expect_why("machineinventory/host-1", Reason::CommandFailed, cause, action).await;
    world.host("host-1").system().succeed("remove-workload").unwrap();
    let retry = json!({ "metadata": { "annotations": { annotation::RETRY_PLAN: "" } } });
    world.patch("MachineInventory", "host-1", retry).await;
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    let annotations = world.inventory("host-1").unwrap().metadata.annotations.unwrap_or_default();
    assert!(!annotations.contains_key(annotation::RETRY_PLAN));
    let plans: Vec<_> = world.plans().into_iter().map(|(_, _, kind)| kind).collect();
    assert_eq!(plans, ["reprovision", "clean", "clean"]);
    world.check_invariants().await;
}

// Fault: a host does not answer since its plan was announced, and its machine is deleted and abandons it.
// Shown: condition of the inventory: `Abandoned`; the host never runs the plan of the machine that is gone.
#[tokio::test(start_paused = true)]
async fn announced_plan_of_abandoned_host_never_runs() {
    let mut world = World::with_hosts(&["host-1"]).await;
    world.wait_idle().await;
    world.host_mut("host-1").power_off();
    world.apply_machine("m-1").await;
    world.wait_until("the plan is announced", |world| world.plans().len() == 1).await;
    let is_away = |world: &World| {
        let host = world.inventory("host-1").unwrap().status.unwrap().host.unwrap();
        host.session.is_some_and(|session| session.ended.is_some())
    };
    world.wait_until("the end of its session is known", is_away).await;
    world.give_up_host("BaremetalMachine", "m-1").await;
    world.delete_machine("m-1").await;
    world.wait_until("m-1 is gone", |world| world.machine("m-1").is_none()).await;
    let is_abandoned = Reason::Abandoned;
    world.expect_why("machineinventory/host-1", is_abandoned, "was removed while", "repair the host").await;
    world.host_mut("host-1").power_on();
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    world.wait_idle().await;
    let kinds: Vec<_> = world.plans().into_iter().map(|(_, _, kind)| kind).collect();
    assert_eq!(kinds, ["reprovision", "clean"]);
    let upgraded = world.host("host-1").system().effects().iter().any(|effect| effect.contains("upgrade"));
    assert!(!upgraded, "{:?}", world.host("host-1").system().effects());
    assert!(!world.host("host-1").disk().state().node_identity().exists());
    world.check_invariants().await;
}

// Fault: an abandoned host never returns, and an operator deletes its inventory.
// Shown: condition of the inventory: `Abandoned`; then the inventory is gone.
#[tokio::test(start_paused = true)]
async fn inventory_of_an_abandoned_host_can_be_deleted() {
    let mut world = running().await;
    world.host_mut("host-1").power_off();
    world.delete_machine("m-1").await;
    world.give_up_host("BaremetalMachine", "m-1").await;
    world.wait_until("m-1 is gone", |world| world.machine("m-1").is_none()).await;
    let is_abandoned = Reason::Abandoned;
    world.expect_why("machineinventory/host-1", is_abandoned, "was removed while", "repair the host").await;
    world.delete("MachineInventory", "host-1").await;
    world.wait_until("the inventory is gone", |world| world.inventory("host-1").is_none()).await;
    world.check_invariants().await;
}

/// A host that does not answer, given up with its machine, and cleaned once it returns.
pub(super) struct Abandonment;

impl Scenario for Abandonment {
    async fn begin() -> World {
        let mut world = running().await;
        world.host_mut("host-1").power_off();
        world.advance_time(std::time::Duration::from_mins(10)).await;
        world.wait_idle().await;
        world
    }

    async fn play(world: &mut World) {
        world.delete_machine("m-1").await;
        let way_out = "baremetal.cluster.io/release-without-clean";
        world.wait_for_reason("m-1", Type::PlanApplied, Reason::HostUnreachable, way_out).await;
        world.give_up_host("BaremetalMachine", "m-1").await;
        world.wait_until("m-1 is removed", |world| world.machine("m-1").is_none()).await;
        world.finish_deletions();
        world.wait_idle().await;
        world.note_state("machineinventories.elemental.cattle.io", "host-1");
        world.host_mut("host-1").power_on();
        world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
        world.expect_nothing("machineinventory/host-1").await;
    }
}

// Fault: the coordinator is killed before and after any write while a host is given up, and while it returns.
// Shown: nothing: the host is cleaned once, and available.
#[tokio::test(start_paused = true)]
async fn a_killed_coordinator_abandons_a_host_once() {
    kill_at_every_write::<Abandonment>().await;
}

/// The pool's opt-in removes the machine; the host waits for its clean.
#[tokio::test(start_paused = true)]
async fn pool_abandons_unreachable_hosts_in_time() {
    let mut world = running().await;
    let opt_in = json!({ "spec": { "abandonUnreachableAfter": "30m" } });
    world.patch("MachineInventoryPool", "pool", opt_in).await;
    world.host_mut("host-1").power_off();
    world.delete_machine("m-1").await;
    world.advance_time(std::time::Duration::from_mins(25)).await;
    assert!(world.machine("m-1").is_some(), "its time is not over");
    world.advance_time(std::time::Duration::from_mins(10)).await;
    assert!(world.machine("m-1").is_none());
    assert_eq!(world.inventory("host-1").unwrap().allocation_state(), AllocationState::Unavailable);
    world.host_mut("host-1").power_on();
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    world.check_invariants().await;
}
