//! Plans as values that cannot be wrong: numbered, named by their content,
//! made of typed steps. Parsed once where they arrive.

use std::collections::BTreeMap;
use std::fmt;

use crate::limits;

/// Name of a plan: its kind, a dash and 16 hexadecimal digits of its content.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlanId(String);

impl PlanId {
    /// Accepts what is safe as a file name and a cloud-init instance-id.
    ///
    /// # Errors
    /// [`PlanError::Id`] when it is empty, longer than 64 bytes or holds
    /// anything but `a-z`, `0-9` and `-`.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let safe = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if text.is_empty() || text.len() > 64 || !text.bytes().all(safe) {
            return Err(PlanError::Id);
        }
        Ok(Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PlanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Number of a plan: rises with every plan of an inventory, starts at 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Lower-case hexadecimal SHA-256 of a plan record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checksum(String);

impl Checksum {
    /// The checksum of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(crate::proof::identity(bytes))
    }

    /// # Errors
    /// [`PlanError::Checksum`] when it is not 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == 64 && text.bytes().all(digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(PlanError::Checksum)
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

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
    #[must_use]
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
    #[must_use]
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

/// Reference of an OS image as `elemental --system` takes it: one word, no
/// leading dash, so that it can never be read as an option.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Image(String);

impl Image {
    /// # Errors
    /// [`PlanError::Image`] when it is empty, longer than 1024 bytes, starts
    /// with a dash or holds white space or control characters.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let odd = |c: char| c.is_whitespace() || c.is_control();
        if text.is_empty() || text.len() > 1024 || text.starts_with('-') || text.contains(odd) {
            return Err(PlanError::Image);
        }
        Ok(Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A system to write beside the running one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// Where it comes from.
    pub image: Image,
    /// `None` where the host pulls as it is.
    pub registry: Option<Box<RegistryAccess>>,
}

impl From<Image> for Upgrade {
    fn from(image: Image) -> Self {
        Self { image, registry: None }
    }
}

/// How the registry of an image is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryAccess {
    /// `config.json` of the Docker CLI.
    pub docker_config: Option<Secret>,
    /// PEM: trusted beside the authorities of the system.
    pub authorities: Option<String>,
    /// By the protocol of the registry; a URL may hold a password.
    pub https_proxy: Option<Secret>,
    /// As `https_proxy`.
    pub http_proxy: Option<Secret>,
    /// What is reached without a proxy.
    pub no_proxy: Option<String>,
}

/// Schemes of references that `elemental` knows.
pub const IMAGE_SCHEMES: [&str; 4] = ["oci:", "docker:", "file:", "dir:"];

/// The reference as `elemental --system` takes it: without a scheme it reads an
/// IP address with a port as one, and fails.
#[must_use]
pub fn to_source(reference: &str) -> String {
    if IMAGE_SCHEMES.iter().any(|scheme| reference.starts_with(scheme)) {
        return reference.to_owned();
    }
    format!("oci:{reference}")
}

impl fmt::Display for Image {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Bytes that must not be seen: bootstrap data holds join tokens and CA keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Hides `bytes` from every `Debug`.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes, for the one place that writes or hashes them.
    #[must_use]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_without_scheme_means_registry() {
        let cases = [
            ("port", "10.0.2.100:5000/os:v1", "oci:10.0.2.100:5000/os:v1"),
            ("name", "lab/os:v1", "oci:lab/os:v1"),
            ("registry", "oci:lab/os:v1", "oci:lab/os:v1"),
            ("directory", "dir:/run/rootfsbase", "dir:/run/rootfsbase"),
        ];
        for (name, given, want) in cases {
            assert_eq!(to_source(given), want, "{name}");
        }
    }
}
