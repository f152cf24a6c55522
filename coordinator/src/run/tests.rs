//! The whole process on an API server in memory, in virtual time.

use clap::Parser as _;
use coordinator_api::{capi, crds};
use fake_apiserver::{FakeApi, Kind, Outage};
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::lease;
use crate::write_limits::tests::{install_policies, install_roles};

const VERSION: &str = "v1beta2";
const TIME_LIMIT: Duration = Duration::from_mins(5);

/// An API server with Cluster API, and without the policies.
fn serve_kinds() -> FakeApi {
    let fake = FakeApi::new();
    for crd in crds::all() {
        fake.register_crd(&crd);
    }
    for version in capi::VERSIONS {
        for (kind, plural) in [("Machine", "machines"), ("Cluster", "clusters")] {
            fake.register(Kind::namespaced(capi::GROUP, version, kind, plural).with_status());
        }
    }
    install_roles(&fake, "coordinator", "here");
    fake
}

fn config(cache: &TempDir) -> Config {
    Config::parse_from([
        "coordinator",
        "--server-url=https://c.example:1",
        "--own-namespace=here",
        "--listen=127.0.0.1:0",
        "--health-listen=127.0.0.1:0",
        "--diagnostics-address=127.0.0.1:0",
        &format!("--cache-directory={}", cache.path().display()),
    ])
}

async fn run_process(fake: &FakeApi, cache: &TempDir, shutdown: Shutdown) -> Result<(), RunError> {
    let own = (Metrics::default(), Traces::default());
    run_coordinator(config(cache), fake.client("coordinator"), own, shutdown).await
}

fn set_up(fake: &FakeApi, cache: &TempDir) -> Setup {
    Setup {
        config: config(cache),
        client: fake.client("coordinator"),
        versions: cluster_api::at_version(VERSION),
        metrics: Metrics::default(),
        traces: Traces::default(),
        readiness: Readiness::default(),
        clock: Clock::system(),
        workloads: WorkloadClients::default(),
    }
}

fn is_led(fake: &FakeApi) -> bool {
    let held = fake.look("leases.coordination.k8s.io", "here", lease::NAME);
    held.is_some_and(|held| held["spec"]["holderIdentity"].is_string())
}

#[tokio::test(start_paused = true)]
async fn process_ends_with_its_version_of_cluster_api() {
    let (fake, cache) = (serve_kinds(), tempfile::tempdir().unwrap());
    install_policies(&fake);
    let (_running, shutdown) = watch::channel(false);
    let mut process = Box::pin(run_process(&fake, &cache, shutdown));
    assert!(timeout(TIME_LIMIT, &mut process).await.is_err(), "both versions are served");
    assert!(is_led(&fake));
    fake.stop_serving(capi::GROUP, "v1beta2");
    let ended = timeout(TIME_LIMIT, process).await.unwrap();
    assert!(matches!(ended, Err(RunError::VersionChanged { old: VERSION, new: "v1beta1" })), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn process_without_policies_leads_nothing() {
    let (fake, cache) = (serve_kinds(), tempfile::tempdir().unwrap());
    let (_running, shutdown) = watch::channel(false);
    let mut process = Box::pin(run_process(&fake, &cache, shutdown));
    assert!(timeout(TIME_LIMIT, &mut process).await.is_err());
    assert!(fake.look_at_all("leases.coordination.k8s.io").is_empty(), "it neither leads nor serves hosts");
    install_policies(&fake);
    assert!(timeout(TIME_LIMIT, &mut process).await.is_err());
    assert!(is_led(&fake));
}

#[tokio::test(start_paused = true)]
async fn process_ends_with_any_task() {
    for of_ports in [false, true] {
        let (fake, cache) = (serve_kinds(), tempfile::tempdir().unwrap());
        let setup = set_up(&fake, &cache);
        let readiness = setup.readiness.clone();
        let (mut parts, mut others) = (assemble_parts(&setup).await.unwrap(), JoinSet::new());
        others.spawn(std::future::pending());
        if of_ports { &mut others } else { &mut parts.tasks }.spawn(async {
            tokio::time::sleep(Duration::from_mins(1)).await;
            panic!("a watch of another kind, or the port of the metrics");
        });
        let port = bind_listener("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let (_running, shutdown) = watch::channel(false);
        let mut process = Box::pin(serve_tasks(setup, parts, (port, others), VERSION, shutdown));
        assert!(timeout(Duration::from_secs(30), &mut process).await.is_err(), "each task runs");
        assert_eq!(readiness.reason(), None);
        let ended = timeout(TIME_LIMIT, process).await.unwrap();
        assert!(matches!(&ended, Err(RunError::TaskEnded(why)) if why.contains("panic")), "{ended:?}");
        assert_eq!(readiness.reason().as_deref(), Some("the coordinator stops"));
    }
}

#[tokio::test(start_paused = true)]
async fn process_waits_for_no_dead_watch() {
    let mut tasks = JoinSet::new();
    tasks.spawn(std::future::pending());
    assert!(timeout(TIME_LIMIT, unless_task_ends(std::future::pending(), &mut tasks)).await.is_err());
    tasks.spawn(async { panic!("a watch that has listed nothing") });
    let ended = timeout(TIME_LIMIT, unless_task_ends(std::future::pending(), &mut tasks)).await.unwrap();
    assert!(matches!(ended, Err(RunError::TaskEnded(_))));
}

#[tokio::test(start_paused = true)]
async fn isolated_process_is_unready() {
    let (fake, cache) = (serve_kinds(), tempfile::tempdir().unwrap());
    let setup = set_up(&fake, &cache);
    let readiness = setup.readiness.clone();
    let parts = assemble_parts(&setup).await.unwrap();
    let lease = open_replica_lease(&setup, &parts);
    create_replica_lease(&lease).await;
    let (_running, stopping) = watch::channel(false);
    tokio::spawn(lease.keep_renewed(stopping));
    readiness.set_ready();
    fake.faults().outage(Outage::Refused);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(readiness.reason().as_deref(), Some("the Lease of this replica cannot be renewed"));
    fake.faults().outage(Outage::Over);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(readiness.reason(), None);
}
