use super::*;
use crate::demand::{Blocker, NodeDemand, NodeLink};
use crate::ids::HostName;
use crate::node_link::{Expected, NodeFacts, NodeSearch, UUID_LABEL};
use crate::plan::PlanRecordError;
use crate::provider_id::ProviderId;
use crate::samples;
use coordinator_api::inventory::{MachineInventory, PlanState};
use coordinator_api::machine::Phase;
use coordinator_api::names::annotation;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::time::Duration;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn seconds(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn outcome_at(
    demand: &Demand,
    inventory: Option<&MachineInventory>,
    secrets: &Secrets,
    now: Timestamp,
) -> Outcome {
    let record = inventory.map(samples::record);
    let host =
        record.as_ref().zip(inventory).map(|(record, inventory)| Host { record, spec: &inventory.spec });
    decide_outcome(&Situation { demand, host, secrets, now })
}

fn outcome(demand: &Demand, inventory: Option<&MachineInventory>, secrets: &Secrets) -> Outcome {
    outcome_at(demand, inventory, secrets, NOW)
}

fn free() -> MachineInventory {
    samples::inventory("host-1")
}

fn claimed() -> MachineInventory {
    let mut inventory = free();
    samples::claim(&mut inventory, AllocationState::Allocated, 0);
    inventory
}

/// Claimed, with a plan of that claim.
fn with_plan(kind: PlanType, state: Option<PlanState>) -> MachineInventory {
    let mut inventory = claimed();
    samples::announce(&mut inventory, kind, 1, state);
    inventory
}

fn running_host() -> MachineInventory {
    with_plan(PlanType::Reprovision, Some(PlanState::Applied))
}

fn read() -> Secrets {
    Secrets {
        bootstrap: SecretRead::Read(samples::bootstrap()),
        plan: Some(StoredPlan::Empty),
        ..Secrets::default()
    }
}

fn node(demand: &mut Demand) -> &mut NodeDemand {
    match &mut demand.want {
        Want::Node(node) => node,
        Want::Release => panic!("no node is wanted"),
    }
}

fn reason(outcome: &Outcome) -> Option<Reason> {
    outcome.state.as_ref()?.blocker.as_ref().map(|blocker| blocker.reason)
}

fn phase(outcome: &Outcome) -> Option<Phase> {
    outcome.state.as_ref()?.phase
}

fn assignment(outcome: &Outcome) -> &Assignment {
    match &outcome.effect {
        Some(Effect::Assign(assignment)) => assignment,
        other => panic!("{other:?}"),
    }
}

#[test]
fn machine_chooses_then_claims() {
    let demand = samples::demand();
    let unchosen = Demand { host: None, has_finalizer: false, ..demand.clone() };
    let want = Effect::Choose { host: HostName::parse("host-2").unwrap() };
    assert_eq!(outcome(&unchosen, None, &read()).effect, Some(want.clone()));
    let names = ClaimNames {
        machine: "worker-1".into(),
        cluster: "c1".into(),
        pool: "workers".into(),
        reuse_group: None,
        generation: 0,
    };
    assert_eq!(outcome(&demand, Some(&free()), &read()).effect, Some(Effect::Claim { names }));
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
    let blocker = Blocker::needs_operator(Type::InventoryAllocated, Reason::PoolExhausted, "none");
    node(&mut demand).candidate = Err(blocker.clone());
    let outcome = outcome(&demand, None, &read());
    assert_eq!(outcome.state.as_ref().and_then(|state| state.blocker.clone()), Some(blocker));
    assert_eq!(phase(&outcome), Some(Phase::Pending));
}

#[test]
fn provisioning_waits_for_each_input() {
    type Change = fn(&mut Demand, &mut MachineInventory, &mut Secrets);
    let cases: [(&str, Change, Option<Effect>, Option<Reason>); 6] = [
        (
            "no statement",
            |_, i, _| samples::host_status(i).carried = None,
            None,
            Some(Reason::HostStatementMissing),
        ),
        ("no name", |d, _, _| node(d).bootstrap_secret = None, None, Some(Reason::BootstrapWaiting)),
        (
            "no image",
            |d, _, _| {
                let miss =
                    Blocker::failed_with(Type::ImageResolved, Reason::ImageCatalogMiss, "no such version");
                node(d).image = Err(miss);
            },
            None,
            Some(Reason::ImageCatalogMiss),
        ),
        (
            "bootstrap not read",
            |_, _, s| s.bootstrap = SecretRead::NotRead,
            Some(Effect::ReadSecret(SecretRef::Bootstrap("join".into()))),
            None,
        ),
        (
            "bootstrap missing",
            |_, _, s| s.bootstrap = SecretRead::Missing,
            None,
            Some(Reason::BootstrapWaiting),
        ),
        ("plan not read", |_, _, s| s.plan = None, Some(Effect::ReadSecret(SecretRef::Plan)), None),
    ];
    for (name, change, effect, want) in cases {
        let (mut demand, mut inventory, mut secrets) = (samples::demand(), claimed(), read());
        change(&mut demand, &mut inventory, &mut secrets);
        let outcome = outcome(&demand, Some(&inventory), &secrets);
        assert_eq!((outcome.effect.clone(), reason(&outcome)), (effect, want), "{name}");
    }
}

/// What the host needs for its registry is read when everything else is there, and
/// is part of the plan.
#[test]
fn provisioning_needs_the_named_registry_secret() {
    let secret = |kind: &str| {
        let auths = r#"{"auths":{"registry.example":{"auth":"canary"}}}"#;
        let data = [(".dockerconfigjson".to_owned(), ByteString(auths.into()))].into();
        Box::new(KubeSecret { type_: Some(kind.into()), data: Some(data), ..KubeSecret::default() })
    };
    let decided = |registry: SecretRead<Box<KubeSecret>>| {
        let mut demand = samples::demand();
        node(&mut demand).registry_secret = Some("pull".into());
        outcome(&demand, Some(&claimed()), &Secrets { registry, ..read() })
    };
    let asked = decided(SecretRead::NotRead).effect;
    assert_eq!(asked, Some(Effect::ReadSecret(SecretRef::Registry("pull".into()))));
    for (name, read) in
        [("missing", SecretRead::Missing), ("another type", SecretRead::Read(secret("kubernetes.io/tls")))]
    {
        let blocked = decided(read);
        assert_eq!(reason(&blocked), Some(Reason::RegistrySecretInvalid), "{name}");
        assert_eq!((blocked.effect.clone(), blocked.wake), (None, Wake::Backoff), "{name}");
    }
    let assigned = decided(SecretRead::Read(secret("kubernetes.io/dockerconfigjson")));
    let steps = &assignment(&assigned).record.plan.steps;
    let access = steps.iter().find_map(|step| match step {
        proto::plan::Step::UpgradeSystem(upgrade) => upgrade.registry.as_deref(),
        _ => None,
    });
    assert!(access.is_some_and(|access| access.docker_config.is_some()), "{steps:?}");
    assert!(!format!("{assigned:?}").contains("canary"));
}

#[test]
fn assignment_is_shown_at_once() {
    let outcome = outcome(&samples::demand(), Some(&claimed()), &read());
    let record = &assignment(&outcome).record;
    assert_eq!((record.plan.kind, record.plan.generation), (proto::plan::Kind::Reprovision, Generation(1)));
    assert_eq!((phase(&outcome), reason(&outcome)), (Some(Phase::Reprovisioning), Some(Reason::PlanRunning)));
    let state = outcome.state.as_ref().unwrap();
    assert_eq!(state.plan_checksum.as_deref(), Some(record.plan.checksum.as_str()));
    assert!(state.bootstrap_hash.is_some());
}

/// Generations only grow, wherever the highest one was recorded.
#[test]
fn new_plan_exceeds_all_generations() {
    type Change = fn(&mut MachineInventory, &mut Secrets);
    let cases: [(&str, Change, u64); 4] = [
        ("nothing seen", |_, _| {}, 1),
        ("the claim", |i, _| samples::claim(i, AllocationState::Allocated, 6), 7),
        (
            "the host",
            |i, _| {
                samples::claim(i, AllocationState::Allocated, 8);
                samples::announce(i, PlanType::Clean, 8, Some(PlanState::Applied));
            },
            9,
        ),
        (
            "the Secret",
            |_, s| {
                let record = render(&samples::clean(), Generation(11), "another").unwrap();
                s.plan = Some(StoredPlan::Record(Box::new(record)));
            },
            12,
        ),
    ];
    for (name, change, want) in cases {
        let (mut inventory, mut secrets) = (claimed(), read());
        change(&mut inventory, &mut secrets);
        let outcome = outcome(&samples::demand(), Some(&inventory), &secrets);
        assert_eq!(assignment(&outcome).record.plan.generation, Generation(want), "{name}");
    }
}

/// A crash between the Secret and the announcement costs no second plan; bytes
/// that we would not write are never announced.
#[test]
fn stored_record_is_announced_when_same() {
    let first = outcome(&samples::demand(), Some(&claimed()), &read());
    let record = assignment(&first).record.clone();
    let stored = |plan| Secrets { plan: Some(plan), ..read() };
    let again = outcome(&samples::demand(), Some(&claimed()), &stored(StoredPlan::Record(record.clone())));
    assert_eq!(assignment(&again), &Assignment { record: record.clone(), is_stored: true, lost: None });
    let foreign = render(&samples::reprovision(), Generation(1), "another").unwrap();
    let other = outcome(&samples::demand(), Some(&claimed()), &stored(StoredPlan::Record(Box::new(foreign))));
    let other = assignment(&other);
    assert_eq!((other.is_stored, other.record.plan.generation), (false, Generation(2)));
}

#[test]
fn lost_record_is_reported() {
    for (name, stored, want) in [
        ("missing", StoredPlan::Missing, Reason::PlanSecretMissing),
        (
            "unusable",
            StoredPlan::Unusable { error: PlanRecordError::NotTyped, generation: Generation(0) },
            Reason::PlanSecretInvalid,
        ),
    ] {
        let secrets = Secrets { plan: Some(stored), ..read() };
        let outcome = outcome(&samples::demand(), Some(&claimed()), &secrets);
        assert_eq!(assignment(&outcome).lost.as_ref().map(|lost| lost.reason), Some(want), "{name}");
    }
}

#[test]
fn plan_result_decides_what_follows() {
    let demand = samples::demand();
    let mark = |state| Some(Effect::Mark(state));
    let provider_id = ProviderId::parse(samples::PROVIDER_ID).unwrap();
    for (name, kind, state, effect, want) in [
        (
            "in flight",
            PlanType::Reprovision,
            None,
            mark(AllocationState::Reprovisioning),
            Some(Phase::Reprovisioning),
        ),
        (
            "failed",
            PlanType::Reprovision,
            Some(PlanState::Failed),
            mark(AllocationState::Unavailable),
            Some(Phase::Failed),
        ),
        (
            "applied",
            PlanType::Reprovision,
            Some(PlanState::Applied),
            Some(Effect::SetProviderId(provider_id)),
            None,
        ),
        // The cache of machines is behind: what was cleaned is no node.
        ("cleaned", PlanType::Clean, Some(PlanState::Applied), None, Some(Phase::Preparing)),
    ] {
        let outcome = outcome(&demand, Some(&with_plan(kind, state)), &read());
        assert_eq!((outcome.effect.clone(), phase(&outcome)), (effect, want), "{name}");
    }
}

/// A plan that was announced before the claim was made belongs to another one.
#[test]
fn plans_before_the_claim_do_not_count() {
    let mut inventory = free();
    samples::announce(&mut inventory, PlanType::Clean, 4, Some(PlanState::Applied));
    samples::claim(&mut inventory, AllocationState::Allocated, 4);
    let outcome = outcome(&samples::demand(), Some(&inventory), &read());
    assert_eq!(assignment(&outcome).record.plan.generation, Generation(5));
}

#[test]
fn running_machine_stays_as_its_host_states() {
    type Change = fn(&mut MachineInventory);
    let demand = samples::running(samples::demand());
    let cases: [(&str, Change, Option<Reason>); 5] = [
        ("carries the node", |_| {}, None),
        ("status lost", |i| i.status = None, Some(Reason::HostStatementMissing)),
        (
            "carries no node",
            |i| samples::host_status(i).carried.as_mut().unwrap().node = None,
            Some(Reason::HostCarriesNoNode),
        ),
        (
            "quarantined",
            |i| samples::annotate(i, annotation::QUARANTINED, "x"),
            Some(Reason::DuplicateIdentity),
        ),
        (
            "unreachable",
            |i| samples::host_status(i).session.as_mut().unwrap().ended = Some(Time(seconds(-301))),
            Some(Reason::HostUnreachable),
        ),
    ];
    for (name, change, want) in cases {
        let mut inventory = running_host();
        change(&mut inventory);
        let outcome = outcome(&demand, Some(&inventory), &Secrets::default());
        assert_eq!((phase(&outcome), reason(&outcome)), (Some(Phase::Running), want), "{name}");
        assert!(!matches!(outcome.effect, Some(Effect::Assign(_) | Effect::Release)), "{name}: {outcome:?}");
    }
}

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
    let paused =
        Demand { hold: Some(Blocker::waiting_for(Type::Paused, Reason::Paused, "paused")), ..unprotected };
    assert_eq!(outcome(&paused, Some(&open), &Secrets::default()).effect, None);
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
    let Some(Effect::Claim { names }) = reclaimed.effect else { panic!("{reclaimed:?}") };
    assert_eq!(names.generation, 2, "the plan of the node belongs to the claim");
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

#[test]
fn deleted_machine_is_cleaned_then_released() {
    let demand = samples::deleted(samples::running(samples::demand()));
    let secrets = Secrets { plan: Some(StoredPlan::Empty), ..Secrets::default() };
    let cleaning = outcome(&demand, Some(&running_host()), &secrets);
    assert_eq!(assignment(&cleaning).record.plan.kind, proto::plan::Kind::Clean);
    assert_eq!((phase(&cleaning), reason(&cleaning)), (Some(Phase::Preparing), Some(Reason::Cleaning)));
    let unread = outcome(&demand, Some(&running_host()), &Secrets::default());
    assert_eq!(unread.effect, Some(Effect::ReadSecret(SecretRef::Plan)));
    for (name, state, want) in [
        ("in flight", None, Some(Effect::Mark(AllocationState::Preparing))),
        ("failed", Some(PlanState::Failed), Some(Effect::Mark(AllocationState::Unavailable))),
        ("applied", Some(PlanState::Applied), Some(Effect::Release)),
    ] {
        let outcome = outcome(&demand, Some(&with_plan(PlanType::Clean, state)), &secrets);
        assert_eq!(outcome.effect, want, "{name}");
    }
    let retried = Demand { retry_clean: true, ..demand.clone() };
    let outcome = outcome(&retried, Some(&with_plan(PlanType::Clean, Some(PlanState::Failed))), &secrets);
    assert_eq!(assignment(&outcome).record.plan.generation, Generation(2));
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
    assert_eq!(assignment(&cleaning).record.plan.kind, proto::plan::Kind::Clean);
}

#[test]
fn dead_host_is_held_or_abandoned() {
    let demand = samples::deleted(samples::running(samples::demand()));
    let mut inventory = with_plan(PlanType::Clean, None);
    samples::host_status(&mut inventory).session.as_mut().unwrap().ended = Some(Time(NOW));
    samples::annotate(&mut inventory, annotation::ALLOCATION_STATE, "Preparing");
    let decide = |demand: &Demand, now| outcome_at(demand, Some(&inventory), &Secrets::default(), now);
    let within = decide(&demand, seconds(10));
    assert_eq!((reason(&within), within.wake), (Some(Reason::Cleaning), Wake::At(seconds(300))));
    let held = decide(&demand, seconds(100_000));
    assert_eq!((held.effect.as_ref(), reason(&held)), (None, Some(Reason::HostUnreachable)));
    let opted = Demand { abandon_after: Some(Duration::from_mins(10)), ..demand.clone() };
    assert_eq!(decide(&opted, seconds(301)).wake, Wake::At(seconds(600)));
    assert_eq!(decide(&opted, seconds(600)).effect, Some(Effect::Abandon));
    let by_hand = Demand { release_without_clean: true, ..demand };
    assert_eq!(decide(&by_hand, seconds(1)).effect, Some(Effect::Abandon));
    // Also where no clean can be rendered or was announced.
    let running = outcome(&by_hand, Some(&running_host()), &Secrets::default());
    assert_eq!(running.effect, Some(Effect::Abandon));
}

#[test]
fn held_machine_changes_nothing() {
    let hold = Blocker::waiting_for(Type::Paused, Reason::Paused, "paused");
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

/// The reprovision of a node is not the newest plan once an operator's plan came.
#[test]
fn an_operators_plan_brings_no_second_reprovision() {
    let mut node = running_host();
    samples::announce(&mut node, PlanType::Custom, 2, Some(PlanState::Applied));
    let named = outcome(&samples::demand(), Some(&node), &read());
    assert!(matches!(named.effect, Some(Effect::SetProviderId(_))), "{named:?}");
    samples::host_status(&mut node).carried.as_mut().unwrap().node = None;
    let lost = outcome(&samples::demand(), Some(&node), &read());
    assert_eq!((lost.effect.clone(), reason(&lost)), (None, Some(Reason::HostCarriesNoNode)));
    let deleted = outcome(&samples::deleted(samples::running(samples::demand())), Some(&node), &read());
    assert!(
        matches!(deleted.effect, Some(Effect::Assign(_))),
        "cleaned, though it carries no node: {deleted:?}"
    );
}

/// A running machine whose plan ended at the epoch, `waits` seconds later.
fn link_at(now: i64, is_found: bool, nodes: NodesRead) -> Outcome {
    let mut demand = samples::running(samples::demand());
    let expected = Expected {
        provider_ids: vec![samples::PROVIDER_ID.into()],
        label: UUID_LABEL.into(),
        label_values: vec!["uid-of-host-1".into()],
        ..Expected::default()
    };
    node(&mut demand).link = Some(NodeLink { expected, is_found });
    let mut inventory = running_host();
    inventory.status.as_mut().unwrap().plan.as_mut().unwrap().ended = Some(Time(NOW));
    outcome_at(&demand, Some(&inventory), &Secrets { nodes, ..Secrets::default() }, seconds(now))
}

fn workload_node(provider_id: Option<&str>) -> NodesRead {
    NodesRead::Read(vec![NodeFacts {
        name: "n1".into(),
        uid: Some("uid-of-n1".into()),
        provider_id: provider_id.map(str::to_owned),
        labels: [(UUID_LABEL.to_owned(), "uid-of-host-1".to_owned())].into(),
    }])
}

fn node_ref() -> NodeRef {
    NodeRef { cluster: "c1".into(), name: "n1".into(), uid: Some("uid-of-n1".into()) }
}

fn unreachable_workload() -> NodesRead {
    NodesRead::Unavailable(Problem { reason: Reason::WorkloadUnreachable, message: "it is down".into() })
}

#[test]
fn node_is_looked_for_when_cluster_api_has_not_found_it() {
    let condition = |outcome: &Outcome, kind: Type| {
        let updates = project_conditions(outcome.state.as_ref().unwrap());
        let update = updates.into_iter().find(|update| update.kind == kind).unwrap();
        (<&str>::from(update.status), update.reason)
    };
    let none = || NodesRead::Read(vec![]);
    for (name, outcome, linked, ready, wake) in [
        ("found", link_at(0, true, NodesRead::NotRead), ("True", Reason::NodeFound), "True", Wake::OnChange),
        (
            "just applied",
            link_at(29, false, NodesRead::NotRead),
            ("Unknown", Reason::NodeWaiting),
            "True",
            Wake::At(seconds(30)),
        ),
        (
            "unreachable",
            link_at(30, false, unreachable_workload()),
            ("Unknown", Reason::WorkloadUnreachable),
            "True",
            Wake::Backoff,
        ),
        ("not joined", link_at(30, false, none()), ("False", Reason::NodeWaiting), "True", Wake::Backoff),
        ("overdue", link_at(900, false, none()), ("False", Reason::NodeOverdue), "False", Wake::Backoff),
        (
            "of another provider",
            link_at(30, false, workload_node(Some("aws:///i-1"))),
            ("False", Reason::NodeProviderIDUnsupported),
            "False",
            Wake::Backoff,
        ),
        (
            "linked",
            link_at(30, false, workload_node(Some(samples::PROVIDER_ID))),
            ("True", Reason::NodeFound),
            "True",
            Wake::OnChange,
        ),
    ] {
        assert_eq!(condition(&outcome, Type::NodeLinked), linked, "{name}");
        assert_eq!((condition(&outcome, Type::Ready).0, outcome.wake), (ready, wake), "{name}");
        assert_eq!(outcome.effect, None, "{name}");
    }
    let search = NodeSearch::new("c1", UUID_LABEL, &["uid-of-host-1".to_owned()]);
    assert_eq!(link_at(30, false, NodesRead::NotRead).effect, Some(Effect::FindNodes(search)));
    let want = Effect::LinkNode { node: node_ref(), provider_id: samples::PROVIDER_ID.into() };
    assert_eq!(link_at(30, false, workload_node(None)).effect, Some(want));
}

#[test]
fn leftover_node_goes_before_the_host_is_released() {
    let mut inventory = with_plan(PlanType::Clean, Some(PlanState::Applied));
    inventory.status.as_mut().unwrap().plan.as_mut().unwrap().ended = Some(Time(NOW));
    let managed = samples::deleted(samples::running(samples::demand()));
    let left = Demand { leftover_cluster: Some("c1".into()), ..managed.clone() };
    let search = NodeSearch::new("c1", UUID_LABEL, &["uid-of-host-1".to_owned()]);
    let missing = Problem { reason: Reason::KubeconfigMissing, message: String::new() };
    for (name, demand, nodes, now, want) in [
        ("Cluster API deletes it", &managed, NodesRead::NotRead, 1, Some(Effect::Release)),
        ("not read", &left, NodesRead::NotRead, 1, Some(Effect::FindNodes(search))),
        (
            "its own",
            &left,
            workload_node(Some(samples::PROVIDER_ID)),
            1,
            Some(Effect::RemoveNode(node_ref())),
        ),
        ("of another", &left, workload_node(Some("baremetal:///host-9")), 1, Some(Effect::Release)),
        ("without one", &left, workload_node(None), 1, Some(Effect::Release)),
        ("no access", &left, NodesRead::Unavailable(missing), 1, Some(Effect::Release)),
        ("unreachable", &left, unreachable_workload(), 119, None),
        ("unreachable for long", &left, unreachable_workload(), 120, Some(Effect::Release)),
    ] {
        let secrets = Secrets { nodes, ..Secrets::default() };
        let outcome = outcome_at(demand, Some(&inventory), &secrets, seconds(now));
        assert_eq!(outcome.effect, want, "{name}");
    }
}
