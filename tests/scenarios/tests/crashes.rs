//! Whoever dies at whatever moment: the story ends as if nobody had.

use std::time::Duration;

use fake_apiserver::{End, Matching, Outage};
use scenarios::{Ending, Outcome, Side, World};

/// From an empty cluster to a node and back.
async fn play(world: &mut World) -> Outcome {
    world.furnish(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.runs("m-1").await;
    world.delete_machine("m-1").await;
    world.gone("m-1", "host-1").await;
    world.pass(Duration::from_secs(30)).await;
    world.outcome("host-1")
}

async fn undisturbed() -> (Outcome, usize, usize) {
    let mut world = World::without_coordinator();
    world.start_coordinator("coordinator");
    let outcome = play(&mut world).await;
    let writes = world.fake.journal().counts_of("coordinator").writes;
    let calls = world.host("host-1").calls();
    world.end().await;
    (outcome, writes, calls)
}

async fn dies_at_every_write(side: fake_apiserver::Side) {
    let (want, writes, _) = undisturbed().await;
    assert_eq!(want.plans, ["reprovision 1", "clean 2"]);
    for write in 1..=writes {
        let mut world = World::without_coordinator();
        world.stop_coordinator_at(write, side);
        world.start_coordinator("coordinator");
        let outcome = play(&mut world).await;
        assert!(world.has_died(), "{side:?} write {write} of {writes} never came");
        assert_eq!(outcome, want, "{side:?} write {write} of {writes}\n{}", world.dump());
        world.end().await;
    }
    println!("{writes} writes, stopped {side:?} each");
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_dies_before_any_of_its_writes_changes_nothing_of_the_story() {
    dies_at_every_write(fake_apiserver::Side::Before).await;
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_dies_after_any_of_its_writes_changes_nothing_of_the_story() {
    dies_at_every_write(fake_apiserver::Side::After).await;
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_dies_three_times_in_a_row_changes_nothing_of_the_story() {
    let (want, writes, _) = undisturbed().await;
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
        assert_eq!(play(&mut world).await, want, "from write {write} of {writes}\n{}", world.dump());
        world.end().await;
    }
}

/// The story with a trap that is set before the host is switched on, or after
/// its installed system has attached.
async fn trapped(call: usize, side: Side, ending: Ending, from_the_start: bool) -> World {
    let mut world = World::new().await;
    world.apply_registration().await;
    world.rack("host-1", "hosts");
    if from_the_start {
        world.host("host-1").trap(call, side, ending);
    }
    world.until("host-1 is available", |world| world.is_available("host-1")).await;
    if !from_the_start {
        world.host("host-1").trap(call, side, ending);
    }
    world.apply_catalog().await;
    world.apply_cluster("c1").await;
    world.apply_pool("pool", &["host-1"]).await;
    world.apply_machine("m-1").await;
    world.runs("m-1").await;
    world.delete_machine("m-1").await;
    world.gone("m-1", "host-1").await;
    world.pass(Duration::from_secs(30)).await;
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

async fn ends_at_every_call(ending: Ending, from_the_start: bool) {
    let (want, _, calls) = undisturbed().await;
    let calls = if from_the_start { calls } else { calls - LIVE_CALLS };
    println!("{calls} calls into the operating system");
    for call in 1..=calls {
        for side in [Side::Before, Side::After] {
            let world = trapped(call, side, ending, from_the_start).await;
            let (outcome, case) = (world.outcome("host-1"), format!("{ending:?} {side:?} call {call}"));
            assert!(!world.host("host-1").is_trapped(), "{case}: never came there");
            assert_eq!(outcome.plans, want.plans, "{case}");
            assert_eq!(outcome.inventory, want.inventory, "{case}");
            assert_eq!(without_repeats(&outcome), without_repeats(&want), "{case}: {:?}", outcome.effects);
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_killed_at_any_step_goes_on() {
    ends_at_every_call(Ending::Killed, true).await;
}

#[tokio::test(start_paused = true)]
async fn an_installed_host_that_loses_power_at_any_step_goes_on() {
    ends_at_every_call(Ending::PowerCut, false).await;
}

/// Its key was in memory alone: nobody can tell it from a stranger.
#[tokio::test(start_paused = true)]
async fn a_host_that_loses_power_before_its_key_is_on_disk_needs_a_person() {
    let mut world = World::new().await;
    world.apply_registration().await;
    world.rack("host-1", "hosts");
    world.host("host-1").trap(1, Side::Before, Ending::PowerCut);
    world.until("it is refused", |world| world.log().contains("NameTaken")).await;
    world.delete("MachineInventory", "host-1").await;
    world.until("host-1 is available", |world| world.is_available("host-1")).await;
    world.end().await;
}

/// How far the story is when something happens.
fn reached(world: &World, point: usize) -> bool {
    let inventory = world.inventory("host-1");
    let effects = world.host("host-1").system().effects();
    match point {
        0 => true,
        1 => inventory.is_some_and(|inventory| inventory.claim().is_some()),
        2 => {
            inventory.is_some_and(|inventory| inventory.plan().is_some_and(|plan| plan.generation == Some(1)))
        }
        3 => effects.iter().any(|effect| effect.starts_with("reboot")),
        _ => effects.iter().any(|effect| effect.starts_with("node joins")),
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_for_a_minute_delays_the_story_and_nothing_else() {
    let (want, ..) = undisturbed().await;
    for outage in [Outage::Refused, Outage::Hanging] {
        for point in 0..5 {
            let world = World::with_hosts(&["host-1"]).await;
            world.apply_machine("m-1").await;
            world.until("the point", |world| reached(world, point)).await;
            world.fake.faults().outage(outage);
            world.pass(Duration::from_mins(1)).await;
            world.fake.faults().outage(Outage::Over);
            world.runs("m-1").await;
            world.delete_machine("m-1").await;
            world.pass(Duration::from_secs(1)).await;
            world.fake.faults().outage(outage);
            world.pass(Duration::from_mins(1)).await;
            world.fake.faults().outage(Outage::Over);
            world.gone("m-1", "host-1").await;
            world.pass(Duration::from_mins(1)).await;
            let outcome = world.outcome("host-1");
            assert_eq!(
                (&outcome.effects, &outcome.plans),
                (&want.effects, &want.plans),
                "{outage:?} at {point}"
            );
            assert_eq!(outcome.inventory, want.inventory, "{outage:?} at {point}");
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_in_any_way_lose_nothing() {
    let (want, ..) = undisturbed().await;
    for end in [End::Closed, End::Broken, End::Expired] {
        for point in 0..5 {
            let world = World::with_hosts(&["host-1"]).await;
            world.apply_machine("m-1").await;
            world.until("the point", |world| reached(world, point)).await;
            if end == End::Expired {
                world.fake.compact();
            }
            world.fake.faults().end_watches(&Matching::any().user("coordinator"), end);
            world.runs("m-1").await;
            world.delete_machine("m-1").await;
            world.fake.faults().end_watches(&Matching::any().user("coordinator"), end);
            world.gone("m-1", "host-1").await;
            world.pass(Duration::from_secs(30)).await;
            assert_eq!(world.outcome("host-1"), want, "{end:?} at {point}");
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_off_is_shown_as_unreachable_and_back_when_it_is_back() {
    use coordinator_api::conditions::{Reason, Type};
    let mut world = World::with_hosts(&["host-1"]).await;
    world.host_mut("host-1").power_off();
    let lost = |world: &World| {
        let ready = world.host_condition("host-1", Type::Ready).unwrap();
        ready.status == "Unknown" && ready.reason == Reason::HostUnreachable.as_str()
    };
    world.until("host-1 is unreachable", lost).await;
    world.restart_coordinator();
    world.host_mut("host-1").power_on();
    world.until("host-1 is back", |world| world.is_available("host-1")).await;
    world.kill_coordinator("coordinator");
    world.host_mut("host-1").power_off();
    world.start_coordinator("coordinator");
    world.until("nobody saw host-1 go, and it is missed", lost).await;
    world.end().await;
}
