//! Two of everything: machines, coordinators, views of one object.

use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::machine::Phase;
use fake_apiserver::{Fault, Faults, Matching, Outage, Refusal, Verb};
use scenarios::{Undisturbed, World};

/// Interleavings of one race.
const SEEDS: u64 = 24;

/// The one of two machines that has the host, and the other.
fn winner(world: &World) -> Option<(&'static str, &'static str)> {
    let claim = world.inventory("host-1")?.claim()?;
    Some(if claim.baremetal_machine == "m-1" { ("m-1", "m-2") } else { ("m-2", "m-1") })
}

// Fault: two machines want one host.
// Shown: the second machine: `PoolExhausted`.
#[tokio::test(start_paused = true)]
async fn last_host_is_claimed_by_one_machine() {
    for seed in 0..SEEDS {
        let world = World::with_hosts(&["host-1"]).await;
        world.fake.faults().latency(Duration::from_millis(seed % 7 * 3));
        world.fake.faults().lag(Duration::from_millis(seed % 5 * 400));
        let (one, two) = if seed % 2 == 0 { ("m-1", "m-2") } else { ("m-2", "m-1") };
        tokio::join!(world.apply_machine(one), world.apply_machine(two));
        world
            .wait_until("a machine runs", |world| {
                ["m-1", "m-2"].iter().any(|machine| world.phase(machine) == Some(Phase::Running))
            })
            .await;
        let (winner, loser) = winner(&world).unwrap();
        let action = "add a host to it or free one";
        world.wait_for_reason(loser, Type::InventoryAllocated, Reason::PoolExhausted, action).await;
        world
            .expect_why(
                &format!("machine/{loser}"),
                Reason::PoolExhausted,
                "held by machines",
                "add a host to the pool",
            )
            .await;
        assert!(world.machine(loser).unwrap().spec.provider_id.is_none(), "seed {seed}");
        world.delete_machine(winner).await;
        world.wait_running(loser).await;
        world.check_invariants().await;
    }
}

// Fault: two replicas lead at once.
// Shown: nothing: compare-and-swap decides.
#[tokio::test(start_paused = true)]
async fn two_leaders_give_the_outcome_of_one() {
    for seed in 0..SEEDS {
        let mut world = World::without_coordinator();
        world.start_coordinator("coordinator");
        world.start_coordinator("second");
        world.fake.faults().latency(Duration::from_millis(seed % 4 * 5));
        world.fake.faults().lag(Duration::from_millis(seed % 5 * 700));
        world.create_prerequisites(&["host-1", "host-2"]).await;
        tokio::join!(world.apply_machine("m-1"), world.apply_machine("m-2"));
        world.wait_running("m-1").await;
        world.wait_running("m-2").await;
        assert_eq!(world.plans().len(), 2, "seed {seed}: {:?}", world.plans());
        let host = world.machine("m-1").unwrap().status.unwrap().machine_inventory_ref.unwrap().name;
        world.delete_machine("m-1").await;
        world.wait_released("m-1", &host).await;
        assert_eq!(world.plans().len(), 3, "seed {seed}: {:?}", world.plans());
        world.expect_nothing("baremetalmachine/m-2").await;
        world.check_invariants().await;
    }
}

#[tokio::test(start_paused = true)]
async fn stale_caches_only_delay_the_lifecycle() {
    let want = Undisturbed::run().await.outcome;
    for lag in [1, 5, 20] {
        let mut world = World::without_coordinator();
        world.fake.faults().lag(Duration::from_secs(lag));
        assert_eq!(world.run_lifecycle().await, want, "{lag} s");
        let cost = world.count_requests(0);
        println!("XX {lag} s behind: {cost}");
        assert!(cost.requests < 150, "{lag} s behind makes no storm: {cost}");
        world.check_invariants().await;
    }
}

/// Lifecycles, each of whose coordinator meets the fault at another one of its writes.
async fn fault_meets_every_write(inject: fn(&Faults, Matching) -> Fault) {
    let want = Undisturbed::run().await;
    assert!(!want.writes.is_empty());
    for (before, write) in want.writes.iter().enumerate() {
        let mut world = World::without_coordinator();
        let fault = inject(&world.fake.faults(), Matching::writes().user("coordinator").after(before));
        let outcome = world.run_lifecycle().await;
        let case = format!("write {} of {}, {write}", before + 1, want.writes.len());
        assert_eq!(fault.times_met(), 1, "{case} never came");
        assert_eq!(outcome, want.outcome, "{case}\n{}", world.dump());
        world.check_invariants().await;
    }
    println!("XX {:#?} writes", want.writes.iter().map(ToString::to_string).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn lost_response_of_any_write_changes_no_outcome() {
    fault_meets_every_write(|faults, write| faults.lose_responses(write, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn conflict_at_any_write_changes_no_outcome() {
    fault_meets_every_write(|faults, write| faults.fail(write, 1, Refusal::Conflict)).await;
}

// Fault: the API server refuses every write.
// Shown: log and metric; requests are few.
#[tokio::test(start_paused = true)]
async fn rejecting_api_server_is_retried_with_backoff() {
    for refusal in [Refusal::Internal, Refusal::Unavailable, Refusal::TooManyRequests { retry_after: 3 }] {
        let world = World::with_hosts(&["host-1"]).await;
        let mark = world.fake.journal().mark();
        world.fake.faults().fail(Matching::writes().user("coordinator"), 12, refusal);
        world.apply_machine("m-1").await;
        world.wait_running("m-1").await;
        let cost = world.count_requests(mark);
        println!("XX {refusal:?} {cost}");
        assert!(cost.requests < 60, "{refusal:?}: {cost}");
        world.expect_nothing("baremetalmachine/m-1").await;
        world.check_invariants().await;
    }
}

#[tokio::test(start_paused = true)]
async fn leaders_with_different_caches_settle() {
    let world = World::with_hosts(&["host-1"]).await;
    // The first one's watches are dead, and it will not know for five minutes.
    world.fake.faults().outage(Outage::Hanging);
    world.advance_time(Duration::from_secs(1)).await;
    world.fake.faults().outage(Outage::Over);
    let mark = world.fake.journal().mark();
    world.start_coordinator("second");
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.advance_time(Duration::from_mins(6)).await;
    let cost = world.count_requests(mark);
    let pools = cost.on(Verb::Update, "machineinventorypools/status");
    println!("XX five minutes of two views: {pools} writes of the pool's numbers, {} in all", cost.writes);
    println!("XX {cost}");
    assert!(cost.writes < 3000, "{cost}");
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    world.check_invariants().await;
}
