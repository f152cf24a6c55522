//! A host that is installed already boots its disk, unless an operator wants the system installed
//! again. The coordinator asks for a reinstall only if it knows of no node on the host; the disk is
//! checked as well, because the coordinator may have lost its knowledge.

use std::path::Path;

use proto::v1alpha1::complete_response::Next;
use proto::v1alpha1::install_report::Outcome;
use proto::v1alpha1::{
    BootDisk, Install, InstallDone, LiveBootAfterInstall, PlanKind, PlanOutcome, PowerAction,
};

use super::{Flow, Live, choice, install_host, show_path};
use crate::client::transport::Transport;
use crate::ground::failure::Failure;
use crate::ground::paths::StateDir;
use crate::host::facts::disks;
use crate::host::system::System;
use crate::host::{credentials, observed};
use crate::live::boot_order;
use crate::live::handover;
use crate::live::installed_disk::{InstalledDisk, Mounts};
use crate::state::journal::{self, Journal};
use crate::state::live_boot;

/// Boots the disk of an installed host, and overwrites nothing.
pub async fn boot_disk<S: System, M: Mounts, N: Transport>(
    live: Live<'_, S, M, N>,
    found: InstalledDisk,
    next: &Next,
) -> Result<(), Failure> {
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
        flow.live.console.print_failure(&Failure::refused(
            format!("this host is installed on {device} and was asked to boot it, but booted the ISO again"),
            "switch the host off, take the ISO out, and switch it on; or put the disk first in the firmware's boot order, and restart",
        ));
        return Ok(());
    }
    let order = match next {
        // The install may have been interrupted before it made its entry.
        Next::Install(request) if !request.disable_boot_entry => flow.add_boot_entry(&found.disk).await,
        Next::Install(_) | Next::BootDisk(_) => {
            flow.find_disk(&found.disk).await.map(|disk| boot_order::prefer_disk(flow.live.root, &disk))
        }
    };
    flow.report_order(order.as_ref()).await;
    if let Some(order) = order {
        flow.live
            .console
            .print_message(&format!("this host is installed on {device}; {order}; rebooting into it"));
    }
    flow.turn_to(PowerAction::Reboot).await
}

/// Installs the host again, on the disk that carries its system and no node, and on no other. A
/// failure has been reported if that was possible.
pub async fn install_again<S: System, M: Mounts, N: Transport>(
    live: Live<'_, S, M, N>,
    found: InstalledDisk,
    request: &Install,
) -> Result<(), Failure> {
    let mut flow = Flow::new(live);
    let disks = disks::look_at_disks(flow.live.root).await;
    if !choice::is_named(flow.live.root, &disks, &request.reinstall, &found.disk) {
        let (named, disk) = (&request.reinstall, &found.disk);
        let refusal = Failure::refused(
            format!(
                "the annotation baremetal.cluster.io/reinstall names {named}, and {disk} carries the system of this host"
            ),
            "correct or remove the annotation, and boot the seed ISO again",
        );
        return flow.stop_with(refusal).await;
    }
    // The partition is mounted for writing, because the journal of the file system must be replayed
    // before the check.
    let node = match flow.mount_partition(&found.partition).map(|mounted| describe_node(mounted.path())) {
        Ok(None) => return install_host(flow.live, request).await,
        Ok(Some(node)) => node,
        Err(failure) => {
            let message = format!(
                "{} is not installed again, because it cannot be read and may carry a node",
                found.disk
            );
            let next_action = "repair its file systems; where nothing of it is needed, \"Wipe a disk\" in docs/operations.md";
            return flow.stop_with(failure.context(message).with_next_action(next_action)).await;
        }
    };
    flow.live.console.print_failure(&Failure::refused(
        format!("{node}, so it is not installed again, although the annotation baremetal.cluster.io/reinstall asks for it"),
        "restore or delete the machine of the node; where there is none, \"Wipe a disk\" in docs/operations.md",
    ));
    boot_disk(flow.live, found, &Next::BootDisk(BootDisk {})).await
}

/// Reports that the coordinator knows an installed system that no disk carries, and leaves the case
/// to the operator.
pub async fn disk_missing<S: System, M: Mounts, N: Transport>(
    live: Live<'_, S, M, N>,
) -> Result<(), Failure> {
    let refusal = Failure::refused(
        "the coordinator has this host as installed, but no disk carries the system",
        "attach the disk, or delete the MachineInventory to install again",
    );
    Flow::new(live).stop_with(refusal).await
}

impl<S: System, M: Mounts, N: Transport> Flow<'_, S, M, N> {
    /// Updates certificate and coordinator of the installed system from this ISO, because the
    /// stored ones may be years old. Returns true if the host may reboot into the disk.
    async fn refresh_installed(&mut self, found: &InstalledDisk) -> Result<bool, Failure> {
        let boot_id = observed::boot_id(self.live.root).unwrap_or_default();
        let may_reboot = {
            let mounted = self.mount_partition(&found.partition)?;
            handover::write(&mounted.state(), self.build_handover())?;
            live_boot::may_boot_disk(&mounted.state(), &boot_id)?
        };
        self.sync_disks().await?;
        Ok(may_reboot)
    }

    /// Reports the reason for which this host waits for an operator.
    async fn stop_with(&mut self, failure: Failure) -> Result<(), Failure> {
        self.report_outcome(Outcome::Waiting(failure.clone().into())).await?;
        Err(failure)
    }
}

/// The traces of a node on the disk; `None` if the disk was cleaned, or never carried a node.
/// Unreadable files count as a node.
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
    // The node joined without a plan of a machine.
    credentials::are_on_disk(partition).then(|| "the disk carries the credentials of a kubelet".to_owned())
}

/// The coordinator applies the same rule to the newest plan that a host states.
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
            journal::write_journal(&state, &journal).unwrap();
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
