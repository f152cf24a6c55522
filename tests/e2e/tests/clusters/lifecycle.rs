//! The lifecycle of a simulated host that speaks the real protocol, and what it
//! costs.

use e2e::host::{Host, Simulated};
use e2e::lifecycle::Lifecycle;
use e2e::watching::Watching;

use crate::common::Setup;

/// Two replicas watch, each for itself; the rest is one lifecycle.
const REQUESTS: u64 = 60;
const WRITES: u64 = 44;
/// A cache can be a moment behind: a write that is refused for it is read and
/// written again, once.
const REFUSED: u64 = 6;

#[tokio::test(flavor = "multi_thread")]
async fn host_becomes_node_and_returns() {
    let setup = Setup::start().await;
    let environment = &setup.environment;
    let watching = Watching::start(&environment.management.admin, &setup.progress);
    let mut host = Host::Simulated(Simulated::new(environment.workload.clone(), 1).unwrap());
    let result = Lifecycle::new(environment, &mut host, setup.progress.clone()).run(&setup.base).await;
    let proof = setup.check(result);
    drop(watching);
    let counts = &proof.lifecycle;
    assert_eq!((counts.lists, counts.of("list", "secrets"), counts.of("watch", "secrets")), (0, 0, 0));
    let lease_writes =
        ["patch", "update", "create"].map(|verb| counts.of(verb, "leases")).iter().sum::<u64>();
    let events = counts.of("create", "events") + counts.of("patch", "events");
    let writes = counts.writes - events - lease_writes;
    let requests = counts.requests - events - lease_writes - counts.of("get", "leases") - counts.watches;
    assert!(
        requests <= REQUESTS && writes <= WRITES && counts.refused_writes <= REFUSED,
        "{requests} requests, {writes} writes: {counts:#?}"
    );
}
