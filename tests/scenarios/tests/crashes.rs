//! Crashes of every component at every point: the outcome is that of a run
//! without them.

mod pairs;

use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use fake_apiserver::{End, Matching, Outage};
use scenarios::{
    Call, Fault, Outcome, Scenario, Side, Undisturbed, World, Write, kill_on_side_of_every_write,
};

/// From the first start of the coordinator in an empty cluster to a node on `host-1`, and back to a
/// host that is free.
pub(super) struct Lifecycle;

impl Scenario for Lifecycle {
    async fn begin() -> World {
        World::without_coordinator()
    }

    async fn play(world: &mut World) {
        world.start_coordinator("coordinator");
        world.create_prerequisites(&["host-1"]).await;
        world.apply_machine("m-1").await;
        world.wait_linked("m-1").await;
        world.delete_machine("m-1").await;
        world.wait_released("m-1", "host-1").await;
        world.expect_nothing("machineinventory/host-1").await;
    }
}

// Fault: the coordinator is killed before any of its writes.
// Shown: nothing: it converges.
#[tokio::test(start_paused = true)]
async fn coordinator_killed_before_any_write_recovers() {
    kill_on_side_of_every_write::<Lifecycle>(fake_apiserver::Side::Before).await;
}

#[tokio::test(start_paused = true)]
async fn coordinator_killed_after_any_write_recovers() {
    kill_on_side_of_every_write::<Lifecycle>(fake_apiserver::Side::After).await;
}

/// Every third write begins a case: the kills after it come at the two writes that follow.
#[tokio::test(start_paused = true)]
async fn coordinator_killed_three_times_recovers() {
    use fake_apiserver::Side::{After, Before};
    let undisturbed = Undisturbed::run::<Lifecycle>().await;
    let writes = &undisturbed.writes;
    let last = writes.last().unwrap().number;
    for Write { number, request, .. } in writes.iter().step_by(3).filter(|write| write.number + 2 <= last) {
        let mut world = World::without_coordinator();
        for (again, side) in [After, Before, After].into_iter().enumerate() {
            world.stop_coordinator_at(number + again, side);
        }
        let outcome = world.finish::<Lifecycle>().await;
        undisturbed.assert_same(&outcome, &format!("three kills from write {number}, {request}"), &world);
        world.check_invariants().await;
    }
}

/// The lifecycle with a fault at that call: of all of them a kill, of the installed system a
/// power cut.
async fn run_with_fault(call: usize, side: Side, fault: Fault) -> World {
    let mut world = World::new().await;
    world.apply_registration().await;
    world.boot_host("host-1", "hosts");
    if fault == Fault::Killed {
        world.host("host-1").inject_fault(call, side, fault);
    }
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    if fault == Fault::PowerCut {
        world.host("host-1").inject_fault(call, side, fault);
    }
    world.apply_catalog().await;
    world.apply_cluster("c1").await;
    world.apply_pool("pool", &["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_linked("m-1").await;
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    world.wait_idle().await;
    world
}

/// The outcome without what one fault may add to the effects, once each: an instance is
/// forgotten again; after a power cut an image that was not flushed is written again, and the
/// instance of a boot that is not the plan's own is held.
fn without_repeats(mut outcome: Outcome, fault: Fault) -> Outcome {
    let added: &[(&str, usize)] = match fault {
        Fault::Killed => &[("cloud-init clean", 1)],
        Fault::PowerCut => &[("cloud-init clean", 1), ("upgrade ", 1), ("cloud-init held-", 0)],
    };
    for (effect, due) in added {
        let is_it = |(_, found): &(usize, &String)| found.starts_with(effect);
        let effects = &mut outcome.host_mut("host-1").effects;
        if let Some((index, _)) = effects.iter().enumerate().filter(is_it).nth(*due) {
            effects.remove(index);
        }
    }
    // An image that is written again is another snapshot.
    if fault == Fault::PowerCut {
        outcome.objects.retain(|field| !field.contains(".status.host.snapshot = "));
    }
    outcome
}

/// A power cut is one boot more. Where the host is to reboot it is that boot, and nothing is left
/// to ask for. A kill changes nothing.
fn expect_boots(want: &Outcome, verb: &str, side: Side, fault: Fault) -> Outcome {
    let mut want = want.clone();
    let host = want.host_mut("host-1");
    let reboots: Vec<_> =
        (0..host.effects.len()).filter(|at| host.effects[*at] == "reboot Orderly").collect();
    assert_eq!(reboots.len(), 1, "one plan reboots the host, once: {:?}", host.effects);
    match (fault, verb, side) {
        (Fault::Killed, ..) | (Fault::PowerCut, "reboot", Side::After) => {}
        (Fault::PowerCut, "reboot", Side::Before) => drop(host.effects.remove(reboots[0])),
        (Fault::PowerCut, ..) => host.boots += 1,
    }
    want
}

async fn ends_at_every_call(fault: Fault) {
    let Undisturbed { outcome, calls, .. } = Undisturbed::run::<Lifecycle>().await;
    let live = calls.iter().take_while(|call| call.verb != "reboot").count() + 1;
    let calls = if fault == Fault::Killed { &calls[..] } else { &calls[live..] };
    for (before, Call { verb, .. }) in calls.iter().enumerate() {
        for side in [Side::Before, Side::After] {
            let world = run_with_fault(before + 1, side, fault).await;
            let case = format!("{fault:?} {side:?} call {} of {}, {verb}", before + 1, calls.len());
            let found = without_repeats(world.outcome(), fault);
            let want = without_repeats(expect_boots(&outcome, verb, side, fault), fault);
            assert!(found == want, "{case}\n{}", want.list_differences(&found));
            world.expect_nothing("machineinventory/host-1").await;
            world.check_invariants().await;
        }
    }
}

// Fault: the agent is killed at any call.
// Shown: nothing: it continues from its journal.
#[tokio::test(start_paused = true)]
async fn agent_killed_at_any_call_recovers() {
    ends_at_every_call(Fault::Killed).await;
}

#[tokio::test(start_paused = true)]
async fn installed_host_recovers_from_power_cut_anywhere() {
    ends_at_every_call(Fault::PowerCut).await;
}

/// It boots its seed ISO again: one boot more, whose key is that of the disk once there is one.
#[tokio::test(start_paused = true)]
async fn live_host_recovers_from_power_cut_anywhere() {
    let mut undisturbed = Undisturbed::run::<Lifecycle>().await;
    undisturbed.outcome.host_mut("host-1").boots += 1;
    let live = ["install", "sync", "reboot"];
    let calls = &undisturbed.calls;
    assert!(calls.iter().map(|call| call.verb).zip(live).all(|(verb, due)| verb == due), "{calls:?}");
    for (before, verb) in live.into_iter().enumerate() {
        for side in [Side::Before, Side::After] {
            let mut world = World::without_coordinator();
            world.plan_fault(before + 1, side, Fault::PowerCut);
            let outcome = world.finish::<Lifecycle>().await;
            undisturbed.assert_same(
                &outcome,
                &format!("power cut {side:?} {verb} of the live system"),
                &world,
            );
            if verb == "install" {
                let says = "the key was replaced; next: none";
                world.expect_event("MachineInventory", "host-1", "IdentityReplaced", says);
            }
            world.expect_nothing("machineinventory/host-1").await;
            world.check_invariants().await;
        }
    }
}

/// The last write before a call, and the first one after it; of none of them Leases.
fn find_neighbours<'a>(writes: &'a [Write], call: &Call) -> Vec<&'a Write> {
    let writes: Vec<_> = writes.iter().filter(|write| write.request.resource != "leases").collect();
    let next = writes.partition_point(|write| write.at <= call.at);
    writes[next.saturating_sub(1)..writes.len().min(next + 1)].to_vec()
}

// Fault: agent and coordinator are both killed: the agent at any call, the coordinator at the write before or after it.
// Shown: nothing: each continues from what is stored.
#[tokio::test(start_paused = true)]
async fn agent_and_coordinator_killed_together_recover() {
    use fake_apiserver::Side::{After, Before};
    let undisturbed = Undisturbed::run::<Lifecycle>().await;
    for (before, call) in undisturbed.calls.iter().enumerate() {
        for Write { number, request, .. } in find_neighbours(&undisturbed.writes, call) {
            for (side, of_write) in [(Side::Before, After), (Side::After, Before)] {
                let mut world = World::without_coordinator();
                world.plan_fault(before + 1, side, Fault::Killed);
                world.stop_coordinator_at(*number, of_write);
                let outcome = without_repeats(world.finish::<Lifecycle>().await, Fault::Killed);
                let case = format!("{side:?} {}, {of_write:?} write {number}, {request}", call.verb);
                undisturbed.assert_same(&outcome, &case, &world);
                world.expect_nothing("machineinventory/host-1").await;
                world.check_invariants().await;
            }
        }
    }
}

/// The identity key was only in memory: nothing was installed, so the same
/// hardware comes with another one.
#[tokio::test(start_paused = true)]
async fn power_cut_before_key_flush_needs_no_visit() {
    let mut world = World::new().await;
    world.apply_registration().await;
    world.boot_host("host-1", "hosts");
    world.host("host-1").inject_fault(1, Side::Before, Fault::PowerCut);
    let key = |world: &World| world.inventory("host-1").and_then(|inventory| inventory.spec.tpm_hash);
    world.wait_until("it is registered", |world| key(world).is_some()).await;
    let first = key(&world);
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    assert_ne!(key(&world), first);
    world.expect_event("MachineInventory", "host-1", "IdentityReplaced", "the key was replaced; next: none");
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
    let undisturbed = Undisturbed::run::<Lifecycle>().await;
    for outage in [Outage::Refused, Outage::Hanging] {
        for point in Point::ALL {
            let world = World::with_hosts(&["host-1"]).await;
            world.apply_machine("m-1").await;
            world.wait_until(&format!("{point:?}"), |world| is_reached(world, point)).await;
            world.fake.faults().outage(outage);
            world.advance_time(Duration::from_mins(1)).await;
            world.fake.faults().outage(Outage::Over);
            world.wait_linked("m-1").await;
            world.delete_machine("m-1").await;
            world.advance_time(Duration::from_secs(1)).await;
            world.fake.faults().outage(outage);
            world.advance_time(Duration::from_mins(1)).await;
            world.fake.faults().outage(Outage::Over);
            world.wait_released("m-1", "host-1").await;
            // A replica that the outage isolated has sent its host away. The session is written as
            // ended ten seconds later, so that it looks open until then.
            world.advance_time(Duration::from_mins(1)).await;
            let is_attached = |world: &World| {
                let host = world.inventory("host-1").and_then(|inventory| inventory.status?.host);
                host.and_then(|host| host.session).is_some_and(|session| session.ended.is_none())
            };
            world.wait_until("host-1 is attached again", is_attached).await;
            world.wait_idle().await;
            undisturbed.assert_same(&world.outcome(), &format!("{outage:?} at {point:?}"), &world);
            world.expect_nothing("machineinventory/host-1").await;
            world.check_invariants().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ended_watches_lose_no_event() {
    let undisturbed = Undisturbed::run::<Lifecycle>().await;
    for end in [End::Closed, End::Broken, End::Expired] {
        for point in Point::ALL {
            let world = World::with_hosts(&["host-1"]).await;
            world.apply_machine("m-1").await;
            world.wait_until(&format!("{point:?}"), |world| is_reached(world, point)).await;
            if end == End::Expired {
                world.fake.compact();
            }
            world.fake.faults().end_watches(&Matching::any().user("coordinator"), end);
            world.wait_linked("m-1").await;
            world.delete_machine("m-1").await;
            world.fake.faults().end_watches(&Matching::any().user("coordinator"), end);
            world.wait_released("m-1", "host-1").await;
            world.wait_idle().await;
            undisturbed.assert_same(&world.outcome(), &format!("{end:?} at {point:?}"), &world);
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
