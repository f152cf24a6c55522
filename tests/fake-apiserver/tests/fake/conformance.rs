//! The fake passes the suite that the real server passes.

use std::time::Duration;

use fake_apiserver::{FakeApi, GarbageCollection};

use crate::suite;

#[tokio::test(start_paused = true)]
async fn the_fake_passes_the_suite() {
    for collection in [GarbageCollection::Immediate, GarbageCollection::After(Duration::from_secs(3))] {
        let fake = FakeApi::new();
        fake.garbage_collection(collection);
        let report = suite::run(fake.client("suite")).await.unwrap();
        assert!(report.failed.is_empty(), "{collection:?}: {:#?}", report.failed);
        assert_eq!(report.passed.len(), suite::cases().len());
    }
}
