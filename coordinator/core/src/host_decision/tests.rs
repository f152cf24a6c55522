use super::*;
use crate::samples;
use coordinator_api::inventory::{CarriedStatus, MachineInventory, PlanState, PlanType};
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

fn situation<'a>(
    host: &'a HostRecord,
    inventory: &'a MachineInventory,
    machine: Option<&'a ClaimingMachine>,
) -> HostSituation<'a> {
    HostSituation {
        host,
        spec: &inventory.spec,
        machine,
        is_paused: false,
        is_cluster_missing: false,
        replica_died: None,
        plan: Some(&StoredPlan::Empty),
        is_verified: false,
        custom: None,
        now: NOW,
    }
}

fn decide(inventory: &MachineInventory, machine: Option<&ClaimingMachine>, is_paused: bool) -> HostDecision {
    let record = samples::record(inventory);
    decide_host(&HostSituation { is_paused, ..situation(&record, inventory, machine) })
}

/// The decision once the API server was asked for the machine, which it has to be before.
fn decide_verified(inventory: &MachineInventory, machine: Option<&ClaimingMachine>) -> HostDecision {
    let record = samples::record(inventory);
    let situation = situation(&record, inventory, machine);
    assert_eq!(decide_host(&situation).effect, Some(HostEffect::Verify));
    decide_host(&HostSituation { is_verified: true, ..situation })
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
        let outcome = decide_verified(inventory, machine.as_ref());
        if is_released {
            assert_eq!((outcome.effect, outcome.hold), (Some(HostEffect::Release), None), "{name}");
        } else {
            let hold = outcome.hold.map(|hold| hold.reason);
            assert_eq!((outcome.effect, hold), (None, Some(Reason::OwnerMissing)), "{name}");
            assert_eq!(outcome.allocation, Some(AllocationState::Unavailable), "{name}");
        }
    }
}

#[test]
fn allocation_state_is_no_input() {
    let node = used(PlanType::Reprovision, Some(PlanState::Applied));
    let cleaning = abandoned(used(PlanType::Clean, None));
    let not_cleaned = abandoned(used(PlanType::Clean, Some(PlanState::Failed)));
    let held = naming(Some("host-1"));
    for (name, inventory, machine, want) in [
        ("free", samples::inventory("host-1"), None, Some(AllocationState::Available)),
        ("held", node.clone(), Some(&held), None),
        ("orphaned", node, None, Some(AllocationState::Unavailable)),
        ("abandoned, being cleaned", cleaning, None, Some(AllocationState::Preparing)),
        ("abandoned, not cleaned", not_cleaned, None, Some(AllocationState::Unavailable)),
    ] {
        let decide_edited = |text: &str| {
            let mut edited = inventory.clone();
            samples::annotate(&mut edited, annotation::ALLOCATION_STATE, text);
            let record = samples::record(&edited);
            decide_host(&HostSituation { is_verified: true, ..situation(&record, &edited, machine) })
        };
        let outcome = decide_edited("");
        assert_eq!(outcome.allocation, want, "{name}");
        for text in ["Available", "Allocated", "Preparing", "Reprovisioning", "Unavailable", "odd"] {
            assert_eq!(decide_edited(text), outcome, "{name}, edited to {text}");
        }
    }
}

#[test]
fn deleted_inventory_of_a_missing_machine_goes() {
    let mut inventory = used(PlanType::Reprovision, Some(PlanState::Applied));
    inventory.metadata.deletion_timestamp = Some(Time(NOW));
    assert_eq!(decide_verified(&inventory, None).effect, Some(HostEffect::RemoveFinalizer));
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
    let free = |state| {
        let mut inventory = samples::inventory("host-1");
        samples::announce(&mut inventory, PlanType::Custom, 1, state);
        samples::annotate(&mut inventory, annotation::BLOCK_MOVE, "x");
        decide(&inventory, None, false).effect
    };
    assert_eq!(free(None), None, "an operator's plan runs");
    assert_eq!(free(Some(PlanState::Applied)), Some(HostEffect::AllowMove));
}

fn abandoned(mut inventory: MachineInventory) -> MachineInventory {
    samples::annotate(&mut inventory, annotation::ABANDONED, "x");
    inventory
}

#[test]
fn node_of_a_later_machine_is_not_cleaned() {
    let mut inventory = abandoned(used(PlanType::Reprovision, Some(PlanState::Applied)));
    let carried = samples::host_status(&mut inventory).carried.as_mut().unwrap();
    carried.node.as_mut().unwrap().owner = "BaremetalMachine/m-2".to_owned();
    assert_eq!(decide(&inventory, None, false).effect, Some(HostEffect::Release));
    inventory.metadata.annotations.as_mut().unwrap().remove(annotation::ABANDONED);
    assert_eq!(decide_verified(&inventory, None).effect, Some(HostEffect::Release), "nor orphaned");
}

#[test]
fn abandoned_host_is_cleaned_when_attached() {
    let node = abandoned(used(PlanType::Reprovision, Some(PlanState::Applied)));
    let Some(HostEffect::Assign(assignment)) = decide(&node, None, false).effect else { panic!() };
    assert_eq!(assignment.plan.kind, proto::plan::Kind::Clean);
    let mut away = node.clone();
    samples::host_status(&mut away).session.as_mut().unwrap().ended = Some(Time(NOW));
    assert_eq!(decide(&away, None, false).effect, None);
    let cleaning = abandoned(used(PlanType::Clean, None));
    assert_eq!(decide(&cleaning, None, false).effect, None);
    let cleaned = abandoned(used(PlanType::Clean, Some(PlanState::Applied)));
    assert_eq!(decide(&cleaned, None, false).effect, Some(HostEffect::Release));
    let mut announced = abandoned(used(PlanType::Reprovision, None));
    samples::host_status(&mut announced).carried = Some(CarriedStatus::default());
    let Some(HostEffect::Assign(assignment)) = decide(&announced, None, false).effect else { panic!() };
    assert_eq!(assignment.plan.generation.0, 2, "it replaces a plan that has not reached the host");
}

#[test]
fn statement_outranks_a_failed_clean_of_orphans() {
    let failed = abandoned(used(PlanType::Clean, Some(PlanState::Failed)));
    assert_eq!(decide(&failed, None, false).effect, None, "the host states the clean that failed");
    let mut installed = failed;
    samples::host_status(&mut installed).carried = Some(CarriedStatus::default());
    let effect = decide(&installed, None, false).effect;
    assert_eq!(effect, Some(HostEffect::Release), "it was installed again, and nothing is left to clean");
}

#[test]
fn failed_clean_of_an_abandoned_host_is_retried() {
    let retried = |mut inventory: MachineInventory| {
        samples::annotate(&mut inventory, annotation::RETRY_PLAN, "");
        abandoned(inventory)
    };
    let failed = used(PlanType::Clean, Some(PlanState::Failed));
    assert_eq!(decide(&abandoned(failed.clone()), None, false).effect, None, "not by itself");
    let Some(HostEffect::Assign(assignment)) = decide(&retried(failed), None, false).effect else { panic!() };
    assert_eq!(assignment.plan.generation.0, 2);
    let cleaning = retried(used(PlanType::Clean, None));
    assert_eq!(decide(&cleaning, None, false).effect, Some(HostEffect::ForgetRetry), "once");
    let cleaned = retried(used(PlanType::Clean, Some(PlanState::Applied)));
    assert_eq!(decide(&cleaned, None, false).effect, Some(HostEffect::Release));
    let mut invalid = abandoned(used(PlanType::Reprovision, Some(PlanState::Applied)));
    invalid.spec.network = serde_json::from_value(serde_json::json!({ "config": "no mapping" })).unwrap();
    let outcome = decide(&invalid, None, false);
    assert_eq!((outcome.effect, outcome.hold.map(|hold| hold.reason)), (None, Some(Reason::NetworkInvalid)));
}

#[test]
fn deleted_inventory_of_an_abandoned_host_goes() {
    let away = |mut inventory: MachineInventory| {
        samples::host_status(&mut inventory).session = None;
        inventory
    };
    let node = used(PlanType::Reprovision, Some(PlanState::Applied));
    let cleaning = used(PlanType::Clean, None);
    let gone = Some(HostEffect::RemoveFinalizer);
    for (name, inventory, want) in [
        ("away with a node", away(node), gone.clone()),
        ("away, to be cleaned", away(cleaning.clone()), gone.clone()),
        ("its clean failed", used(PlanType::Clean, Some(PlanState::Failed)), gone),
        ("being cleaned", cleaning, None),
    ] {
        let mut inventory = abandoned(inventory);
        assert_eq!(decide(&inventory, None, false).effect, None, "{name}, not deleted");
        inventory.metadata.deletion_timestamp = Some(Time(NOW));
        let decided =
            if want.is_some() { decide_verified(&inventory, None) } else { decide(&inventory, None, false) };
        assert_eq!(decided.effect, want, "{name}");
    }
}

/// The upstream operator's finalizer has the same name, and an imported inventory has it without a claim.
#[test]
fn deleted_inventory_without_claim_goes() {
    let mut imported = samples::inventory("host-1");
    imported.metadata.finalizers =
        Some(vec![coordinator_api::names::finalizer::MACHINE_INVENTORY.to_owned()]);
    assert_eq!(decide(&imported, None, false).effect, None, "not deleted");
    imported.metadata.deletion_timestamp = Some(Time(NOW));
    assert_eq!(decide(&imported, None, true).effect, None, "paused");
    assert_eq!(decide(&imported, None, false).effect, Some(HostEffect::RemoveFinalizer));
    imported.metadata.finalizers = Some(vec!["example.com/other".to_owned()]);
    assert_eq!(decide(&imported, None, false).effect, None, "another one holds it");
}

#[test]
fn session_of_dead_replica_ends_after_grace() {
    let inventory = samples::inventory("host-1");
    let record = samples::record(&inventory);
    let at = |now| {
        let replica_died = Some(seconds(100));
        decide_host(&HostSituation { replica_died, now, ..situation(&record, &inventory, None) })
    };
    assert_eq!(
        at(seconds(399)),
        HostDecision {
            effect: None,
            hold: None,
            allocation: Some(AllocationState::Available),
            custom: None,
            reboot: None,
            wake: Wake::At(seconds(400))
        }
    );
    assert_eq!(at(seconds(400)).effect, Some(HostEffect::EndSession { ended: seconds(100) }));
}

#[test]
fn claims_are_held_while_their_cluster_is_missing() {
    let decide = |inventory: &MachineInventory, machine: Option<&ClaimingMachine>| {
        let record = samples::record(inventory);
        let situation = situation(&record, inventory, machine);
        decide_host(&HostSituation { is_cluster_missing: true, is_verified: true, ..situation })
    };
    let held = |outcome: &HostDecision| outcome.hold.as_ref().map(|hold| hold.reason);
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
        assert_eq!((held(&outcome), outcome.effect), (None, Some(want)), "{name}");
    }
}

fn custom_plan() -> CustomPlan {
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::Secret;
    use kube::ResourceExt as _;
    let plan = ByteString(br#"{"instructions":[{"command":"true"}]}"#.to_vec());
    let mut secret = Secret {
        type_: Some("elemental.cattle.io/plan".into()),
        data: Some([("plan".to_owned(), plan)].into()),
        ..Secret::default()
    };
    secret.metadata.name = Some("firmware".into());
    secret.annotations_mut().insert(annotation::PLAN_TYPE.into(), "custom".into());
    crate::plan::custom::read_custom(Some(&secret), "host-1").unwrap()
}

fn decide_request(
    inventory: &MachineInventory,
    custom: Option<&Result<CustomPlan, CustomPlanError>>,
) -> HostDecision {
    let record = samples::record(inventory);
    decide_host(&HostSituation { custom, ..situation(&record, inventory, Some(&naming(Some("host-1")))) })
}

#[test]
fn plans_of_operators_run_beside_no_other() {
    let plan = custom_plan();
    let read = Ok(plan.clone());
    let free = samples::inventory("host-1");
    let announced = |mut inventory: MachineInventory, generation, state| {
        samples::announce(&mut inventory, PlanType::Custom, generation, state);
        inventory
    };
    let node = used(PlanType::Reprovision, Some(PlanState::Applied));
    let mut carrying = free.clone();
    samples::announce(&mut carrying, PlanType::Reprovision, 1, Some(PlanState::Failed));
    let mut away = free.clone();
    samples::host_status(&mut away).session = None;
    let ran = |mut inventory: MachineInventory| {
        inventory.status.as_mut().unwrap().last_custom_plan = Some(plan.id.to_string());
        inventory
    };
    let mut cleaned = free.clone();
    samples::announce(&mut cleaned, PlanType::Clean, 2, Some(PlanState::Applied));
    let applied = Some(PlanState::Applied);
    for (name, inventory, want) in vec![
        ("free", free.clone(), "assigned"),
        ("free, after another", announced(free.clone(), 1, applied), "assigned"),
        ("a node", node.clone(), "assigned"),
        ("a node, after another", announced(node, 2, applied), "assigned"),
        ("another one runs", announced(free.clone(), 1, None), "waiting"),
        ("claimed and not a node yet", claimed(), "waiting"),
        ("being reprovisioned", used(PlanType::Reprovision, None), "waiting"),
        ("being cleaned", used(PlanType::Clean, None), "waiting"),
        ("what an earlier plan left is hidden by none", carrying, "waiting"),
        ("not attached", away, "waiting"),
        ("announced already", ran(announced(free.clone(), 1, None)), "forgotten"),
        ("announced already, and cleaned since", ran(cleaned), "forgotten"),
    ] {
        let mut inventory = inventory;
        samples::annotate(&mut inventory, annotation::CUSTOM_PLAN, "firmware");
        let decide = |custom| decide_request(&inventory, custom);
        assert_eq!(decide(None).effect, Some(HostEffect::ReadCustom("firmware".into())), "{name}");
        let outcome = decide(Some(&read));
        let got = match (&outcome.effect, outcome.custom.as_ref().map(|problem| problem.reason)) {
            (Some(HostEffect::AssignCustom(assignment)), None) => {
                let generation = assignment.plan.generation;
                assert!(generation > samples::record(&inventory).newest_generation(), "{name}");
                "assigned"
            }
            (Some(HostEffect::ForgetCustom), None) => "forgotten",
            (None, Some(Reason::CustomPlanWaiting)) => "waiting",
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(got, want, "{name}");
        let refused = decide(Some(&Err(CustomPlanError::Empty)));
        assert_eq!(refused.custom.map(|problem| problem.reason), Some(Reason::CustomPlanInvalid), "{name}");
        assert!(matches!(refused.wake, Wake::At(_)), "{name}");
    }
}
