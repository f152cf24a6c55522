//! Why no disk is chosen.

use crate::ground::error::NextAction;

/// Why no disk is chosen. The text is for the inventory's condition and the
/// console: it names the candidates and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskChoiceError {
    /// The path does not exist. Often on purpose: it is linked later.
    #[error("the install device {path} is not there yet (disks: {candidates})")]
    NotThere { path: String, candidates: String },
    /// The path leads to a partition, an optical drive, a removable disk, or the
    /// live medium.
    #[error(
        "the install device {path} leads to {name}, which is no whole fixed disk of this host (disks: {candidates})"
    )]
    NotADisk { path: String, name: String, candidates: String },
    #[error("no disk fits the device selector (disks: {candidates})")]
    NoneFits { candidates: String },
    /// More than one fits.
    #[error("{count} disks fit the device selector, {names} (disks: {candidates})")]
    SeveralFit { count: usize, names: String, candidates: String },
    /// The path leads to a disk that something else is built on.
    #[error(
        "the install device {path} leads to {name}, which is never installed on: {reason} (disks: {candidates})"
    )]
    Excluded {
        path: String,
        name: String,
        /// What is built on it.
        reason: String,
        candidates: String,
    },
    /// The only one that fits is not empty, and the operator did not name it.
    #[error(
        "the only disk that fits the device selector, {name}, is not empty: {contents} (disks: {candidates})"
    )]
    NotEmpty {
        /// Kernel name.
        name: String,
        /// What is on it.
        contents: String,
        candidates: String,
    },
    /// A disk of another host, visible here: a volume of a SAN, or a disk that
    /// was moved.
    #[error("{name} fits, but carries the installed system of another host, {owner} (disks: {candidates})")]
    OtherHost {
        /// Kernel name.
        name: String,
        owner: String,
        candidates: String,
    },
    /// Two checks gave two disks.
    #[error("the disks of this host are still changing: {first} was to be installed on, then {second}")]
    Unsteady {
        /// The first answer.
        first: String,
        /// The second.
        second: String,
    },
    /// The selector cannot be understood.
    #[error("the device selector is invalid: {reason}")]
    Selector {
        /// Which requirement, and why.
        reason: String,
    },
    /// A second Elemental system would make every label ambiguous.
    #[error(
        "other disks carry file systems of Elemental, and this host could boot or upgrade the wrong one: {disks}"
    )]
    ForeignLabels {
        /// Which, with their labels.
        disks: String,
    },
}

impl NextAction for DiskChoiceError {
    fn next_action(&self) -> Option<&str> {
        Some(match self {
            Self::NotThere { .. } => {
                "link it to the right disk, or set the annotation baremetal.cluster.io/install-device on the MachineInventory"
            }
            Self::NotADisk { .. } => {
                "set the annotation baremetal.cluster.io/install-device on the MachineInventory to a whole disk; by the annotation a removable one is taken too"
            }
            Self::NoneFits { .. } => {
                "correct it, or set the annotation baremetal.cluster.io/install-device on the MachineInventory"
            }
            Self::SeveralFit { .. } => {
                "narrow it, or set the annotation baremetal.cluster.io/install-device on the MachineInventory"
            }
            Self::Excluded { .. } => {
                "set the annotation baremetal.cluster.io/install-device on the MachineInventory to another disk; or wipe it, where nothing needs it any more (\"Wipe a disk\" in docs/operations.md)"
            }
            Self::NotEmpty { .. } => {
                "if it may be erased, name it in the annotation baremetal.cluster.io/install-device on the MachineInventory, or set allow-erase in the install block of the MachineRegistration"
            }
            Self::OtherHost { .. } => {
                "disconnect it from this host; if it may be erased, name it in the annotation baremetal.cluster.io/install-device on the MachineInventory"
            }
            Self::Unsteady { .. } => {
                "none: the host checks again; if it persists, check cables and controller"
            }
            Self::Selector { .. } => "correct it in the MachineRegistration",
            Self::ForeignLabels { .. } => {
                "take them out, or wipe them, where no host needs them (\"Wipe a disk\" in docs/operations.md)"
            }
        })
    }
}
