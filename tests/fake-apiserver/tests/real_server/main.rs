//! The real kube-apiserver is the reference: the fake must do what it does.

mod differences;
#[path = "../suite/mod.rs"]
mod suite;

use control_plane::{ControlPlane, Parts, Settings};
use fake_apiserver::FakeApi;

#[tokio::test(flavor = "multi_thread")]
async fn real_server_and_fake_agree() {
    let parts = Parts::from_environment().unwrap();
    let control_plane = ControlPlane::start(&parts, &Settings::management()).await.unwrap();
    let real = control_plane.admin().await.unwrap();
    let report = suite::run(real.clone()).await.unwrap();
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    assert_eq!(report.passed.len(), suite::cases().len());
    // The CRDs are installed by the suite.
    let fake = FakeApi::new();
    for crd in coordinator_api::crds::all() {
        fake.register_crd(&crd);
    }
    let comparison = differences::compare(&real, &fake.client("suite")).await.unwrap();
    let shown = &comparison.differences[..comparison.differences.len().min(20)];
    assert!(shown.is_empty(), "{} differences: {shown:#?}", comparison.differences.len());
    assert!(comparison.rejected > 500, "{} rejected requests", comparison.rejected);
    assert!(comparison.accepted > 500, "{} accepted requests", comparison.accepted);
}
