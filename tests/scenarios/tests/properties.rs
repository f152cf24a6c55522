//! Anything, in any order: what must never be, never is, and when the trouble
//! is over every host is free again.

mod events;

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator_api::inventory::{PlanState, PlanType};
use coordinator_api::names::annotation;
use fake_apiserver::{End, Matching, Outage, Verb};
use kube::ResourceExt as _;
use proptest::prelude::*;
use scenarios::{NAMESPACE, World};
use serde_json::{Value, json};

use events::{Event, HOSTS, HostEvent, MACHINES, ServerEvent, event};

const POOLS: &str = "machineinventorypools.infrastructure.cluster.x-k8s.io";

/// What an operator knows of the events so far.
#[derive(Default)]
struct Played {
    made: usize,
    machines: [Option<String>; MACHINES],
    /// By host: what its plan Secret was overwritten with, and what it held.
    garbled: BTreeMap<&'static str, (Value, Value)>,
}

async fn apply(world: &mut World, event: &Event, played: &mut Played) {
    match *event {
        Event::Apply { machine } if played.machines[machine].is_none() => {
            played.made += 1;
            let name = format!("m-{}", played.made);
            let version = if played.made.is_multiple_of(2) { "v2" } else { "v1" };
            world.apply_machine_of(&name, "pool", version).await;
            played.machines[machine] = Some(name);
        }
        Event::Delete { machine } => {
            if let Some(name) = played.machines[machine].take() {
                world.delete_machine(&name).await;
            }
        }
        Event::RestartCoordinator => world.restart_coordinator(),
        Event::Second { runs: true } => world.start_coordinator("second"),
        Event::Second { runs: false } => world.kill_coordinator("second"),
        Event::Host { host, what } => apply_to_host(world, HOSTS[host], what, played).await,
        // It may be gone.
        Event::Pool { both } => drop(set_pool(world, if both { &HOSTS } else { &HOSTS[..1] }).await),
        Event::DeletePool => world.delete_if_there("MachineInventoryPool", "pool").await,
        Event::DeleteBootstrap { machine } => {
            if let Some(name) = &played.machines[machine] {
                world.delete_if_there("Secret", &format!("{name}-bootstrap")).await;
            }
        }
        Event::DeleteRegistration => world.delete_if_there("MachineRegistration", "hosts").await,
        Event::Catalog { has_v2 } => set_catalog(world, has_v2).await,
        Event::Paused { is } => world.patch("Cluster", "c1", json!({ "spec": { "paused": is } })).await,
        Event::Server(event) => apply_to_server(world, event).await,
        Event::Pass { seconds } => world.advance_time(Duration::from_secs(seconds)).await,
        Event::Apply { .. } => {}
    }
}

async fn apply_to_host(world: &mut World, host: &'static str, event: HostEvent, played: &mut Played) {
    let system = world.host(host).system();
    match event {
        HostEvent::KillAgent => world.host(host).kill_agent(),
        HostEvent::PowerCut => world.host(host).power_cut(),
        HostEvent::PowerOff { minutes } => {
            world.host_mut(host).power_off();
            world.advance_time(Duration::from_mins(minutes)).await;
            world.host_mut(host).power_on();
        }
        HostEvent::UpgradeFails => system.fail("upgrade", 1).unwrap(),
        HostEvent::ImageSpoilt { version } => {
            system.spoil_image(&format!("registry.example/os:v{version}")).unwrap();
        }
        HostEvent::CloudInitFails => system.spoil_cloud_init("as the events want it").unwrap(),
        HostEvent::CleanFails => system.fail("remove-workload", 1).unwrap(),
        HostEvent::PlanGarbled => garble_plan(world, host, played),
        HostEvent::Mended => mend(world, host, played),
    }
}

async fn apply_to_server(world: &World, event: ServerEvent) {
    let faults = world.fake.faults();
    match event {
        ServerEvent::Lag { seconds } => faults.lag(Duration::from_secs(seconds)),
        ServerEvent::LagOf { replica, seconds } => faults.lag_of(replica, Duration::from_secs(seconds)),
        ServerEvent::LoseResponse => {
            faults.lose_responses(Matching::writes().user("coordinator"), 1);
        }
        ServerEvent::Refuse { refusal, times } => {
            faults.fail(Matching::any().user("coordinator"), times, refusal);
        }
        ServerEvent::SlowReads { times } => {
            let reads = Matching::any().user("coordinator").verb(Verb::Get);
            faults.delay(reads, times, Duration::from_secs(8));
        }
        ServerEvent::Outage { kind } => {
            faults.outage(kind);
            world.advance_time(Duration::from_secs(20)).await;
            faults.outage(Outage::Over);
        }
        ServerEvent::WatchesExpire => {
            world.fake.compact();
            faults.end_watches(&Matching::any().user("coordinator"), End::Expired);
        }
    }
}

/// Of the plan in the Secret of a host the generation alone is left.
fn garble_plan(world: &World, host: &'static str, played: &mut Played) {
    let newest = world.plans().into_iter().rfind(|(secret, ..)| secret == host);
    let generation = newest.map_or(0, |(_, generation, _)| generation);
    let text = json!({ "baremetal.cluster.io/plan": { "generation": generation } }).to_string();
    let garbage = json!(STANDARD.encode(text));
    world.fake.edit(("secrets", NAMESPACE, host), |secret| {
        let held = std::mem::replace(&mut secret["data"]["plan"], garbage.clone());
        if held != garbage {
            played.garbled.insert(host, (garbage, held));
        }
    });
}

/// What fails on a host does not any more. Its plan Secret is restored, unless another plan was
/// written to it meanwhile.
fn mend(world: &World, host: &'static str, played: &mut Played) {
    let system = world.host(host).system();
    for verb in ["upgrade", "remove-workload"] {
        system.succeed(verb).unwrap();
    }
    for fault in ["spoilt", "complaint"] {
        let _ = std::fs::remove_file(world.host(host).disk().join("/simulation").join(fault));
    }
    let Some((garbage, held)) = played.garbled.remove(host) else { return };
    world.fake.edit(("secrets", NAMESPACE, host), |secret| {
        if secret["data"]["plan"] == garbage {
            secret["data"]["plan"] = held;
        }
    });
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

/// What can be asked for another clean where one has failed, and was not asked yet: the machine, or
/// the inventory of an abandoned host.
fn failed_cleans(world: &World) -> Vec<(&'static str, String)> {
    let find_asked = |host: &&str| {
        let inventory = world.inventory(host)?;
        let plan = inventory.plan()?;
        let has_failed = plan.kind == Some(PlanType::Clean) && plan.state == Some(PlanState::Failed);
        let name = inventory.claim().filter(|_| has_failed)?.baremetal_machine;
        let (asked, annotations) = if inventory.annotations().contains_key(annotation::ABANDONED) {
            (("MachineInventory", (*host).to_owned()), inventory.annotations().clone())
        } else {
            let machine = world.machine(&name)?;
            (("BaremetalMachine", name), machine.annotations().clone())
        };
        (!annotations.contains_key(annotation::RETRY_PLAN)).then_some(asked)
    };
    HOSTS.iter().filter_map(find_asked).collect()
}

/// Waits until all machines are gone and all hosts are free. A clean that has failed is run again,
/// as an operator asks for it; the answer tells how often.
async fn wait_free(world: &World) -> usize {
    let is_free = |world: &World| {
        let left = world.fake.look_at_all("baremetalmachines.infrastructure.cluster.x-k8s.io");
        left.is_empty() && HOSTS.iter().all(|host| world.is_available(host))
    };
    let mut retried = 0;
    loop {
        world
            .wait_until("all machines are gone and all hosts are free", |world| {
                is_free(world) || !failed_cleans(world).is_empty()
            })
            .await;
        let failed = failed_cleans(world);
        if failed.is_empty() {
            return retried;
        }
        for (kind, name) in failed {
            let retry = json!({ "metadata": { "annotations": { annotation::RETRY_PLAN: "" } } });
            world.patch(kind, &name, retry).await;
            retried += 1;
        }
    }
}

/// How often a clean had to be run again at the end.
async fn play(events: Vec<Event>) -> usize {
    let mut world = World::with_hosts(&HOSTS).await;
    // Requests take time, or two leaders that disagree would stop the virtual clock.
    world.fake.faults().latency(Duration::from_millis(20));
    let mut played = Played::default();
    for event in &events {
        apply(&mut world, event, &mut played).await;
    }
    world.fake.faults().clear();
    world.patch("Cluster", "c1", json!({ "spec": { "paused": false } })).await;
    set_catalog(&world, true).await;
    for host in HOSTS {
        mend(&world, host, &mut played);
    }
    for machine in played.machines.iter_mut().filter_map(Option::take) {
        world.delete_machine(&machine).await;
    }
    let retried = wait_free(&world).await;
    restore_pool(&world).await;
    world.apply_machine("last").await;
    world.wait_running("last").await;
    world.check_invariants().await;
    retried
}

fn play_in_virtual_time(events: Vec<Event>) -> usize {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(play(events))
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
        Event::Server(ServerEvent::Lag { seconds: 3 }),
        Event::Pass { seconds: 12 },
        Event::Second { runs: true },
        Event::Apply { machine: 1 },
        Event::Delete { machine: 1 },
        Event::RestartCoordinator,
    ]);
}

#[test]
fn operator_recovers_failed_clean_and_garbled_plan() {
    // Either may be the host of a machine.
    let on_both = |what| (0..HOSTS.len()).map(move |host| Event::Host { host, what });
    let mut events = vec![Event::Apply { machine: 0 }, Event::Pass { seconds: 120 }];
    events.extend(on_both(HostEvent::CleanFails));
    events.extend([Event::Delete { machine: 0 }, Event::Pass { seconds: 120 }]);
    events.extend(on_both(HostEvent::CloudInitFails));
    events.extend([Event::Apply { machine: 1 }, Event::Pass { seconds: 30 }]);
    events.extend(on_both(HostEvent::PlanGarbled));
    events.extend(on_both(HostEvent::PowerOff { minutes: 60 }));
    assert_eq!(play_in_virtual_time(events), 1, "the clean of the first machine has failed");
}

#[test]
fn slow_leader_does_not_overwrite_an_announced_plan() {
    // What it reads of the Secrets comes when the second one has released the host already.
    play_in_virtual_time(vec![
        Event::Apply { machine: 0 },
        Event::Server(ServerEvent::SlowReads { times: 1 }),
        Event::Apply { machine: 1 },
        Event::Delete { machine: 0 },
        Event::Second { runs: true },
        Event::Host { host: 1, what: HostEvent::KillAgent },
    ]);
}
