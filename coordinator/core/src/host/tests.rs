mod bounds;
mod conditions;
mod labels;

use super::conditions::Told;
use super::conditions::project_conditions;
use super::facts::{self, Attach};
use super::statement::{HostStatement, StatementError};
use super::*;
use crate::plan::{PlanEnd, render};
use crate::samples;
use coordinator_api::conditions::{Type, find_condition};
use coordinator_api::inventory::{
    AgentUpdateState, AgentUpdateStatus, AllocationState, InstallState, MachineInventoryStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proto::v1alpha1::{
    BootOrderRefused, Carried, CarriedNode as WireNode, CarriedPlan as WirePlan, Hello, InstallDone,
    InstallReport, InstallStarted, InstallWaiting, PlanKind, PlanOutcome, SystemState, install_report,
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn seconds(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn hello(carried: Carried) -> Hello {
    let system = SystemState { boot_id: "boot-1".into(), image: "os:v1".into(), ..SystemState::default() };
    Hello {
        system: Some(system),
        agent_version: "1".into(),
        carried: Some(carried),
        facts: None,
        settings: String::new(),
        agent_update: None,
        network: None,
    }
}

fn node_of(generation: u64, outcome: PlanOutcome) -> Carried {
    Carried {
        plan: Some(WirePlan {
            id: "reprovision-1".into(),
            generation,
            checksum: Checksum::of(b"record").to_string(),
            kind: PlanKind::Reprovision.into(),
            outcome: outcome.into(),
        }),
        node: Some(WireNode {
            provider_id: samples::PROVIDER_ID.into(),
            uuid: "u".into(),
            ..WireNode::default()
        }),
        installed: Some(InstallDone { device: "/dev/vda".into(), image: "os:v0".into() }),
        ..Carried::default()
    }
}

fn attach(status: &mut MachineInventoryStatus, carried: Carried, replica: &str, now: Timestamp) {
    let (namespace, name) = ("default", "host-1");
    let statement = &HostStatement::parse(hello(carried)).unwrap();
    let (hardware, network, settings, stale_labels) = (None, None, None, None);
    facts::record_attach(
        status,
        Attach { namespace, name, replica, statement, hardware, network, stale_labels, settings, now },
    );
}

fn with_status(status: MachineInventoryStatus) -> MachineInventory {
    let mut inventory = samples::inventory("host-1");
    inventory.status = Some(status);
    inventory
}

/// `Ready` and `Installed`, as status and reason.
fn shown(inventory: &MachineInventory, kind: Type, now: Timestamp) -> (String, String) {
    let mut inventory = inventory.clone();
    project_conditions(&mut inventory, Told::Kept, now);
    let found = find_condition(inventory.conditions(), kind).cloned();
    found.map(|found| (found.status, found.reason)).unwrap_or_default()
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn late_attach_does_not_undo_a_plan_end() {
    let (running, applied) = (PlanOutcome::Unspecified, PlanOutcome::Applied);
    let carried = |first: PlanOutcome, then: PlanOutcome, generation| {
        let mut status = MachineInventoryStatus::default();
        attach(&mut status, node_of(1, first), "r-1", seconds(0));
        attach(&mut status, node_of(generation, then), "r-1", seconds(1));
        status.host.unwrap().carried.unwrap().plan.unwrap()
    };
    assert_eq!(carried(running, applied, 1).state, Some(PlanState::Applied));
    assert_eq!(carried(applied, running, 1).state, Some(PlanState::Applied), "an older statement");
    assert_eq!(carried(applied, running, 2).state, None, "another plan");
}

/// A backup does not hold status: one attach rebuilds it from the host.
#[test]
fn attach_rebuilds_a_lost_status() {
    let mut status = MachineInventoryStatus::default();
    attach(&mut status, node_of(5, PlanOutcome::Applied), "replica-1", NOW);
    let record = samples::record(&with_status(status.clone()));
    let plan = record.plan.clone().unwrap();
    assert_eq!(
        (plan.generation, plan.kind, plan.state),
        (Generation(5), PlanType::Reprovision, Some(PlanState::Applied))
    );
    assert_eq!(record.carried_node().unwrap().provider_id, samples::PROVIDER_ID);
    assert_eq!(record.install.unwrap().state, InstallState::Installed);
    let before = status.clone();
    attach(&mut status, node_of(5, PlanOutcome::Applied), "replica-1", seconds(9));
    assert_eq!(status, before, "the same stream states nothing new");
}

#[test]
fn restored_plan_ended_when_its_host_attached() {
    for (outcome, want) in [(PlanOutcome::Applied, Some(Time(seconds(9)))), (PlanOutcome::InProgress, None)] {
        let mut status = MachineInventoryStatus::default();
        attach(&mut status, node_of(1, outcome), "replica-1", seconds(9));
        assert_eq!(status.plan.unwrap().ended, want, "{outcome:?}");
    }
}

#[test]
fn reinstall_ends_a_failed_operators_plan() {
    for (kind, want) in [(PlanType::Custom, PlanState::Applied), (PlanType::Clean, PlanState::Failed)] {
        let mut inventory = samples::inventory("host-1");
        samples::announce(&mut inventory, kind, 3, Some(PlanState::Failed));
        let mut status = inventory.status.unwrap();
        facts::record_reinstall(&mut status);
        let plan = status.plan.unwrap();
        assert_eq!((plan.generation, plan.state), (Some(3), Some(want)), "{kind:?}");
    }
}

#[test]
fn attach_keeps_a_newer_announcement() {
    let mut status = MachineInventoryStatus::default();
    let (plan, _) = render(&samples::clean(), Generation(6), "a").unwrap();
    facts::record_announcement(&mut status, &plan, None, &[], NOW);
    attach(&mut status, node_of(5, PlanOutcome::Applied), "replica-1", NOW);
    let plan = status.plan.unwrap();
    assert_eq!((plan.generation, plan.kind, plan.state), (Some(6), Some(PlanType::Clean), None));
}

#[test]
fn attach_of_unused_host_shows_empty_plan() {
    let mut status = MachineInventoryStatus::default();
    attach(&mut status, Carried::default(), "replica-1", NOW);
    let inventory = with_status(status);
    assert!(samples::record(&inventory).carries_nothing());
    assert_eq!(shown(&inventory, Type::Ready, NOW), pair("True", "PlanSuccessfullyApplied"));
}

/// A plan that cannot be read must not pass for none: a host that carries
/// nothing is given away.
#[test]
fn unreadable_statement_is_no_statement() {
    type Edit = fn(&mut Hello);
    type Want = fn(&StatementError) -> bool;
    fn plan(hello: &mut Hello) -> &mut WirePlan {
        hello.carried.as_mut().unwrap().plan.as_mut().unwrap()
    }
    let cases: [(&str, Edit, Want); 9] = [
        ("nothing carried", |hello| hello.carried = None, |error| *error == StatementError::NoStatement),
        ("no system", |hello| hello.system = None, |error| *error == StatementError::BootId),
        (
            "long id",
            |hello| plan(hello).id = "x".repeat(65),
            |error| matches!(error, StatementError::Plan(_)),
        ),
        ("no id", |hello| plan(hello).id.clear(), |error| matches!(error, StatementError::Plan(_))),
        (
            "checksum",
            |hello| plan(hello).checksum = "0a".into(),
            |error| matches!(error, StatementError::Plan(_)),
        ),
        ("no kind", |hello| plan(hello).kind = 0, |error| matches!(error, StatementError::Plan(_))),
        ("later kind", |hello| plan(hello).kind = 77, |error| matches!(error, StatementError::Plan(_))),
        (
            "generation zero",
            |hello| plan(hello).generation = 0,
            |error| *error == StatementError::Generation(0),
        ),
        (
            "the last number",
            |hello| plan(hello).generation = u64::MAX,
            |error| *error == StatementError::Generation(u64::MAX),
        ),
    ];
    for (name, edit, want) in cases {
        let mut hello = hello(node_of(5, PlanOutcome::Applied));
        assert!(HostStatement::parse(hello.clone()).is_ok());
        edit(&mut hello);
        let error = HostStatement::parse(hello).unwrap_err();
        assert!(want(&error), "{name}: {error}");
    }
}

#[test]
fn unknown_outcome_is_a_plan_in_flight() {
    let mut carried = node_of(5, PlanOutcome::Applied);
    carried.node = None;
    carried.plan.as_mut().unwrap().kind = PlanKind::Clean.into();
    carried.plan.as_mut().unwrap().outcome = 77;
    let mut status = MachineInventoryStatus::default();
    attach(&mut status, carried, "replica-1", NOW);
    assert!(!samples::record(&with_status(status)).carries_nothing());
}

#[test]
fn agent_condition_says_how_far_an_update_is() {
    let shown_with = |wanted: Option<&str>, update: Option<(&str, AgentUpdateState)>| {
        let mut status = MachineInventoryStatus::default();
        attach(&mut status, Carried::default(), "replica-1", NOW);
        if let Some((version, state)) = update {
            let (version, message) = (version.to_owned(), "why".to_owned());
            facts::record_agent_update(&mut status, &AgentUpdateStatus { version, state, message });
        }
        let mut inventory = with_status(status);
        if let Some(wanted) = wanted {
            let annotations = inventory.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation::AGENT_VERSION.to_owned(), wanted.to_owned());
        }
        shown(&inventory, Type::AgentUpdated, NOW)
    };
    let failed = Some(("2", AgentUpdateState::Failed));
    for (name, wanted, update, want) in [
        ("not asked for", None, failed, pair("", "")),
        ("removed", Some(""), failed, pair("", "")),
        ("it runs", Some("1"), None, pair("True", "AgentAsWanted")),
        ("not announced yet", Some("2"), None, pair("False", "AgentUpdateWaiting")),
        ("another was asked for before", Some("3"), failed, pair("False", "AgentUpdateWaiting")),
        ("failed", Some("2"), failed, pair("False", "AgentUpdateFailed")),
        ("sent", Some("2"), Some(("2", AgentUpdateState::Sent)), pair("False", "AgentUpdateSent")),
        ("waits", Some("2"), Some(("2", AgentUpdateState::Waiting)), pair("False", "AgentUpdateWaiting")),
        (
            "not there",
            Some("2"),
            Some(("2", AgentUpdateState::Unavailable)),
            pair("False", "AgentUpdateUnavailable"),
        ),
    ] {
        assert_eq!(shown_with(wanted, update), want, "{name}");
    }
}

#[test]
fn addresses_and_host_names_are_parsed() {
    let long = ["x".repeat(63).as_str(); 4].join(".");
    for (hostname, want) in [
        ("node-1.rack.example", "node-1.rack.example"),
        ("a b", ""),
        ("-a", ""),
        ("a..b", ""),
        (long.as_str(), ""),
    ] {
        let mut status = MachineInventoryStatus::default();
        let addresses = ["192.0.2.1", "2001:DB8::1", "", "192.0.2.1/24", "fe80::1%eth0", "x; rm"];
        let system = SystemState {
            hostname: hostname.into(),
            addresses: addresses.map(str::to_owned).into(),
            ..SystemState::default()
        };
        facts::record_system(&mut status, &system);
        let host = status.host.unwrap();
        assert_eq!(
            (host.hostname.as_str(), host.addresses),
            (want, vec!["192.0.2.1".into(), "2001:db8::1".into()])
        );
    }
}

/// The next generation follows from what others write.
#[test]
fn generations_out_of_range_do_not_count() {
    let mut inventory = samples::inventory("host-1");
    samples::claim(&mut inventory, AllocationState::Reprovisioning, u64::MAX);
    samples::announce(&mut inventory, PlanType::Reprovision, 1, None);
    assert_eq!(samples::record(&inventory).newest_generation(), Generation(1));
    inventory.status.as_mut().unwrap().plan.as_mut().unwrap().generation = Some(i64::MAX);
    assert_eq!(samples::record(&inventory).newest_generation(), Generation(1));
}

#[test]
fn only_its_own_session_ends() {
    let mut status = MachineInventoryStatus::default();
    attach(&mut status, Carried::default(), "replica-1", NOW);
    attach(&mut status, Carried::default(), "replica-2", seconds(5));
    facts::record_session_end(&mut status, "replica-1", seconds(6));
    assert!(samples::record(&with_status(status.clone())).is_attached());
    facts::record_session_end(&mut status, "replica-2", seconds(7));
    let inventory = with_status(status);
    let record = samples::record(&inventory);
    assert!(!record.is_attached() && record.unreachable_since(seconds(306)).is_none());
    assert_eq!(record.grace_ends(seconds(306)), Some(seconds(307)));
    assert_eq!(record.unreachable_since(seconds(307)), Some(seconds(7)));
    assert_eq!(shown(&inventory, Type::Ready, seconds(307)), pair("Unknown", "HostUnreachable"));
    assert_eq!(shown(&inventory, Type::Ready, seconds(306)), pair("True", "PlanSuccessfullyApplied"));
}

/// As after a restore: its inventory was created again, and the host has not come back.
#[test]
fn claimed_host_without_status_becomes_unreachable() {
    let mut inventory = samples::inventory("host-1");
    inventory.status = None;
    inventory.metadata.creation_timestamp = Some(Time(seconds(7)));
    let since = |inventory: &MachineInventory| samples::record(inventory).unreachable_since(seconds(307));
    assert_eq!(since(&inventory), None, "it may never have attached");
    samples::claim(&mut inventory, AllocationState::Allocated, 0);
    assert_eq!(since(&inventory), Some(seconds(7)));
    assert_eq!(samples::record(&inventory).grace_ends(seconds(306)), Some(seconds(307)));
}

#[test]
fn plan_end_changes_what_the_host_carries() {
    let mut status = MachineInventoryStatus::default();
    attach(&mut status, Carried::default(), "replica-1", NOW);
    let reprovision = render(&samples::reprovision(), Generation(1), "a").unwrap().0;
    let bootstrap_hash = Checksum::of(b"bootstrap data");
    facts::record_announcement(&mut status, &reprovision, Some(&bootstrap_hash), &[], NOW);
    assert_eq!(shown(&with_status(status.clone()), Type::Ready, NOW), pair("False", "WaitingForPlan"));
    facts::record_plan_end(&mut status, &reprovision, &PlanEnd::Applied, None, seconds(9));
    let plan = status.plan.as_ref().unwrap();
    assert_eq!((&plan.announced, &plan.ended), (&Some(Time(NOW)), &Some(Time(seconds(9)))));
    let record = samples::record(&with_status(status.clone()));
    let kept = record.plan.as_ref().unwrap().bootstrap_hash.clone();
    assert_eq!(kept, Some(bootstrap_hash.to_string()), "the status of the machine may not have it yet");
    assert_eq!(record.carried_node().unwrap().provider_id, samples::PROVIDER_ID);
    let problem = Problem::of_cause(Reason::BootFallback, "fell back");
    let clean = render(&samples::clean(), Generation(2), "a").unwrap().0;
    facts::record_plan_end(&mut status, &clean, &PlanEnd::Failed(problem), None, NOW);
    let inventory = with_status(status.clone());
    assert!(samples::record(&inventory).carried_node().is_some(), "a failed clean took nothing off");
    assert_eq!(status.plan.as_ref().unwrap().reason.as_deref(), Some("BootFallback"));
    assert_eq!(status.plan.as_ref().unwrap().bootstrap_hash, None);
    assert_eq!(shown(&inventory, Type::Ready, NOW), pair("False", "PlanFailure"));
    facts::record_plan_end(&mut status, &reprovision, &PlanEnd::Applied, None, NOW);
    assert_eq!(status.plan.as_ref().unwrap().generation, Some(2), "a stale end changes nothing");
    let clean = render(&samples::clean(), Generation(3), "a").unwrap().0;
    facts::record_plan_end(&mut status, &clean, &PlanEnd::Applied, None, NOW);
    assert!(samples::record(&with_status(status)).carries_nothing());
}

#[test]
fn a_kernel_with_leftovers_is_not_free() {
    let mut status = MachineInventoryStatus::default();
    attach(&mut status, Carried::default(), "replica-1", NOW);
    assert!(!samples::record(&with_status(status.clone())).needs_fresh_kernel());
    let clean = render(&samples::clean(), Generation(1), "a").unwrap().0;
    let left = |items: &[&str]| SystemState {
        boot_id: "boot-1".into(),
        left_in_kernel: items.iter().map(|item| (*item).to_owned()).collect(),
        ..SystemState::default()
    };
    let system = left(&["address 10.0.0.100/32 of eno1"; 40]);
    facts::record_plan_end(&mut status, &clean, &PlanEnd::Applied, Some(&system), NOW);
    let inventory = with_status(status.clone());
    assert!(samples::record(&inventory).needs_fresh_kernel());
    assert_eq!(shown(&inventory, Type::Ready, NOW), pair("False", "KernelStateLeft"));
    assert_eq!(status.host.as_ref().unwrap().left_in_kernel.len(), 16, "a status is bounded");
    facts::record_system(&mut status, &left(&[]));
    assert!(!samples::record(&with_status(status)).needs_fresh_kernel());
}

#[test]
fn plan_problem_is_shown_and_cleared() {
    let mut inventory = samples::inventory("host-1");
    samples::claim(&mut inventory, AllocationState::Reprovisioning, 0);
    samples::announce(&mut inventory, PlanType::Reprovision, 1, None);
    let status = inventory.status.as_mut().unwrap();
    let problem = Problem::of_cause(Reason::PlanSecretAltered, "altered");
    facts::record_plan_problem(status, Some(&problem));
    assert_eq!(samples::record(&inventory).find_problem(NOW), Some(problem));
    assert_eq!(shown(&inventory, Type::Ready, NOW), pair("False", "PlanSecretAltered"));
    facts::record_plan_problem(inventory.status.as_mut().unwrap(), None);
    assert_eq!(samples::record(&inventory).find_problem(NOW), None);
}

#[test]
fn node_without_an_owner_is_not_ready() {
    let mut status = MachineInventoryStatus::default();
    attach(&mut status, node_of(5, PlanOutcome::Applied), "replica-1", NOW);
    assert_eq!(shown(&with_status(status), Type::Ready, NOW), pair("False", "HostCarriesNode"));
    let unknown = with_status(MachineInventoryStatus::default());
    assert_eq!(shown(&unknown, Type::Ready, NOW), pair("Unknown", "HostStatementMissing"));
}

#[test]
fn install_reports_become_the_installed_condition() {
    use install_report::Outcome;
    let waiting = InstallWaiting { message: "two disks match".into(), next_action: "name one".into() };
    let done = InstallDone { device: "/dev/vda".into(), image: "os:v0".into() };
    let started = InstallStarted { device: "/dev/vda".into(), attempt: 2 };
    for (name, outcome, want) in [
        ("started", Outcome::Started(started), "Installing"),
        ("waiting", Outcome::Waiting(waiting), "InstallWaiting"),
        ("done", Outcome::Done(done), "InstallDone"),
    ] {
        let mut status = MachineInventoryStatus::default();
        facts::record_install(&mut status, &InstallReport { outcome: Some(outcome) }, NOW);
        let message = &status.host.as_ref().unwrap().install.as_ref().unwrap().message;
        assert_eq!(
            message.starts_with("attempt 2, since 1970-01-01T00:00:00Z"),
            name == "started",
            "{message}"
        );
        assert_eq!(shown(&with_status(status), Type::Installed, NOW), pair("False", want), "{name}");
    }
}

#[test]
fn a_refused_boot_order_becomes_a_condition() {
    use install_report::Outcome;
    let mut status = MachineInventoryStatus::default();
    let mut report = |outcome| {
        facts::record_install(&mut status, &InstallReport { outcome: Some(outcome) }, NOW);
        status.clone()
    };
    let done = || Outcome::Done(InstallDone { device: "/dev/vda".into(), image: "os:v0".into() });
    let refused = BootOrderRefused { message: "the firmware has no room for its variables".into() };
    let is_shown = |status| {
        let mut inventory = with_status(status);
        project_conditions(&mut inventory, Told::Kept, NOW);
        find_condition(inventory.conditions(), Type::BootOrderSet).map(|found| found.message.clone())
    };
    assert_eq!(is_shown(report(done())), None);
    let mut refused = report(Outcome::BootOrderRefused(refused));
    let message = is_shown(refused.clone()).unwrap();
    assert!(message.starts_with("the firmware has no room") && message.contains("take the seed ISO out"));
    attach(&mut refused, node_of(5, PlanOutcome::Applied), "replica-1", NOW);
    assert!(is_shown(refused).is_some(), "an attach does not set the order");
    assert_eq!(is_shown(report(done())), None, "the next install set it");
}
