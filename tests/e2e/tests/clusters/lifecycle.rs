//! The story with real API servers, Cluster API's real manager, the real
//! coordinator process, and a simulated host that speaks the real protocol.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod simulated;

use std::sync::Arc;

use e2e::metal::{Metal, Simulated};
use e2e::play::Play;
use e2e::progress::Progress;
use e2e::serve::serve;
use e2e::stage::{Reach, Stage};
use e2e::watching::Watching;
use simulated::{base_iso, blame};

#[tokio::test(flavor = "multi_thread")]
async fn a_host_becomes_a_node_and_comes_back() {
    let progress = Arc::new(Progress::default());
    let stage = Stage::set(Reach::Loopback, &progress).await.unwrap();
    let watching = Watching::start(&stage.admin, &progress);
    let base = serve(base_iso(stage.directory.path())).await.unwrap();
    let mut metal = Metal::Simulated(Simulated::new(stage.workload.clone()).unwrap());
    let played = Play::new(&stage, &mut metal, progress.clone()).all(&base).await;
    let proof = match played {
        Ok(proof) => proof,
        Err(error) => blame(&stage, &progress, &error),
    };
    drop(watching);
    let counts = &proof.lifecycle;
    assert_eq!((counts.lists, counts.of("list", "secrets"), counts.of("watch", "secrets")), (0, 0, 0));
    let economy = counts.of("patch", "leases") + counts.of("update", "leases") + counts.of("get", "leases");
    let events = counts.of("create", "events") + counts.of("patch", "events");
    let writes = counts.writes - events - (economy - counts.of("get", "leases"));
    let requests = counts.requests - economy - events - counts.watches;
    // The virtual API of the scenarios has the exact numbers. Here a cache can
    // be a moment behind: a write that is refused for it is read and written
    // again, once.
    assert!(requests <= 52 && writes <= 36 && counts.refused_writes <= 4, "{requests} {writes} {counts:#?}");
}
