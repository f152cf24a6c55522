//! Two crashes in one scenario, at points that are drawn.

use fake_apiserver::Side::{After, Before};
use scenarios::{Fault, Side, Undisturbed, World, kill_at_drawn_writes};

use super::{Lifecycle, find_neighbours, without_repeats};
use crate::abandoned_hosts::Abandonment;
use crate::endpoint::Endpoint;
use crate::metal3_addresses::{LastAddress, PausedClaim};
use crate::metal3_data::PausedData;
use crate::metal3_machines::Metal3Lifecycle;
use crate::metal3_remediation::Remediation;
use crate::operators_plans::OperatorsPlan;
use crate::reboots::{BareMetalReboot, Reboot};
use crate::registration::Images;
use crate::restores::{Adoption, Restore};

/// How many pairs are drawn for a test, of which each is played in four worlds. `SCENARIO_CASES`
/// asks for more worlds.
fn pairs() -> usize {
    let cases = std::env::var("SCENARIO_CASES").ok().and_then(|text| text.parse::<usize>().ok());
    cases.unwrap_or(24).div_ceil(8)
}

/// The pairs are the same in every run unless `PROPTEST_RNG_SEED` asks for others.
fn seed() -> u64 {
    std::env::var("PROPTEST_RNG_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

macro_rules! kill_twice {
    ($($name:ident: $scenario:ty,)*) => {
        $(#[tokio::test(start_paused = true)]
        async fn $name() {
            kill_at_drawn_writes::<$scenario>(pairs(), seed()).await;
        })*
    };
}

kill_twice! {
    two_crashes_in_a_lifecycle: Lifecycle,
    two_crashes_in_a_lifecycle_of_metal3: Metal3Lifecycle,
    two_crashes_while_a_host_is_abandoned: Abandonment,
    two_crashes_of_an_internal_endpoint: Endpoint,
    two_crashes_while_an_address_is_reused: LastAddress,
    two_crashes_after_a_pause_of_a_claim: PausedClaim,
    two_crashes_after_a_pause_of_data: PausedData,
    two_crashes_in_a_remediation: Remediation,
    two_crashes_in_an_operators_plan: OperatorsPlan,
    two_crashes_in_a_reboot: Reboot,
    two_crashes_in_a_reboot_of_metal3: BareMetalReboot,
    two_crashes_of_seed_images: Images,
    two_crashes_in_a_restore: Restore,
    two_crashes_in_an_adoption: Adoption,
}

#[tokio::test(start_paused = true)]
async fn agent_and_coordinator_killed_apart_recover() {
    let undisturbed = Undisturbed::run::<Lifecycle>().await;
    let Undisturbed { writes, calls, .. } = &undisturbed;
    let mut random = fastrand::Rng::with_seed(seed());
    for _ in 0..pairs() {
        let before = random.usize(..calls.len());
        let call = &calls[before];
        let near: Vec<_> = find_neighbours(writes, call).iter().map(|write| write.number).collect();
        let far: Vec<_> = writes.iter().filter(|write| !near.contains(&write.number)).collect();
        let write = far[random.usize(..far.len())];
        for of_call in [Side::Before, Side::After] {
            for of_write in [Before, After] {
                let mut world = World::without_coordinator();
                world.plan_fault(before + 1, of_call, Fault::Killed);
                world.stop_coordinator_at(write.number, of_write);
                let outcome = without_repeats(world.finish::<Lifecycle>().await, Fault::Killed);
                let (number, request) = (write.number, &write.request);
                let case = format!("{of_call:?} {}, {of_write:?} write {number}, {request}", call.verb);
                undisturbed.assert_same(&outcome, &case, &world);
                world.expect_nothing("machineinventory/host-1").await;
                world.check_invariants().await;
            }
        }
    }
}
