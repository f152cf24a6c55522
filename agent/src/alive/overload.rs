//! A busy API server is not a lost one: it accepts connections and is slow, or it answers that it
//! is not ready while etcd waits for its disk or for another member. The holder keeps the endpoint
//! if no other member would do better: for [`HOLD_IF_ALL_UNREADY`] after the last good answer if
//! the others answer that they are not ready either, and for [`HOLD_IF_PARTITIONED`] if one of them
//! is silent, because a silent member may belong to a majority beyond a partition.

use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use proto::balancer::Duty;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::placement::has_address;
use super::probe::{IN_TIME, LATE, ProbeError, ServerState, ask_ready, connect_api};
use crate::ground::durable;
use crate::ground::paths::Root;
use crate::host::network::kernel::dump_kernel;

/// The time is longer than a member of etcd takes to join.
const HOLD_IF_ALL_UNREADY: Duration = Duration::from_mins(5);
/// The time is longer than etcd takes to elect a leader.
const HOLD_IF_PARTITIONED: Duration = Duration::from_secs(30);
/// This file holds the time of the last good answer, in seconds since the host started.
const READY: &str = "ready";

/// The answer of another member's API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    InTime,
    /// The API server is ready and slow.
    Late,
    /// The API server, or its host, answers that it is not ready.
    NotReady,
    /// The state of the API server is unknown.
    Silent,
}

/// Records that the API server of this host is ready.
pub(super) fn record_ready(root: &Root) {
    let now = read_clock().as_secs().to_string();
    if let Err(error) = durable::write(&root.load_balancer().join(READY), now.as_bytes()) {
        tracing::warn!(%error, "cannot record that the API server is ready");
    }
}

/// Time since the API server was ready; `None` if this host must give the endpoint up.
pub(super) fn since_ready(root: &Root, duty: &Duty, error: &ProbeError) -> Option<Duration> {
    let last = last_ready(root)
        .filter(|last| error.server == ServerState::Overloaded && *last < HOLD_IF_ALL_UNREADY)?;
    let is_sole = duty.peers().next().is_none();
    let may_hold = is_sole || dump_kernel().is_ok_and(|dump| has_address(&dump, duty.address));
    may_hold.then_some(last)
}

/// True if a host keeps the endpoint although its API server is not ready.
pub(super) fn is_kept(since_ready: Duration, others: &[Answer]) -> bool {
    choose_limit(others).is_some_and(|limit| since_ready < limit)
}

/// Time for which the endpoint is kept; `None` if another member would do better.
fn choose_limit(others: &[Answer]) -> Option<Duration> {
    if others.contains(&Answer::InTime) || others.contains(&Answer::Late) {
        return None;
    }
    Some(if others.contains(&Answer::Silent) { HOLD_IF_PARTITIONED } else { HOLD_IF_ALL_UNREADY })
}

/// Time since the API server was ready; `None` if it was never ready in this boot.
fn last_ready(root: &Root) -> Option<Duration> {
    let text = fs::read_to_string(root.load_balancer().join(READY)).ok()?;
    Some(read_clock().saturating_sub(Duration::from_secs(text.parse().ok()?)))
}

/// Asks the other members until one of them is ready in time.
pub(super) async fn ask_others(connector: &TlsConnector, duty: &Duty) -> Vec<Answer> {
    let mut asked = JoinSet::new();
    for peer in duty.peers() {
        let (connector, port) = (connector.clone(), duty.port.get());
        asked.spawn(async move { ask_other(&connector, peer, port).await });
    }
    let mut answers = vec![];
    while let Some(answer) = asked.join_next().await {
        answers.push(answer.unwrap_or(Answer::Silent));
        if answers.last() == Some(&Answer::InTime) {
            break;
        }
    }
    answers
}

async fn ask_other(connector: &TlsConnector, peer: IpAddr, port: u16) -> Answer {
    let begun = Instant::now();
    let end = begun + LATE;
    let stream = match timeout_at(end, connect_api(connector, peer, port)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) if error.server == ServerState::Stopped => return Answer::NotReady,
        Ok(Err(_)) | Err(_) => return Answer::Silent,
    };
    match timeout_at(end, ask_ready(stream)).await {
        Ok(Ok(())) if begun.elapsed() <= IN_TIME => Answer::InTime,
        Ok(Ok(())) => Answer::Late,
        Ok(Err(_)) => Answer::NotReady,
        // A silent API server may still serve.
        Err(_) => Answer::Silent,
    }
}

/// This clock is never set, unlike the calendar clock.
fn read_clock() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_members_decide_how_long_it_is_kept() {
        use Answer::{InTime, Late, NotReady, Silent};
        for (others, limit) in [
            (&[][..], Some(HOLD_IF_ALL_UNREADY)),
            (&[NotReady, NotReady], Some(HOLD_IF_ALL_UNREADY)),
            (&[NotReady, Silent], Some(HOLD_IF_PARTITIONED)),
            (&[Silent, InTime], None),
            (&[NotReady, Late], None),
        ] {
            assert_eq!(choose_limit(others), limit, "{others:?}");
        }
    }

    #[test]
    fn last_good_answer_is_noted() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(last_ready(&root), None);
        fs::create_dir_all(root.load_balancer()).unwrap();
        record_ready(&root);
        assert!(last_ready(&root).unwrap() < HOLD_IF_PARTITIONED);
        let dump = dump_kernel().unwrap();
        let has = |address: [u8; 4]| has_address(&dump, IpAddr::from(address));
        assert!(has([127, 0, 0, 1]) && !has([192, 0, 2, 1]));
    }
}
