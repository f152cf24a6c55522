//! Random stories: the invariants hold at all times, and after the trouble every host is free again.

mod events;
mod family;
mod search;

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator_api::inventory::{PlanState, PlanType};
use coordinator_api::names::annotation;
use fake_apiserver::{End, Matching, Outage, Verb};
use kube::ResourceExt as _;
use scenarios::{EDITED, NAMESPACE, World};
use serde_json::{Value, json};

use events::{Edit, Event, Family, HOSTS, HostEvent, MACHINES, ServerEvent, Story};
use family::{EditedAnnotation, annotate_host, edit_annotation, edit_object};

const POOLS: &str = "machineinventorypools.infrastructure.cluster.x-k8s.io";

/// State of the operator after the events so far.
struct Played {
    family: Family,
    made: usize,
    machines: [Option<String>; MACHINES],
    /// By host: what its plan Secret was overwritten with, and what it held.
    garbled: BTreeMap<&'static str, (Value, Value)>,
    edited: Vec<EditedAnnotation>,
}

impl Played {
    fn new(family: Family) -> Self {
        Self { family, made: 0, machines: Default::default(), garbled: BTreeMap::new(), edited: vec![] }
    }
}

async fn apply(world: &mut World, event: &Event, played: &mut Played) {
    match *event {
        Event::Apply { machine } if played.machines[machine].is_none() => {
            played.made += 1;
            let name = format!("m-{}", played.made);
            let version = if played.made.is_multiple_of(2) { "v2" } else { "v1" };
            played.family.apply_machine(world, &name, version).await;
            played.machines[machine] = Some(name);
        }
        Event::Delete { machine } => {
            if let Some(name) = played.machines[machine].take() {
                played.family.delete_machine(world, &name).await;
            }
        }
        Event::RestartCoordinator => world.restart_coordinator(),
        Event::Second { runs: true } => world.start_coordinator("second"),
        Event::Second { runs: false } => world.kill_coordinator("second"),
        Event::Host { host, what } => apply_to_host(world, HOSTS[host], what, played).await,
        // The pool may be deleted.
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
        Event::Claim { address } => claim_address(world, address, played.family).await,
        Event::Release { address } if played.family == Family::Metal3 => {
            world.delete_if_there("IPClaim", &format!("a-{address}")).await;
        }
        Event::Edit { object, edit } => apply_edit(world, object, edit, played),
        Event::Pass { seconds } => world.advance_time(Duration::from_secs(seconds)).await,
        Event::Apply { .. } | Event::Release { .. } => {}
    }
}

async fn claim_address(world: &World, address: usize, family: Family) {
    let name = format!("a-{address}");
    if family == Family::Metal3 && world.get_object("ipclaims.ipam.metal3.io", &name).is_none() {
        world.create("IPClaim", &name, json!({ "spec": { "pool": { "name": "net" } } })).await;
    }
}

fn apply_edit(world: &World, object: usize, edit: Edit, played: &mut Played) {
    let Some((resource, name)) = played.family.object(object, &played.machines) else { return };
    let place = (resource, name.as_str());
    edit_object(world, place, |object| match edit {
        Edit::LoseStatus => drop(object.as_object_mut().unwrap().remove("status")),
        Edit::LoseFinalizers => drop(object["metadata"].as_object_mut().unwrap().remove("finalizers")),
        Edit::LoseLabels => drop(object["metadata"].as_object_mut().unwrap().remove("labels")),
        Edit::LoseAnnotation { number } => {
            played.edited.extend(edit_annotation(place, object, number, &Value::Null));
        }
        Edit::ChangeAnnotation { number } => {
            played.edited.extend(edit_annotation(place, object, number, &json!(EDITED)));
        }
    });
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
        HostEvent::Reboot => annotate_host(world, host, annotation::REBOOT, "").await,
        HostEvent::OperatorsPlan => annotate_host(world, host, annotation::CUSTOM_PLAN, "firmware").await,
        HostEvent::Partition { seconds } => world.partition(host, Duration::from_secs(seconds)).await,
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
        ServerEvent::LagOfKind { replica, kind, seconds } => {
            faults.lag_of_kind(replica, kind, Duration::from_secs(seconds));
        }
        ServerEvent::SilentWatch { replica, kind } => {
            let watches = Matching::any().user(replica).verb(Verb::Watch).resource(kind);
            faults.end_watches(&watches, End::Silent);
        }
        ServerEvent::Isolated { replica, seconds } => {
            faults.isolate(replica);
            world.advance_time(Duration::from_secs(seconds)).await;
            faults.rejoin(replica);
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

/// What an operator annotates to have a failed clean run again: the object of the claim, or the inventory of an
/// abandoned host. Those that were annotated already are left out.
fn list_failed_cleans(world: &World, family: Family) -> Vec<(&'static str, String)> {
    let find_asked = |host: &&str| {
        let inventory = world.inventory(host)?;
        let plan = inventory.plan()?;
        let has_failed = plan.kind == Some(PlanType::Clean) && plan.state == Some(PlanState::Failed);
        let name = inventory.claim().filter(|_| has_failed)?.baremetal_machine;
        let (asked, annotations) = if inventory.annotations().contains_key(annotation::ABANDONED) {
            (("MachineInventory", (*host).to_owned()), json!(inventory.annotations()))
        } else {
            let (kind, resource) = family.claimant();
            let claimant = world.get_object(resource, &name)?;
            ((kind, name), claimant["metadata"]["annotations"].clone())
        };
        annotations.get(annotation::RETRY_PLAN).is_none().then_some(asked)
    };
    HOSTS.iter().filter_map(find_asked).collect()
}

/// Waits until all machines are removed and all hosts are free. A clean that has failed is run again,
/// as an operator asks for it. Returns the number of such requests.
async fn wait_free(world: &World, family: Family) -> usize {
    let is_free = |world: &World| {
        world.finish_deletions();
        world.fake.look_at_all(family.resource()).is_empty()
            && HOSTS.iter().all(|host| family.is_free(world, host))
    };
    let mut retried = 0;
    loop {
        world
            .wait_until("all machines are removed and all hosts are free", |world| {
                is_free(world)
                    || !list_failed_cleans(world, family).is_empty()
                    || !family.list_lost_hosts(world).is_empty()
            })
            .await;
        for host in family.list_lost_hosts(world) {
            family.free_lost_host(world, &host).await;
        }
        if is_free(world) {
            return retried;
        }
        let failed = list_failed_cleans(world, family);
        for (kind, name) in failed {
            let retry = json!({ "metadata": { "annotations": { annotation::RETRY_PLAN: "" } } });
            world.patch(kind, &name, retry).await;
            retried += 1;
        }
    }
}

/// Plays the events, ends the trouble, and asserts that every host is free, that the next machine runs, and
/// that nothing is written any more. Returns how often a clean had to be run again at the end.
async fn play(Story { family, events }: Story) -> usize {
    let mut world = family.begin().await;
    // Requests take time, or two leaders that disagree would stop the virtual clock.
    world.fake.faults().latency(Duration::from_millis(20));
    let mut played = Played::new(family);
    for event in &events {
        apply(&mut world, event, &mut played).await;
    }
    world.fake.faults().clear();
    for edited in played.edited.drain(..).rev() {
        edited.undo(&world);
    }
    world.patch("Cluster", "c1", json!({ "spec": { "paused": false } })).await;
    set_catalog(&world, true).await;
    for host in HOSTS {
        mend(&world, host, &mut played);
    }
    for machine in played.machines.iter_mut().filter_map(Option::take) {
        family.delete_machine(&world, &machine).await;
    }
    let retried = wait_free(&world, family).await;
    if family == Family::Baremetal {
        restore_pool(&world).await;
    }
    family.apply_machine(&world, "last", "v1").await;
    family.wait_running(&world, "last").await;
    world.kill_coordinator("second");
    world.check_quiet().await;
    world.check_invariants().await;
    retried
}

fn play_in_virtual_time(story: Story) -> usize {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(play(story))
}

fn play_baremetal(events: Vec<Event>) -> usize {
    play_in_virtual_time(Story { family: Family::Baremetal, events })
}

#[test]
fn random_events_keep_invariants_and_release_hosts() {
    search::play_stories();
}

#[test]
fn replica_with_old_cache_claims_nothing_twice() {
    play_baremetal(vec![
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
    assert_eq!(play_baremetal(events), 1, "the clean of the first machine has failed");
}

#[test]
fn slow_leader_does_not_overwrite_an_announced_plan() {
    // What it reads of the Secrets comes when the second one has released the host already.
    play_baremetal(vec![
        Event::Apply { machine: 0 },
        Event::Server(ServerEvent::SlowReads { times: 1 }),
        Event::Apply { machine: 1 },
        Event::Delete { machine: 0 },
        Event::Second { runs: true },
        Event::Host { host: 1, what: HostEvent::KillAgent },
    ]);
}
