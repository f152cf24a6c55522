//! Whatever a host sends, its status stays small. A network that can be replayed is bounded by the size
//! of its message, and by counts: `tests/network/reports.rs`.

use coordinator_api::inventory::{CoordinatorSettingsState, LoadBalancerDuty};
use coordinator_api::network::ObservedNetwork;
use k8s_openapi::api::core::v1::ObjectReference;
use proto::plan::Plan;
use proto::v1alpha1 as wire;
use proto::v1alpha1::install_report::Outcome;

use super::*;
use crate::host::hardware::describe_hardware;
use crate::host::statement::StatedUpdate;
use crate::network::parse_observed;

/// A status has less, and what is sent here fills more than half of it.
const MOST_BYTES: usize = 64 * 1024;
/// Entries of each list.
const ENTRIES: usize = 10_000;

/// Changes the status as a message of the host does.
type Report = fn(&mut MachineInventoryStatus);

fn text() -> String {
    "x".repeat(1 << 20)
}

fn failure() -> wire::Failure {
    wire::Failure { message: text(), next_action: text(), ..wire::Failure::default() }
}

fn address(entry: usize) -> String {
    format!("10.1.{}.{}", entry / 256, entry % 256)
}

/// The text, and then as many entries.
fn list(entry: fn(usize) -> String) -> Vec<String> {
    std::iter::once(text()).chain((0..ENTRIES).map(entry)).collect()
}

fn system() -> SystemState {
    SystemState {
        boot_id: "x".repeat(64),
        image: text(),
        hostname: text(),
        addresses: list(address),
        ..SystemState::default()
    }
}

fn hostile_facts() -> wire::HostFacts {
    let disk = |text: String| wire::Disk {
        name: text.clone(),
        model: text.clone(),
        serial: text,
        size_bytes: u64::MAX,
        ..wire::Disk::default()
    };
    let mut disks = vec![disk("x".repeat(256)); ENTRIES];
    disks[0] = disk(text());
    wire::HostFacts {
        architecture: text(),
        cpu_model: text(),
        memory_bytes: u64::MAX,
        processors: vec![wire::Processor { model: text(), ..wire::Processor::default() }],
        disks,
        ..wire::HostFacts::default()
    }
}

/// Nothing but names, addresses and resolvers can be replayed.
fn hostile_network() -> wire::ObservedNetwork {
    let named = |name: String| wire::Interface { name, ..wire::Interface::default() };
    let bonds = [
        wire::Bond { mode: text(), ..wire::Bond::default() },
        wire::Bond { lacp_rate: text(), ..wire::Bond::default() },
        wire::Bond { transmit_hash_policy: text(), ..wire::Bond::default() },
        wire::Bond { primary: text(), ..wire::Bond::default() },
    ];
    let bonds = bonds.into_iter().enumerate();
    let bonds =
        bonds.map(|(index, bond)| wire::Interface { bond: Some(bond), ..named(format!("bond{index}")) });
    let odd = [
        named(text()),
        wire::Interface { mac: text(), ..named("mac".into()) },
        wire::Interface { permanent_mac: text(), ..named("card".into()) },
        wire::Interface { kind: text(), ..named("kind".into()) },
        wire::Interface { master: text(), ..named("master".into()) },
        wire::Interface { vlan: Some(wire::Vlan { id: 1, link: text() }), ..named("vlan".into()) },
        wire::Interface { addresses: list(|entry| format!("{}/8", address(entry))), ..named("many".into()) },
    ];
    let plain = (0..ENTRIES).map(|entry| named(format!("a{entry}")));
    let route =
        wire::Route { destination: "192.0.2.0/24".into(), interface: "many".into(), ..Default::default() };
    let routes = [
        wire::Route { destination: text(), ..route.clone() },
        wire::Route { gateway: text(), ..route.clone() },
        wire::Route { interface: text(), ..route.clone() },
    ];
    let unknown = wire::Route { interface: "none".into(), ..route };
    wire::ObservedNetwork {
        interfaces: bonds.chain(odd).chain(plain).collect(),
        routes: routes.into_iter().chain(std::iter::repeat_n(unknown, ENTRIES)).collect(),
        dns_servers: list(address),
        search_domains: list(|entry| format!("d{entry}.example")),
        connections: [("a".to_owned(), text()), (text(), "[connection]\ntype=bond\n".to_owned())].into(),
    }
}

fn hostile_hello() -> wire::Hello {
    let mut carried = node_of(5, PlanOutcome::Applied);
    carried.node = Some(wire::CarriedNode { provider_id: text(), uuid: text(), owner: text() });
    carried.installed = Some(wire::InstallDone { device: text(), image: text() });
    wire::Hello { system: Some(system()), agent_version: text(), settings: text(), ..hello(carried) }
}

/// Of a host that has attached.
fn attached_status() -> MachineInventoryStatus {
    let statement = HostStatement::parse(hostile_hello()).unwrap();
    let hardware = describe_hardware(&hostile_facts());
    let attach = Attach {
        namespace: "default",
        name: "host-1",
        replica: "replica-1",
        statement: &statement,
        hardware: Some(&hardware),
        network: None,
        settings: Some((CoordinatorSettingsState::Announced, &statement.settings)),
        stale_labels: None,
        now: NOW,
    };
    let mut status = MachineInventoryStatus::default();
    facts::record_attach(&mut status, attach);
    status
}

fn register(status: &mut MachineInventoryStatus) {
    let (hardware, uuid) = (describe_hardware(&hostile_facts()), text());
    let registered = facts::Registered {
        system_uuid: Some(&uuid),
        hardware: Some(&hardware),
        ..facts::Registered::default()
    };
    facts::record_registration(status, ObjectReference::default(), registered);
}

fn report_network(status: &mut MachineInventoryStatus) {
    facts::record_observed_network(status, &parse_observed(hostile_network()).network);
}

fn report_install(status: &mut MachineInventoryStatus, outcome: Outcome) {
    facts::record_install(status, &wire::InstallReport { outcome: Some(outcome) }, NOW);
}

fn report_waiting(status: &mut MachineInventoryStatus) {
    let waiting = wire::InstallWaiting { message: text(), next_action: text() };
    report_install(status, Outcome::Waiting(waiting));
}

fn report_started(status: &mut MachineInventoryStatus) {
    report_install(status, Outcome::Started(wire::InstallStarted { device: text(), attempt: u32::MAX }));
}

fn report_done(status: &mut MachineInventoryStatus) {
    report_install(status, Outcome::Done(wire::InstallDone { device: text(), image: text() }));
}

fn report_failed(status: &mut MachineInventoryStatus) {
    let failed = wire::InstallFailed { message: text(), next_action: text() };
    report_install(status, Outcome::Failed(failed));
}

fn report_live_boot(status: &mut MachineInventoryStatus) {
    let booted = wire::LiveBootAfterInstall { device: text() };
    report_install(status, Outcome::LiveBootAfterInstall(booted));
}

fn report_load_balancer(status: &mut MachineInventoryStatus) {
    facts::record_duty(status, &LoadBalancerDuty { generation: 1, ..LoadBalancerDuty::default() });
    let failure = Some(failure());
    let state = wire::LoadBalancerState { generation: 1, interface: text(), failure, ..Default::default() };
    facts::record_load_balancer(status, &state);
}

fn refuse_settings(status: &mut MachineInventoryStatus) {
    facts::record_settings(status, CoordinatorSettingsState::Refused, "", &text());
}

fn refuse_agent(status: &mut MachineInventoryStatus) {
    let (version, message) = ("2".to_owned(), text());
    let update = AgentUpdateStatus { version, state: AgentUpdateState::Failed, message };
    facts::record_agent_update(status, &update);
}

/// Newer than the plan of the statement.
fn newer_plan() -> Plan {
    render(&samples::clean(), Generation(6), "a").unwrap().0
}

fn report_step(status: &mut MachineInventoryStatus) {
    let plan = newer_plan();
    facts::record_announcement(status, &plan, Some(&plan.checksum), &[], NOW);
    facts::record_step(status, &plan, 0, u32::MAX, &text());
}

fn report_plan_end(status: &mut MachineInventoryStatus) {
    let problem = Problem::of_cause(Reason::BootFallback, text());
    facts::record_plan_end(status, &newer_plan(), &PlanEnd::Failed(problem), Some(&system()), NOW);
}

/// Bytes of the status in the API, with the conditions that repeat what it says.
fn stored_size(status: MachineInventoryStatus) -> usize {
    let mut inventory = with_status(status);
    inventory.spec.observed_network = Some(ObservedNetwork::default());
    samples::annotate(&mut inventory, annotation::AGENT_VERSION, "2");
    project_conditions(&mut inventory, Told::Kept, NOW);
    serde_json::to_vec(&inventory.status).unwrap().len()
}

/// Texts and lists of a host are bounded before they are stored.
#[test]
fn status_of_a_hostile_host_is_bounded() {
    let reports: [(&str, Report); 14] = [
        ("its statement", |_| {}),
        ("its registration", register),
        ("its network", report_network),
        ("its system", |status| facts::record_system(status, &system())),
        ("an install that waits", report_waiting),
        ("an install that runs", report_started),
        ("an install that is done", report_done),
        ("an install that failed", report_failed),
        ("a live boot", report_live_boot),
        ("its load balancer", report_load_balancer),
        ("refused settings", refuse_settings),
        ("a refused agent", refuse_agent),
        ("a step", report_step),
        ("the end of a plan", report_plan_end),
    ];
    let before = attached_status();
    for (name, report) in reports {
        let mut status = before.clone();
        report(&mut status);
        let size = stored_size(status);
        assert!((MOST_BYTES / 2..MOST_BYTES).contains(&size), "{name}: {size}");
    }
}

/// It is kept as long as the stream, and compared with what operators ask for.
#[test]
fn hostile_refusal_of_an_agent_is_bounded() {
    let state = wire::AgentUpdateState { failed_version: text(), failure: Some(failure()), on_trial: false };
    let failed = StatedUpdate::parse(state).failed.unwrap();
    assert_eq!((failed.version.len(), failed.message.len()), (2048, 2048));
}
