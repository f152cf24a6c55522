//! The installed system, attached.

use std::fs;
use std::future::Future;

use agent::executor::{Executor, Policy};
use agent::identity::{Certificate, Identity, Role};
use agent::link;
use agent::paths::Root;
use agent::register;
use agent::system::simulated::Simulated;
use agent::{calls::Caller, config, names::Names};
use proto::v1alpha1::complete_response::Next;
use proto::v1alpha1::install_report::Outcome;
use proto::v1alpha1::step::Action;
use proto::v1alpha1::step_report;
use proto::v1alpha1::{BootDisk, Install, Plan, PlanKind, RequestCleanup, Step, SyncFileSystems};
use tempfile::TempDir;

use crate::coordinator::Coordinator;

struct Host {
    _directory: TempDir,
    root: Root,
}

/// A host that was installed by a live system.
async fn installed(coordinator: &Coordinator) -> Host {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    Simulated::installed(root.clone(), "os:v1").unwrap();
    fs::create_dir_all(root.state().path()).unwrap();
    fs::write(root.state().config(), coordinator.config()).unwrap();
    fs::write(root.state().install_record(), r#"{"device":"/dev/vda","image":"os:v1"}"#).unwrap();
    let identity = Identity::load_or_make(&root.state().identity()).unwrap();
    coordinator.memory().next = Some(Next::BootDisk(BootDisk {}));
    let config = config::read(&root.state().config()).unwrap();
    let names = Names::below(&root);
    register::attempt(&root, Caller { config: &config, names: &names, identity: &identity }).await.unwrap();
    Host { _directory: directory, root }
}

/// Runs the agent while the test looks.
async fn while_running<T>(host: &Host, test: impl Future<Output = T>) -> T {
    let system = Simulated::new(host.root.clone());
    let executor = Executor::open(host.root.clone(), system.clone(), Policy::default()).unwrap();
    tokio::select! {
        ended = Box::pin(link::run(&host.root, system, executor)) => panic!("{ended:?}"),
        result = test => result,
    }
}

fn plan(generation: u64) -> Plan {
    let step = |action| Step { action: Some(action) };
    Plan {
        id: format!("clean-{generation}"),
        generation,
        kind: PlanKind::Clean.into(),
        steps: vec![
            step(Action::RequestCleanup(RequestCleanup {})),
            step(Action::SyncFileSystems(SyncFileSystems {})),
        ],
    }
}

#[tokio::test]
async fn a_live_certificate_is_exchanged_and_the_host_says_where_it_stands() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    while_running(
        &host,
        coordinator.until("hello and observation", |memory| {
            !memory.hellos.is_empty() && !memory.observed.is_empty()
        }),
    )
    .await;
    let memory = coordinator.memory();
    assert_eq!(memory.renewals, 1);
    let hello = &memory.hellos[0];
    assert_eq!((hello.plan_id.as_str(), hello.generation), ("", 0));
    assert_eq!(hello.system.as_ref().unwrap().image, "os:v1");
    let identity = Identity::load(&host.root.state().identity()).unwrap().unwrap();
    assert_eq!(identity.certificate(std::time::SystemTime::now()).unwrap().role, Role::Installed);
}

#[tokio::test]
async fn a_plan_is_acknowledged_each_of_its_steps_is_reported_and_its_end_again_when_it_comes_again() {
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
        memory.acknowledgements.iter().all(|answer| answer.refusal.is_empty()),
        "{:?}",
        memory.acknowledgements
    );
    let steps: Vec<_> = memory.steps.iter().map(|report| report.step).collect();
    assert_eq!(steps, [0, 1, 1], "the plan came twice, its steps were run once");
    assert!(memory.steps.iter().all(|report| matches!(report.outcome, Some(step_report::Outcome::Done(_)))));
    assert_eq!((memory.hellos[1].plan_id.as_str(), memory.hellos[1].generation), ("clean-1", 1));
    assert!(host.root.state().cleanup_marker().exists());
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
    assert_eq!((newer.generation, newer.refusal.as_str()), (2, ""));
    assert!(older.generation == 1 && !older.refusal.is_empty());
}

#[tokio::test]
async fn without_a_certificate_the_host_registers_again_and_tells_a_new_inventory_of_its_install() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    for file in ["live.pem", "installed.pem"] {
        let _ = fs::remove_file(host.root.state().identity().join(file));
    }
    coordinator.memory().next = Some(Next::Install(Install::default()));
    while_running(&host, coordinator.until("hello", |memory| !memory.hellos.is_empty())).await;
    let memory = coordinator.memory();
    assert_eq!(memory.registrations.len(), 2);
    let [Outcome::Done(done)] = memory.installs.as_slice() else { panic!("{:?}", memory.installs) };
    assert_eq!((done.device.as_str(), done.image.as_str()), ("/dev/vda", "os:v1"));
}

#[tokio::test]
async fn an_agent_that_was_killed_attaches_with_what_it_had_accepted() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    coordinator.memory().plans = vec![plan(5)];
    while_running(&host, coordinator.until("answer", |memory| !memory.acknowledgements.is_empty())).await;
    while_running(&host, coordinator.until("hello", |memory| memory.hellos.len() == 2)).await;
    assert_eq!(coordinator.memory().hellos[1].generation, 5);
    // An installed certificate needs no exchange.
    assert_eq!(coordinator.memory().renewals, 1);
    let identity = Identity::load(&host.root.state().identity()).unwrap().unwrap();
    let chain = identity.certificate(std::time::SystemTime::now()).unwrap().chain;
    assert!(Certificate::parse(Role::Installed, &chain, &identity.public_key()).is_ok());
}
