//! A host that is installed already: its disk is to boot, unless an operator wants the system installed
//! again. The coordinator asks for that only where a host carries nothing; it may have forgotten what it
//! knew, so that the disk itself is looked at.

use std::path::Path;

use proto::v1alpha1::complete_response::Next;
use proto::v1alpha1::install_report::Outcome;
use proto::v1alpha1::{
    BootDisk, Install, InstallDone, LiveBootAfterInstall, PlanKind, PlanOutcome, PowerAction,
};

use super::{Flow, InstallError, Live, choice, install_host, show_path, waiting_message};
use crate::client::transport::Transport;
use crate::ground::error::format_line;
use crate::ground::paths::StateDir;
use crate::host::system::System;
use crate::host::{credentials, observed};
use crate::live::boot_order;
use crate::live::handover;
use crate::live::installed_disk::{InstalledDisk, Mounts};
use crate::state::journal::{self, Journal};
use crate::state::live_boot;

/// This host is installed: nothing is written over, the disk is to boot.
pub async fn boot_disk<S: System, M: Mounts, N: Transport>(
    live: Live<'_, S, M, N>,
    found: InstalledDisk,
    next: &Next,
) -> Result<(), InstallError> {
    let mut flow = Flow::new(live);
    let device = show_path(&Path::new("/dev").join(&found.disk));
    let may_reboot = flow.refresh_installed(&found).await?;
    flow.report_outcome(match next {
        // The coordinator has no report of the finished install.
        Next::Install(_) => {
            Outcome::Done(InstallDone { device: device.clone(), image: found.record.image.clone() })
        }
        Next::BootDisk(_) => Outcome::LiveBootAfterInstall(LiveBootAfterInstall { device: device.clone() }),
    })
    .await?;
    if !may_reboot {
        flow.live.console.print_message(&format_line(
            &format!("this host is installed on {device} and was asked to boot it, but booted the ISO again"),
            Some("take the ISO out, or put the disk first in the firmware's boot order, and restart"),
        ));
        return Ok(());
    }
    let order = match next {
        // The install may have been cut off before it made its entry.
        Next::Install(request) if !request.disable_boot_entry => flow.add_boot_entry(&found.disk),
        Next::Install(_) | Next::BootDisk(_) => {
            flow.find_disk(&found.disk).map(|disk| boot_order::prefer_disk(flow.live.root, &disk))
        }
    };
    if let Some(order) = order {
        flow.live
            .console
            .print_message(&format!("this host is installed on {device}; {order}; rebooting into it"));
    }
    flow.turn_to(PowerAction::Reboot).await
}

/// This host is installed, and an operator wants it installed again: on the disk that
/// carries its system and nothing of a node, and on no other.
///
/// # Errors
/// [`InstallError`]; it was reported where it can be.
pub async fn install_again<S: System, M: Mounts, N: Transport>(
    live: Live<'_, S, M, N>,
    found: InstalledDisk,
    request: &Install,
) -> Result<(), InstallError> {
    let mut flow = Flow::new(live);
    if !choice::is_named(flow.live.root, &request.reinstall, &found.disk) {
        let named = request.reinstall.clone();
        return flow.stop_with(InstallError::ReinstallElsewhere { named, disk: found.disk }).await;
    }
    // Mounted to be written: what the journal of the file system holds counts.
    let node = match flow.mount_partition(&found.partition).map(|mounted| describe_node(mounted.path())) {
        Ok(None) => return install_host(flow.live, request).await,
        Ok(Some(node)) => node,
        Err(source) => {
            let source = Box::new(source);
            return flow.stop_with(InstallError::MayCarryNode { disk: found.disk, source }).await;
        }
    };
    flow.live.console.print_message(&format_line(
        &format!("{node}, so it is not installed again, although the annotation baremetal.cluster.io/reinstall asks for it"),
        Some("restore or delete the machine of the node; where there is none, \"Wipe a disk\" in docs/operations.md"),
    ));
    boot_disk(flow.live, found, &Next::BootDisk(BootDisk {})).await
}

/// The coordinator has this host as installed and no disk carries the system:
/// reported, and left to the operator.
///
/// # Errors
/// Always; [`InstallError::DiskMissing`] when it could be reported.
pub async fn disk_missing<S: System, M: Mounts, N: Transport>(
    live: Live<'_, S, M, N>,
) -> Result<(), InstallError> {
    Flow::new(live).stop_with(InstallError::DiskMissing).await
}

impl<S: System, M: Mounts, N: Transport> Flow<'_, S, M, N> {
    /// Certificate and coordinator of this ISO for the installed system: the
    /// stored ones may be those of years ago.
    async fn refresh_installed(&mut self, found: &InstalledDisk) -> Result<bool, InstallError> {
        let boot_id = observed::boot_id(self.live.root).unwrap_or_default();
        let may_reboot = {
            let mounted = self.mount_partition(&found.partition)?;
            handover::write(&mounted.state(), self.build_handover())?;
            live_boot::may_boot_disk(&mounted.state(), &boot_id)?
        };
        self.sync_disks().await?;
        Ok(may_reboot)
    }

    /// Reports why this host waits for an operator.
    async fn stop_with(&mut self, error: InstallError) -> Result<(), InstallError> {
        self.report_outcome(Outcome::Waiting(waiting_message(&error))).await?;
        Err(error)
    }
}

/// What the disk carries of a node; nothing where it was cleaned, or never carried one. What
/// cannot be read may be a node.
fn describe_node(partition: &Path) -> Option<String> {
    let state = StateDir::on_persistent_partition(partition);
    if state.node_identity().try_exists().unwrap_or(true) {
        return Some("the disk carries a node".to_owned());
    }
    let plan = match journal::read(&state.journal()) {
        Ok(journal) => journal.filter(may_leave_node),
        Err(_) => {
            return Some("the journal of its plans cannot be read, so the disk may carry a node".to_owned());
        }
    };
    if let Some(journal) = plan {
        return Some(format!("the disk carries what plan {} left", journal.plan_id()));
    }
    // It joined by other means than a plan of a machine.
    credentials::are_on_disk(partition).then(|| "the disk carries the credentials of a kubelet".to_owned())
}

/// As the coordinator judges the newest plan that a host states.
fn may_leave_node(journal: &Journal) -> bool {
    match journal.kind() {
        PlanKind::Clean => journal.outcome() != PlanOutcome::Applied,
        PlanKind::Reprovision | PlanKind::Unspecified => true,
        PlanKind::Custom => journal.outcome() == PlanOutcome::InProgress,
    }
}

#[cfg(test)]
mod tests {
    use proto::plan::{Checksum, Generation, Kind, Plan, PlanId, Step};
    use proto::v1alpha1::step_report::Outcome as Ended;
    use proto::v1alpha1::{StepDone, StepFailed};

    use super::*;

    #[test]
    fn journals_tell_what_a_disk_may_carry() {
        let done = || Some(Ended::Done(StepDone::default()));
        let failed = || Some(Ended::Failed(StepFailed::default()));
        for (kind, ended, is_kept) in [
            (Kind::Clean, done(), false),
            (Kind::Clean, failed(), true),
            (Kind::Clean, None, true),
            (Kind::Reprovision, done(), true),
            (Kind::Reprovision, failed(), true),
            (Kind::Reprovision, None, true),
            (Kind::Custom, done(), false),
            (Kind::Custom, failed(), false),
            (Kind::Custom, None, true),
        ] {
            let plan = Plan {
                id: PlanId::parse("plan-1").unwrap(),
                generation: Generation(1),
                checksum: Checksum::of(b"plan-1"),
                kind,
                steps: vec![Step::Reboot],
            };
            let begun = Journal::begin_plan(&plan).with_started(0, "boot-1");
            let journal = match ended.clone() {
                Some(outcome) => begun.with_ended(0, outcome),
                None => begun,
            };
            let directory = tempfile::tempdir().unwrap();
            let state = StateDir::on_persistent_partition(directory.path());
            std::fs::create_dir_all(state.path()).unwrap();
            journal::write_journal(&state.journal(), &journal).unwrap();
            assert_eq!(describe_node(directory.path()).is_some(), is_kept, "{kind:?} {ended:?}");
            let kept = directory.path().join(".state/etc-kubernetes.bind/kubelet.conf");
            std::fs::create_dir_all(kept.parent().unwrap()).unwrap();
            std::fs::write(kept, "x").unwrap();
            assert!(
                describe_node(directory.path()).is_some(),
                "{kind:?} {ended:?}, and a kubelet has joined"
            );
        }
    }
}
