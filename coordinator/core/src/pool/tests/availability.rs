//! The state of one member.

use super::*;

type Change = fn(&mut MachineInventory);

fn reprovisioning(inventory: &mut MachineInventory, state: Option<PlanState>) {
    samples::claim(inventory, AllocationState::Reprovisioning, 0);
    samples::announce(inventory, PlanType::Reprovision, 1, state);
}

fn end_session(inventory: &mut MachineInventory) {
    let ended = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH);
    samples::host_status(inventory).session.as_mut().unwrap().ended = Some(ended);
}

const AVAILABILITIES: [(&str, Change, Availability); 24] = {
    use Availability::Unavailable;
    [
        ("attached and free", |_| {}, Availability::Available),
        (
            "free with a former node in its kernel",
            |i| samples::host_status(i).left_in_kernel = vec!["link cni0".into()],
            Availability::Preparing,
        ),
        ("never attached", |i| samples::host_status(i).session = None, Unavailable(Exclusion::NotAttached)),
        ("session ended", end_session, Unavailable(Exclusion::NotAttached)),
        ("no statement", |i| samples::host_status(i).carried = None, Unavailable(Exclusion::CarriesNode)),
        (
            "carries a node and has no owner",
            |i| samples::announce(i, PlanType::Reprovision, 1, Some(PlanState::Applied)),
            Unavailable(Exclusion::CarriesNode),
        ),
        (
            "its plan was announced for an owner that was lost",
            |i| {
                samples::announce(i, PlanType::Reprovision, 1, None);
                samples::host_status(i).carried = Some(coordinator_api::inventory::CarriedStatus::default());
            },
            Unavailable(Exclusion::CarriesNode),
        ),
        (
            "no Secret",
            |i| i.status.as_mut().unwrap().plan.as_mut().unwrap().secret_ref = None,
            Unavailable(Exclusion::NoPlanSecret),
        ),
        (
            "failed",
            |i| samples::announce(i, PlanType::Clean, 1, Some(PlanState::Failed)),
            Unavailable(Exclusion::PlanFailed),
        ),
        (
            "executing an operator's plan",
            |i| samples::announce(i, PlanType::Custom, 1, None),
            Unavailable(Exclusion::CustomPlan),
        ),
        (
            "after an operator's plan",
            |i| samples::announce(i, PlanType::Custom, 1, Some(PlanState::Applied)),
            Availability::Available,
        ),
        (
            "quarantined",
            |i| samples::annotate(i, annotation::QUARANTINED, "x"),
            Unavailable(Exclusion::Quarantined),
        ),
        (
            "waiting for approval",
            |i| samples::annotate(i, annotation::APPROVAL, "Pending"),
            Unavailable(Exclusion::NotApproved),
        ),
        (
            "odd approval",
            |i| samples::annotate(i, annotation::APPROVAL, "yes"),
            Unavailable(Exclusion::NotApproved),
        ),
        (
            "shut out",
            |i| samples::annotate(i, annotation::APPROVAL, "Revoked"),
            Unavailable(Exclusion::NotApproved),
        ),
        ("approved", |i| samples::annotate(i, annotation::APPROVAL, "Approved"), Availability::Available),
        (
            "managed disks",
            |i| i.spec.storage = Some(serde_json::json!({ "volumes": [{ "name": "data" }] })),
            Unavailable(Exclusion::ManagedDisks),
        ),
        (
            "with an allocation state that an operator wrote",
            |i| samples::annotate(i, annotation::ALLOCATION_STATE, "Unavailable"),
            Availability::Available,
        ),
        (
            "held by another pool",
            |i| samples::annotate(i, annotation::POOL, "other"),
            Unavailable(Exclusion::OtherPool),
        ),
        ("claimed", |i| samples::claim(i, AllocationState::Allocated, 0), Availability::Allocated),
        ("reprovisioning", |i| reprovisioning(i, None), Availability::Reprovisioning),
        (
            "reprovisioning and rebooting",
            |i| {
                reprovisioning(i, None);
                end_session(i);
            },
            Availability::Reprovisioning,
        ),
        (
            "reprovisioning and quarantined",
            |i| {
                reprovisioning(i, None);
                samples::annotate(i, annotation::QUARANTINED, "x");
            },
            Availability::Reprovisioning,
        ),
        (
            "cleaning",
            |i| {
                samples::claim(i, AllocationState::Preparing, 0);
                samples::announce(i, PlanType::Clean, 2, None);
            },
            Availability::Preparing,
        ),
    ]
};

#[test]
fn availability_follows_claim_plan_and_session() {
    for (name, change, want) in AVAILABILITIES {
        let mut inventory = samples::inventory("host-1");
        change(&mut inventory);
        assert_eq!(host_availability("workers", Some(&samples::record(&inventory))), want, "{name}");
    }
    assert_eq!(host_availability("workers", None), Availability::Unavailable(Exclusion::Missing));
}

#[test]
fn member_of_deleted_machine_comes_back() {
    use Availability::{Allocated, Available, Preparing, Reprovisioning, Unavailable};
    const AWAY: Availability = Unavailable(Exclusion::NotAttached);
    const FAILED: Availability = Unavailable(Exclusion::PlanFailed);
    const LOST: Availability = Unavailable(Exclusion::OwnerMissing);
    const ABANDONED: Availability = Unavailable(Exclusion::Abandoned);
    let held: Change = |i| samples::claim(i, AllocationState::Allocated, 0);
    let cleaning: Change = |i| samples::announce(i, PlanType::Clean, 1, None);
    let cleaned: Change = |i| samples::announce(i, PlanType::Clean, 1, Some(PlanState::Applied));
    let not_cleaned: Change = |i| samples::announce(i, PlanType::Clean, 1, Some(PlanState::Failed));
    let abandoned: Change = |i| samples::annotate(i, annotation::ABANDONED, "x");
    // If its machine keeps it, releases it, and is missing.
    for (name, changes, want) in [
        ("held", &[held][..], [Allocated, Preparing, LOST]),
        ("held and away", &[held, end_session], [AWAY, Preparing, LOST]),
        ("reprovisioning", &[|i| reprovisioning(i, None)], [Reprovisioning, Preparing, Reprovisioning]),
        ("cleaning", &[held, cleaning], [Preparing; 3]),
        ("cleaning and away", &[held, cleaning, end_session], [Preparing; 3]),
        ("cleaned", &[held, cleaned], [Allocated, Preparing, LOST]),
        ("not cleaned", &[held, not_cleaned], [FAILED; 3]),
        ("abandoned", &[held, cleaning, end_session, abandoned], [ABANDONED; 3]),
        ("abandoned and back", &[held, cleaning, abandoned], [Preparing; 3]),
        ("abandoned, not cleaned", &[held, abandoned], [ABANDONED; 3]),
        ("free", &[], [Available; 3]),
        ("free and away", &[end_session], [AWAY; 3]),
    ] {
        let mut inventory = samples::inventory("host-1");
        for change in changes {
            change(&mut inventory);
        }
        let record = samples::record(&inventory);
        let availabilities = [Holder::Keeps, Holder::Releases(Timestamp::UNIX_EPOCH), Holder::Missing]
            .map(|holder| member_availability("workers", Some(&record), holder));
        assert_eq!(availabilities, want, "{name}");
    }
}

/// A host without managed disks has the field too.
#[test]
fn only_volumes_keep_a_host_from_machines() {
    use serde_json::json;
    for (storage, want) in [
        (json!({}), false),
        (json!(null), false),
        (json!({ "volumes": [] }), false),
        (json!({ "volumes": null, "retryNonce": "7" }), false),
        (json!({ "volumes": [{ "name": "data" }] }), true),
        (json!({ "volume": [] }), true),
        (json!("data"), true),
    ] {
        let mut inventory = samples::inventory("host-1");
        inventory.spec.storage = Some(storage.clone());
        assert_eq!(samples::record(&inventory).has_storage, want, "{storage}");
    }
}
