//! Waiting in virtual time, with an end.

use std::time::Duration;

use coordinator_api::machine::Phase;
use fake_apiserver::Counts;
use tokio::time::Instant;

use super::{DEADLINE, POLL_INTERVAL, World};

/// So long no coordinator has asked for anything.
const IDLE: Duration = Duration::from_secs(10);
/// Requests that no wait comes near: coordinators answer each other without end.
const MOST_REQUESTS: usize = 20_000;

/// When a wait has to be over.
struct Limit {
    end: Instant,
    mark: usize,
}

impl World {
    fn begin_wait(&self) -> Limit {
        Limit { end: Instant::now() + DEADLINE, mark: self.fake.journal().mark() }
    }

    fn is_over(&self, limit: &Limit) -> bool {
        Instant::now() >= limit.end || self.fake.journal().mark() - limit.mark > MOST_REQUESTS
    }

    /// Waits until `holds`.
    pub async fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let limit = self.begin_wait();
        while !holds(self) {
            self.find_nodes();
            self.restart_stopped();
            assert!(!self.is_over(&limit), "never: {what}\n{}", self.dump());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until no coordinator sends a request for ten seconds.
    pub async fn wait_idle(&self) {
        let limit = self.begin_wait();
        loop {
            self.find_nodes();
            let mark = self.fake.journal().mark();
            self.advance_time(IDLE).await;
            let requests = self.requests_since(mark);
            if requests.is_empty() {
                return;
            }
            let busy = Counts::of(&requests);
            assert!(!self.is_over(&limit), "still busy, in the last ten seconds: {busy}\n{}", self.dump());
        }
    }

    /// Waits until a machine runs.
    pub async fn wait_running(&self, machine: &str) {
        self.wait_until(&format!("{machine} runs"), |world| world.phase(machine) == Some(Phase::Running))
            .await;
    }

    /// Waits until a machine is deleted and its host is available.
    pub async fn wait_released(&self, machine: &str, host: &str) {
        self.wait_until(&format!("{machine} is gone"), |world| world.machine(machine).is_none()).await;
        self.finish_deletions();
        self.wait_until(&format!("{host} is available"), |world| world.is_available(host)).await;
    }
}
