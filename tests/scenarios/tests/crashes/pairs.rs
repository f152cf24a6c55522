//! Two crashes that are not neighbours, at points that are drawn: the others of a lifecycle lie
//! between them.

use fake_apiserver::Side::{After, Before};
use scenarios::{Fault, Side, Undisturbed, World};

use super::{find_neighbours, without_repeats};

/// Writes from the first crash of the coordinator to the second one, at least.
const APART: usize = 3;

/// How many pairs are drawn for a test, of which each is played in four worlds. `SCENARIO_CASES`
/// asks for more worlds of both tests.
fn pairs() -> usize {
    let cases = std::env::var("SCENARIO_CASES").ok().and_then(|text| text.parse::<usize>().ok());
    cases.unwrap_or(24).div_ceil(8)
}

/// As those of the properties, the values are the same in every run unless another seed is asked
/// for.
fn random() -> fastrand::Rng {
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|text| text.parse().ok());
    fastrand::Rng::with_seed(seed.unwrap_or(1))
}

#[tokio::test(start_paused = true)]
async fn coordinator_killed_at_two_distant_writes_recovers() {
    let Undisturbed { outcome: want, writes, .. } = Undisturbed::run().await;
    let mut random = random();
    for _ in 0..pairs() {
        let first = random.usize(..writes.len() - APART);
        let second = random.usize(first + APART..writes.len());
        let pair = [&writes[first], &writes[second]];
        for sides in [[Before, Before], [Before, After], [After, Before], [After, After]] {
            let mut world = World::without_coordinator();
            for (write, side) in pair.into_iter().zip(sides) {
                world.stop_coordinator_at(write.number, side);
            }
            let outcome = world.run_lifecycle().await;
            let requests = pair.map(|write| format!("{}, {}", write.number, write.request));
            let case = format!("{sides:?} writes {requests:?}");
            assert!(world.all_stops_reached(), "{case}: it did not die twice");
            assert_eq!(outcome, want, "{case}\n{}", world.dump());
            world.expect_nothing("machineinventory/host-1").await;
            world.check_invariants().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn agent_and_coordinator_killed_apart_recover() {
    let Undisturbed { outcome: want, writes, calls, .. } = Undisturbed::run().await;
    let mut random = random();
    for _ in 0..pairs() {
        let before = random.usize(..calls.len());
        let call = &calls[before];
        let near: Vec<_> = find_neighbours(&writes, call).iter().map(|write| write.number).collect();
        let far: Vec<_> = writes.iter().filter(|write| !near.contains(&write.number)).collect();
        let write = far[random.usize(..far.len())];
        for of_call in [Side::Before, Side::After] {
            for of_write in [Before, After] {
                let mut world = World::without_coordinator();
                world.plan_fault(before + 1, of_call, Fault::Killed);
                world.stop_coordinator_at(write.number, of_write);
                let outcome = without_repeats(world.run_lifecycle().await, Fault::Killed);
                let (number, request) = (write.number, &write.request);
                let case = format!("{of_call:?} {}, {of_write:?} write {number}, {request}", call.verb);
                assert!(!world.host("host-1").has_pending_fault(), "{case}: the agent did not die");
                assert!(world.all_stops_reached(), "{case}: the coordinator did not die");
                assert_eq!(outcome, want, "{case}\n{}", world.dump());
                world.expect_nothing("machineinventory/host-1").await;
                world.check_invariants().await;
            }
        }
    }
}
