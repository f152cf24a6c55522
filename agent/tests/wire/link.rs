//! The installed system, attached.

use std::fs;
use std::future::Future;

use agent::client::calls::Caller;
use agent::client::config;
use agent::client::registration::register_once;
use agent::ground::paths::Root;
use agent::ground::version::own_version;
use agent::host::network::KernelNetwork;
use agent::identity::{Certificate, Identity, Role};
use agent::installed::link;
use agent::plan::executor::{Executor, Policy};
use proto::plan::Checksum;
use proto::refusal::Refusal;
use proto::v1alpha1::complete_response::Next;
use proto::v1alpha1::install_report::Outcome;
use proto::v1alpha1::step::Action;
use proto::v1alpha1::step_report;
use proto::v1alpha1::{
    BootDisk, Carried, CarriedPlan, CoordinatorSettings, FailureReason, Hello, Install, InstallDone,
    LoadBalancerDuty, LoadBalancerState, Plan, PlanKind, PlanOutcome, Reboot, RequestCleanup, Step,
    StepProgress, SyncFileSystems, VerifySystem,
};
use simulated_host::SimulatedSystem;
use tempfile::TempDir;

use super::coordinator::{Coordinator, refused};

pub(crate) struct Host {
    _directory: TempDir,
    pub(crate) root: Root,
}

/// A host that was installed by a live system.
pub(crate) async fn installed(coordinator: &Coordinator) -> Host {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    SimulatedSystem::installed(root.clone(), "os:v1").unwrap();
    fs::create_dir_all(root.state().path()).unwrap();
    fs::write(root.state().config(), coordinator.config()).unwrap();
    fs::write(root.state().install_record(), r#"{"device":"/dev/vda","image":"os:v1"}"#).unwrap();
    let identity = Identity::load_or_make(&root.state().identity()).unwrap();
    coordinator.memory().next = Some(Next::BootDisk(BootDisk {}));
    let config = config::read(&root.state().config()).unwrap();
    let network = KernelNetwork::below(&root);
    register_once(&root, Caller { config: &config, network: &network, identity: &identity }, Role::Live)
        .await
        .unwrap();
    Host { _directory: directory, root }
}

/// Runs the agent while the test looks.
async fn while_running<T>(host: &Host, test: impl Future<Output = T>) -> T {
    let system = SimulatedSystem::new(host.root.clone());
    let executor = Executor::open(host.root.clone(), system.clone(), Policy::default()).unwrap();
    let network = KernelNetwork::below(&host.root);
    tokio::select! {
        ended = Box::pin(link::run(&host.root, system, executor, &network, own_version())) => panic!("{ended:?}"),
        result = test => result,
    }
}

fn plan(generation: u64) -> Plan {
    let step = |action| Step { action: Some(action) };
    Plan {
        id: format!("clean-{generation}"),
        generation,
        checksum: Checksum::of(&generation.to_be_bytes()).to_string(),
        kind: PlanKind::Clean.into(),
        steps: vec![
            step(Action::RequestCleanup(RequestCleanup {})),
            step(Action::SyncFileSystems(SyncFileSystems {})),
        ],
    }
}

fn carried_plan(hello: &Hello) -> CarriedPlan {
    hello.carried.clone().unwrap().plan.unwrap()
}

#[tokio::test]
async fn a_live_certificate_is_exchanged_before_hello() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    while_running(
        &host,
        coordinator.until("hello and observation", |memory| {
            !memory.hellos.is_empty() && !memory.observed.is_empty()
        }),
    )
    .await;
    assert!(host.root.attached_mark().exists(), "the boot assessment waits for it");
    let memory = coordinator.memory();
    assert_eq!(memory.renewals, [memory.hellos[0].system.as_ref().unwrap().boot_id.as_str()]);
    let hello = &memory.hellos[0];
    let installed = InstallDone { device: "/dev/vda".into(), image: "os:v1".into() };
    assert_eq!(hello.carried, Some(Carried { installed: Some(installed), ..Carried::default() }));
    assert_eq!(hello.system.as_ref().unwrap().image, "os:v1");
    let identity = Identity::load(&host.root.state().identity()).unwrap().unwrap();
    assert_eq!(identity.certificate(std::time::SystemTime::now()).unwrap().role, Role::Installed);
}

// Fault: token and CA of the coordinator change while a host is attached.
// Shown: condition `CoordinatorKnown` of the MachineInventory; the host attaches by the new ones, without another registration.
#[tokio::test]
async fn announced_settings_replace_those_in_use() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    let before = config::read(&host.root.state().config()).unwrap();
    let announced = CoordinatorSettings {
        registration_url: format!("https://{}/elemental/registration/rotated", before.address()),
        authorities: before.authority.repeat(2),
    };
    let checksum = proto::proof::settings(&announced.registration_url, &announced.authorities);
    let registrations = coordinator.memory().registrations.len();
    coordinator.memory().settings = Some(announced);
    while_running(
        &host,
        coordinator.until("a Hello by the new settings", |memory| {
            memory.hellos.last().is_some_and(|hello| hello.settings == checksum)
        }),
    )
    .await;
    let memory = coordinator.memory();
    assert_eq!(memory.hellos[0].settings, before.checksum());
    assert_eq!((memory.hellos.len(), memory.registrations.len()), (2, registrations));
    assert_eq!(memory.settings_refusals, []);
}

// Fault: the coordinator announces settings that are none.
// Shown: condition `CoordinatorKnown` of the MachineInventory with the cause; the host stays attached.
#[tokio::test]
async fn settings_that_are_none_are_refused() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    let odd = CoordinatorSettings { registration_url: "http://odd/".into(), authorities: "PEM".into() };
    coordinator.memory().settings = Some(odd);
    while_running(&host, coordinator.until("a refusal", |memory| !memory.settings_refusals.is_empty())).await;
    let failure = coordinator.memory().settings_refusals[0].failure.clone().unwrap();
    assert!(failure.message.contains("ca-cert is missing"), "{failure:?}");
    assert!(!host.root.state().next_config().exists());
}

#[tokio::test]
async fn a_finished_plan_is_reported_again() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    coordinator.memory().plans = vec![plan(1)];
    // The second step's report is refused as stale: that is an answer too.
    coordinator.memory().stale = vec![1];
    while_running(&host, async {
        coordinator.until("both steps", |memory| memory.steps.len() == 2).await;
        coordinator.cut();
        coordinator
            .until("the end again", |memory| {
                memory.hellos.len() == 2 && memory.acknowledgements.len() == 2 && memory.steps.len() == 3
            })
            .await;
    })
    .await;
    let memory = coordinator.memory();
    assert!(
        memory.acknowledgements.iter().all(|answer| answer.failure.is_none()),
        "{:?}",
        memory.acknowledgements
    );
    let steps: Vec<_> = memory.steps.iter().map(|report| report.step).collect();
    assert_eq!(steps, [0, 1, 1], "the plan came twice, its steps were run once");
    assert!(memory.steps.iter().all(|report| matches!(report.outcome, Some(step_report::Outcome::Done(_)))));
    let want = CarriedPlan {
        id: "clean-1".into(),
        generation: 1,
        checksum: plan(1).checksum,
        kind: PlanKind::Clean.into(),
        outcome: PlanOutcome::Applied.into(),
    };
    assert_eq!(carried_plan(&memory.hellos[1]), want);
    assert!(host.root.state().cleanup_marker().exists());
}

#[tokio::test]
async fn progress_of_a_running_step_is_sent() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    let step = |action| Step { action: Some(action) };
    let verify = VerifySystem { image: "os:v2".to_owned() };
    coordinator.memory().plans = vec![Plan {
        kind: PlanKind::Reprovision.into(),
        steps: vec![step(Action::Reboot(Reboot {})), step(Action::VerifySystem(verify))],
        ..plan(3)
    }];
    while_running(&host, coordinator.until("progress", |memory| !memory.progress.is_empty())).await;
    let want = StepProgress {
        plan_id: "clean-3".into(),
        generation: 3,
        step: 0,
        attempt: 1,
        ..StepProgress::default()
    };
    assert_eq!(coordinator.memory().progress, [want]);
}

#[tokio::test]
async fn an_older_plan_is_refused_with_a_reason() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    coordinator.memory().plans = vec![plan(2), plan(1)];
    while_running(&host, coordinator.until("both answers", |memory| memory.acknowledgements.len() == 2))
        .await;
    let memory = coordinator.memory();
    let [newer, older] = memory.acknowledgements.as_slice() else { panic!() };
    assert_eq!((newer.generation, &newer.failure), (2, &None));
    let failure = older.failure.as_ref().unwrap();
    assert_eq!((older.generation, failure.reason()), (1, FailureReason::Refused));
    assert!(!failure.message.is_empty() && !failure.next_action.is_empty(), "{failure:?}");
}

#[tokio::test]
async fn expired_host_registers_again_and_reports_install() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    for file in ["live.pem", "installed.pem"] {
        let _ = fs::remove_file(host.root.state().identity().join(file));
    }
    coordinator.memory().next = Some(Next::Install(Install::default()));
    while_running(&host, coordinator.until("hello", |memory| !memory.hellos.is_empty())).await;
    let memory = coordinator.memory();
    let boots: Vec<_> = memory.registrations.iter().map(|request| request.boot_id.as_str()).collect();
    assert_eq!(boots, ["boot-1", ""], "only a live system states its boot");
    let [Outcome::Done(done)] = memory.installs.as_slice() else { panic!("{:?}", memory.installs) };
    assert_eq!((done.device.as_str(), done.image.as_str()), ("/dev/vda", "os:v1"));
}

#[tokio::test]
async fn an_install_is_reported_before_the_certificate_exchange() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    // Without the report this coordinator signs for the live system.
    coordinator.memory().installed = Some(false);
    while_running(&host, coordinator.until("hello", |memory| !memory.hellos.is_empty())).await;
    let memory = coordinator.memory();
    assert!(matches!(memory.installs.as_slice(), [Outcome::Done(_)]), "{:?}", memory.installs);
    assert_eq!(memory.renewals.len(), 1);
}

#[tokio::test]
async fn a_live_certificate_is_never_used_as_installed() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    coordinator.memory().renewed_role = Some("live");
    while_running(&host, coordinator.until("two renewals", |memory| memory.renewals.len() == 2)).await;
    assert!(coordinator.memory().hellos.is_empty());
    let identity = Identity::load(&host.root.state().identity()).unwrap().unwrap();
    assert_eq!(identity.certificate(std::time::SystemTime::now()).unwrap().role, Role::Live);
    coordinator.memory().renewed_role = None;
    while_running(&host, coordinator.until("hello", |memory| !memory.hellos.is_empty())).await;
}

#[tokio::test]
async fn a_restored_inventory_needs_no_new_registration() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    coordinator.memory().attach_failures = [Refusal::InventoryGone; 3].map(refused).into();
    while_running(&host, coordinator.until("hello", |memory| !memory.hellos.is_empty())).await;
    let memory = coordinator.memory();
    assert!(memory.attach_failures.is_empty());
    assert_eq!((memory.registrations.len(), memory.renewals.len()), (1, 1));
}

// Fault: the coordinator is away or fails while a host restarts.
// Shown: host console; the host attaches with the certificate that it has, without another registration.
#[tokio::test]
async fn an_outage_is_no_reason_to_register_again() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    while_running(&host, coordinator.until("hello", |memory| memory.hellos.len() == 1)).await;
    coordinator.memory().attach_failures =
        ["restarting", "no backend", "draining"].map(tonic::Status::unavailable).into();
    while_running(&host, coordinator.until("hello", |memory| memory.hellos.len() == 2)).await;
    let memory = coordinator.memory();
    assert!(memory.attach_failures.is_empty());
    assert_eq!(memory.registrations.len(), 1);
}

// Fault: the clock of a host is behind, and its certificate has expired.
// Shown: host console; the host registers again.
#[tokio::test]
async fn a_rejected_certificate_is_replaced_by_another_registration() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    while_running(&host, coordinator.until("hello", |memory| memory.hellos.len() == 1)).await;
    coordinator.memory().rejected_certificates = 1;
    while_running(&host, coordinator.until("hello", |memory| memory.hellos.len() == 2)).await;
    assert_eq!(coordinator.memory().registrations.len(), 2);
}

// Fault: the coordinator rejects the certificate of a host, and the host may not register.
// Shown: host console with both causes; the host attaches with its certificate.
#[tokio::test]
async fn refused_registration_keeps_former_certificate() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    while_running(&host, coordinator.until("hello", |memory| memory.hellos.len() == 1)).await;
    coordinator.memory().rejected_certificates = 1;
    coordinator.memory().refusals = [Refusal::UnknownToken; 100].into();
    while_running(&host, coordinator.until("hello", |memory| memory.hellos.len() == 2)).await;
    let memory = coordinator.memory();
    assert_eq!((memory.rejected_certificates, memory.registrations.len()), (0, 1));
    assert!(memory.refusals.len() < 100, "it never tried to register");
}

#[tokio::test]
async fn a_restarted_agent_states_its_plan() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    coordinator.memory().plans = vec![plan(5)];
    while_running(&host, coordinator.until("answer", |memory| !memory.acknowledgements.is_empty())).await;
    while_running(&host, coordinator.until("hello", |memory| memory.hellos.len() == 2)).await;
    assert_eq!(carried_plan(&coordinator.memory().hellos[1]).generation, 5);
    // An installed certificate needs no exchange.
    assert_eq!(coordinator.memory().renewals.len(), 1);
    let identity = Identity::load(&host.root.state().identity()).unwrap().unwrap();
    let chain = identity.certificate(std::time::SystemTime::now()).unwrap().chain;
    assert!(Certificate::parse(&chain, &identity.public_key()).is_ok());
}

#[tokio::test]
async fn duty_is_kept_and_its_state_reported() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    let duty = LoadBalancerDuty {
        generation: 2,
        address: "10.0.0.100".into(),
        port: 6443,
        router_id: 51,
        members: vec!["10.0.0.1".into()],
        ..Default::default()
    };
    let stale = LoadBalancerDuty { generation: 1, ..duty.clone() };
    coordinator.memory().duties = vec![duty, stale];
    let done = LoadBalancerState { generation: 2, interface: "eno1".into(), ..Default::default() };
    while_running(&host, async {
        coordinator.until("the refusal", |memory| !memory.states.is_empty()).await;
        // As the unit that does the duty leaves it.
        agent::state::duty::write_state(&host.root, &done);
        coordinator.until("the state", |memory| memory.states.contains(&done)).await;
        coordinator.cut();
        coordinator.until("the state again", |memory| memory.states.last() == Some(&done)).await;
        coordinator.until("hello again", |memory| memory.hellos.len() == 2).await;
    })
    .await;
    let memory = coordinator.memory();
    let refused = memory.states[0].failure.clone().unwrap();
    assert_eq!(memory.states[0].generation, 1);
    assert!(refused.message.contains("1 is older than 2"), "{}", refused.message);
    assert_eq!(agent::state::duty::read_duty(&host.root).unwrap().unwrap().generation, 2);
    assert_eq!(memory.hellos[1].carried.clone().unwrap().load_balancer_generation, 2);
}
