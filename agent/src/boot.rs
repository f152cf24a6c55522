//! Early boot, before cloud-init, containerd and kubelet: the `boot` verb.
//!
//! In a live system it writes the seed that the ISO carries. In an installed
//! system it wipes when the plan asked for it, puts the `NoCloud` seed back and
//! writes the kubelet's identity; `/etc` may be ephemeral, so all of it happens
//! at every boot.

pub mod assessment;
mod bootstrap;
mod live_seed;
mod own_network;

use std::path::PathBuf;

use proto::plan::{PlanId, Step};
use proto::v1alpha1::{BootMode, PlanKind, PlanOutcome};

use crate::ground::durable::{self, DurableError};
use crate::ground::error::NextAction;
use crate::ground::failpoint::failpoint;
use crate::ground::paths::Root;
use crate::host::kept_paths::find_lost_paths;
use crate::host::observed;
use crate::host::system::SystemError;
use crate::host::wipe;
use crate::state::journal::{self, Journal, State};
use crate::state::receipt::{self, Receipt};
use crate::state::{connections, network_trial, node_identity, seed};

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
    #[error("cannot read {path}, so no cleanup is done at this boot")]
    Read {
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: std::io::Error,
    },
    /// The marker does not hold a plan's id.
    #[error("the cleanup marker does not name a plan, so no cleanup is done")]
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
    Kubelet(#[from] node_identity::NodeIdentityError),
    /// The ISO's configuration is not readable.
    #[error("cannot read the configuration that the ISO carries")]
    Live(#[from] live_seed::LiveError),
    /// Nothing in this live system reads a part of the ISO.
    #[error("the stages of the SeedImage's cloud-config are not run: this live system has no yip")]
    Stages,
    /// The boot id is unreadable.
    #[error("cannot read the boot id")]
    BootId(#[from] SystemError),
}

impl NextAction for BootError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Read { source, .. } => Some(durable::next_action(source.kind())),
            Self::Marker => Some("check the host's disk; the next plan writes the marker again"),
            Self::Wipe(error) => error.next_action(),
            Self::Write(error) => error.next_action(),
            Self::Seed(error) => error.next_action(),
            Self::Kubelet(error) => error.next_action(),
            Self::Live(error) => error.next_action(),
            Self::Stages => Some(
                "write spec.cloud-config of the SeedImage for cloud-init (bootcmd, write_files, runcmd), or use a base ISO with elemental.setup= in its kernel command line",
            ),
            Self::BootId(error) => error.next_action(),
        }
    }
}

impl Summary {
    fn add_note(&mut self, text: impl Into<String>) {
        self.done.push(text.into());
    }

    fn keep_result<T>(&mut self, result: Result<T, impl Into<BootError>>) -> Option<T> {
        result.map_err(|error| self.problems.push(error.into())).ok()
    }
}

/// Does all of it. Safe to be killed and run again at any point.
pub fn run(root: &Root) -> Summary {
    let mut summary = Summary::default();
    if root.boot_mode() == BootMode::Live {
        if summary.keep_result(live_seed::write_seed(root)).is_some() {
            summary.add_note("live system: wrote the seed that the ISO carries");
        }
        if live_seed::drops_stages(root) {
            summary.problems.push(BootError::Stages);
        }
        return summary;
    }
    if summary.keep_result(restore_former_network(root)) == Some(true) {
        summary.add_note("put the former network back: the new one did not reach the coordinator");
    }
    if summary.keep_result(bootstrap::note_interrupted(root)) == Some(true) {
        summary.add_note(
            "the boot before ended while cloud-init ran the bootstrap commands: they are not run again",
        );
    }
    let decision = read_decision(root, &mut summary);
    let held_with: Option<RestoreSeed> = match hold_where_paths_are_lost(root, decision) {
        Decision::Continue => None,
        Decision::Hold { why } => {
            summary.add_note(format!("{why}: at this boot no node is wiped or started"));
            Some(seed::restore_network)
        }
        Decision::Cleaning => {
            summary.add_note("the node is not cleaned yet: at this boot nothing of it is started");
            Some(seed::restore_seed)
        }
        Decision::Wipe(plan) => {
            let wiped = summary.keep_result(clean_up(root, &plan));
            let is_held = wiped.is_none();
            summary.done.extend(wiped);
            is_held.then_some(seed::restore_network)
        }
    };
    match held_with {
        None => prepare_node(root, &mut summary),
        Some(restore) => hold_node(root, restore, &mut summary),
    }
    summary
}

/// Puts the former network into the seed where the new one failed. Whether it
/// did so now.
fn restore_former_network(root: &Root) -> Result<bool, BootError> {
    let state = root.state();
    let Some(former) = network_trial::find_former_seed(&state)? else { return Ok(false) };
    wipe::remove_rendered_network(root)?;
    seed::store(&state, &former)?;
    Ok(true)
}

type RestoreSeed = fn(&Root) -> Result<seed::Restored, seed::SeedError>;

/// The units of kubelet and containerd start only where [`Root::node_gate`]
/// is: a verb that was killed or never ran has not opened it.
fn prepare_node(root: &Root, summary: &mut Summary) {
    keep_seed(seed::restore_seed(root), summary);
    keep_connections(root, summary);
    failpoint("boot::seed::after");
    write_identity(root, summary);
    failpoint("boot::identity::after");
    summary.keep_result(open_gate(root));
}

fn hold_node(root: &Root, restore: RestoreSeed, summary: &mut Summary) {
    summary.keep_result(durable::remove(&root.node_gate()));
    keep_seed(restore(root), summary);
    keep_connections(root, summary);
}

fn open_gate(root: &Root) -> Result<(), DurableError> {
    let gate = root.node_gate();
    if let Some(parent) = gate.parent() {
        durable::create_directory_with_mode(parent, 0o755)?;
    }
    durable::write_with_mode(&gate, b"", durable::PUBLIC)
}

/// What early boot does about the nodes of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    /// No cleanup is requested and no plan has failed.
    Continue,
    /// The plan's own reboot led here: wipe.
    Wipe(PlanId),
    /// A clean has begun: it goes on behind the steps that stopped the node, and nothing
    /// stops it again.
    Cleaning,
    /// The host comes up with its network only: the former node is not wiped,
    /// and the new seed is not run.
    Hold { why: &'static str },
}

fn read_decision(root: &Root, summary: &mut Summary) -> Decision {
    if network_trial::read_trial(&root.state()).is_some_and(|trial| trial.reverted().is_some()) {
        return Decision::Hold { why: "the network of the plan did not work" };
    }
    let marker = match read_marker(root) {
        Ok(marker) => marker,
        Err(error) => {
            summary.problems.push(error);
            return Decision::Hold { why: "the cleanup marker is unreadable" };
        }
    };
    match journal::read(&root.state().journal()) {
        Ok(Some(journal)) => decide_cleanup(marker, Evidence::Journal(&journal), root.boot_mode()),
        Ok(None) => {
            let done = |plan| root.state().upstream_done(plan, Step::Reboot.name()).exists();
            let rebooted = marker.as_ref().is_some_and(done);
            decide_cleanup(marker, Evidence::Upstream { rebooted }, root.boot_mode())
        }
        Err(_) => decide_cleanup(marker, Evidence::DamagedJournal, root.boot_mode()),
    }
}

/// A node that loses its directories at the next reboot is not begun: only the
/// system that the plan brought shows it.
fn hold_where_paths_are_lost(root: &Root, decision: Decision) -> Decision {
    match decision {
        Decision::Wipe(_) if !find_lost_paths(root).is_empty() => {
            Decision::Hold { why: "the image does not keep the paths of a node over a reboot" }
        }
        other => other,
    }
}

/// The plan that requests a cleanup.
fn read_marker(root: &Root) -> Result<Option<PlanId>, BootError> {
    let path = root.state().cleanup_marker();
    match std::fs::read_to_string(&path) {
        Ok(text) => PlanId::parse(text.trim()).map(Some).map_err(|_| BootError::Marker),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(BootError::Read { path, source }),
    }
}

/// What shows how far the plan came.
#[derive(Clone, Copy)]
enum Evidence<'a> {
    Journal(&'a Journal),
    /// There is no journal: an upstream agent ran the plan, or none did.
    Upstream {
        /// It left its done-file of the reboot.
        rebooted: bool,
    },
    DamagedJournal,
}

/// Whether this boot is the one that the marker is for, and whether the seed
/// may be run.
///
/// A power cut between the marker and the plan's reboot, a plan that failed at
/// any step, or a boot loader that fell back to the old system must not wipe,
/// nor let the new seed start a node. The hold ends with a newer plan, not
/// with another boot: a boot loader may try the new system again.
fn decide_cleanup(marker: Option<PlanId>, evidence: Evidence<'_>, mode: BootMode) -> Decision {
    let held_by = match mode {
        BootMode::Active => None,
        BootMode::Passive | BootMode::Recovery => Some("the boot loader fell back"),
        BootMode::Live | BootMode::Unspecified => Some("nothing says which system the boot loader chose"),
    };
    if let Evidence::Journal(journal) = evidence {
        match (journal.kind(), journal.outcome()) {
            (PlanKind::Reprovision, PlanOutcome::Failed) => {
                return Decision::Hold { why: "the plan has failed" };
            }
            (PlanKind::Reprovision, PlanOutcome::InProgress) if let Some(why) = held_by => {
                return Decision::Hold { why };
            }
            (PlanKind::Clean, PlanOutcome::InProgress | PlanOutcome::Failed) if marker.is_none() => {
                return Decision::Cleaning;
            }
            _ => {}
        }
    }
    let Some(plan) = marker else {
        return Decision::Continue;
    };
    if let Some(why) = held_by {
        return Decision::Hold { why };
    }
    match evidence {
        Evidence::Journal(journal) => decide_by_journal(plan, journal),
        Evidence::Upstream { rebooted: true } => Decision::Wipe(plan),
        Evidence::Upstream { rebooted: false } => {
            Decision::Hold { why: "no journal shows that the plan came to its reboot" }
        }
        Evidence::DamagedJournal => Decision::Hold { why: "the journal is damaged" },
    }
}

fn decide_by_journal(plan: PlanId, journal: &Journal) -> Decision {
    if journal.plan_id() != plan.as_str() || journal.kind() != PlanKind::Reprovision {
        return Decision::Hold { why: "the cleanup is requested by a plan that is not the newest" };
    }
    let reboot = journal.steps().iter().find(|entry| entry.name == Step::Reboot.name());
    match reboot.map(|entry| &entry.state) {
        Some(State::Started { .. } | State::Done { .. }) => Decision::Wipe(plan),
        Some(State::Pending) => Decision::Hold { why: "the plan has not come to its reboot" },
        Some(State::Failed) | None => Decision::Hold { why: "the plan has failed" },
    }
}

/// Wipes once for a plan, and leaves a receipt.
///
/// The receipt is durable before the marker goes. A crash in between finds
/// both and only removes the marker: whatever lies in the directories by then
/// belongs to the new node.
fn clean_up(root: &Root, plan: &PlanId) -> Result<String, BootError> {
    let state = root.state();
    let wiped = receipt::read_receipt(root).is_some_and(|receipt| receipt.plan_id == plan.as_str());
    if !wiped {
        failpoint("boot::wipe::before");
        let mut kept = Vec::new();
        for directory in wipe::NODE_DIRECTORIES {
            kept.extend(wipe::empty_directory(root, directory)?);
            failpoint("boot::wipe::during");
        }
        wipe::remove_rendered_network(root)?;
        wipe::flush_directories(root, &wipe::NODE_DIRECTORIES)?;
        let receipt = Receipt { plan_id: plan.to_string(), boot_id: observed::boot_id(root)?, kept };
        receipt::write_receipt(root, &receipt)?;
        failpoint("boot::wipe::receipt");
    }
    durable::remove(&state.cleanup_marker())?;
    failpoint("boot::wipe::after");
    Ok(format!("wiped the former node for plan {plan}"))
}

fn keep_seed(restored: Result<seed::Restored, seed::SeedError>, summary: &mut Summary) {
    if summary.keep_result(restored) == Some(seed::Restored::Written) {
        summary.add_note("wrote the NoCloud seed");
    }
}

fn keep_connections(root: &Root, summary: &mut Summary) {
    let wanted = match seed::load(&root.state()) {
        Ok(seed) => seed.map(|seed| seed.connections).unwrap_or_default(),
        // Restoring the seed has said so.
        Err(_) => return,
    };
    if summary.keep_result(connections::place_connections(root, &wanted)) == Some(true) {
        summary.add_note("wrote the connections of NetworkManager");
    }
}

fn write_identity(root: &Root, summary: &mut Summary) {
    let Some(stored) = summary.keep_result(node_identity::read(root)) else {
        return;
    };
    let Some(identity) = stored else {
        summary.keep_result(node_identity::remove_arguments(root));
        return;
    };
    if summary.keep_result(node_identity::apply_identity(root, &identity)).is_some() {
        summary.add_note(format!("kubelet is {}", identity.provider_id));
    }
}

#[cfg(test)]
mod tests;
