use super::*;
use crate::samples;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;

type Change = fn(&mut MachineInventory);

fn reprovisioning(inventory: &mut MachineInventory, state: Option<PlanState>) {
    samples::claim(inventory, AllocationState::Reprovisioning, 0);
    samples::announce(inventory, PlanType::Reprovision, 1, state);
}

fn end_session(inventory: &mut MachineInventory) {
    let ended = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH);
    samples::host_status(inventory).session.as_mut().unwrap().ended = Some(ended);
}

const STANDINGS: [(&str, Change, Standing); 22] = {
    use Standing::Unavailable;
    [
        ("attached and free", |_| {}, Standing::Available),
        ("never attached", |i| samples::host_status(i).session = None, Unavailable(Exclusion::NotAttached)),
        ("session ended", end_session, Unavailable(Exclusion::NotAttached)),
        ("no statement", |i| samples::host_status(i).carried = None, Unavailable(Exclusion::CarriesNode)),
        (
            "carries a node and has no owner",
            |i| samples::announce(i, PlanType::Reprovision, 1, Some(PlanState::Applied)),
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
            Standing::Available,
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
        ("approved", |i| samples::annotate(i, annotation::APPROVAL, "Approved"), Standing::Available),
        (
            "managed disks",
            |i| i.spec.storage = Some(serde_json::json!({ "volumes": [] })),
            Unavailable(Exclusion::ManagedDisks),
        ),
        (
            "marked",
            |i| samples::annotate(i, annotation::ALLOCATION_STATE, "Unavailable"),
            Unavailable(Exclusion::Marked),
        ),
        (
            "held by another pool",
            |i| samples::annotate(i, annotation::POOL, "other"),
            Unavailable(Exclusion::OtherPool),
        ),
        ("claimed", |i| samples::claim(i, AllocationState::Allocated, 0), Standing::Allocated),
        ("reprovisioning", |i| reprovisioning(i, None), Standing::Reprovisioning),
        (
            "reprovisioning and rebooting",
            |i| {
                reprovisioning(i, None);
                end_session(i);
            },
            Standing::Reprovisioning,
        ),
        (
            "reprovisioning and quarantined",
            |i| {
                reprovisioning(i, None);
                samples::annotate(i, annotation::QUARANTINED, "x");
            },
            Standing::Reprovisioning,
        ),
        (
            "cleaning",
            |i| {
                samples::claim(i, AllocationState::Preparing, 0);
                samples::announce(i, PlanType::Clean, 2, None);
            },
            Standing::Preparing,
        ),
    ]
};

#[test]
fn standing_follows_claim_plan_and_session() {
    for (name, change, want) in STANDINGS {
        let mut inventory = samples::inventory("host-1");
        change(&mut inventory);
        assert_eq!(host_standing("workers", Some(&samples::record(&inventory))), want, "{name}");
    }
    assert_eq!(host_standing("workers", None), Standing::Unavailable(Exclusion::Missing));
}

#[test]
fn first_available_member_is_chosen() {
    let mut roster = Roster::new(samples::pool(&["z", "a", "m"]));
    assert!(roster.choose_member(|_| false).is_err());
    assert!(roster.set_standing("a", Standing::Available));
    assert!(roster.set_standing("m", Standing::Available));
    assert_eq!(roster.choose_member(|_| false).unwrap().name, "a");
    assert_eq!(roster.choose_member(|name| name == "a").unwrap().name, "m");
    assert!(roster.set_standing("z", Standing::Available));
    assert_eq!(roster.choose_member(|_| false).unwrap().name, "z");
    assert!(!roster.set_standing("z", Standing::Available), "nothing changed");
    assert!(!roster.set_standing("unlisted", Standing::Available), "not listed");
}

#[test]
fn exhausted_pool_counts_its_exclusions() {
    let mut roster = Roster::new(samples::pool(&["a", "b", "c"]));
    roster.set_standing("a", Standing::Allocated);
    assert_eq!(
        roster.choose_member(|_| false).unwrap_err(),
        "of 3 members: 1 allocated, 2 missing; add a host to it or free one"
    );
    roster.set_standing("b", Standing::Available);
    assert_eq!(
        roster.choose_member(|_| true).unwrap_err(),
        "of 3 members: 1 reserved for other machines, 1 allocated, 1 missing; add a host to it or free one"
    );
    let empty = Roster::new(samples::pool(&[]));
    assert!(empty.choose_member(|_| false).unwrap_err().contains("add machineInventories"));
}

#[test]
fn status_counts_each_member_once() {
    let mut roster = Roster::new(samples::pool(&["a", "b", "c", "d"]));
    roster.set_standing("a", Standing::Available);
    roster.set_standing("b", Standing::Preparing);
    roster.set_standing("c", Standing::Unavailable(Exclusion::NotAttached));
    let status = roster.project_status(Timestamp::UNIX_EPOCH);
    assert_eq!((status.total, status.available, status.preparing, status.unavailable), (4, 1, 1, 2));
    let valid = &status.conditions[0];
    assert_eq!((valid.status.as_str(), valid.reason.as_str()), ("False", "MemberMissing"));
    assert_eq!(valid.message, "MachineInventory d: register the host or remove the entry");
    roster.set_standing("d", Standing::Allocated);
    roster.set_standing("c", Standing::Reprovisioning);
    let valid = &roster.project_status(Timestamp::UNIX_EPOCH).conditions[0];
    assert_eq!((valid.status.as_str(), valid.reason.as_str()), ("True", "MembersFound"));
}

#[test]
fn members_are_valid_while_they_can_be_used_or_run_a_plan() {
    use Standing::{Allocated, Available, Preparing, Reprovisioning, Unavailable};
    for (standing, want) in [
        (Available, Reason::MembersFound),
        (Allocated, Reason::MembersFound),
        (Preparing, Reason::MembersFound),
        (Reprovisioning, Reason::MembersFound),
        (Unavailable(Exclusion::Missing), Reason::MemberMissing),
        (Unavailable(Exclusion::OtherPool), Reason::MemberInAnotherPool),
        (Unavailable(Exclusion::NoPlanSecret), Reason::PlanSecretMissing),
        (Unavailable(Exclusion::Deleting), Reason::MemberNotReady),
        (Unavailable(Exclusion::Quarantined), Reason::MemberNotReady),
        (Unavailable(Exclusion::NotAttached), Reason::MemberNotReady),
        (Unavailable(Exclusion::CarriesNode), Reason::MemberNotReady),
        (Unavailable(Exclusion::PlanFailed), Reason::MemberNotReady),
        (Unavailable(Exclusion::Marked), Reason::MemberNotReady),
    ] {
        let mut roster = Roster::new(samples::pool(&["a"]));
        roster.set_standing("a", standing);
        let valid = &roster.project_status(Timestamp::UNIX_EPOCH).conditions[0];
        let status = if want == Reason::MembersFound { "True" } else { "False" };
        assert_eq!((valid.status.as_str(), valid.reason.as_str()), (status, want.as_str()), "{standing:?}");
    }
}
