//! A busy API server is no lost one: it accepts connections, and is slow, or says that it is not ready
//! while etcd waits for its disk or for another member. Its host keeps the endpoint where no other member
//! would do better: a sole member for as long as that lasts, one of several for [`GRACE`] after its last
//! good answer, and only while no other is ready. A member that lost the quorum drops the address with it.

use std::fs;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use proto::balancer::Duty;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::check::{CheckError, ask_ready};
use crate::error::describe_error;
use crate::paths::Root;

/// Longer than etcd takes to elect a leader.
const GRACE: Duration = Duration::from_secs(30);
/// For the answers of the other members, which are asked at once.
const DEADLINE: Duration = Duration::from_secs(2);
/// When the API server was ready last, in seconds since the host started.
const READY: &str = "ready";

/// The API server of this host is ready.
pub(super) fn note_ready(root: &Root) {
    if let Err(error) = fs::write(root.load_balancer().join(READY), read_clock().as_secs().to_string()) {
        tracing::warn!(error = describe_error(&error), "cannot note that the API server is ready");
    }
}

/// Whether this host keeps the address although its API server did not answer as it should.
pub(super) async fn is_borne(root: &Root, duty: &Duty, error: &CheckError) -> bool {
    if !error.is_strain() {
        return false;
    }
    duty.peers().next().is_none() || (was_ready(root, read_clock()) && !is_other_ready(root, duty).await)
}

fn was_ready(root: &Root, now: Duration) -> bool {
    let text = fs::read_to_string(root.load_balancer().join(READY)).unwrap_or_default();
    let last = text.parse().ok().map(Duration::from_secs);
    last.is_some_and(|last| now.saturating_sub(last) < GRACE)
}

async fn is_other_ready(root: &Root, duty: &Duty) -> bool {
    let mut asked = JoinSet::new();
    for peer in duty.peers() {
        let (root, port) = (root.clone(), duty.port.get());
        asked.spawn(
            async move { matches!(timeout(DEADLINE, ask_ready(&root, peer, port)).await, Ok(Ok(()))) },
        );
    }
    while let Some(answer) = asked.join_next().await {
        if answer.unwrap_or(false) {
            return true;
        }
    }
    false
}

/// Never set, unlike the calendar.
fn read_clock() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_answers_count_for_half_a_minute() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert!(!was_ready(&root, read_clock()), "never in this boot");
        fs::create_dir_all(root.load_balancer()).unwrap();
        note_ready(&root);
        let noted = read_clock();
        assert!(was_ready(&root, noted) && was_ready(&root, noted + Duration::from_secs(28)));
        assert!(!was_ready(&root, noted + Duration::from_secs(31)));
    }
}
