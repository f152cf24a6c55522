//! The whole process on an API server in memory, in virtual time.

use clap::Parser as _;
use coordinator_api::{capi, crds};
use fake_apiserver::{FakeApi, Kind};
use tokio::time::timeout;

use super::*;
use crate::lease;
use crate::write_limits::tests::{install_policies, install_roles};

const TIME_LIMIT: Duration = Duration::from_mins(5);

#[tokio::test(start_paused = true)]
async fn process_ends_with_its_version_of_cluster_api() {
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
    install_policies(&fake);
    let directory = tempfile::tempdir().unwrap();
    let cache = format!("--cache-directory={}", directory.path().display());
    let config = Config::parse_from([
        "coordinator",
        "--server-url=https://c.example:1",
        "--own-namespace=here",
        "--listen=127.0.0.1:0",
        "--health-listen=127.0.0.1:0",
        "--diagnostics-address=127.0.0.1:0",
        &cache,
    ]);
    let (_running, shutdown) = watch::channel(false);
    let client = fake.client("coordinator");
    let mut process =
        Box::pin(run_coordinator(config, client, (Metrics::default(), Traces::default()), shutdown));
    assert!(timeout(TIME_LIMIT, &mut process).await.is_err(), "both versions are served");
    let held = fake.look("leases.coordination.k8s.io", "here", lease::NAME).unwrap();
    assert!(held["spec"]["holderIdentity"].is_string(), "it leads: {held}");
    fake.stop_serving(capi::GROUP, "v1beta2");
    let ended = timeout(TIME_LIMIT, process).await.unwrap();
    assert!(matches!(ended, Err(RunError::VersionChanged { old: "v1beta2", new: "v1beta1" })), "{ended:?}");
}
