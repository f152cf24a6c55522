//! Two of everything: machines, coordinators, views of one object.

use std::collections::BTreeMap;
use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::{PlanState, PlanType};
use coordinator_api::machine::Phase;
use fake_apiserver::{Counts, End, Entry, Fault, Faults, Matching, Outage, Outcome, Refusal, Verb};
use scenarios::{Undisturbed, World, Write};
use serde_json::json;

use crate::crashes::Lifecycle;

/// The one of two machines that has the host, and the other.
fn winner(world: &World) -> Option<(&'static str, &'static str)> {
    let claim = world.inventory("host-1")?.claim()?;
    Some(if claim.baremetal_machine == "m-1" { ("m-1", "m-2") } else { ("m-2", "m-1") })
}

// Fault: two machines want one host.
// Shown: the second machine: `PoolExhausted`.
#[tokio::test(start_paused = true)]
async fn last_host_is_claimed_by_one_machine() {
    for latency in [0, 3, 18] {
        for (lag, [one, two]) in
            [(0, ["m-1", "m-2"]), (0, ["m-2", "m-1"]), (400, ["m-2", "m-1"]), (1600, ["m-1", "m-2"])]
        {
            let case = format!("latency {latency} ms, lag {lag} ms, {one} first");
            let world = World::with_hosts(&["host-1"]).await;
            world.fake.faults().latency(Duration::from_millis(latency));
            world.fake.faults().lag(Duration::from_millis(lag));
            tokio::join!(world.apply_machine(one), world.apply_machine(two));
            let runs =
                |world: &World| [one, two].iter().any(|name| world.phase(name) == Some(Phase::Running));
            world.wait_until("a machine runs", runs).await;
            let (winner, loser) = winner(&world).unwrap();
            let action = "add a host to it or free one";
            world.wait_for_reason(loser, Type::InventoryAllocated, Reason::PoolExhausted, action).await;
            let action = "add a host to the pool";
            world
                .expect_why(&format!("machine/{loser}"), Reason::PoolExhausted, "held by machines", action)
                .await;
            assert!(world.machine(loser).unwrap().spec.provider_id.is_none(), "{case}");
            world.delete_machine(winner).await;
            world.wait_running(loser).await;
            world.check_invariants().await;
        }
    }
}

// Fault: two replicas lead at once, whose caches are behind by different times.
// Shown: nothing: compare-and-swap decides.
#[tokio::test(start_paused = true)]
async fn two_leaders_give_the_outcome_of_one() {
    let due = Undisturbed::run::<Lifecycle>().await.cost;
    for latency in [0, 5, 15] {
        for lags in [[0, 700], [1400, 0], [2100, 2800], [700, 700]] {
            let case = format!("latency {latency} ms, lags {lags:?} ms");
            let mut world = World::without_coordinator();
            for (name, lag) in ["coordinator", "second"].into_iter().zip(lags) {
                world.start_coordinator(name);
                world.fake.faults().lag_of(name, Duration::from_millis(lag));
            }
            world.fake.faults().latency(Duration::from_millis(latency));
            world.create_prerequisites(&["host-1", "host-2"]).await;
            tokio::join!(world.apply_machine("m-1"), world.apply_machine("m-2"));
            world.wait_running("m-1").await;
            world.wait_running("m-2").await;
            assert_eq!(world.plans().len(), 2, "{case}: {:?}", world.plans());
            let host = world.machine("m-1").unwrap().status.unwrap().machine_inventory_ref.unwrap().name;
            world.delete_machine("m-1").await;
            world.wait_released("m-1", &host).await;
            assert_eq!(world.plans().len(), 3, "{case}: {:?}", world.plans());
            world.expect_nothing("baremetalmachine/m-2").await;
            // Two hosts cost what two leaders change of them, and of each change two conflicts at most.
            let cost = world.count_requests(0);
            assert!(cost.changes <= 2 * due.changes, "{case}: {cost}");
            assert!(cost.writes <= 3 * 2 * due.writes, "{case}: {cost}");
            world.check_invariants().await;
        }
    }
}

/// Each host costs a quarter more changes at most: what the status shows in between.
#[tokio::test(start_paused = true)]
async fn stale_caches_only_delay_the_lifecycle() {
    let undisturbed = Undisturbed::run::<Lifecycle>().await;
    let due = &undisturbed.cost;
    for lag in [1, 5, 20] {
        let mut world = World::without_coordinator();
        world.fake.faults().lag(Duration::from_secs(lag));
        let outcome = world.finish::<Lifecycle>().await;
        undisturbed.assert_same(&outcome, &format!("{lag} s"), &world);
        let cost = world.count_requests(0);
        assert!(cost.changes <= due.changes * 5 / 4, "{lag} s behind: {cost}");
        assert!(cost.requests <= due.requests * 5 / 3, "{lag} s behind: {cost}");
        world.check_invariants().await;
    }
}

/// Lifecycles, each of whose coordinator meets the fault at another one of its writes.
async fn fault_meets_every_write(inject: fn(&Faults, Matching) -> Fault) {
    let want = Undisturbed::run::<Lifecycle>().await;
    for Write { number, request, .. } in &want.writes {
        let mut world = World::without_coordinator();
        let fault = inject(&world.fake.faults(), Matching::writes().user("coordinator").after(number - 1));
        let outcome = world.finish::<Lifecycle>().await;
        let case = format!("write {number}, {request}");
        assert_eq!(fault.times_met(), 1, "{case} never came");
        want.assert_same(&outcome, &case, &world);
        world.check_invariants().await;
    }
}

#[tokio::test(start_paused = true)]
async fn lost_response_of_any_write_changes_no_outcome() {
    fault_meets_every_write(|faults, write| faults.lose_responses(write, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn conflict_at_any_write_changes_no_outcome() {
    fault_meets_every_write(|faults, write| faults.fail(write, 1, Refusal::Conflict)).await;
}

/// A host is claimed and becomes a node, while the API server refuses so many writes.
async fn claim_host(refused: usize, refusal: Refusal) -> (World, Vec<Entry>) {
    let world = World::with_hosts(&["host-1"]).await;
    let mark = world.fake.journal().mark();
    let writes = Matching::writes().user("coordinator");
    let fault = (refused > 0).then(|| world.fake.faults().fail(writes, refused, refusal));
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    assert_eq!(fault.map_or(0, |fault| fault.times_met()), refused);
    let entries = world.requests_since(mark);
    (world, entries)
}

/// How long after its former attempt each write was repeated, until one was accepted.
fn list_intervals(entries: &[Entry]) -> BTreeMap<String, Vec<Duration>> {
    let mut attempts: BTreeMap<String, Vec<&Entry>> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.request.verb.is_write()) {
        let attempts = attempts.entry(entry.request.to_string()).or_default();
        if attempts.last().is_none_or(|former| !former.changed) {
            attempts.push(entry);
        }
    }
    let between =
        |attempts: Vec<&Entry>| attempts.windows(2).map(|two| two[1].at.saturating_sub(two[0].at)).collect();
    let repeated = attempts.into_iter().filter(|(_, attempts)| attempts.len() > 1);
    repeated.map(|(write, attempts)| (write, between(attempts))).collect()
}

// Fault: the API server refuses every write.
// Shown: log and metric; each write is repeated after one second, then after twice the time.
#[tokio::test(start_paused = true)]
async fn rejecting_api_server_is_retried_with_backoff() {
    const REFUSED: usize = 12;
    let (world, entries) = claim_host(0, Refusal::Internal).await;
    let due = Counts::of(&entries);
    world.check_invariants().await;
    for refusal in [Refusal::Internal, Refusal::Unavailable] {
        let (world, entries) = claim_host(REFUSED, refusal).await;
        let intervals = list_intervals(&entries);
        assert_eq!(intervals.len(), 4, "inventory, pool, machine and its status: {intervals:?}");
        for (write, intervals) in intervals {
            let wanted = [1, 2, 4].map(Duration::from_secs);
            // An interval is longer by up to a fifth, so that objects do not return together.
            let doubles = intervals.len() == 3
                && intervals.iter().zip(wanted).all(|(found, wanted)| *found >= wanted)
                && intervals[..2].iter().zip(wanted).all(|(found, wanted)| *found <= wanted * 6 / 5);
            assert!(doubles, "{refusal:?}: {write} after {intervals:?}");
        }
        let cost = Counts::of(&entries);
        assert!(cost.requests <= due.requests + 2 * REFUSED, "{refusal:?}: {cost}");
        world.expect_nothing("baremetalmachine/m-1").await;
        world.check_invariants().await;
    }
}

// Fault: the API server is overloaded, and says when to come again.
// Shown: log and metric; no request for the same resource comes before.
#[tokio::test(start_paused = true)]
async fn overloaded_api_server_is_left_alone() {
    const REFUSED: usize = 12;
    let (world, entries) = claim_host(0, Refusal::Internal).await;
    let due = Counts::of(&entries);
    world.check_invariants().await;
    let (world, entries) = claim_host(REFUSED, Refusal::TooManyRequests { retry_after: 3 }).await;
    let of_coordinator = || entries.iter().filter(|entry| entry.request.user == "coordinator");
    let resource = |entry: &Entry| (entry.request.resource.clone(), entry.request.subresource.clone());
    let mut refused = 0;
    for one in of_coordinator().filter(|entry| entry.outcome == Outcome::Answered(429)) {
        refused += 1;
        let is_early = |entry: &&Entry| {
            resource(entry) == resource(one)
                && entry.at > one.at
                && entry.at < one.at + Duration::from_secs(3)
        };
        let early: Vec<_> = of_coordinator().filter(is_early).collect();
        assert!(early.is_empty(), "{one:?}, and then {early:?}");
    }
    // Renewals of the Lease are refused as well, and are not listed.
    assert!(refused > REFUSED / 2, "{refused}");
    let cost = Counts::of(&entries);
    assert!(cost.requests <= due.requests + 2 * REFUSED, "{cost}");
    world.expect_nothing("baremetalmachine/m-1").await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn leaders_with_different_caches_settle() {
    let (world, entries) = claim_host(0, Refusal::Internal).await;
    let due = Counts::of(&entries);
    world.check_invariants().await;
    let world = World::with_hosts(&["host-1"]).await;
    // The first one's watches are dead. It notices that after 45 seconds without an event of a kind, and
    // hears of pools earlier than of hosts.
    world.fake.faults().outage(Outage::Hanging);
    world.advance_time(Duration::from_secs(1)).await;
    world.fake.faults().outage(Outage::Over);
    let mark = world.fake.journal().mark();
    world.start_coordinator("second");
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.advance_time(Duration::from_mins(6)).await;
    let entries = world.requests_since(mark);
    let cost = Counts::of(&entries);
    let is_of_pool = |entry: &&Entry| {
        let request = &entry.request;
        (request.verb, &*request.resource, &*request.subresource)
            == (Verb::Patch, "machineinventorypools", "status")
    };
    for leader in ["coordinator", "second"] {
        let of_leader = entries.iter().filter(|entry| entry.request.user == leader);
        let times: Vec<_> = of_leader.filter(is_of_pool).map(|entry| entry.at).collect();
        assert!(times.len() > 4, "{leader} had no other view of the pool: {times:?}");
        let is_slow = |two: &[Duration]| two[1].saturating_sub(two[0]) >= Duration::from_millis(500);
        assert!(times.windows(2).all(is_slow) && times.len() < 45, "{leader}: {times:?}");
    }
    // Little but the numbers of the pool is written by both.
    let of_pool = entries.iter().filter(is_of_pool).filter(|entry| entry.changed).count();
    assert!(cost.changes <= due.changes * 5 / 4 + of_pool, "{cost}");
    assert!(cost.writes <= 3 * cost.changes + due.writes, "{cost}");
    let mark = world.fake.journal().mark();
    world.advance_time(Duration::from_mins(5)).await;
    assert_eq!(world.count_requests(mark).writes, 0, "{:?}", world.requests_since(mark));
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    world.check_invariants().await;
}

// Fault: of two replicas that lead at once, one does not hear of inventories any more.
// Shown: nothing: a machine keeps the host that it has claimed.
#[tokio::test(start_paused = true)]
async fn unseen_claim_is_replaced_by_no_other() {
    let world = World::with_hosts(&["host-1", "host-2"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    let provider_id = world.machine("m-1").unwrap().spec.provider_id.unwrap();
    let host = provider_id.trim_start_matches("baremetal:///").to_owned();
    world.start_coordinator("second");
    world.wait_idle().await;
    let inventories = Matching::any().user("second").resource("machineinventories");
    world.fake.faults().end_watches(&inventories, End::Silent);
    let set_pool = |members: serde_json::Value| json!({ "spec": { "machineInventories": members } });
    // The other host is out of reach until this one is claimed again.
    world.patch("MachineInventoryPool", "pool", set_pool(json!([{ "name": host }]))).await;
    world.delete_machine("m-1").await;
    world.apply_machine("m-2").await;
    let is_claimed = |world: &World| {
        world.inventory(&host).unwrap().claim().is_some_and(|claim| claim.baremetal_machine == "m-2")
    };
    world.wait_until("the host is claimed again", is_claimed).await;
    let both = json!([{ "name": "host-1" }, { "name": "host-2" }]);
    world.patch("MachineInventoryPool", "pool", set_pool(both)).await;
    world.wait_running("m-2").await;
    assert_eq!(world.machine("m-2").unwrap().spec.provider_id, Some(provider_id));
    world.expect_nothing("baremetalmachine/m-2").await;
    world.check_invariants().await;
}

// Fault: one of two replicas does not reach the API server any more.
// Shown: nothing: its hosts attach to the other one within a minute.
#[tokio::test(start_paused = true)]
async fn isolated_replica_gives_its_hosts_away() {
    let mut world = World::new().await;
    world.create_prerequisites(&[]).await;
    world.kill_coordinator("coordinator");
    world.start_coordinator("second");
    world.register_hosts(&["host-1"]).await;
    world.start_coordinator("coordinator");
    world.wait_idle().await;
    let replica = |world: &World| {
        let session = world.inventory("host-1").unwrap().status.unwrap().host.unwrap().session.unwrap();
        (session.ended.is_none()).then_some(session.replica)
    };
    assert!(replica(&world).unwrap().starts_with("second"));
    let requests = || Matching::any().user("second");
    world.fake.faults().fail(requests(), usize::MAX, Refusal::Disconnected);
    world.fake.faults().end_watches(&requests(), End::Silent);
    let cut = world.now();
    let has_moved = |world: &World| replica(world).is_some_and(|name| name.starts_with("coordinator"));
    world.wait_until("the host is attached to the other replica", has_moved).await;
    assert!(world.now().duration_since(cut).as_secs() <= 60);
    world.expect_nothing("machineinventory/host-1").await;
    world.check_invariants().await;
}

// Fault: the watch of MachineInventories is silent when a plan ends.
// Shown: nothing: the watch is opened again after 45 seconds.
#[tokio::test(start_paused = true)]
async fn silent_watch_is_opened_again() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    let is_reprovisioning = |world: &World| world.phase("m-1") == Some(Phase::Reprovisioning);
    world.wait_until("the plan runs", is_reprovisioning).await;
    world.fake.faults().end_watches(&Matching::any().resource("machineinventories"), End::Silent);
    let is_applied = |world: &World| {
        let plan = world.inventory("host-1").unwrap().status.unwrap().plan.unwrap();
        plan.state == Some(PlanState::Applied) && plan.kind == Some(PlanType::Reprovision)
    };
    world.wait_until("the plan is applied", is_applied).await;
    let applied = world.now();
    world.wait_running("m-1").await;
    assert!(world.now().duration_since(applied).as_secs() <= 50);
    world.expect_nothing("baremetalmachine/m-1").await;
    world.check_invariants().await;
}
