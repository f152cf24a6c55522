//! Reboots that operators ask for: each request ends one boot.

use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::names::annotation;
use scenarios::{Fault, Scenario, Side, World, kill_at_every_write};
use serde_json::{Value, json};

const HOSTS: &str = "baremetalhosts.metal3.io";

/// The boot that the host is attached from.
fn boot(world: &World) -> Option<u32> {
    let session =
        world.inventory("host-1")?.status?.host?.session.filter(|session| session.ended.is_none())?;
    session.boot_id.strip_prefix("boot-")?.parse().ok()
}

async fn ask(world: &World, kind: &str, name: &str, key: &str) {
    world.patch(kind, name, json!({ "metadata": { "annotations": { key: "" } } })).await;
}

async fn withdraw(world: &World, kind: &str, name: &str, key: &str) {
    world.patch(kind, name, json!({ "metadata": { "annotations": { key: null } } })).await;
}

fn annotations(world: &World, resource: &str, name: &str) -> Value {
    world.get_object(resource, name).unwrap()["metadata"]["annotations"].clone()
}

/// Waits until the host is back from the request, and asserts that it is not
/// rebooted again.
async fn wait_rebooted(world: &World, before: u32, case: &str) {
    let is_open = |world: &World| {
        let inventory = annotations(world, "machineinventories.elemental.cattle.io", "host-1");
        !inventory[annotation::REBOOT].is_null() || !inventory[annotation::REBOOTING_FROM].is_null()
    };
    world
        .wait_until(&format!("{case}: the host is back"), |world| {
            boot(world) == Some(before + 1) && !is_open(world)
        })
        .await;
    world.advance_time(Duration::from_mins(10)).await;
    assert_eq!(boot(world), Some(before + 1), "{case}");
    world.expect_nothing("machineinventory/host-1").await;
}

// Fault: an operator asks for a reboot of a free host and of a node.
// Shown: Events `RebootRequested` and `Rebooted` of the MachineInventory; the machine stays Running.
#[tokio::test(start_paused = true)]
async fn a_host_reboots_once_on_request() {
    let world = World::with_hosts(&["host-1"]).await;
    let first = boot(&world).unwrap();
    ask(&world, "MachineInventory", "host-1", annotation::REBOOT).await;
    wait_rebooted(&world, first, "a free host").await;
    let asked = format!("the agent is asked to end the boot boot-{first}");
    world.expect_event("MachineInventory", "host-1", "RebootRequested", &asked);
    world.expect_event("MachineInventory", "host-1", "Rebooted", "the host runs another boot");
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    let running = boot(&world).unwrap();
    ask(&world, "MachineInventory", "host-1", annotation::REBOOT).await;
    wait_rebooted(&world, running, "a node").await;
    world.wait_running("m-1").await;
    let kinds: Vec<_> = world.plans().into_iter().map(|(_, _, kind)| kind).collect();
    assert_eq!(kinds, ["reprovision"], "no plan is needed for it");
    assert!(world.host_condition("host-1", Type::Rebooted).is_none());
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    world.check_invariants().await;
}

// Fault: a reboot is asked for while a plan runs.
// Shown: condition `Rebooted` with `RebootWaiting`; the host reboots when the plan is over.
#[tokio::test(start_paused = true)]
async fn reboot_request_does_not_interrupt_plan() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world
        .wait_until("a plan runs", |world| {
            let plan = world.inventory("host-1").unwrap().status.unwrap().plan.unwrap();
            plan.generation.is_some() && plan.state.is_none()
        })
        .await;
    ask(&world, "MachineInventory", "host-1", annotation::REBOOT).await;
    world
        .wait_until("the request waits", |world| {
            let condition = world.host_condition("host-1", Type::Rebooted);
            condition.is_some_and(|found| found.reason == Reason::RebootWaiting.as_str())
        })
        .await;
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::PlanRunning,
            "the host executes its",
            "kubectl baremetal logs host-1",
        )
        .await;
    world.wait_running("m-1").await;
    let first = boot(&world);
    world.wait_until("it has rebooted after it", |world| boot(world) > first).await;
    world.wait_running("m-1").await;
    world.check_invariants().await;
}

// Fault: a reboot of a host without connection is asked for.
// Shown: condition `Rebooted` with `HostUnreachable` and what an operator does; switching its power ends the request.
#[tokio::test(start_paused = true)]
async fn a_host_that_is_away_is_said_so() {
    let mut world = World::with_hosts(&["host-1"]).await;
    let first = boot(&world).unwrap();
    world.host_mut("host-1").power_off();
    world.advance_time(Duration::from_mins(10)).await;
    ask(&world, "MachineInventory", "host-1", annotation::REBOOT).await;
    world
        .wait_until("its power has to be switched", |world| {
            let condition = world.host_condition("host-1", Type::Rebooted);
            condition.is_some_and(|found| {
                found.reason == Reason::HostUnreachable.as_str() && found.message.contains("switch its power")
            })
        })
        .await;
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::HostUnreachable,
            "no connection to the coordinator",
            "check power, network and console",
        )
        .await;
    world.host_mut("host-1").power_on();
    wait_rebooted(&world, first, "switched on").await;
    world.check_invariants().await;
}

/// A reboot that an operator asks for.
pub(super) struct Reboot;

impl Scenario for Reboot {
    async fn begin() -> World {
        let world = World::with_hosts(&["host-1"]).await;
        world.wait_idle().await;
        world
    }

    async fn play(world: &mut World) {
        let first = boot(world).unwrap();
        ask(world, "MachineInventory", "host-1", annotation::REBOOT).await;
        wait_rebooted(world, first, "asked by an operator").await;
    }
}

// Fault: the coordinator is killed at any write of a request, the agent while it asks for the reboot, and power is lost.
// Shown: nothing: the host is rebooted once.
#[tokio::test(start_paused = true)]
async fn a_crash_neither_repeats_nor_loses_a_request() {
    kill_at_every_write::<Reboot>().await;
    for fault in [Fault::Killed, Fault::PowerCut] {
        for side in [Side::Before, Side::After] {
            let world = World::with_hosts(&["host-1"]).await;
            let first = boot(&world).unwrap();
            world.host("host-1").inject_fault(1, side, fault);
            ask(&world, "MachineInventory", "host-1", annotation::REBOOT).await;
            wait_rebooted(&world, first, &format!("{fault:?} {side:?}")).await;
            world.check_invariants().await;
        }
    }
}

// Fault: annotations ask for reboots of a BareMetalHost, with a key and without.
// Shown: Events `RebootRequested` and `Rebooted`; condition `Rebooted` names requests that their writers have not removed.
#[tokio::test(start_paused = true)]
async fn annotations_of_metal3_reboot_a_host() {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_metal3_cluster("c1").await;
    world.apply_metal3_machine("m-1", json!({})).await;
    world.wait_metal3_ready("m-1").await;
    let first = boot(&world).unwrap();
    ask(&world, "BareMetalHost", "bmh-host-1", "reboot.metal3.io").await;
    wait_rebooted(&world, first, "without a key").await;
    assert_eq!(annotations(&world, HOSTS, "bmh-host-1")["reboot.metal3.io"], Value::Null);

    let keyed = "reboot.metal3.io/upgrade";
    for round in 1..=2 {
        ask(&world, "BareMetalHost", "bmh-host-1", keyed).await;
        wait_rebooted(&world, first + round, keyed).await;
        let host = world.get_object(HOSTS, "bmh-host-1").unwrap();
        assert_eq!(host["metadata"]["annotations"][keyed], "", "its writer removes it");
        let conditions = host["status"]["conditions"].as_array().unwrap().clone();
        let rebooted = conditions.into_iter().find(|found| found["type"] == "Rebooted").unwrap();
        assert_eq!((&rebooted["status"], &rebooted["reason"]), (&json!("True"), &json!("RebootDone")));
        withdraw(&world, "BareMetalHost", "bmh-host-1", keyed).await;
        world.wait_idle().await;
        let left = annotations(&world, HOSTS, "bmh-host-1");
        assert_eq!(left["baremetal.cluster.io/reboot-record"], Value::Null, "and may ask again: {left}");
    }
    world.wait_metal3_ready("m-1").await;
    assert_eq!(world.plans().len(), 1);
    world.check_invariants().await;
}

/// A reboot that an annotation of Metal3 asks for.
pub(super) struct BareMetalReboot;

impl Scenario for BareMetalReboot {
    async fn begin() -> World {
        let mut world = World::with_metal3().await;
        world.register_bare_metal_hosts(&["host-1"]).await;
        world.wait_idle().await;
        world
    }

    async fn play(world: &mut World) {
        let first = boot(world).unwrap();
        ask(world, "BareMetalHost", "bmh-host-1", "reboot.metal3.io").await;
        wait_rebooted(world, first, "asked by an annotation of Metal3").await;
        assert_eq!(annotations(world, HOSTS, "bmh-host-1")["reboot.metal3.io"], Value::Null);
    }
}

// Fault: the coordinator is killed at any write for an annotation of a BareMetalHost.
// Shown: nothing: the host is rebooted once.
#[tokio::test(start_paused = true)]
async fn killed_coordinator_reboots_bare_metal_host_once() {
    kill_at_every_write::<BareMetalReboot>().await;
}

// Fault: a node leaves links in the kernel of its host, one of which only a boot removes.
// Shown: Ready=False `KernelStateLeft` of the MachineInventory with the names, Events
// `RebootRequested` and `Rebooted`; no machine gets the host before it is back.
#[tokio::test(start_paused = true)]
async fn a_node_leaves_nothing_in_the_kernel() {
    let world = World::with_hosts(&["host-1"]).await;
    world.host("host-1").system().put_link("bond0.20").unwrap();
    world.advance_time(Duration::from_mins(2)).await;
    let first = boot(&world).unwrap();
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.host("host-1").system().put_link("cni0").unwrap();
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    assert_eq!(boot(&world), Some(first + 1), "the clean removed it");

    world.apply_machine("m-2").await;
    world.wait_running("m-2").await;
    world.host("host-1").system().put_link("cni0").unwrap();
    world.host("host-1").system().put_link("bpf-cilium").unwrap();
    world.delete_machine("m-2").await;
    let ready = |world: &World| world.host_condition("host-1", Type::Ready).unwrap();
    let is_left = |world: &World| ready(world).reason == Reason::KernelStateLeft.as_str();
    world.wait_until("the host says what is left", is_left).await;
    let message = ready(&world).message;
    assert!(message.contains("left in the kernel: link bpf-cilium;"), "{message}");
    assert_eq!(boot(&world), Some(first + 2));
    world.apply_machine("m-3").await;
    world.wait_running("m-3").await;
    assert_eq!(boot(&world), Some(first + 4), "one boot for the kernel, one for the node");
    let asked = format!("the agent is asked to end the boot boot-{}", first + 2);
    world.expect_event("MachineInventory", "host-1", "RebootRequested", &asked);
    world.expect_event("MachineInventory", "host-1", "Rebooted", "the host runs another boot");
    world.check_invariants().await;
}
