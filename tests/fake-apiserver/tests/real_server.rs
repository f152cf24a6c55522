//! The suite is about the real kube-apiserver: what it does is what the fake must do.

use control_plane::{ControlPlane, Parts, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn the_real_server_passes_the_suite() {
    let parts = Parts::from_environment().unwrap();
    let control_plane = ControlPlane::start(&parts, &Settings::management()).await.unwrap();
    let client = control_plane.admin().await.unwrap();
    let report = fake_apiserver::conformance::run(client).await.unwrap();
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    assert_eq!(report.passed.len(), fake_apiserver::conformance::cases().len());
}
