use super::*;
use crate::samples;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn seconds(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn claimed() -> MachineInventory {
    let mut inventory = samples::inventory("host-1");
    samples::claim(&mut inventory, AllocationState::Allocated, 0);
    inventory
}

fn used(kind: PlanType, state: Option<PlanState>) -> MachineInventory {
    let mut inventory = claimed();
    samples::announce(&mut inventory, kind, 1, state);
    inventory
}

fn naming(host: Option<&str>) -> ClaimingMachine {
    ClaimingMachine { host: host.and_then(HostName::parse), is_paused: false }
}

fn decide(inventory: &MachineInventory, machine: Option<&ClaimingMachine>, is_paused: bool) -> HostOutcome {
    let situation = HostSituation {
        host: &samples::record(inventory),
        spec: &inventory.spec,
        machine,
        is_paused,
        is_cluster_missing: false,
        replica_died: None,
        plan: Some(&StoredPlan::Empty),
        now: NOW,
    };
    decide_host(&situation)
}

/// What remains to be done once the API server confirms it.
fn verified(outcome: HostOutcome) -> Option<HostEffect> {
    match outcome.effect {
        Some(HostEffect::Verify(effect)) => Some(*effect),
        other => other,
    }
}

#[test]
fn claims_that_hold_are_left_alone() {
    let node = used(PlanType::Reprovision, Some(PlanState::Applied));
    for (name, inventory, machine) in [
        ("no claim", &samples::inventory("host-1"), None),
        ("both sides name each other", &node, Some(naming(Some("host-1")))),
        ("the machine names no host yet", &node, Some(naming(None))),
    ] {
        assert_eq!(decide(inventory, machine.as_ref(), false).effect, None, "{name}");
    }
}

#[test]
fn orphan_is_released_on_proof_only() {
    let mut silent = claimed();
    silent.status = None;
    let node = used(PlanType::Reprovision, Some(PlanState::Applied));
    let cleaned = used(PlanType::Clean, Some(PlanState::Applied));
    let elsewhere = Some(naming(Some("host-2")));
    for (name, inventory, machine, is_released) in [
        ("nothing carried", &claimed(), None, true),
        ("nothing carried, machine elsewhere", &claimed(), elsewhere.clone(), true),
        ("cleaned", &cleaned, None, true),
        ("a node", &node, None, false),
        ("a node, machine elsewhere", &node, elsewhere, false),
        ("a plan in flight", &used(PlanType::Reprovision, None), None, false),
        ("no statement after a restore", &silent, None, false),
    ] {
        let effect = verified(decide(inventory, machine.as_ref(), false));
        match effect {
            Some(HostEffect::Release) => assert!(is_released, "{name}"),
            Some(HostEffect::MarkOrphaned(problem)) => {
                assert!(!is_released, "{name}");
                assert_eq!(problem.reason, Reason::OwnerMissing);
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    let mut marked = node;
    samples::annotate(&mut marked, annotation::ALLOCATION_STATE, "Unavailable");
    assert_eq!(decide(&marked, None, false).effect, None, "it is said once");
}

#[test]
fn deleted_inventory_of_a_missing_machine_goes() {
    let mut inventory = used(PlanType::Reprovision, Some(PlanState::Applied));
    inventory.metadata.deletion_timestamp = Some(Time(NOW));
    assert_eq!(verified(decide(&inventory, None, false)), Some(HostEffect::RemoveFinalizer));
    assert_eq!(decide(&inventory, Some(&naming(Some("host-1"))), false).effect, None);
}

#[test]
fn paused_claim_is_not_judged() {
    let node = used(PlanType::Reprovision, Some(PlanState::Applied));
    assert_eq!(decide(&node, None, true).effect, None);
}

#[test]
fn move_waits_for_the_plan() {
    let blocked = |state| {
        let mut inventory = used(PlanType::Reprovision, state);
        samples::annotate(&mut inventory, annotation::BLOCK_MOVE, "x");
        decide(&inventory, Some(&naming(Some("host-1"))), true).effect
    };
    assert_eq!(blocked(None), None);
    assert_eq!(blocked(Some(PlanState::Applied)), Some(HostEffect::AllowMove));
}

#[test]
fn abandoned_host_is_cleaned_when_attached() {
    let abandoned = |mut inventory: MachineInventory| {
        samples::annotate(&mut inventory, annotation::ABANDONED, "x");
        samples::annotate(&mut inventory, annotation::ALLOCATION_STATE, "Unavailable");
        inventory
    };
    let node = abandoned(used(PlanType::Reprovision, Some(PlanState::Applied)));
    let Some(HostEffect::Assign(assignment)) = decide(&node, None, false).effect else { panic!() };
    assert_eq!(assignment.record.plan.kind, proto::plan::Kind::Clean);
    let mut away = node.clone();
    samples::host_status(&mut away).session.as_mut().unwrap().ended = Some(Time(NOW));
    assert_eq!(decide(&away, None, false).effect, None);
    let cleaning = abandoned(used(PlanType::Clean, None));
    assert_eq!(decide(&cleaning, None, false).effect, None);
    let cleaned = abandoned(used(PlanType::Clean, Some(PlanState::Applied)));
    assert_eq!(decide(&cleaned, None, false).effect, Some(HostEffect::Release));
}

#[test]
fn session_of_a_dead_replica_ends_after_the_grace() {
    let inventory = samples::inventory("host-1");
    let record = samples::record(&inventory);
    let at = |now| {
        decide_host(&HostSituation {
            host: &record,
            spec: &inventory.spec,
            machine: None,
            is_paused: false,
            is_cluster_missing: false,
            replica_died: Some(seconds(100)),
            plan: None,
            now,
        })
    };
    assert_eq!(at(seconds(399)), HostOutcome { effect: None, hold: None, wake: Wake::At(seconds(400)) });
    assert_eq!(at(seconds(400)).effect, Some(HostEffect::EndSession { ended: seconds(100) }));
}

#[test]
fn claims_are_held_while_their_cluster_is_missing() {
    let decide = |inventory: &MachineInventory, machine: Option<&ClaimingMachine>| {
        decide_host(&HostSituation {
            host: &samples::record(inventory),
            spec: &inventory.spec,
            machine,
            is_paused: false,
            is_cluster_missing: true,
            replica_died: None,
            plan: Some(&StoredPlan::Empty),
            now: NOW,
        })
    };
    let held = |outcome: &HostOutcome| outcome.hold.as_ref().map(|hold| hold.reason);
    let (empty, node) = (claimed(), used(PlanType::Reprovision, Some(PlanState::Applied)));
    for (name, inventory, machine, want) in [
        ("it carries nothing", &empty, None, Some(Reason::OwnerMissing)),
        ("it carries a node", &node, None, Some(Reason::OwnerMissing)),
        ("another host is named", &node, Some(naming(Some("host-2"))), Some(Reason::OwnerMissing)),
        ("the machine is there", &node, Some(naming(Some("host-1"))), None),
        ("no claim", &samples::inventory("host-1"), None, None),
    ] {
        let outcome = decide(inventory, machine.as_ref());
        assert_eq!((outcome.effect.clone(), held(&outcome)), (None, want), "{name}");
    }
    let mut deleted = node;
    deleted.metadata.deletion_timestamp = Some(Time(NOW));
    let mut abandoned = claimed();
    samples::annotate(&mut abandoned, annotation::ABANDONED, "x");
    for (name, inventory, want) in [
        ("an operator deletes it", deleted, HostEffect::RemoveFinalizer),
        ("it was abandoned", abandoned, HostEffect::Release),
    ] {
        let outcome = decide(&inventory, None);
        assert_eq!((held(&outcome), verified(outcome)), (None, Some(want)), "{name}");
    }
}
