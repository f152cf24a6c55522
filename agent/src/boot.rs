//! Early boot, before cloud-init, containerd and kubelet: the `boot` verb.
//!
//! In a live system it writes the seed that the ISO carries. In an installed
//! system it wipes when the plan asked for it, puts the `NoCloud` seed back and
//! writes the kubelet's identity; `/etc` may be ephemeral, so all of it happens
//! at every boot.

pub mod kubelet;
mod live;
pub(crate) mod receipt;
pub mod seed;
pub mod wipe;

use std::path::PathBuf;

use proto::plan::{Kind, PlanId, Step};
use proto::v1alpha1::BootMode;

pub use receipt::Receipt;

use crate::durable::{self, DurableError};
use crate::failpoint::failpoint;
use crate::journal::{self, Journal, State};
use crate::paths::Root;
use crate::system::{SystemError, observed};

/// What early boot did, and what it could not do.
#[derive(Debug, Default)]
pub struct Summary {
    /// For the console, in order.
    pub done: Vec<String>,
    /// None of them is a reason to hold the boot: the host must come up far
    /// enough to report them.
    pub problems: Vec<BootError>,
}

/// What early boot could not do.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The marker or the receipt is not readable.
    #[error("cannot read {path}, so no cleanup is done at this boot; next: check the host's disk")]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: std::io::Error,
    },
    /// The marker does not hold a plan's id.
    #[error(
        "the cleanup marker does not name a plan, so no cleanup is done; next: check the host's disk, another plan writes the marker anew"
    )]
    Marker,
    /// A directory of the former node was not emptied.
    #[error("cannot wipe the former node, so the new one is not started at this boot")]
    Wipe(#[from] wipe::WipeError),
    /// A file could not be written.
    #[error("cannot write a file at early boot")]
    Write(#[from] DurableError),
    /// The seed is not readable.
    #[error("cannot restore the seed")]
    Seed(#[from] seed::SeedError),
    /// The kubelet's identity is not readable.
    #[error("cannot write the kubelet's identity")]
    Kubelet(#[from] kubelet::KubeletError),
    /// The ISO's configuration is not readable.
    #[error("cannot read the configuration that the ISO carries")]
    Live(#[from] live::LiveError),
    /// The kernel does not tell which boot this is.
    #[error("cannot tell which boot this is")]
    BootId(#[from] SystemError),
}

impl Summary {
    fn note(&mut self, text: impl Into<String>) {
        self.done.push(text.into());
    }

    fn keep<T>(&mut self, result: Result<T, impl Into<BootError>>) -> Option<T> {
        result.map_err(|error| self.problems.push(error.into())).ok()
    }
}

/// Does all of it. Safe to be killed and run again at any point.
#[must_use]
pub fn run(root: &Root) -> Summary {
    let mut summary = Summary::default();
    if root.boot_mode() == BootMode::Live {
        if summary.keep(live::write_seed(root)).is_some() {
            summary.note("live system: wrote the seed that the ISO carries");
        }
        return summary;
    }
    let early = observe(root, &mut summary);
    let seed = match early {
        Early::Nothing => SeedPart::All,
        Early::Hold { .. } => SeedPart::Network,
        Early::Wipe(ref plan) => match summary.keep(clean_up(root, plan)) {
            Some(note) => {
                summary.note(note);
                SeedPart::All
            }
            None => SeedPart::Network,
        },
    };
    if let Early::Hold { why } = early {
        summary.note(format!("{why}: the node is not wiped and not started at this boot"));
    }
    restore_seed(root, seed, &mut summary);
    failpoint("boot::seed::after");
    write_identity(root, &mut summary);
    failpoint("boot::identity::after");
    summary
}

/// What early boot does about the former node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Early {
    /// Nobody asked for a cleanup.
    Nothing,
    /// The plan's own reboot led here: wipe.
    Wipe(PlanId),
    /// A cleanup was asked for, but this is not the boot that it is for: the
    /// host comes up with its network, and neither wiped nor with a new node.
    Hold {
        /// For the console.
        why: &'static str,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SeedPart {
    All,
    Network,
}

fn observe(root: &Root, summary: &mut Summary) -> Early {
    let path = root.state().cleanup_marker();
    let marker = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Early::Nothing,
        Err(source) => {
            summary.problems.push(BootError::Read { path, source });
            return Early::Hold { why: "the cleanup marker cannot be read" };
        }
    };
    let Ok(plan) = PlanId::parse(marker.trim()) else {
        summary.problems.push(BootError::Marker);
        return Early::Hold { why: "the cleanup marker does not name a plan" };
    };
    match journal::read(&root.state().journal()) {
        Ok(Some(journal)) => decide(plan, Witness::Journal(&journal), root.boot_mode()),
        Ok(None) => {
            let rebooted = root.state().upstream_done(&plan, Step::Reboot.name()).exists();
            decide(plan, Witness::Upstream { rebooted }, root.boot_mode())
        }
        // Without the journal nobody knows whether the plan came as far as its
        // reboot: nothing destructive on a guess.
        Err(_) => Early::Hold { why: "the journal is damaged" },
    }
}

/// What tells whether the plan has come to its reboot.
#[derive(Clone, Copy)]
enum Witness<'a> {
    /// Our own agent's.
    Journal(&'a Journal),
    /// There is no journal: it was an upstream agent that ran the plan, or
    /// nobody knows.
    Upstream {
        /// It left its mark of the reboot.
        rebooted: bool,
    },
}

/// Whether the boot is the one that the marker is for.
///
/// A power cut between the marker and the plan's reboot, a plan that failed
/// before its reboot, or a boot loader that fell back to the old system must
/// not wipe, nor let the new seed start a node on the wrong system.
fn decide(plan: PlanId, witness: Witness<'_>, mode: BootMode) -> Early {
    if matches!(mode, BootMode::Passive | BootMode::Recovery) {
        return Early::Hold { why: "the boot loader fell back" };
    }
    let journal = match witness {
        Witness::Journal(journal) => journal,
        Witness::Upstream { rebooted: true } => return Early::Wipe(plan),
        Witness::Upstream { rebooted: false } => {
            return Early::Hold { why: "no journal says that the plan came to its reboot" };
        }
    };
    if journal.plan_id() != plan.as_str() || journal.kind() != Kind::Reprovision {
        return Early::Hold { why: "the cleanup was asked for by a plan that is not the newest" };
    }
    let reboot = journal.steps().iter().find(|entry| entry.name == Step::Reboot.name());
    match reboot.map(|entry| &entry.state) {
        Some(State::Started { .. } | State::Done { .. }) => Early::Wipe(plan),
        Some(State::Pending) => Early::Hold { why: "the plan has not come to its reboot" },
        Some(State::Failed) | None => Early::Hold { why: "the plan has failed" },
    }
}

/// Wipes once for a plan, and leaves a receipt.
///
/// The receipt is durable before the marker goes. A crash in between finds
/// both and only removes the marker: whatever lies in the directories by then
/// belongs to the new node.
fn clean_up(root: &Root, plan: &PlanId) -> Result<String, BootError> {
    let state = root.state();
    let wiped = receipt::read(root).is_some_and(|receipt| receipt.plan_id == plan.as_str());
    if !wiped {
        failpoint("boot::wipe::before");
        let mut kept = Vec::new();
        for directory in wipe::NODE_DIRECTORIES {
            kept.extend(wipe::empty(root, directory)?);
            failpoint("boot::wipe::during");
        }
        wipe::remove_rendered_network(root)?;
        wipe::flush(root)?;
        let receipt = Receipt { plan_id: plan.to_string(), boot_id: observed::boot_id(root)?, kept };
        receipt::write(root, &receipt)?;
        failpoint("boot::wipe::receipt");
    }
    durable::remove(&state.cleanup_marker())?;
    failpoint("boot::wipe::after");
    Ok(format!("wiped the former node for plan {plan}"))
}

fn restore_seed(root: &Root, part: SeedPart, summary: &mut Summary) {
    let restored = match part {
        SeedPart::All => seed::restore(root),
        SeedPart::Network => seed::restore_network(root),
    };
    if summary.keep(restored) == Some(seed::Restored::Written) {
        summary.note("wrote the NoCloud seed");
    }
}

fn write_identity(root: &Root, summary: &mut Summary) {
    let Some(Some(identity)) = summary.keep(kubelet::read(root)) else {
        return;
    };
    if summary.keep(kubelet::apply(root, &identity)).is_some() {
        summary.note(format!("kubelet is {}", identity.provider_id));
    }
}

#[cfg(test)]
mod tests;
