//! A busy API server is not a lost one: it accepts connections, and is slow, or answers that it is not
//! ready while etcd waits for its disk or for another member. The host that has the address keeps it
//! where no other member would do better: for [`TOGETHER`] after the last good answer where the others
//! answer that they are not ready either, and for [`CUT_OFF`] where one of them is silent, which may be
//! of a majority beyond a partition.

use std::fs;
use std::io;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use proto::balancer::Duty;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::check::{CheckError, ask_ready};
use super::placement::has_address;
use crate::error::describe_error;
use crate::host::network::kernel::dump_kernel;
use crate::paths::Root;

/// Longer than a member of etcd takes to join.
const TOGETHER: Duration = Duration::from_mins(5);
/// Longer than etcd takes to elect a leader.
const CUT_OFF: Duration = Duration::from_secs(30);
/// For the answers of the other members, which are asked at once.
const DEADLINE: Duration = Duration::from_millis(1500);
/// When the API server was ready last, in seconds since the host started.
const READY: &str = "ready";

/// What another member says of its API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Ready,
    NotReady,
    Silent,
}

/// The API server of this host is ready.
pub(super) fn note_ready(root: &Root) {
    if let Err(error) = fs::write(root.load_balancer().join(READY), read_clock().as_secs().to_string()) {
        tracing::warn!(error = describe_error(&error), "cannot note that the API server is ready");
    }
}

/// Whether this host keeps the address although its API server did not answer as it should.
pub(super) async fn is_borne(root: &Root, duty: &Duty, error: &CheckError) -> bool {
    let Some(last) = last_ready(root).filter(|last| error.is_strain() && *last < TOGETHER) else {
        return false;
    };
    let is_sole = duty.peers().next().is_none();
    let is_holder = || dump_kernel().is_ok_and(|dump| has_address(&dump, duty.address));
    if !is_sole && !is_holder() {
        return false;
    }
    choose_limit(&ask_others(root, duty).await).is_some_and(|limit| last < limit)
}

/// Whether another member would do better.
pub(super) async fn is_other_ready(root: &Root, duty: &Duty) -> bool {
    ask_others(root, duty).await.contains(&Answer::Ready)
}

/// How long the address is kept; `None` where another member would do better.
fn choose_limit(others: &[Answer]) -> Option<Duration> {
    if others.contains(&Answer::Ready) {
        return None;
    }
    Some(if others.contains(&Answer::Silent) { CUT_OFF } else { TOGETHER })
}

/// Time since the API server was ready; `None` where it was not in this boot.
fn last_ready(root: &Root) -> Option<Duration> {
    let text = fs::read_to_string(root.load_balancer().join(READY)).ok()?;
    Some(read_clock().saturating_sub(Duration::from_secs(text.parse().ok()?)))
}

async fn ask_others(root: &Root, duty: &Duty) -> Vec<Answer> {
    let mut asked = JoinSet::new();
    for peer in duty.peers() {
        let (root, port) = (root.clone(), duty.port.get());
        asked.spawn(async move {
            let answered = timeout(DEADLINE, ask_ready(&root, peer, port)).await;
            judge_answer(answered.unwrap_or(Err(CheckError::TimedOut)))
        });
    }
    asked.join_all().await
}

/// A port that refuses connections, or accepts one and is late, is that of a host which can be reached.
fn judge_answer(answered: Result<(), CheckError>) -> Answer {
    match answered {
        Ok(()) => Answer::Ready,
        Err(CheckError::NotReady(_) | CheckError::TimedOut) => Answer::NotReady,
        Err(CheckError::Connect { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused => {
            Answer::NotReady
        }
        Err(_) => Answer::Silent,
    }
}

/// Never set, unlike the calendar.
fn read_clock() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use http::StatusCode;

    use super::*;

    #[test]
    fn other_members_decide_how_long_it_is_kept() {
        use Answer::{NotReady, Ready, Silent};
        for (others, limit) in [
            (&[][..], Some(TOGETHER)),
            (&[NotReady, NotReady], Some(TOGETHER)),
            (&[NotReady, Silent], Some(CUT_OFF)),
            (&[Silent, Ready], None),
        ] {
            assert_eq!(choose_limit(others), limit, "{others:?}");
        }
    }

    #[test]
    fn refusals_are_answers_and_no_strain() {
        let connect = |kind: io::ErrorKind| CheckError::Connect {
            address: (IpAddr::from([10, 0, 0, 2]), 6443).into(),
            source: kind.into(),
        };
        for (error, is_strain, answer) in [
            (CheckError::NotReady(StatusCode::INTERNAL_SERVER_ERROR), true, Answer::NotReady),
            (CheckError::NotReady(StatusCode::FORBIDDEN), false, Answer::NotReady),
            (CheckError::TimedOut, true, Answer::NotReady),
            (connect(io::ErrorKind::ConnectionRefused), false, Answer::NotReady),
            (connect(io::ErrorKind::TimedOut), false, Answer::Silent),
            (connect(io::ErrorKind::HostUnreachable), false, Answer::Silent),
            (CheckError::NoDuty, false, Answer::Silent),
        ] {
            assert_eq!(error.is_strain(), is_strain, "{error}");
            assert_eq!(judge_answer(Err(error)), answer);
        }
    }

    #[test]
    fn last_good_answer_is_noted() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(last_ready(&root), None);
        fs::create_dir_all(root.load_balancer()).unwrap();
        note_ready(&root);
        assert!(last_ready(&root).unwrap() < CUT_OFF);
        let dump = dump_kernel().unwrap();
        let has = |address: [u8; 4]| has_address(&dump, IpAddr::from(address));
        assert!(has([127, 0, 0, 1]) && !has([192, 0, 2, 1]));
    }
}
