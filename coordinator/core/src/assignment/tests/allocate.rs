//! From no host to a claim, and a claim that comes back.

use super::*;
use crate::host::owner_text;
use crate::ids::HostName;
use coordinator_api::inventory::{CarriedStatus, Claim};
use coordinator_api::names::{annotation, kind};

#[test]
fn machine_chooses_then_claims() {
    let demand = samples::demand();
    let unchosen = Demand { host: None, has_finalizer: false, ..demand.clone() };
    let want = Effect::Choose { host: HostName::parse("host-2").unwrap() };
    assert_eq!(outcome(&unchosen, None, &read()).effect, Some(want.clone()));
    let claim = Claim {
        kind: demand.machine.kind.to_owned(),
        baremetal_machine: demand.machine.name.clone(),
        uid: demand.machine.uid.as_ref().map(|uid| uid.as_str().to_owned()),
        machine: "worker-1".into(),
        cluster: "c1".into(),
        pool: "workers".into(),
        generation: 0,
    };
    assert_eq!(
        outcome(&demand, Some(&free()), &read()).effect,
        Some(Effect::Claim { claim, reuse_group: None })
    );
    let mut unlisted = demand.clone();
    node(&mut unlisted).is_listed = false;
    assert_eq!(outcome(&unlisted, Some(&free()), &read()).effect, Some(want.clone()), "the pool lost it");
    let mut taken = free();
    samples::claim(&mut taken, AllocationState::Allocated, 0);
    samples::annotate(&mut taken, annotation::OWNER_BAREMETAL_MACHINE, "other");
    assert_eq!(outcome(&demand, Some(&taken), &read()).effect, Some(want));
}

/// After a restore nothing tells that the chosen host is free: another one must
/// not be taken in its place.
#[test]
fn unknown_choice_is_waited_for() {
    let demand = samples::demand();
    let mut carrying = free();
    samples::announce(&mut carrying, PlanType::Reprovision, 1, None);
    let mut silent = free();
    silent.status = None;
    for (name, inventory, want) in [
        ("missing", None, Reason::InventoryMissing),
        ("carries a plan", Some(&carrying), Reason::HostCarriesNode),
        ("no statement", Some(&silent), Reason::HostCarriesNode),
    ] {
        let outcome = outcome(&demand, inventory, &read());
        assert_eq!((outcome.effect.as_ref(), reason(&outcome)), (None, Some(want)), "{name}");
    }
}

#[test]
fn pool_blockers_are_shown() {
    let mut demand = Demand { host: None, ..samples::demand() };
    let blocker =
        Blocker::needs_operator(Type::InventoryAllocated, Problem::of_cause(Reason::PoolExhausted, "none"));
    node(&mut demand).candidate = Some(Err(blocker.clone()));
    let outcome = outcome(&demand, None, &read());
    assert_eq!(outcome.state.as_ref().and_then(|state| state.blocker.clone()), Some(blocker));
    assert_eq!(phase(&outcome), Some(Phase::Pending));
}

#[test]
fn names_decide_and_uids_are_adopted() {
    let mut imported = running_host();
    for key in [annotation::OWNER_UID, annotation::CLAIM_GENERATION] {
        imported.metadata.annotations.as_mut().unwrap().remove(key);
    }
    let mut restored = running_host();
    samples::annotate(&mut restored, annotation::OWNER_UID, "uid-of-before");
    let demand = samples::running(samples::demand());
    for (name, inventory) in [("seeds' annotations only", imported), ("restored", restored)] {
        let uid = Uid::parse("uid-of-worker-1").unwrap();
        let adopted = outcome(&demand, Some(&inventory), &Secrets::default());
        assert_eq!(adopted.effect, Some(Effect::Adopt { uid }), "{name}");
        let deleted = outcome(&samples::deleted(demand.clone()), Some(&inventory), &Secrets::default());
        assert!(matches!(deleted.effect, Some(Effect::Adopt { .. })), "{name}");
    }
    let mut elsewhere = running_host();
    elsewhere.metadata.namespace = Some("other".into());
    let outcome = outcome(&demand, Some(&elsewhere), &Secrets::default());
    assert_eq!(reason(&outcome), Some(Reason::InventoryMissing));
}

/// The inventory was recreated by a registration: the host says whose it is.
#[test]
fn lost_claim_is_restored_from_the_host() {
    let mut inventory = free();
    samples::announce(&mut inventory, PlanType::Reprovision, 3, Some(PlanState::Applied));
    let demand = samples::running(samples::demand());
    let reclaimed = outcome(&demand, Some(&inventory), &Secrets::default());
    let Some(Effect::Claim { claim, .. }) = reclaimed.effect else { panic!("{reclaimed:?}") };
    assert_eq!(claim.generation, 2, "the plan of the node belongs to the claim");
    let mut other = inventory.clone();
    let carried = samples::host_status(&mut other).carried.as_mut().unwrap();
    carried.node.as_mut().unwrap().provider_id = "baremetal:///host-9".into();
    for (name, inventory) in [("gone", None), ("carries another node", Some(&other))] {
        let outcome = outcome(&demand, inventory, &Secrets::default());
        assert_eq!(
            (outcome.effect.as_ref(), reason(&outcome)),
            (None, Some(Reason::InventoryMissing)),
            "{name}"
        );
    }
}

fn host(name: &str) -> HostName {
    HostName::parse(name).unwrap()
}

/// An operator, or a backup that is not of one moment, took the name out of the machine.
#[test]
fn lost_name_comes_back_from_the_host() {
    let named = |host: Option<&str>, owned: &[&str]| Demand {
        host: host.and_then(HostName::parse),
        owned_hosts: owned.iter().filter_map(|name| HostName::parse(name)).collect(),
        ..samples::demand()
    };
    for (name, demand, want) in [
        ("one host", named(None, &["host-1"]), Ok("host-1")),
        ("no host", named(None, &[]), Ok("host-2")),
        ("two hosts", named(None, &["host-1", "host-3"]), Err(Reason::SeveralHosts)),
        ("another host", named(Some("host-1"), &["host-3"]), Err(Reason::SeveralHosts)),
    ] {
        let outcome = outcome(&demand, None, &read());
        let shown = reason(&outcome);
        let expected = want.ok().map(|want| Effect::Choose { host: host(want) });
        assert_eq!((outcome.effect, shown), (expected, want.err()), "{name}");
    }
    let deleted = samples::deleted(named(None, &["host-1"]));
    let want = Some(Effect::Choose { host: host("host-1") });
    assert_eq!(outcome(&deleted, None, &read()).effect, want, "its host is cleaned");
}

#[test]
fn lost_claim_comes_back_without_provider_id() {
    let demand = Demand { owned_hosts: vec![host("host-1")], ..samples::demand() };
    let owner = owner_text(demand.machine.kind, &demand.machine.name);
    let mut running = free();
    samples::announce(&mut running, PlanType::Reprovision, 3, Some(PlanState::Applied));
    let carried = samples::host_status(&mut running).carried.as_mut().unwrap();
    carried.node.as_mut().unwrap().owner.clone_from(&owner);
    let mut in_flight = free();
    samples::announce(&mut in_flight, PlanType::Reprovision, 3, None);
    in_flight.status.as_mut().unwrap().plan.as_mut().unwrap().owner = Some(owner);
    samples::host_status(&mut in_flight).carried = Some(CarriedStatus::default());
    for (name, inventory) in [("its node", &running), ("its plan", &in_flight)] {
        let outcome = outcome(&demand, Some(inventory), &read());
        let Some(Effect::Claim { claim, .. }) = outcome.effect else { panic!("{name}: {outcome:?}") };
        assert_eq!(claim.generation, 2, "{name}: the plan belongs to the claim");
    }
    for change in [
        |i: &mut MachineInventory| samples::annotate(i, annotation::PAUSED, ""),
        |i: &mut MachineInventory| samples::annotate(i, annotation::QUARANTINED, ""),
        |i: &mut MachineInventory| {
            let session = samples::host_status(i).session.as_mut().unwrap();
            session.ended = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
        },
    ] {
        let mut inventory = running.clone();
        change(&mut inventory);
        let outcome = outcome(&demand, Some(&inventory), &read());
        assert_eq!((outcome.effect.as_ref(), reason(&outcome)), (None, Some(Reason::HostCarriesNode)));
    }
}

/// The host stated before its first plan that it carries nothing.
#[test]
fn plan_in_flight_binds_the_machine() {
    let mut inventory = free();
    samples::announce(&mut inventory, PlanType::Reprovision, 1, None);
    samples::host_status(&mut inventory).carried = Some(CarriedStatus::default());
    let outcome = outcome(&samples::demand(), Some(&inventory), &read());
    assert_eq!((outcome.effect.as_ref(), reason(&outcome)), (None, Some(Reason::HostCarriesNode)));
}

#[test]
fn paused_host_is_not_changed() {
    let mut inventory = running_host();
    samples::annotate(&mut inventory, annotation::PAUSED, "");
    let demand = samples::running(samples::demand());
    for demand in [demand.clone(), samples::deleted(demand)] {
        let outcome = outcome(&demand, Some(&inventory), &read());
        assert_eq!((outcome.effect.as_ref(), reason(&outcome)), (None, Some(Reason::Paused)));
    }
}

#[test]
fn demands_of_the_past_are_read_again() {
    let free = samples::inventory("host-1");
    let mut used = free.clone();
    samples::annotate(&mut used, annotation::HAD_PLAN, "true");
    let machine = samples::demand();
    let mut bare_metal_host = machine.clone();
    bare_metal_host.machine.kind = kind::BARE_METAL_HOST;
    let claim = used_claim();
    let claim = Effect::Claim { claim, reuse_group: None };
    let adopt = Effect::Adopt { uid: Uid::parse("u").unwrap() };
    for (name, effect, demand, inventory, want) in [
        ("first claim of a host", &claim, &machine, &free, false),
        ("later claim", &claim, &machine, &used, true),
        ("claim of a host whose demand changes", &claim, &bare_metal_host, &free, true),
        ("another UID", &adopt, &machine, &used, true),
        ("release, which is final", &Effect::Release, &machine, &used, false),
        ("release that may be taken back", &Effect::Release, &bare_metal_host, &used, true),
        ("end of the machine", &Effect::RemoveFinalizer, &bare_metal_host, &used, false),
    ] {
        assert_eq!(effect.needs_fresh_demand(demand, Some(&samples::record(inventory))), want, "{name}");
    }
}

fn used_claim() -> Claim {
    let mut inventory = samples::inventory("host-1");
    samples::claim(&mut inventory, AllocationState::Allocated, 1);
    inventory.claim().unwrap()
}
