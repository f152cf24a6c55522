//! The trial of a new network: it is kept after the coordinator answered, and the former network
//! comes back if nothing answers.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::client::error::{Answer, CallError};
use crate::ground::paths::Root;
use crate::host::observed;
use crate::host::system::{RebootMethod, System};
use crate::plan::executor::REBOOT_DEADLINE;
use crate::state::message::Console;
use crate::state::network_trial::{self, Phase, Trial};

/// Time without any answer after which the former network comes back.
const DEADLINE: Duration = Duration::from_mins(10);
/// The same time if another server or a closed port answers in the coordinator's place, which may
/// be restarting behind a load balancer.
const ANSWERED_DEADLINE: Duration = Duration::from_hours(1);
/// Shortest time that an agent tries, because it may have started late.
const TIME_LIMIT: Duration = Duration::from_mins(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Wait,
    Keep,
    Revert,
}

/// `booted` is the time since the kernel started, `tried` the time since this agent started.
fn decide_network(answer: Answer, booted: Duration, tried: Duration) -> Decision {
    let deadline = match answer {
        Answer::Coordinator | Answer::Refusal(_) | Answer::Unauthenticated => return Decision::Keep,
        Answer::Nothing => DEADLINE,
        Answer::Other => ANSWERED_DEADLINE,
    };
    if booted >= deadline && tried >= TIME_LIMIT { Decision::Revert } else { Decision::Wait }
}

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
            tracing::warn!(%error, "cannot record the new network as proven");
        }
    }

    /// Called after a failed attempt to attach. Returns true if the host has to reboot with the
    /// former network.
    pub(super) fn is_over(&self, error: &CallError, console: &mut Console) -> bool {
        let Some((trial, boot)) = self.read() else { return false };
        match trial.phase(&boot) {
            Phase::Ending => return true,
            Phase::NotBegun | Phase::Reverted => return false,
            Phase::Running => {}
        }
        let tried = self.begin.elapsed();
        match decide_network(error.answer, self.uptime + tried, tried) {
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

    fn revert(&self, trial: Trial, boot: &str, error: &CallError, console: &mut Console) -> bool {
        let minutes = (self.uptime + self.begin.elapsed()).as_secs() / 60;
        let why = format!("no coordinator for {minutes} minutes: {}", error.failure.message);
        console.print_message(&format!(
            "the network of plan {} does not work ({why}): rebooting with the former one",
            trial.plan_id()
        ));
        match network_trial::revert_network(self.root, trial, boot, &why) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "cannot restore the former network, retrying");
                false
            }
        }
    }

    /// Requests a reboot by each method; returns if the host does not reboot.
    pub(super) async fn reboot(&self, system: &impl System) {
        for method in [RebootMethod::Orderly, RebootMethod::Forced, RebootMethod::Immediate] {
            if let Err(error) = system.reboot(method).await {
                tracing::warn!(?method, %error, "cannot request a reboot");
            }
            sleep(REBOOT_DEADLINE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
