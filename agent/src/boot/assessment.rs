//! The agent's part in the boot assessment of a new system: the verb `check`, which
//! `elemental-boot-assessment` runs in a boot that is on trial.
//!
//! Five failures in five minutes make the assessment reboot into the former system. So a check
//! fails at once only if the system cannot bring the agent back. If only the coordinator may be
//! unreachable, the check takes so long that it fails less often.

use std::process::Command;
use std::time::Duration;

use proto::v1alpha1::{BootMode, PlanKind, PlanOutcome};
use tokio::time::{Instant, sleep};

use crate::ground::paths::{Root, StateDir};
use crate::host::network::kernel;
use crate::state::journal::{self, Journal, State};
use crate::state::network_trial;

/// Duration of an undecided check. With the pause of half a minute between two checks, four of them
/// fall into five minutes.
const TIME_LIMIT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Mount point of Elemental's persistent partition.
const PERSISTENT_PARTITION: &str = "/run/elemental/persistent";
/// Name of the step that writes the system and switches to it.
const UPGRADE: &str = "upgrade-system";

/// The assessment of the running system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assessment {
    Good(&'static str),
    /// The system stays on trial: the next power cycle boots the former system.
    Undecided(&'static str),
    /// The system does not bring the agent back.
    Broken(&'static str),
}

pub async fn check_boot(root: &Root) -> Assessment {
    wait_for_assessment(|| assess(root, || is_agent_active(root), has_neighbour)).await
}

async fn wait_for_assessment(mut assess: impl FnMut() -> Assessment) -> Assessment {
    let begin = Instant::now();
    loop {
        let assessment = assess();
        if !matches!(assessment, Assessment::Undecided(_)) || begin.elapsed() >= TIME_LIMIT {
            return assessment;
        }
        sleep(POLL_INTERVAL).await;
    }
}

fn assess(root: &Root, is_active: impl FnOnce() -> bool, has_neighbour: impl FnOnce() -> bool) -> Assessment {
    if root.attached_mark().exists() {
        return Assessment::Good("the agent has attached in this boot");
    }
    if matches!(root.boot_mode(), BootMode::Passive | BootMode::Recovery | BootMode::Live) {
        return Assessment::Good("this is not the system on trial");
    }
    if !root.state().config().exists() {
        let partition = root.join(PERSISTENT_PARTITION);
        let kept = StateDir::on_persistent_partition(&partition).config();
        if partition.is_dir() && !kept.exists() {
            return Assessment::Good("this host has never registered");
        }
        return Assessment::Undecided("the state of the agent is not there");
    }
    match journal::read(&root.state().journal()) {
        Ok(Some(journal)) if awaits_proof(&journal) => {}
        Ok(_) => return Assessment::Good("no plan waits for the proof of this boot"),
        Err(_) => return Assessment::Undecided("the journal cannot be read"),
    }
    if !is_active() {
        return Assessment::Broken("the agent does not run");
    }
    if !has_neighbour() && network_trial::read_trial(&root.state()).is_none() {
        return Assessment::Broken("no neighbour has answered this host on its network");
    }
    Assessment::Undecided("the agent has not attached yet")
}

/// True if the plan has written another system that is not proven yet.
fn awaits_proof(journal: &Journal) -> bool {
    journal.kind() == PlanKind::Reprovision
        && journal.outcome() != PlanOutcome::Applied
        && journal.steps().iter().any(|entry| entry.name == UPGRADE && entry.state != State::Pending)
}

fn is_agent_active(root: &Root) -> bool {
    let mut systemctl = Command::new(root.join("/usr/bin/systemctl"));
    systemctl.args(["is-active", "--quiet", "baremetal-agent.service"]);
    systemctl.status().is_ok_and(|status| status.success())
}

fn has_neighbour() -> bool {
    kernel::has_neighbour().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot ask the kernel for neighbours");
        true
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proto::plan::{Checksum, Generation, Image, Kind, Plan, PlanId, Step};
    use proto::v1alpha1::{StepDone, StepFailed};

    use super::*;
    use crate::state::journal::Outcome;

    /// The journal of a plan with so many steps done; perhaps the next failed.
    fn journal(kind: Kind, done: usize, fails: bool) -> Journal {
        let image = || Image::parse("lab/os:v1").unwrap();
        let plan = Plan {
            id: PlanId::parse("reprovision-01").unwrap(),
            generation: Generation(1),
            checksum: Checksum::of(b"reprovision-01"),
            kind,
            steps: vec![
                Step::RequestCleanup,
                Step::UpgradeSystem(image().into()),
                Step::Reboot,
                Step::VerifySystem { image: image() },
            ],
        };
        let done = (0..done).fold(Journal::begin_plan(&plan), |journal, index| {
            journal.with_started(index, "a").with_ended(index, Outcome::Done(StepDone::default()))
        });
        if !fails {
            return done;
        }
        let next = done.steps().iter().filter(|entry| matches!(entry.state, State::Done { .. })).count();
        done.with_started(next, "b").with_ended(next, Outcome::Failed(StepFailed::default()))
    }

    struct Host {
        _directory: tempfile::TempDir,
        root: Root,
    }

    impl Host {
        fn new(mode: &str, journal: Option<&Journal>) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let root = Root::at(directory.path());
            fs::create_dir_all(root.state().path()).unwrap();
            fs::write(root.state().config(), "").unwrap();
            fs::create_dir_all(root.join("/run/elemental")).unwrap();
            fs::write(root.join(format!("/run/elemental/{mode}_mode")), "1").unwrap();
            if let Some(journal) = journal {
                journal::write_journal(&root.state(), journal).unwrap();
            }
            Self { _directory: directory, root }
        }

        fn assess(&self, runs: bool, neighbour: bool) -> &'static str {
            match assess(&self.root, || runs, || neighbour) {
                Assessment::Good(_) => "good",
                Assessment::Undecided(_) => "undecided",
                Assessment::Broken(_) => "broken",
            }
        }
    }

    // Fault: a new OS image boots, and its agent does not come back.
    // Shown: the boot loader falls back; `PlanApplied`: `BootFallback`.
    #[test]
    fn an_image_without_agent_or_network_is_broken() {
        let plan = |done, fails| Some(journal(Kind::Reprovision, done, fails));
        for (name, mode, journal, runs, neighbour, want) in [
            ("no agent", "active", plan(3, false), false, true, "broken"),
            ("no network", "active", plan(3, false), true, false, "broken"),
            ("coordinator away", "active", plan(3, false), true, true, "undecided"),
            ("failed here", "active", plan(3, true), true, true, "undecided"),
            ("power cut before its reboot", "active", plan(2, false), false, true, "broken"),
            ("failed in the switch", "active", plan(1, true), false, true, "broken"),
            ("nothing written yet", "active", plan(1, false), false, true, "good"),
            ("fell back", "passive", plan(3, false), false, false, "good"),
            ("verified", "active", plan(4, false), false, false, "good"),
            ("cleaned", "active", Some(journal(Kind::Clean, 3, false)), false, false, "good"),
            ("just installed", "active", None, false, false, "good"),
        ] {
            let host = Host::new(mode, journal.as_ref());
            assert_eq!(host.assess(runs, neighbour), want, "{name}");
            host.root.record_attached();
            assert_eq!(host.assess(runs, neighbour), "good", "{name}, and attached");
        }
        let host = Host::new("active", plan(3, false).as_ref());
        fs::create_dir_all(host.root.state().network_trial()).unwrap();
        let trial = r#"{"planId":"p","writtenIn":"a","reverted":null}"#;
        fs::write(host.root.state().network_trial().join("trial.json"), trial).unwrap();
        assert_eq!(host.assess(true, false), "undecided", "the network is on trial, not the image");
        let host = Host::new("active", None);
        fs::write(host.root.state().journal(), "garbage").unwrap();
        assert_eq!(host.assess(true, true), "undecided", "damaged journal");
        fs::remove_dir_all(host.root.state().path()).unwrap();
        assert_eq!(host.assess(true, true), "undecided", "no partition");
        let kept = StateDir::on_persistent_partition(&host.root.join(PERSISTENT_PARTITION));
        fs::create_dir_all(kept.path()).unwrap();
        assert_eq!(host.assess(true, true), "good", "a system that was installed by hand");
        fs::write(kept.config(), "").unwrap();
        assert_eq!(host.assess(true, true), "undecided", "the state is not mounted");
    }

    #[tokio::test(start_paused = true)]
    async fn an_undecided_check_takes_a_minute() {
        for (name, assessment, until, seconds) in [
            ("good at once", Assessment::Good(""), 0, 0),
            ("broken at once", Assessment::Broken(""), 0, 0),
            ("attaches", Assessment::Good(""), 20, 20),
            ("never decided", Assessment::Undecided(""), 0, 60),
        ] {
            let begin = Instant::now();
            let assessed = wait_for_assessment(|| {
                if begin.elapsed() < Duration::from_secs(until) {
                    Assessment::Undecided("")
                } else {
                    assessment
                }
            });
            assert_eq!(assessed.await, assessment, "{name}");
            assert_eq!(begin.elapsed(), Duration::from_secs(seconds), "{name}");
        }
    }
}
