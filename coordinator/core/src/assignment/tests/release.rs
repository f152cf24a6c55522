//! Finalizers, deletion, and what is held.

use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::time::Duration;

#[test]
fn removed_finalizers_come_back() {
    let demand = samples::running(samples::demand());
    let held = running_host();
    let mut open = held.clone();
    open.metadata.finalizers = None;
    let mut deleted = open.clone();
    deleted.metadata.deletion_timestamp = Some(Time(NOW));
    let unprotected = Demand { has_finalizer: false, ..demand.clone() };
    let cases = [
        ("both are there", &demand, &held, None),
        ("the host has none", &demand, &open, Some(Effect::ProtectHost)),
        ("a host in deletion takes none", &demand, &deleted, None),
        ("the machine has none", &unprotected, &held, Some(Effect::ProtectMachine)),
        ("one after the other", &unprotected, &open, Some(Effect::ProtectHost)),
    ];
    for (name, demand, inventory, want) in cases {
        let effect = outcome(demand, Some(inventory), &Secrets::default()).effect;
        let protects = |effect: &Effect| matches!(effect, Effect::ProtectHost | Effect::ProtectMachine);
        assert_eq!(effect.filter(protects), want, "{name}");
    }
    let paused = Demand {
        hold: Some(Blocker::waiting_for(Type::Paused, Problem::of_cause(Reason::Paused, "paused"))),
        ..unprotected
    };
    assert_eq!(outcome(&paused, Some(&open), &Secrets::default()).effect, None);
}

#[test]
fn deleted_machine_is_cleaned_then_released() {
    let demand = samples::deleted(samples::running(samples::demand()));
    let secrets = Secrets { plan: Some(StoredPlan::Empty), ..Secrets::default() };
    let cleaning = outcome(&demand, Some(&running_host()), &secrets);
    assert_eq!(assignment(&cleaning).plan.kind, proto::plan::Kind::Clean);
    assert_eq!((phase(&cleaning), reason(&cleaning)), (Some(Phase::Preparing), Some(Reason::Cleaning)));
    let unread = outcome(&demand, Some(&running_host()), &Secrets::default());
    assert_eq!(unread.effect, Some(Effect::ReadSecret(SecretRef::Plan)));
    for (name, state, want, allocation) in [
        ("in flight", None, None, Some(AllocationState::Preparing)),
        ("failed", Some(PlanState::Failed), None, Some(AllocationState::Unavailable)),
        ("applied", Some(PlanState::Applied), Some(Effect::Release), None),
    ] {
        let outcome = outcome(&demand, Some(&with_plan(PlanType::Clean, state)), &secrets);
        assert_eq!(outcome.effect, want, "{name}");
        assert_eq!(outcome.state.and_then(|state| state.allocation), allocation, "{name}");
    }
    let retried = Demand { retry_clean: true, ..demand.clone() };
    let outcome = outcome(&retried, Some(&with_plan(PlanType::Clean, Some(PlanState::Failed))), &secrets);
    assert_eq!(assignment(&outcome).plan.generation, Generation(2));
}

/// A crash after the announcement must not leave the request to the next failure.
#[test]
fn announced_clean_ends_its_request() {
    let demand = Demand { retry_clean: true, ..samples::deleted(samples::running(samples::demand())) };
    let announced = outcome(&demand, Some(&with_plan(PlanType::Clean, None)), &Secrets::default());
    assert_eq!(announced.effect, Some(Effect::ForgetRetry));
}

/// The network of the host cannot be rendered, and the host is lost.
#[test]
fn invalid_network_does_not_hold_a_dead_host() {
    let demand = samples::deleted(samples::running(samples::demand()));
    let demand = Demand { abandon_after: Some(Duration::from_mins(10)), ..demand };
    let secrets = Secrets { plan: Some(StoredPlan::Empty), ..Secrets::default() };
    let mut inventory = running_host();
    inventory.spec.network = serde_json::from_value(serde_json::json!({ "config": "no mapping" })).unwrap();
    samples::host_status(&mut inventory).session.as_mut().unwrap().ended = Some(Time(NOW));
    let held = outcome_at(&demand, Some(&inventory), &secrets, seconds(301));
    assert_eq!((reason(&held), held.wake), (Some(Reason::NetworkInvalid), Wake::At(seconds(600))));
    let given_up = outcome_at(&demand, Some(&inventory), &secrets, seconds(600));
    assert_eq!(given_up.effect, Some(Effect::Abandon { node: None }));
}

/// A claim without a plan ends on the host's word, never on an empty status.
#[test]
fn unused_claim_needs_the_hosts_statement() {
    let demand = samples::deleted(samples::demand());
    let secrets = Secrets { plan: Some(StoredPlan::Empty), ..Secrets::default() };
    let mut silent = claimed();
    silent.status = None;
    let mut carrying = claimed();
    samples::host_status(&mut carrying).carried.as_mut().unwrap().node =
        Some(coordinator_api::inventory::CarriedNode::default());
    assert_eq!(outcome(&demand, Some(&claimed()), &secrets).effect, Some(Effect::Release));
    let waiting = outcome(&demand, Some(&silent), &secrets);
    assert_eq!((waiting.effect.as_ref(), reason(&waiting)), (None, Some(Reason::HostStatementMissing)));
    let cleaning = outcome(&demand, Some(&carrying), &secrets);
    assert_eq!(assignment(&cleaning).plan.kind, proto::plan::Kind::Clean);
}

/// After a restore the host may carry the node of a machine that got it later.
#[test]
fn clean_waits_for_the_hosts_statement() {
    let demand = samples::deleted(samples::running(samples::demand()));
    let secrets = Secrets { plan: Some(StoredPlan::Empty), ..Secrets::default() };
    let mut silent = running_host();
    silent.status = None;
    let waiting = outcome(&demand, Some(&silent), &secrets);
    assert_eq!((waiting.effect.as_ref(), reason(&waiting)), (None, Some(Reason::HostStatementMissing)));
    let given_up = Demand { release_without_clean: true, ..demand };
    assert!(matches!(outcome(&given_up, Some(&silent), &secrets).effect, Some(Effect::Abandon { .. })));
}

#[test]
fn dead_host_is_held_or_abandoned() {
    let demand = samples::deleted(samples::running(samples::demand()));
    let mut inventory = with_plan(PlanType::Clean, None);
    samples::host_status(&mut inventory).session.as_mut().unwrap().ended = Some(Time(NOW));
    let decide = |demand: &Demand, now| outcome_at(demand, Some(&inventory), &Secrets::default(), now);
    let within = decide(&demand, seconds(10));
    assert_eq!((reason(&within), within.wake), (Some(Reason::Cleaning), Wake::At(seconds(300))));
    let held = decide(&demand, seconds(100_000));
    assert_eq!((held.effect.as_ref(), reason(&held)), (None, Some(Reason::HostUnreachable)));
    let opted = Demand { abandon_after: Some(Duration::from_mins(10)), ..demand.clone() };
    assert_eq!(decide(&opted, seconds(301)).wake, Wake::At(seconds(600)));
    assert_eq!(decide(&opted, seconds(600)).effect, Some(Effect::Abandon { node: None }));
    let by_hand = Demand { release_without_clean: true, ..demand };
    assert_eq!(decide(&by_hand, seconds(1)).effect, Some(Effect::Abandon { node: None }));
    // Also where no clean can be rendered or was announced.
    let running = outcome(&by_hand, Some(&running_host()), &Secrets::default());
    assert_eq!(running.effect, Some(Effect::Abandon { node: None }));
    samples::annotate(&mut inventory, annotation::ABANDONED, "x");
    let demand = Demand { release_without_clean: false, ..by_hand };
    let given_up = outcome_at(&demand, Some(&inventory), &Secrets::default(), seconds(1));
    assert_eq!(given_up.effect, Some(Effect::Abandon { node: None }), "by the annotation of the host");
}

#[test]
fn held_machine_changes_nothing() {
    let hold = Blocker::waiting_for(Type::Paused, Problem::of_cause(Reason::Paused, "paused"));
    for (name, demand) in [
        ("provisioning", samples::demand()),
        ("in deletion", samples::deleted(samples::running(samples::demand()))),
    ] {
        let demand = Demand { hold: Some(hold.clone()), ..demand };
        let outcome = outcome(&demand, Some(&running_host()), &read());
        assert_eq!((outcome.effect.as_ref(), reason(&outcome)), (None, Some(Reason::Paused)), "{name}");
    }
}

#[test]
fn machine_without_a_host_goes() {
    let demand = samples::deleted(samples::demand());
    assert_eq!(outcome(&demand, None, &read()).effect, Some(Effect::RemoveFinalizer));
    let gone = Demand { has_finalizer: false, ..demand };
    assert_eq!(outcome(&gone, None, &read()).effect, None);
}

/// The same values decide the same, and an outcome without effect is stable.
#[test]
fn conditions_name_the_blocker() {
    let outcome = outcome(&samples::demand(), Some(&with_plan(PlanType::Reprovision, None)), &read());
    let updates = project_conditions(outcome.state.as_ref().unwrap());
    let shown = |kind: Type| {
        let update = updates.iter().find(|update| update.kind == kind).unwrap();
        (<&str>::from(update.status), update.reason)
    };
    assert_eq!(shown(Type::InventoryAllocated), ("True", Reason::Allocated));
    assert_eq!(shown(Type::BootstrapReady), ("True", Reason::Available));
    assert_eq!(shown(Type::PlanApplied), ("False", Reason::PlanRunning));
    assert_eq!(shown(Type::Ready), ("False", Reason::PlanRunning));
}
