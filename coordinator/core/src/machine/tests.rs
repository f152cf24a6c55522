use coordinator_api::conditions::{Type, find, is_true};
use coordinator_api::inventory::{AllocationState, HostStatus};
use coordinator_api::machine::Phase;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::samples;

/// What a case may change; everything else is a host that is ready and free.
struct World {
    machine: BaremetalMachine,
    owner: Option<Machine>,
    cluster: Option<Cluster>,
    pool: Option<MachineInventoryPool>,
    inventory: Option<MachineInventory>,
    catalog: BTreeMap<String, String>,
    bootstrap: Option<Secret>,
    plan: Option<Secret>,
}

fn world() -> World {
    let mut machine = samples::machine();
    machine.finalizers_mut().push(finalizer::BAREMETAL_MACHINE.into());
    machine.annotations_mut().insert(annotation::MACHINE_INVENTORY.into(), "host-1".into());
    World {
        machine,
        owner: Some(samples::owner()),
        cluster: None,
        pool: Some(samples::pool(&["host-1"])),
        inventory: Some(samples::inventory("host-1")),
        catalog: BTreeMap::from([("v1.36.3".into(), "registry.example/os:v1".into())]),
        bootstrap: Some(Secret::new(include_bytes!("../../testdata/join.yaml").to_vec())),
        plan: Some(Secret::new(b"{}".to_vec())),
    }
}

impl World {
    fn claimed(mut self) -> Self {
        samples::claim(self.inventory.as_mut().unwrap(), AllocationState::Allocated);
        self
    }

    fn deleting(mut self) -> Self {
        self.machine.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        self
    }

    /// The plan that `decide` asks for is written and announced.
    fn assigned(mut self, state: Option<PlanState>) -> Self {
        let (Decision::Assign { stored, .. } | Decision::Announce { stored, .. }) = self.decide() else {
            panic!("no plan is due: {:?}", self.decide());
        };
        self.plan = Some(stored.bytes.clone());
        let plan = self.inventory.as_mut().unwrap().status.as_mut().unwrap().plan.as_mut().unwrap();
        plan.id = Some(stored.plan.id.to_string());
        plan.generation = Some(i64::try_from(stored.plan.generation.0).unwrap());
        plan.owner = Some(stored.owner.clone());
        plan.checksum = Some(stored.checksum.clone());
        plan.state = state;
        plan.message = Some("step upgrade-system: no space".into());
        self
    }

    fn see<T>(&self, look: impl FnOnce(&Snapshot<'_>) -> T) -> T {
        let listed = self.pool.iter().flat_map(|pool| &pool.spec.machine_inventories);
        let member = |listed| Member {
            listed,
            inventory: self.inventory.as_ref(),
            older_pool: None,
            is_promised: false,
        };
        let members = listed.map(member).collect();
        let read = |secret: &'_ Option<Secret>| secret.is_some();
        let mut snapshot = Snapshot {
            machine: &self.machine,
            owner: self.owner.as_ref(),
            cluster: self.cluster.as_ref(),
            pool: self.pool.as_ref(),
            members,
            inventory: self.inventory.as_ref(),
            catalog: Some(&self.catalog),
            bootstrap: SecretRead::NotAsked,
            plan: SecretRead::NotAsked,
        };
        let needs = needs(&snapshot);
        if needs.bootstrap.is_some() {
            snapshot.bootstrap = if read(&self.bootstrap) {
                SecretRead::Holds(self.bootstrap.as_ref().unwrap())
            } else {
                SecretRead::Missing
            };
        }
        if needs.plan.is_some() {
            snapshot.plan = if read(&self.plan) {
                SecretRead::Holds(self.plan.as_ref().unwrap())
            } else {
                SecretRead::Missing
            };
        }
        look(&snapshot)
    }

    fn decide(&self) -> Decision {
        self.see(decide)
    }

    fn phase(&self) -> Phase {
        self.see(|snapshot| status(snapshot, &decide(snapshot), Timestamp::UNIX_EPOCH)).phase.unwrap()
    }
}

fn with(change: impl FnOnce(&mut World)) -> World {
    let mut world = world();
    change(&mut world);
    world
}

fn generation_of(decision: &Decision) -> u64 {
    match decision {
        Decision::Assign { stored, .. } | Decision::Announce { stored, .. } => stored.plan.generation.0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_missing_before_a_claim_is_waited_for() {
    let member = |excluded: &str| Waiting::Member { pool: "workers".into(), excluded: excluded.into() };
    let cases: Vec<(&str, World, Waiting)> = vec![
        ("owner", with(|w| w.owner = None), Waiting::Owner),
        ("pool", with(|w| w.pool = None), Waiting::Pool { name: "workers".into() }),
        (
            "inventory",
            with(|w| w.inventory = None),
            member("of 1 members: 1 missing; add a host to it or free one"),
        ),
        (
            "readiness",
            with(|w| w.inventory.as_mut().unwrap().status.as_mut().unwrap().conditions.clear()),
            member("of 1 members: 1 not ready; add a host to it or free one"),
        ),
        (
            "a person",
            with(|w| drop(w.machine.annotations_mut().insert(annotation::PAUSED.into(), String::new()))),
            Waiting::Paused,
        ),
    ];
    for (name, world, want) in cases {
        assert_eq!(world.decide(), Decision::Wait(want), "{name}");
    }
}

#[test]
fn a_machine_chooses_before_it_claims() {
    let fresh = with(|w| w.machine = samples::machine());
    assert_eq!(fresh.decide(), Decision::Choose { inventory: "host-1".into() });
    let Decision::Claim { inventory, claim } = world().decide() else { panic!() };
    assert_eq!(
        (inventory.as_str(), claim.uid.as_str(), claim.pool.as_str()),
        ("host-1", "uid-of-worker-1", "workers")
    );
}

#[test]
fn a_host_that_another_machine_took_is_not_claimed() {
    let mut world = world().claimed();
    samples::annotate(world.inventory.as_mut().unwrap(), annotation::OWNER_UID, "somebody else");
    assert!(matches!(world.decide(), Decision::Wait(Waiting::Member { .. })));
    assert_eq!(world.deleting().decide(), Decision::RemoveFinalizer);
}

#[test]
fn a_claimed_host_gets_its_plan_once_everything_is_there() {
    let name = |w: &mut World| w.owner.as_mut().unwrap().spec.bootstrap.data_secret_name = None;
    assert_eq!(with(name).claimed().decide(), Decision::Wait(Waiting::BootstrapName));
    let absent = with(|w| w.bootstrap = None).claimed();
    assert_eq!(absent.decide(), Decision::Wait(Waiting::BootstrapSecret { name: "join".into() }));
    assert_eq!(absent.phase(), Phase::Allocated);
    assert_eq!(generation_of(&world().claimed().decide()), 1);
}

#[test]
fn what_a_plan_cannot_be_made_from_fails_until_it_is_mended() {
    let cases: Vec<(&str, World, Type, &str)> = vec![
        (
            "version",
            with(|w| w.owner.as_mut().unwrap().spec.version = None),
            Type::ImageResolved,
            "VersionMissing",
        ),
        ("catalog", with(|w| w.catalog.clear()), Type::ImageResolved, "ImageCatalogMiss"),
        (
            "registry",
            with(|w| drop(w.catalog.insert("v1.36.3".into(), "os:v1".into()))),
            Type::ImageResolved,
            "ImageRegistryMissing",
        ),
        (
            "bootstrap data",
            with(|w| w.bootstrap = Some(Secret::new(b"#!/bin/sh\n".to_vec()))),
            Type::BootstrapReady,
            "BootstrapInvalid",
        ),
    ];
    for (name, world, kind, reason) in cases {
        let world = world.claimed();
        assert_eq!(world.phase(), Phase::Failed, "{name}");
        let status = world.see(|s| status(s, &decide(s), Timestamp::UNIX_EPOCH));
        let condition = find(&status.conditions, kind).unwrap();
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", reason), "{name}");
        assert_eq!(status.failure_reason, None, "{name}: nothing sticks");
    }
}

#[test]
fn a_cause_that_goes_away_clears_the_failure() {
    let mut world = with(|w| w.catalog.clear()).claimed();
    assert_eq!(world.phase(), Phase::Failed);
    world.catalog.insert("v1.36.3".into(), "registry.example/os:v1".into());
    assert_eq!(world.phase(), Phase::Reprovisioning);
}

#[test]
fn a_plan_secret_that_is_missing_or_garbled_blocks_nobody() {
    let applied = || world().claimed().assigned(Some(PlanState::Applied));
    let altered = String::from_utf8(applied().plan.unwrap().expose().to_vec()).unwrap();
    let altered = altered.replace("elemental upgrade", "elemental  upgrade");
    for (name, plan, first, clean) in [
        ("missing", None, 1, 2),
        ("garbled", Some("{"), 1, 2),
        ("of somebody else", Some(r#"{"instructions":[{"name":"x","command":"true"}]}"#), 1, 2),
        // Of a coordinator that rendered otherwise: its number still counts.
        ("rendered otherwise", Some(altered.as_str()), 2, 2),
    ] {
        let plan = plan.map(|plan| Secret::new(plan.as_bytes().to_vec()));
        let new = with(|w| w.plan.clone_from(&plan)).claimed();
        let Decision::Assign { stored, .. } = new.decide() else { panic!("{name}") };
        assert_eq!((stored.plan.kind, stored.plan.generation.0), (Kind::Reprovision, first), "{name}");
        let mut deleted = applied().deleting();
        deleted.plan = plan;
        let Decision::Assign { stored, .. } = deleted.decide() else { panic!("{name}") };
        assert_eq!((stored.plan.kind, stored.plan.generation.0), (Kind::Clean, clean), "{name}");
    }
}

#[test]
fn a_host_is_cleaned_when_anything_tells_that_it_was_touched() {
    let mut lost = world().claimed().assigned(Some(PlanState::Applied)).deleting();
    lost.inventory.as_mut().unwrap().status.as_mut().unwrap().plan = None;
    assert!(matches!(lost.decide(), Decision::Assign { .. }), "the Secret tells");
    lost.plan = None;
    assert_eq!(lost.decide(), Decision::Release { inventory: "host-1".into() }, "nothing tells");
    lost.machine.spec.provider_id = Some("baremetal:///host-1".into());
    assert!(matches!(lost.decide(), Decision::Assign { .. }), "the providerID tells");
}

#[test]
fn a_dead_host_is_given_up_only_when_a_person_says_so() {
    let unreachable = |mut world: World| {
        let inventory = world.inventory.as_mut().unwrap();
        inventory.status = Some(crate::host::unreachable(inventory, Timestamp::UNIX_EPOCH));
        world
    };
    let running = unreachable(world().claimed().assigned(None));
    let said = |world: &World| {
        let status = world.see(|s| status(s, &decide(s), Timestamp::UNIX_EPOCH));
        let ready = find(&status.conditions, Type::Ready).unwrap();
        (ready.reason.clone(), ready.message.contains(annotation::RELEASE_WITHOUT_CLEAN))
    };
    assert_eq!(said(&running), ("HostUnreachable".to_owned(), false));
    let mut cleaning = unreachable(world().claimed().assigned(None).deleting().assigned(None));
    assert_eq!(said(&cleaning), ("HostUnreachable".to_owned(), true));
    let annotations = cleaning.machine.annotations_mut();
    annotations.insert(annotation::RELEASE_WITHOUT_CLEAN.into(), String::new());
    assert_eq!(cleaning.decide(), Decision::Abandon { inventory: "host-1".into() });
    let mut running = running;
    running.machine.annotations_mut().insert(annotation::RELEASE_WITHOUT_CLEAN.into(), String::new());
    assert!(matches!(running.decide(), Decision::Wait(Waiting::Reprovision { .. })));
}

#[test]
fn a_pool_of_another_cluster_gives_no_host() {
    let world = with(|w| w.pool.as_mut().unwrap().spec.cluster_name = "other".into());
    let (pool, cluster) = ("workers".to_owned(), "other".to_owned());
    assert_eq!(world.decide(), Decision::Fail(Failure::PoolOfOtherCluster { pool, cluster }));
}

#[test]
fn a_plan_that_was_written_and_not_announced_is_announced_as_it_is() {
    let mut world = world().claimed();
    let Decision::Assign { stored, .. } = world.decide() else { panic!() };
    world.plan = Some(stored.bytes.clone());
    // Even if the inputs have changed since: the stored plan is the plan.
    world.catalog.clear();
    assert_eq!(world.decide(), Decision::Announce { inventory: "host-1".into(), stored });
}

#[test]
fn the_provider_id_follows_the_proof() {
    let running = world().claimed().assigned(None);
    assert!(matches!(running.decide(), Decision::Wait(Waiting::Reprovision { .. })));
    assert_eq!(running.phase(), Phase::Reprovisioning);
    let mut applied = world().claimed().assigned(Some(PlanState::Applied));
    let provider_id = "baremetal:///host-1".to_owned();
    assert_eq!(
        applied.decide(),
        Decision::Provide { inventory: "host-1".into(), provider_id: provider_id.clone() }
    );
    applied.machine.spec.provider_id = Some(provider_id);
    let host =
        HostStatus { hostname: "worker-1".into(), addresses: vec!["10.0.2.15".into()], ..Default::default() };
    applied.inventory.as_mut().unwrap().status.as_mut().unwrap().host = Some(host);
    assert_eq!(applied.decide(), Decision::Rest);
    let status = applied.see(|s| status(s, &decide(s), Timestamp::UNIX_EPOCH));
    assert_eq!((status.phase, status.ready), (Some(Phase::Running), true));
    assert_eq!(status.initialization.unwrap().provisioned, Some(true));
    assert_eq!(status.addresses.len(), 2);
    assert!(is_true(&status.conditions, Type::Ready));
}

#[test]
fn a_failed_plan_is_said_and_not_tried_again() {
    let failed = world().claimed().assigned(Some(PlanState::Failed));
    assert_eq!(
        failed.decide(),
        Decision::Fail(Failure::Plan { message: "step upgrade-system: no space".into() })
    );
    assert_eq!(failed.phase(), Phase::Failed);
}

#[test]
fn a_running_machine_never_gets_another_host_or_another_plan() {
    let provided = |w: &mut World| w.machine.spec.provider_id = Some("baremetal:///host-1".into());
    let mut lost = with(provided);
    assert!(matches!(lost.decide(), Decision::Fail(Failure::InventoryLost { .. })));
    lost.inventory = None;
    assert!(matches!(lost.decide(), Decision::Fail(Failure::InventoryLost { .. })));
    assert_eq!(with(provided).claimed().decide(), Decision::Rest);
}

#[test]
fn a_deleted_machine_cleans_before_it_releases() {
    let world = world().claimed().assigned(Some(PlanState::Applied)).deleting();
    let decision = world.decide();
    assert_eq!(generation_of(&decision), 2);
    let cleaning = world.assigned(None);
    assert!(matches!(cleaning.decide(), Decision::Wait(Waiting::Clean { .. })));
    assert_eq!(cleaning.phase(), Phase::Preparing);
    let mut cleaned = cleaning;
    cleaned.inventory.as_mut().unwrap().status.as_mut().unwrap().plan.as_mut().unwrap().state =
        Some(PlanState::Applied);
    assert_eq!(cleaned.decide(), Decision::Release { inventory: "host-1".into() });
}

#[test]
fn a_view_that_has_not_seen_the_deletion_takes_no_clean_for_a_node() {
    for state in [None, Some(PlanState::Applied), Some(PlanState::Failed)] {
        let mut world = world().claimed().assigned(Some(PlanState::Applied)).deleting().assigned(state);
        world.machine.metadata.deletion_timestamp = None;
        assert!(matches!(world.decide(), Decision::Wait(Waiting::Clean { .. })), "{state:?}");
    }
}

#[test]
fn a_machine_deleted_before_its_plan_releases_an_untouched_host() {
    assert_eq!(world().claimed().deleting().decide(), Decision::Release { inventory: "host-1".into() });
    assert_eq!(world().deleting().decide(), Decision::RemoveFinalizer);
}

#[test]
fn a_machine_deleted_between_plan_and_announcement_still_cleans() {
    let mut world = world().claimed();
    let Decision::Assign { stored, .. } = world.decide() else { panic!() };
    world.plan = Some(stored.bytes.clone());
    assert_eq!(generation_of(&world.deleting().decide()), 2);
}

#[test]
fn a_clean_written_and_not_announced_is_announced() {
    let mut world = world().claimed().assigned(Some(PlanState::Applied)).deleting();
    let Decision::Assign { stored, .. } = world.decide() else { panic!() };
    world.plan = Some(stored.bytes.clone());
    assert_eq!(world.decide(), Decision::Announce { inventory: "host-1".into(), stored });
}

#[test]
fn a_failed_clean_holds_the_machine_until_a_person_asks_for_another() {
    let mut world =
        world().claimed().assigned(Some(PlanState::Applied)).deleting().assigned(Some(PlanState::Failed));
    assert!(matches!(world.decide(), Decision::Fail(Failure::Plan { .. })));
    world.machine.annotations_mut().insert(annotation::RETRY_PLAN.into(), String::new());
    assert_eq!(generation_of(&world.decide()), 3);
}

#[test]
fn a_coordinator_from_an_old_backup_goes_above_what_the_host_has_seen() {
    let mut world = world().claimed();
    let host = HostStatus { generation: 41, ..Default::default() };
    world.inventory.as_mut().unwrap().status.as_mut().unwrap().host = Some(host);
    assert_eq!(generation_of(&world.decide()), 42);
}

#[test]
fn no_secret_is_read_before_its_time() {
    for (name, world, want) in [
        ("unclaimed", world(), (None, None)),
        ("claimed", world().claimed(), (Some("join"), Some("host-1"))),
        ("running", world().claimed().assigned(None), (None, None)),
        ("clean due", world().claimed().assigned(None).deleting(), (None, Some("host-1"))),
    ] {
        let needs = world.see(|s| {
            let needs = needs(s);
            (needs.bootstrap.map(str::to_owned), needs.plan.map(str::to_owned))
        });
        assert_eq!((needs.0.as_deref(), needs.1.as_deref()), want, "{name}");
    }
}
