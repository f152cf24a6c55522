//! Early boot, before cloud-init, containerd and kubelet: the verb `boot`.
//!
//! In a live system it writes the seed from the ISO. In an installed system it wipes if the plan
//! requested it, restores the `NoCloud` seed, and writes the kubelet's identity. All of this
//! happens at every boot, because `/etc` may be ephemeral.

pub mod assessment;
mod bootstrap;
mod live_seed;
mod own_network;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use proto::distribution::{self, Extent};
use proto::plan::{PlanId, Step};
use proto::v1alpha1::{BootMode, PlanKind, PlanOutcome};

use crate::ground::durable;
use crate::ground::failpoint::failpoint;
use crate::ground::failure::{Context as _, Failure};
use crate::ground::paths::Root;
use crate::host::kept_paths::find_lost_paths;
use crate::host::observed;
use crate::host::wipe;
use crate::state::journal::{self, Journal, State};
use crate::state::receipt::{self, Receipt, WipeProgress};
use crate::state::{connections, network_trial, node_identity, seed};

/// The actions and the failures of early boot.
#[derive(Debug, Default)]
pub struct Summary {
    /// Lines for the console, in order.
    pub done: Vec<String>,
    /// No failure holds the boot, because the host must come up far enough to report it.
    pub problems: Vec<Failure>,
}

impl Summary {
    fn add_note(&mut self, text: impl Into<String>) {
        self.done.push(text.into());
    }

    fn keep_result<T>(&mut self, result: Result<T, Failure>) -> Option<T> {
        result.map_err(|failure| self.problems.push(failure)).ok()
    }
}

/// The time limit of a wipe. It ends before `TimeoutStartSec` of the unit, so that the progress is
/// written, the file systems are flushed and the host comes up.
const PATIENCE: Duration = Duration::from_mins(8);

/// Runs early boot. The function may be killed at any point and run again.
pub fn run(root: &Root) -> Summary {
    let mut summary = Summary::default();
    if root.boot_mode() == BootMode::Live {
        if summary.keep_result(live_seed::write_seed(root).context("cannot write the live seed")).is_some() {
            summary.add_note("live system: wrote the seed that the ISO carries");
        }
        if live_seed::drops_stages(root) {
            summary.problems.push(Failure::refused(
                "the stages of the SeedImage's cloud-config are not run: this live system has no yip",
                "write spec.cloud-config of the SeedImage for cloud-init (bootcmd, write_files, runcmd), or use a base ISO with elemental.setup= in its kernel command line",
            ));
        }
        return summary;
    }
    if summary.keep_result(restore_former_network(root)) == Some(true) {
        summary.add_note("put the former network back: the new one did not reach the coordinator");
    }
    if summary.keep_result(bootstrap::record_interrupted(root)) == Some(true) {
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
            let wiped = clean_up(root, &plan, Instant::now() + PATIENCE)
                .context("cannot wipe the former node, so the new one is not started at this boot");
            let wiped = summary.keep_result(wiped);
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

/// Puts the former network into the seed if the new one failed. Returns true if it changed the
/// seed.
fn restore_former_network(root: &Root) -> Result<bool, Failure> {
    let state = root.state();
    let Some(former) = network_trial::find_former_seed(&state)? else { return Ok(false) };
    wipe::remove_rendered_network(root)?;
    seed::store(&state, &former)?;
    Ok(true)
}

type RestoreSeed = fn(&Root) -> Result<seed::Restored, Failure>;

/// The units of kubelet and containerd start only if [`Root::node_gate`] exists, so no node starts
/// if this verb was killed or never ran.
fn prepare_node(root: &Root, summary: &mut Summary) {
    let is_restored = keep_seed(seed::restore_seed(root), summary);
    keep_connections(root, summary);
    failpoint("boot::seed::after");
    let is_identified = write_identity(root, summary);
    failpoint("boot::identity::after");
    if is_restored && is_identified {
        summary.keep_result(open_gate(root));
        return;
    }
    // Another seed may lie in cloud-init's place, and a providerID never changes.
    summary.keep_result(durable::remove(&root.node_gate()));
    summary.add_note("seed or node identity could not be written: at this boot no node is started");
}

fn hold_node(root: &Root, restore: RestoreSeed, summary: &mut Summary) {
    summary.keep_result(durable::remove(&root.node_gate()));
    keep_seed(restore(root), summary);
    keep_connections(root, summary);
}

fn open_gate(root: &Root) -> Result<(), Failure> {
    let gate = root.node_gate();
    if let Some(parent) = gate.parent() {
        durable::create_directory_with_mode(parent, 0o755)?;
    }
    durable::write_with_mode(&gate, b"", durable::PUBLIC)
}

/// The treatment of the nodes of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    /// No cleanup is requested and no plan has failed.
    Continue,
    /// The plan's own reboot led to this boot: wipe.
    Wipe(PlanId),
    /// A clean has stopped the node and continues after this boot; the node must not start again.
    Cleaning,
    /// The host comes up with its network only: the former node is not wiped, and the new seed is
    /// not run.
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
            let done = marker.as_ref().map(|plan| root.state().upstream_done(plan, <Step>::Reboot.name()));
            let rebooted = done.is_some_and(|done| done.exists());
            decide_cleanup(marker, Evidence::Upstream { rebooted }, root.boot_mode())
        }
        Err(_) if root.state().node_hold().exists() => {
            Decision::Hold { why: "the journal is damaged, and the host was not to start a node" }
        }
        Err(_) => decide_cleanup(marker, Evidence::DamagedJournal, root.boot_mode()),
    }
}

/// Holds a node that would lose its directories at the next reboot. Only the new system shows
/// whether the image keeps them, so early boot checks.
fn hold_where_paths_are_lost(root: &Root, decision: Decision) -> Decision {
    match decision {
        Decision::Wipe(_) if !find_lost_paths(root).is_empty() => {
            Decision::Hold { why: "the image does not keep the paths of a node over a reboot" }
        }
        other => other,
    }
}

/// The plan that requests a cleanup.
fn read_marker(root: &Root) -> Result<Option<PlanId>, Failure> {
    let text =
        durable::read_text(&root.state().cleanup_marker()).context("no cleanup is done at this boot")?;
    let plan = text.map(|text| PlanId::parse(text.trim())).transpose();
    plan.map_err(|_| {
        Failure::input_output(
            "the cleanup marker does not name a plan, so no cleanup is done",
            "check the host's disk; the next plan writes the marker again",
        )
    })
}

/// Evidence of the progress of the plan.
#[derive(Clone, Copy)]
enum Evidence<'a> {
    Journal(&'a Journal),
    /// There is no journal: an upstream agent ran the scripts of a record that an earlier release
    /// stored, or no agent ran the plan.
    Upstream {
        /// The script of the reboot left its mark.
        rebooted: bool,
    },
    DamagedJournal,
}

/// Decides whether this boot wipes, and whether the seed may run.
///
/// After a power cut between the marker and the plan's reboot, after a failed plan, and after a
/// fallback of the boot loader to the old system, early boot must neither wipe nor start a new
/// node. A newer plan ends the hold; another boot does not, because a boot loader may try the new
/// system again.
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
    let reboot = journal.steps().iter().find(|entry| entry.name == <Step>::Reboot.name());
    match reboot.map(|entry| &entry.state) {
        Some(State::Started { .. } | State::Done { .. }) => Decision::Wipe(plan),
        Some(State::Pending) => Decision::Hold { why: "the plan has not come to its reboot" },
        Some(State::Failed) | None => Decision::Hold { why: "the plan has failed" },
    }
}

/// Wipes once for each plan, and writes a receipt.
///
/// The receipt is durable before the marker is removed. After a crash in between, the next boot
/// finds both and only removes the marker, because the directories may belong to the new node by
/// then.
fn clean_up(root: &Root, plan: &PlanId, until: Instant) -> Result<String, Failure> {
    let state = root.state();
    let wiped = receipt::read_receipt(root).is_some_and(|receipt| receipt.plan_id == plan.as_str());
    if !wiped {
        failpoint("boot::wipe::before");
        let kept = wipe_node(root, plan, until)?;
        let receipt = Receipt { plan_id: plan.to_string(), boot_id: observed::boot_id(root)?, kept };
        receipt::write_receipt(root, &receipt)?;
        failpoint("boot::wipe::receipt");
    }
    durable::remove(&state.cleanup_marker())?;
    durable::remove(&state.cleanup_progress())?;
    failpoint("boot::wipe::after");
    Ok(format!("wiped the former node for plan {plan}"))
}

/// Returns the mount points that stay. A wipe that reaches its time limit leaves a record of its
/// progress, by which the agent has the host boot again, and the next boot continues.
fn wipe_node(root: &Root, plan: &PlanId, until: Instant) -> Result<Vec<PathBuf>, Failure> {
    let (mut kept, mut removed) = (Vec::new(), 0);
    let directories = distribution::wiped_directories(Extent::Tree);
    for directory in &directories {
        let emptied = wipe::empty_until(root, directory, Some(until))?;
        removed += emptied.removed;
        if !emptied.is_complete {
            wipe::flush_directories(root, &directories)?;
            return Err(interrupt_wipe(root, plan, directory, removed)?);
        }
        kept.extend(emptied.kept);
        failpoint("boot::wipe::during");
    }
    let with_files = distribution::wiped_directories(Extent::Files);
    for directory in &with_files {
        wipe::remove_files(root, directory)?;
    }
    wipe::remove_rendered_network(root)?;
    wipe::flush_directories(root, &directories)?;
    wipe::flush_directories(root, &with_files)?;
    Ok(kept)
}

fn interrupt_wipe(root: &Root, plan: &PlanId, directory: &str, removed: u64) -> Result<Failure, Failure> {
    let earlier = receipt::read_progress(root).filter(|progress| progress.plan_id == plan.as_str());
    let progress = WipeProgress {
        plan_id: plan.to_string(),
        boot_id: observed::boot_id(root)?,
        removed: removed + earlier.map_or(0, |progress| progress.removed),
        directory: directory.to_owned(),
    };
    receipt::write_progress(root, &progress)?;
    Ok(Failure::input_output(progress.to_string(), "none: the agent reboots the host for it"))
}

/// Returns false if cloud-init may read another seed.
fn keep_seed(restored: Result<seed::Restored, Failure>, summary: &mut Summary) -> bool {
    let restored = summary.keep_result(restored.context("cannot restore the seed"));
    if restored == Some(seed::Restored::Written) {
        summary.add_note("wrote the NoCloud seed");
    }
    restored.is_some()
}

fn keep_connections(root: &Root, summary: &mut Summary) {
    let wanted = match seed::load(&root.state()) {
        Ok(seed) => seed.map_or_else(BTreeMap::new, |seed| seed.connections),
        // The restore of the seed has reported this failure.
        Err(_) => return,
    };
    if summary.keep_result(connections::place_connections(root, &wanted)) == Some(true) {
        summary.add_note("wrote the connections of NetworkManager");
    }
}

const NO_IDENTITY: &str = "cannot write the kubelet's identity";

/// Returns false if a kubelet might start with another identity.
fn write_identity(root: &Root, summary: &mut Summary) -> bool {
    let Some(stored) = summary.keep_result(node_identity::read(root).context(NO_IDENTITY)) else {
        return false;
    };
    let Some(identity) = stored else {
        return summary.keep_result(node_identity::remove_arguments(root).context(NO_IDENTITY)).is_some();
    };
    let applied = summary.keep_result(node_identity::apply_identity(root, &identity).context(NO_IDENTITY));
    if applied.is_some() {
        summary.add_note(format!("kubelet is {}", identity.provider_id));
    }
    applied.is_some()
}

#[cfg(test)]
mod tests;
