//! A boot with a new network: it stays when the coordinator answers; the
//! former one comes back when nothing does.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::error::LinkError;
use crate::client::calls::CallError;
use crate::client::error::ConnectError;
use crate::client::registration::AttemptError;
use crate::ground::error::explain;
use crate::ground::paths::Root;
use crate::host::observed;
use crate::host::system::{RebootMethod, System};
use crate::plan::executor::REBOOT_DEADLINE;
use crate::state::message::Console;
use crate::state::network_trial::{self, Phase, Trial};

/// How long a boot may be silent.
const DEADLINE: Duration = Duration::from_mins(10);
/// How long another server, or a closed port, may answer in the coordinator's
/// place: it may be restarting, behind a load balancer.
const ANSWERED_DEADLINE: Duration = Duration::from_hours(1);
/// How long an agent tries at least: it may have started late.
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// What answered an attempt to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Nothing,
    /// Something at the coordinator's address, or the attempt never came to the
    /// network.
    Other,
    Coordinator,
}

impl Answer {
    fn of_error(error: &LinkError) -> Self {
        match error {
            LinkError::Call(error) | LinkError::Registration(AttemptError::Call(error)) => {
                Self::of_call(error)
            }
            LinkError::Registration(AttemptError::Answer { .. })
            | LinkError::Closed
            | LinkError::NotInstalled => Self::Coordinator,
            LinkError::Registration(_)
            | LinkError::Identity(_)
            | LinkError::System(_)
            | LinkError::Worker
            | LinkError::InstallRecord(_) => Self::Other,
        }
    }

    fn of_call(error: &CallError) -> Self {
        use std::io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, UnexpectedEof};
        let CallError::Connect(error) = error else { return Self::Coordinator };
        match error {
            ConnectError::Name(_) => Self::Nothing,
            // A handshake without an answer: packets of full size do not pass.
            ConnectError::Away { source, .. } | ConnectError::Handshake { source, .. } => {
                match source.kind() {
                    ConnectionRefused | ConnectionReset | UnexpectedEof | BrokenPipe => Self::Other,
                    _ => Self::Nothing,
                }
            }
            ConnectError::WrongAuthority { .. }
            | ConnectError::WrongName { .. }
            | ConnectError::WrongTime { .. }
            | ConnectError::Configuration(_)
            | ConnectError::Protocol { .. } => Self::Other,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Wait,
    Keep,
    Revert,
}

/// `booted` since the kernel started, `tried` since this agent did.
fn decide_network(answer: Answer, booted: Duration, tried: Duration) -> Decision {
    let deadline = match answer {
        Answer::Coordinator => return Decision::Keep,
        Answer::Nothing => DEADLINE,
        Answer::Other => ANSWERED_DEADLINE,
    };
    if booted >= deadline && tried >= TIME_LIMIT { Decision::Revert } else { Decision::Wait }
}

/// The trial of this boot's network, if there is one.
pub(super) struct NetworkTrial<'a> {
    root: &'a Root,
    begin: Instant,
    uptime: Duration,
}

impl<'a> NetworkTrial<'a> {
    pub(super) fn new(root: &'a Root) -> Self {
        Self { root, begin: Instant::now(), uptime: observed::read_uptime(root) }
    }

    pub(super) fn keep_network(&self) {
        let kept = observed::boot_id(self.root).map(|boot| network_trial::confirm_network(self.root, &boot));
        if let Ok(Err(error)) = kept {
            tracing::warn!(error = explain(&error), "the new network is not recorded as the proven one");
        }
    }

    /// After an attempt to attach that failed: `false` while the network stays.
    pub(super) fn is_over(&self, error: &LinkError, console: &mut Console) -> bool {
        let Some((trial, boot)) = self.read() else { return false };
        match trial.phase(&boot) {
            Phase::Ending => return true,
            Phase::NotBegun | Phase::Reverted => return false,
            Phase::Running => {}
        }
        let tried = self.begin.elapsed();
        match decide_network(Answer::of_error(error), self.uptime + tried, tried) {
            Decision::Wait => false,
            Decision::Keep => {
                self.keep_network();
                false
            }
            Decision::Revert => self.revert(trial, &boot, error, console),
        }
    }

    fn read(&self) -> Option<(Trial, String)> {
        let trial = network_trial::read_trial(&self.root.state())?;
        Some((trial, observed::boot_id(self.root).ok()?))
    }

    fn revert(&self, trial: Trial, boot: &str, error: &LinkError, console: &mut Console) -> bool {
        let minutes = (self.uptime + self.begin.elapsed()).as_secs() / 60;
        let why =
            format!("no coordinator for {minutes} minutes: {}", crate::ground::error::describe_error(error));
        console.print_message(&format!(
            "the network of plan {} does not work ({why}): rebooting with the former one",
            trial.plan_id()
        ));
        match network_trial::revert_network(self.root, trial, boot, &why) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(error = explain(&error), "the former network does not come back, retrying");
                false
            }
        }
    }

    /// Asks harder each time; returns where the host does not reboot.
    pub(super) async fn reboot(&self, system: &impl System) {
        for method in [RebootMethod::Orderly, RebootMethod::Forced, RebootMethod::Immediate] {
            if let Err(error) = system.reboot(method).await {
                tracing::warn!(?method, error = explain(&error), "cannot ask for a reboot");
            }
            sleep(REBOOT_DEADLINE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tonic::Status;

    use super::*;
    use crate::client::names::NameError;

    #[test]
    fn silence_reverts_network_and_answer_keeps_it() {
        let minutes = Duration::from_mins;
        for (name, answer, booted, tried, want) in [
            ("attached late", Answer::Coordinator, 600, 600, Decision::Keep),
            ("silent, early", Answer::Nothing, 9, 9, Decision::Wait),
            ("silent", Answer::Nothing, 10, 9, Decision::Revert),
            ("silent, the agent started late", Answer::Nothing, 30, 1, Decision::Wait),
            ("a closed port", Answer::Other, 59, 59, Decision::Wait),
            ("a closed port for an hour", Answer::Other, 60, 59, Decision::Revert),
        ] {
            assert_eq!(decide_network(answer, minutes(booted), minutes(tried)), want, "{name}");
        }
    }

    #[test]
    fn an_answer_is_told_from_silence() {
        let address = || "c.example:8443".to_owned();
        let away = |kind: io::ErrorKind| ConnectError::Away { address: address(), source: kind.into() };
        let shaken =
            |kind: io::ErrorKind| ConnectError::Handshake { address: address(), source: kind.into() };
        let unknown = NameError::Unknown { name: "c".into(), reason: "no server answers".into() };
        for (name, error, want) in [
            ("no route", away(io::ErrorKind::NetworkUnreachable), Answer::Nothing),
            ("no answer", away(io::ErrorKind::TimedOut), Answer::Nothing),
            ("a closed port", away(io::ErrorKind::ConnectionRefused), Answer::Other),
            ("no name", ConnectError::Name(unknown), Answer::Nothing),
            ("large packets are lost", shaken(io::ErrorKind::TimedOut), Answer::Nothing),
            ("a load balancer without a server", shaken(io::ErrorKind::UnexpectedEof), Answer::Other),
            ("another server", ConnectError::WrongAuthority { address: address() }, Answer::Other),
        ] {
            let registration =
                AttemptError::from(CallError::from(ConnectError::WrongName { address: address() }));
            assert_eq!(Answer::of_error(&LinkError::Registration(registration)), Answer::Other);
            assert_eq!(Answer::of_error(&LinkError::Call(error.into())), want, "{name}");
        }
        for (name, error, want) in [
            ("a refusal", LinkError::from(Status::unauthenticated("who?")), Answer::Coordinator),
            ("closed", LinkError::Closed, Answer::Coordinator),
            ("the worker", LinkError::Worker, Answer::Other),
        ] {
            assert_eq!(Answer::of_error(&error), want, "{name}");
        }
    }
}
