//! Plans as values that cannot be wrong: numbered, named by their content,
//! made of typed steps. Parsed once where they arrive.

mod image;
mod name;

use std::collections::BTreeMap;
use std::fmt;

use crate::limits;
pub use image::{IMAGE_SCHEMES, Image, RegistryAccess, Upgrade, to_source};
pub use name::{Checksum, Generation, PlanId};

/// What a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Take the node off the host.
    Clean,
    /// Make the host a node.
    Reprovision,
    /// Not written by the coordinator, in the upstream format.
    Custom,
}

impl Kind {
    /// Value of the annotation `baremetal.alauda.io/plan.type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Reprovision => "reprovision",
            Self::Custom => "custom",
        }
    }
}

/// One job of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Named by its content.
    pub id: PlanId,
    /// Never goes back.
    pub generation: Generation,
    /// Of the plan record that the coordinator announced.
    pub checksum: Checksum,
    /// What it is for.
    pub kind: Kind,
    /// Run in order, each at most once. At most one is a [`Step::Reboot`].
    pub steps: Vec<Step>,
}

/// One thing that an agent does and proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Leave the marker that makes the next early boot wipe.
    RequestCleanup,
    /// `cloud-init clean --logs --seed`.
    CleanCloudInit,
    /// Put the `NoCloud` seed in place.
    WriteSeed(Seed),
    /// Store the arguments and labels of the kubelet.
    WriteNodeIdentity(NodeIdentity),
    /// Forget it.
    RemoveNodeIdentity,
    /// `elemental upgrade --reboot=false --system <image>`.
    UpgradeSystem(Upgrade),
    /// Flush every file system.
    SyncFileSystems,
    /// Done when the boot id is another one.
    Reboot,
    /// Done when the image runs, the cleanup receipt is there and cloud-init
    /// has finished.
    VerifySystem(Image),
    /// Stop the kubelet.
    StopKubelet,
    /// Remove every pod through the CRI socket.
    RemoveWorkload,
    /// Stop containerd.
    StopContainerd,
    /// Empty `/etc/kubernetes` and `/var/lib/kubelet`.
    RemoveNodeState,
    /// A file of a plan that the coordinator did not write.
    WriteCustomFile(CustomFile),
    /// An instruction of a plan that the coordinator did not write.
    RunCustomInstruction(CustomInstruction),
}

impl Step {
    /// Name in journals, logs and reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::RequestCleanup => "request-cleanup",
            Self::CleanCloudInit => "clean-cloud-init",
            Self::WriteSeed(_) => "write-seed",
            Self::WriteNodeIdentity(_) => "write-node-identity",
            Self::RemoveNodeIdentity => "remove-node-identity",
            Self::UpgradeSystem(_) => "upgrade-system",
            Self::SyncFileSystems => "sync-file-systems",
            Self::Reboot => "reboot",
            Self::VerifySystem(_) => "verify-system",
            Self::StopKubelet => "stop-kubelet",
            Self::RemoveWorkload => "remove-workload",
            Self::StopContainerd => "stop-containerd",
            Self::RemoveNodeState => "remove-node-state",
            Self::WriteCustomFile(_) => "write-custom-file",
            Self::RunCustomInstruction(_) => "run-custom-instruction",
        }
    }
}

/// Bytes that must not be seen: bootstrap data holds join tokens and CA keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Hides `bytes` from every `Debug`.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes, for the one place that writes or hashes them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret({} bytes)", self.0.len())
    }
}

/// The files of a `NoCloud` seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// `user-data`; absent on a host without a node.
    pub user_data: Option<Secret>,
    /// `meta-data`, YAML with the `instance-id`.
    pub meta_data: String,
    /// `network-config`, version 2; absent leaves the network to the image.
    pub network_config: Option<String>,
    /// Keyfiles by file name without `.nmconnection`: where `NetworkManager`
    /// configures the network, they are there instead.
    pub connections: BTreeMap<String, Secret>,
    /// `OpenStack`'s `network_data.json`, where one was given; cloud-init reads
    /// the other two, which say the same.
    pub network_data: Option<Secret>,
}

/// Arguments and labels of the kubelet of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Value of the label `metal3.io/uuid`.
    pub uuid: String,
    /// `--provider-id`.
    pub provider_id: String,
    /// Kind and name of the object that holds the host; empty in a plan of an older coordinator.
    pub owner: String,
}

/// A file of a foreign plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomFile {
    /// Absolute.
    pub path: String,
    /// May be secret.
    pub content: Secret,
    /// Octal text.
    pub permissions: String,
    /// Make a directory.
    pub directory: bool,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Remove it instead.
    pub delete: bool,
}

/// A command of a foreign plan.
#[derive(Clone, PartialEq, Eq)]
pub struct CustomInstruction {
    /// For reports.
    pub name: String,
    /// Found along the agent's PATH.
    pub command: String,
    /// May be secret.
    pub args: Vec<String>,
    /// `NAME=value`, may be secret.
    pub env: Vec<String>,
    /// Whether what it printed is reported also when it succeeded.
    pub save_output: bool,
}

impl fmt::Debug for CustomInstruction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CustomInstruction({})", self.name)
    }
}

impl Plan {
    /// Checks what no single step can see.
    ///
    /// # Errors
    /// [`PlanError`] when the generation is zero, there are no steps or too
    /// many, a reboot is not followed by a verification, or a plan of ours
    /// holds a custom step.
    pub fn check(self) -> Result<Self, PlanError> {
        if self.generation.0 == 0 {
            return Err(PlanError::Generation);
        }
        if self.steps.is_empty() || self.steps.len() > limits::STEPS {
            return Err(PlanError::Steps(self.steps.len()));
        }
        let custom = |step: &Step| matches!(step, Step::WriteCustomFile(_) | Step::RunCustomInstruction(_));
        if (self.kind == Kind::Custom) != self.steps.iter().any(custom) {
            return Err(PlanError::CustomStep);
        }
        let reboots = self.steps.iter().filter(|step| matches!(step, Step::Reboot)).count();
        let proven = self
            .steps
            .windows(2)
            .filter(|pair| matches!(pair, [Step::Reboot, Step::VerifySystem(_)]))
            .count();
        if reboots > 1 || reboots != proven {
            return Err(PlanError::Reboot);
        }
        Ok(self)
    }
}

/// Why bytes are not a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// See [`PlanId::parse`].
    #[error("plan id is not 1 to 64 characters of a-z, 0-9 and dash")]
    Id,
    /// See [`Checksum::parse`].
    #[error("plan checksum is not 64 lower-case hexadecimal digits")]
    Checksum,
    /// Generations start at 1.
    #[error("plan generation is zero")]
    Generation,
    /// See [`Image::parse`].
    #[error("image reference is empty, too long, starts with a dash or holds white space")]
    Image,
    /// The kind is not known here.
    #[error("plan kind {0} is unknown: agent and coordinator are of different versions")]
    Kind(i32),
    /// The step is not known here.
    #[error("step {0} is unknown: agent and coordinator are of different versions")]
    Step(usize),
    /// A part that must be there is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// None, or more than [`limits::STEPS`].
    #[error("plan has {0} steps; 1 to {max} are allowed", max = limits::STEPS)]
    Steps(usize),
    /// A plan of ours holds a foreign step, or the reverse.
    #[error("custom steps and the plan kind custom go together")]
    CustomStep,
    /// A reboot must be proven by the step after it, and happen once.
    #[error("a plan reboots at most once, and verifies the system right after it")]
    Reboot,
}
