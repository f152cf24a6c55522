//! Why a live system does not get to its disk.

use std::path::PathBuf;

use crate::client::calls::CallError;
use crate::ground::durable::{self, DurableError};
use crate::ground::error::NextAction;
use crate::host::system::SystemError;
use crate::live::handover::HandoverError;
use crate::live::installed_disk;
use crate::update::program::ProgramError;

/// Why this host is not on its way to its disk.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The coordinator refuses the report.
    #[error(transparent)]
    Call(#[from] CallError),
    /// `elemental install` failed.
    #[error("the install on {device} failed")]
    System {
        device: PathBuf,
        /// Output of the command.
        source: SystemError,
    },
    /// Flush or reboot failed.
    #[error("cannot {attempt}")]
    Power {
        /// flush the disks, reboot or power off.
        attempt: &'static str,
        /// Output of the command.
        source: SystemError,
    },
    /// The installed disk has no place for our state.
    #[error("{device} has no partition named persistent after the install")]
    NoPersistentPartition { device: PathBuf },
    /// The persistent partition cannot be mounted.
    #[error("cannot mount the persistent partition {partition} of the installed disk")]
    Mount {
        partition: String,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// Our state could not be written there.
    #[error(transparent)]
    Leave(#[from] HandoverError),
    /// The agent could not be left there.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// Another disk came up late and carries an install.
    #[error("{disk} carries an installed system and came up late, so nothing is installed")]
    AppearedLate {
        /// Kernel name.
        disk: String,
    },
    /// Whether a disk carries an install is not known any more.
    #[error(transparent)]
    Find(#[from] installed_disk::FindError),
    /// The attempts could not be counted: they might go on for ever.
    #[error("cannot count the attempts to install, so nothing is installed")]
    Count(#[from] DurableError),
    /// Trying again would not help.
    #[error("the install failed {attempts} times since this host booted, at last because {cause}")]
    GivenUp {
        attempts: u32,
        /// Of the last failure.
        cause: String,
        /// What the operator does about the last failure, and after it.
        next_action: String,
    },
    /// An operator answered a host that had given up.
    #[error("the annotation baremetal.cluster.io/install-device is now {device}")]
    DeviceNamed { device: String },
    /// The annotation names a disk without the system of this host.
    #[error(
        "the annotation baremetal.cluster.io/reinstall names {named}, and {disk} carries the system of this host"
    )]
    ReinstallElsewhere {
        named: String,
        /// Kernel name.
        disk: String,
    },
    /// A second install might lose a node.
    #[error("{disk} is not installed again: whether it carries a node cannot be read")]
    MayCarryNode {
        /// Kernel name.
        disk: String,
        /// Of the persistent partition.
        source: Box<InstallError>,
    },
    /// The coordinator has the host as installed, but no disk is.
    #[error("the coordinator has this host as installed, but no disk carries the system")]
    DiskMissing,
}

impl NextAction for InstallError {
    fn next_action(&self) -> Option<&str> {
        Some(match self {
            Self::Call(error) => return error.next_action(),
            Self::System { source, .. } => return source.next_action(),
            Self::Power { .. } => "do it at the host",
            Self::NoPersistentPartition { .. } => "use an image that is built for Elemental",
            Self::Mount { source, .. } => durable::next_action(source.kind()),
            Self::Leave(error) => return error.next_action(),
            Self::Program(error) => return error.next_action(),
            Self::AppearedLate { .. } | Self::DeviceNamed { .. } => "none: the registration starts again",
            Self::Count(error) => return error.next_action(),
            Self::GivenUp { next_action, .. } => next_action,
            Self::Find(error) => return error.next_action(),
            Self::ReinstallElsewhere { .. } => {
                "correct or remove the annotation, and boot the seed ISO again"
            }
            Self::MayCarryNode { .. } => {
                "repair its file systems; where nothing of it is needed, \"Wipe a disk\" in docs/operations.md"
            }
            Self::DiskMissing => "attach the disk, or delete the MachineInventory to install again",
        })
    }
}
