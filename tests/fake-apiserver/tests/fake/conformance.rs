//! The fake passes the suite that the real server passes.

use crate::suite;

#[tokio::test(start_paused = true)]
async fn the_fake_passes_the_suite() {
    let fake = fake_apiserver::FakeApi::new();
    fake.garbage_collection(fake_apiserver::GarbageCollection::Immediate);
    let client = fake.client("suite");
    let report = suite::run(client).await.unwrap();
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    assert_eq!(report.passed.len(), suite::cases().len());
}
