//! Anything, in any order: what must never be, never is, and when the trouble
//! is over every host is free again.

#![expect(clippy::unwrap_used, reason = "clippy allows it only in functions marked as tests")]

use std::time::Duration;

use fake_apiserver::{Matching, Outage, Refusal, Verb};
use proptest::prelude::*;
use scenarios::World;
use serde_json::json;

const HOSTS: [&str; 2] = ["host-1", "host-2"];
const MACHINES: usize = 3;
const POOLS: &str = "machineinventorypools.infrastructure.cluster.x-k8s.io";

#[derive(Clone, Debug)]
enum Event {
    Apply { machine: usize },
    Delete { machine: usize },
    RestartCoordinator,
    Second { runs: bool },
    KillAgent { host: usize },
    PowerCut { host: usize },
    UpgradeFails { host: usize },
    Mend { host: usize },
    Pool { both: bool },
    Paused { is: bool },
    DeletePool,
    DeleteBootstrap { machine: usize },
    DeleteRegistration,
    Catalog { has_v2: bool },
    Lag { seconds: u64 },
    LoseResponse,
    Refuse { refusal: Refusal, times: usize },
    SlowReads { times: usize },
    Outage { kind: Outage },
    WatchesExpire,
    Pass { seconds: u64 },
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        Just(Refusal::Conflict),
        (1..20_u32).prop_map(|retry_after| Refusal::TooManyRequests { retry_after }),
        Just(Refusal::Forbidden),
        Just(Refusal::Internal),
        Just(Refusal::Unavailable),
        Just(Refusal::Timeout),
        Just(Refusal::Disconnected),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let machine = 0..MACHINES;
    let host = 0..HOSTS.len();
    prop_oneof![
        5 => machine.clone().prop_map(|machine| Event::Apply { machine }),
        4 => machine.clone().prop_map(|machine| Event::Delete { machine }),
        2 => Just(Event::RestartCoordinator),
        1 => any::<bool>().prop_map(|runs| Event::Second { runs }),
        2 => host.clone().prop_map(|host| Event::KillAgent { host }),
        2 => host.clone().prop_map(|host| Event::PowerCut { host }),
        1 => host.clone().prop_map(|host| Event::UpgradeFails { host }),
        1 => host.prop_map(|host| Event::Mend { host }),
        1 => any::<bool>().prop_map(|both| Event::Pool { both }),
        1 => any::<bool>().prop_map(|is| Event::Paused { is }),
        1 => Just(Event::DeletePool),
        1 => machine.prop_map(|machine| Event::DeleteBootstrap { machine }),
        1 => Just(Event::DeleteRegistration),
        1 => any::<bool>().prop_map(|has_v2| Event::Catalog { has_v2 }),
        2 => (0..6_u64).prop_map(|seconds| Event::Lag { seconds }),
        2 => Just(Event::LoseResponse),
        2 => (refusal(), 1..6_usize).prop_map(|(refusal, times)| Event::Refuse { refusal, times }),
        1 => (1..6_usize).prop_map(|times| Event::SlowReads { times }),
        1 => prop_oneof![Just(Outage::Refused), Just(Outage::Hanging)].prop_map(|kind| Event::Outage { kind }),
        1 => Just(Event::WatchesExpire),
        6 => prop_oneof![0..3_u64, 3..40_u64].prop_map(|seconds| Event::Pass { seconds }),
    ]
}

async fn apply(
    world: &mut World,
    event: &Event,
    made: &mut usize,
    machines: &mut [Option<String>; MACHINES],
) {
    match *event {
        Event::Apply { machine } if machines[machine].is_none() => {
            *made += 1;
            let name = format!("m-{made}");
            world.apply_machine_of(&name, "pool", if made.is_multiple_of(2) { "v2" } else { "v1" }).await;
            machines[machine] = Some(name);
        }
        Event::Delete { machine } => {
            if let Some(name) = machines[machine].take() {
                world.delete_machine(&name).await;
            }
        }
        Event::RestartCoordinator => world.restart_coordinator(),
        Event::Second { runs: true } => world.start_coordinator("second"),
        Event::Second { runs: false } => world.kill_coordinator("second"),
        Event::KillAgent { host } => world.host(HOSTS[host]).kill_agent(),
        Event::PowerCut { host } => world.host(HOSTS[host]).power_cut(),
        Event::UpgradeFails { host } => world.host(HOSTS[host]).system().fail("upgrade", 1).unwrap(),
        Event::Mend { host } => mend(world, HOSTS[host]),
        // It may be gone.
        Event::Pool { both } => drop(set_pool(world, if both { &HOSTS } else { &HOSTS[..1] }).await),
        Event::DeletePool => world.delete_if_there("MachineInventoryPool", "pool").await,
        Event::DeleteBootstrap { machine } => {
            if let Some(name) = &machines[machine] {
                world.delete_if_there("Secret", &format!("{name}-bootstrap")).await;
            }
        }
        Event::DeleteRegistration => world.delete_if_there("MachineRegistration", "hosts").await,
        Event::Catalog { has_v2 } => set_catalog(world, has_v2).await,
        Event::Paused { is } => world.patch("Cluster", "c1", json!({ "spec": { "paused": is } })).await,
        Event::Lag { seconds } => world.fake.faults().lag(Duration::from_secs(seconds)),
        Event::LoseResponse => {
            world.fake.faults().lose_responses(Matching::writes().user("coordinator"), 1);
        }
        Event::Refuse { refusal, times } => {
            world.fake.faults().fail(Matching::any().user("coordinator"), times, refusal);
        }
        Event::SlowReads { times } => {
            let reads = Matching::any().user("coordinator").verb(Verb::Get);
            world.fake.faults().delay(reads, times, Duration::from_secs(8));
        }
        Event::Outage { kind } => {
            world.fake.faults().outage(kind);
            world.advance_time(Duration::from_secs(20)).await;
            world.fake.faults().outage(Outage::Over);
        }
        Event::WatchesExpire => {
            world.fake.compact();
            world
                .fake
                .faults()
                .end_watches(&Matching::any().user("coordinator"), fake_apiserver::End::Expired);
        }
        Event::Pass { seconds } => world.advance_time(Duration::from_secs(seconds)).await,
        Event::Apply { .. } => {}
    }
}

fn mend(world: &World, host: &str) {
    let _ = std::fs::remove_file(world.host(host).disk().join("/simulation/fail/upgrade"));
}

async fn set_pool(world: &World, hosts: &[&str]) -> kube::Result<()> {
    let members: Vec<_> = hosts.iter().map(|host| json!({ "name": host })).collect();
    let patch = json!({ "spec": { "machineInventories": members } });
    world.try_patch("MachineInventoryPool", "pool", patch).await
}

async fn set_catalog(world: &World, has_v2: bool) {
    world.patch_catalog(json!({ "v2": has_v2.then_some("registry.example/os:v2") })).await;
}

/// One that was deleted is held until no machine of it is left.
async fn restore_pool(world: &World) {
    world
        .wait_until("a deleted pool is gone", |world| {
            let pool = world.get_object(POOLS, "pool");
            pool.is_none_or(|pool| pool["metadata"]["deletionTimestamp"].is_null())
        })
        .await;
    if set_pool(world, &HOSTS).await.is_err() {
        world.apply_pool("pool", &HOSTS).await;
    }
}

async fn play(events: Vec<Event>) {
    let mut world = World::with_hosts(&HOSTS).await;
    // Requests take time, or two leaders that disagree would stop the virtual clock.
    world.fake.faults().latency(Duration::from_millis(20));
    let (mut made, mut machines) = (0, [const { None }; MACHINES]);
    for event in &events {
        apply(&mut world, event, &mut made, &mut machines).await;
    }
    world.fake.faults().clear();
    world.patch("Cluster", "c1", json!({ "spec": { "paused": false } })).await;
    set_catalog(&world, true).await;
    for host in HOSTS {
        mend(&world, host);
    }
    for machine in machines.iter_mut().filter_map(Option::take) {
        world.delete_machine(&machine).await;
    }
    world
        .wait_until("all machines are gone and all hosts are free", |world| {
            let left = world.fake.look_at_all("baremetalmachines.infrastructure.cluster.x-k8s.io");
            left.is_empty() && HOSTS.iter().all(|host| world.is_available(host))
        })
        .await;
    restore_pool(&world).await;
    world.apply_machine("last").await;
    world.wait_running("last").await;
    world.check_invariants().await;
}

fn play_in_virtual_time(events: Vec<Event>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(play(events));
}

/// Sequences that are played; `SCENARIO_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("SCENARIO_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(32)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        max_shrink_iters: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_events_keep_invariants_and_release_hosts(
        events in prop::collection::vec(event(), 4..24),
    ) {
        play_in_virtual_time(events);
    }
}

#[test]
fn replica_with_old_cache_claims_nothing_twice() {
    play_in_virtual_time(vec![
        Event::Apply { machine: 2 },
        Event::Lag { seconds: 3 },
        Event::Pass { seconds: 12 },
        Event::Second { runs: true },
        Event::Apply { machine: 1 },
        Event::Delete { machine: 1 },
        Event::RestartCoordinator,
    ]);
}
