//! The lifecycle of a simulated host that speaks the real protocol, and what it
//! costs.

use std::time::Instant;

use e2e::host::Simulated;
use e2e::lifecycle::Lifecycle;
use e2e::watching::Watching;

use crate::common::{REQUESTS, Setup, WRITES, read_cost, slack_of};

/// A cache can be a moment behind: a write that is refused for it is read and
/// written again, once.
const REFUSED: u64 = 6;

#[tokio::test(flavor = "multi_thread")]
async fn host_becomes_node_and_returns() {
    let setup = Setup::start().await;
    let environment = &setup.environment;
    let watching = Watching::start(&environment.management.admin, &setup.progress);
    let mut host = Simulated::new(environment.workload.clone(), 1).unwrap();
    let start = Instant::now();
    let result = Lifecycle::new(environment, &mut host, setup.progress.clone()).run(&setup.base).await;
    let proof = setup.check(result);
    drop(watching);
    let counts = &proof.lifecycle;
    assert_eq!((counts.lists, counts.of("list", "secrets"), counts.of("watch", "secrets")), (0, 0, 0));
    let ((requests, writes), slack) = (read_cost(counts), slack_of(start.elapsed()));
    assert!(
        requests <= REQUESTS + slack && writes <= WRITES + slack && counts.refused_writes <= REFUSED + slack,
        "{requests} requests, {writes} writes: {counts:#?}"
    );
}
