//! Crashes of every component at every point: the outcome is that of a run
//! without them.

use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use fake_apiserver::{End, Matching, Outage};
use scenarios::{Fault, Outcome, Side, World};

/// From an empty cluster to a node and back.
async fn run_lifecycle(world: &mut World) -> Outcome {
    world.create_prerequisites(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    world.advance_time(Duration::from_secs(30)).await;
    world.outcome("host-1")
}

async fn run_without_faults() -> (Outcome, usize, usize) {
    let mut world = World::without_coordinator();
    world.start_coordinator("coordinator");
    let outcome = run_lifecycle(&mut world).await;
    let writes = world.fake.journal().counts_of("coordinator").writes;
    let calls = world.host("host-1").calls();
    world.check_invariants().await;
    (outcome, writes, calls)
}

async fn stops_at_every_write(side: fake_apiserver::Side) {
    let (want, writes, _) = run_without_faults().await;
    assert_eq!(want.plans, ["reprovision 1", "clean 2"]);
    for write in 1..=writes {
        let mut world = World::without_coordinator();
        world.stop_coordinator_at(write, side);
        world.start_coordinator("coordinator");
        let outcome = run_lifecycle(&mut world).await;
        assert!(world.all_stops_reached(), "{side:?} write {write} of {writes} never came");
        assert_eq!(outcome, want, "{side:?} write {write} of {writes}\n{}", world.dump());
        world.expect_nothing("machineinventory/host-1").await;
        world.check_invariants().await;
    }
    println!("{writes} writes, stopped {side:?} each");
}

// Fault: the coordinator is killed before any of its writes.
// Shown: nothing: it converges.
#[tokio::test(start_paused = true)]
async fn coordinator_killed_before_any_write_recovers() {
    stops_at_every_write(fake_apiserver::Side::Before).await;
}

#[tokio::test(start_paused = true)]
async fn coordinator_killed_after_any_write_recovers() {
    stops_at_every_write(fake_apiserver::Side::After).await;
}

#[tokio::test(start_paused = true)]
async fn coordinator_killed_three_times_recovers() {
    let (want, writes, _) = run_without_faults().await;
    for write in 1..=writes {
        let mut world = World::without_coordinator();
        for (again, side) in
            [fake_apiserver::Side::After, fake_apiserver::Side::Before, fake_apiserver::Side::After]
                .into_iter()
                .enumerate()
        {
            world.stop_coordinator_at(write + again, side);
        }
        world.start_coordinator("coordinator");
        assert_eq!(run_lifecycle(&mut world).await, want, "from write {write} of {writes}\n{}", world.dump());
        world.check_invariants().await;
    }
}

/// The lifecycle with a fault that is set before the host is switched on, or after
/// its installed system has attached.
async fn run_with_fault(call: usize, side: Side, fault: Fault, from_the_start: bool) -> World {
    let mut world = World::new().await;
    world.apply_registration().await;
    world.boot_host("host-1", "hosts");
    if from_the_start {
        world.host("host-1").inject_fault(call, side, fault);
    }
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    if !from_the_start {
        world.host("host-1").inject_fault(call, side, fault);
    }
    world.apply_catalog().await;
    world.apply_cluster("c1").await;
    world.apply_pool("pool", &["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    world.advance_time(Duration::from_secs(30)).await;
    world
}

/// What was done to the host. What may be done again: to look at a boot that
/// is not the plan's own and to hold it, to forget an instance, to write an
/// image that was not flushed, to ask harder for a reboot. Nothing else may.
fn without_repeats(outcome: &Outcome) -> Vec<String> {
    let mut effects: Vec<String> = Vec::new();
    for effect in &outcome.effects {
        let effect = if effect.starts_with("reboot") { "reboot" } else { effect };
        let may_repeat = effect == "cloud-init clean" || effect.starts_with("upgrade");
        let is_repeat = may_repeat && effects.iter().any(|earlier| earlier == effect);
        if !effect.starts_with("cloud-init held-") && !is_repeat {
            effects.push(effect.to_owned());
        }
    }
    effects.retain(|effect| effect != "reboot");
    effects
}

/// Calls of the live system, before the first attachment.
const LIVE_CALLS: usize = 3;

async fn ends_at_every_call(fault: Fault, from_the_start: bool) {
    let (want, _, calls) = run_without_faults().await;
    let calls = if from_the_start { calls } else { calls - LIVE_CALLS };
    println!("{calls} calls into the operating system");
    for call in 1..=calls {
        for side in [Side::Before, Side::After] {
            let world = run_with_fault(call, side, fault, from_the_start).await;
            let (outcome, case) = (world.outcome("host-1"), format!("{fault:?} {side:?} call {call}"));
            assert!(!world.host("host-1").has_pending_fault(), "{case}: never came there");
            assert_eq!(outcome.plans, want.plans, "{case}");
            assert_eq!(outcome.inventory, want.inventory, "{case}");
            assert_eq!(without_repeats(&outcome), without_repeats(&want), "{case}: {:?}", outcome.effects);
            world.expect_nothing("machineinventory/host-1").await;
            world.check_invariants().await;
        }
    }
}

// Fault: the agent is killed at any call.
// Shown: nothing: it continues from its journal.
#[tokio::test(start_paused = true)]
async fn agent_killed_at_any_call_recovers() {
    ends_at_every_call(Fault::Killed, true).await;
}

#[tokio::test(start_paused = true)]
async fn installed_host_recovers_from_power_cut_anywhere() {
    ends_at_every_call(Fault::PowerCut, false).await;
}

/// The identity key was only in memory: nothing was installed, so the same
/// hardware comes with another one.
#[tokio::test(start_paused = true)]
async fn power_cut_before_key_flush_needs_nobody() {
    let mut world = World::new().await;
    world.apply_registration().await;
    world.boot_host("host-1", "hosts");
    world.host("host-1").inject_fault(1, Side::Before, Fault::PowerCut);
    let key = |world: &World| world.inventory("host-1").and_then(|inventory| inventory.spec.tpm_hash);
    world.wait_until("it is registered", |world| key(world).is_some()).await;
    let first = key(&world);
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    assert_ne!(key(&world), first);
    let events = world.fake.look_at_all("events");
    assert!(events.iter().any(|event| event["reason"] == "IdentityReplaced"));
    assert!(!world.log().contains("NameTaken"));
    world.check_invariants().await;
}

/// Points of the lifecycle at which a fault is injected.
#[derive(Clone, Copy, Debug)]
enum Point {
    Created,
    Claimed,
    PlanAssigned,
    Rebooting,
    NodeJoined,
}

impl Point {
    const ALL: [Self; 5] =
        [Self::Created, Self::Claimed, Self::PlanAssigned, Self::Rebooting, Self::NodeJoined];
}

fn is_reached(world: &World, point: Point) -> bool {
    let inventory = world.inventory("host-1");
    let effects = world.host("host-1").system().effects();
    match point {
        Point::Created => true,
        Point::Claimed => inventory.is_some_and(|inventory| inventory.claim().is_some()),
        Point::PlanAssigned => {
            inventory.is_some_and(|inventory| inventory.plan().is_some_and(|plan| plan.generation == Some(1)))
        }
        Point::Rebooting => effects.iter().any(|effect| effect.starts_with("reboot")),
        Point::NodeJoined => effects.iter().any(|effect| effect.starts_with("node joins")),
    }
}

// Fault: the API server is away.
// Shown: nothing: hosts keep their results.
#[tokio::test(start_paused = true)]
async fn api_server_outage_only_delays_the_lifecycle() {
    let (want, ..) = run_without_faults().await;
    for outage in [Outage::Refused, Outage::Hanging] {
        for point in Point::ALL {
            let world = World::with_hosts(&["host-1"]).await;
            world.apply_machine("m-1").await;
            world.wait_until(&format!("{point:?}"), |world| is_reached(world, point)).await;
            world.fake.faults().outage(outage);
            world.advance_time(Duration::from_mins(1)).await;
            world.fake.faults().outage(Outage::Over);
            world.wait_running("m-1").await;
            world.delete_machine("m-1").await;
            world.advance_time(Duration::from_secs(1)).await;
            world.fake.faults().outage(outage);
            world.advance_time(Duration::from_mins(1)).await;
            world.fake.faults().outage(Outage::Over);
            world.wait_released("m-1", "host-1").await;
            world.advance_time(Duration::from_mins(1)).await;
            let outcome = world.outcome("host-1");
            assert_eq!(
                (&outcome.effects, &outcome.plans),
                (&want.effects, &want.plans),
                "{outage:?} at {point:?}"
            );
            assert_eq!(outcome.inventory, want.inventory, "{outage:?} at {point:?}");
            world.expect_nothing("machineinventory/host-1").await;
            world.check_invariants().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ended_watches_lose_no_event() {
    let (want, ..) = run_without_faults().await;
    for end in [End::Closed, End::Broken, End::Expired] {
        for point in Point::ALL {
            let world = World::with_hosts(&["host-1"]).await;
            world.apply_machine("m-1").await;
            world.wait_until(&format!("{point:?}"), |world| is_reached(world, point)).await;
            if end == End::Expired {
                world.fake.compact();
            }
            world.fake.faults().end_watches(&Matching::any().user("coordinator"), end);
            world.wait_running("m-1").await;
            world.delete_machine("m-1").await;
            world.fake.faults().end_watches(&Matching::any().user("coordinator"), end);
            world.wait_released("m-1", "host-1").await;
            world.advance_time(Duration::from_secs(30)).await;
            assert_eq!(world.outcome("host-1"), want, "{end:?} at {point:?}");
            world.check_invariants().await;
        }
    }
}

// Fault: the coordinator is away for an hour while a host executes its plan.
// Shown: nothing: the host delivers its results when the coordinator is back.
#[tokio::test(start_paused = true)]
async fn results_are_delivered_after_an_hour_without_coordinator() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world
        .wait_until("the host executes its plan", |world| {
            world.host("host-1").system().effects().iter().any(|effect| effect.starts_with("upgrade"))
        })
        .await;
    world.kill_coordinator("coordinator");
    world.advance_time(std::time::Duration::from_hours(1)).await;
    assert_ne!(world.phase("m-1"), Some(coordinator_api::machine::Phase::Running));
    world
        .expect_why(
            "machine/m-1",
            Reason::PlanRunning,
            "the host executes its plan",
            "kubectl baremetal logs",
        )
        .await;
    world.start_coordinator("coordinator");
    world.wait_running("m-1").await;
    assert_eq!(world.plans().len(), 1, "one plan was enough");
    world.expect_nothing("baremetalmachine/m-1").await;
    world.check_invariants().await;
}

// Fault: a host is off.
// Shown: condition `Ready` of the MachineInventory: `HostUnreachable` after the grace.
#[tokio::test(start_paused = true)]
async fn powered_off_host_is_unreachable_until_it_returns() {
    let mut world = World::with_hosts(&["host-1"]).await;
    world.host_mut("host-1").power_off();
    let lost = |world: &World| {
        let ready = world.host_condition("host-1", Type::Ready).unwrap();
        ready.status == "Unknown" && ready.reason == Reason::HostUnreachable.as_str()
    };
    world.wait_until("host-1 is unreachable", lost).await;
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::HostUnreachable,
            "no connection to the coordinator for five minutes",
            "check power, network and console",
        )
        .await;
    world.restart_coordinator();
    world.host_mut("host-1").power_on();
    world.wait_until("host-1 is back", |world| world.is_available("host-1")).await;
    world.kill_coordinator("coordinator");
    world.host_mut("host-1").power_off();
    world.start_coordinator("coordinator");
    world.wait_until("host-1 is unreachable after the restart", lost).await;
    world.check_invariants().await;
}
