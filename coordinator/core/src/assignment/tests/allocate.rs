//! From no host to a claim, and a claim that comes back.

use super::*;
use crate::ids::HostName;
use coordinator_api::inventory::Claim;
use coordinator_api::names::annotation;

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
