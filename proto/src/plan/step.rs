//! The steps of a plan. Serde's names are those of the stored record.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::content::{Content, Inline, ReplaceContents, Secret, Stored};
use super::image::{Image, Upgrade};

/// A step, which an agent executes and proves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case", bound = "C: Stored")]
pub enum Step<C: Content = Inline> {
    /// Leaves the marker that makes the next early boot wipe.
    RequestCleanup,
    /// Runs `cloud-init clean --logs --seed`.
    CleanCloudInit,
    /// Puts the `NoCloud` seed in place.
    WriteSeed(Seed<C>),
    /// Stores the arguments and labels of the kubelet.
    WriteNodeIdentity(NodeIdentity),
    /// Deletes the arguments and labels of the kubelet.
    RemoveNodeIdentity,
    /// Runs `elemental upgrade --reboot=false --system <image>`.
    UpgradeSystem(Upgrade<C>),
    /// Flushes every file system.
    SyncFileSystems,
    /// Reboots; done when the host has another boot id.
    Reboot,
    /// Done when the image runs, the cleanup receipt exists and cloud-init has finished.
    VerifySystem {
        /// The image that has to run.
        image: Image,
    },
    /// Stops the kubelet.
    StopKubelet,
    /// Removes every pod through the CRI socket.
    RemoveWorkload,
    /// Stops containerd.
    StopContainerd,
    /// Empties the directories of [`crate::distribution`], and overwrites their secrets first.
    RemoveNodeState,
    /// Writes a file of an operator's plan.
    WriteCustomFile(C::File),
    /// Runs an instruction of an operator's plan.
    RunCustomInstruction(C::Instruction),
}

/// The files of a `NoCloud` seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound = "C: Stored")]
pub struct Seed<C: Content = Inline> {
    /// `user-data`; absent on a host without a node.
    #[serde(rename = "userDataFile", default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<C::Secret>,
    /// `meta-data`, YAML with the `instance-id`.
    #[serde(rename = "metaDataFile")]
    pub meta_data: C::Text,
    /// `network-config`, version 2; without it the image configures the network.
    #[serde(rename = "networkConfigFile", default, skip_serializing_if = "Option::is_none")]
    pub network_config: Option<C::Text>,
    /// Keyfiles by file name without `.nmconnection`, instead of `network_config`, for an image
    /// whose network `NetworkManager` configures.
    #[serde(rename = "connectionFiles", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub connections: BTreeMap<String, C::Secret>,
    /// `OpenStack`'s `network_data.json`, if an operator gave it. It has the same content as the
    /// other two, which cloud-init reads.
    #[serde(rename = "networkDataFile", default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<C::Secret>,
}

/// Arguments and labels of the kubelet of this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeIdentity {
    /// Value of the label `metal3.io/uuid`.
    pub uuid: String,
    /// `--provider-id`.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Kind and name of the object that holds the host; empty in a plan of an older coordinator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
}

/// A file of an operator's plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomFile {
    /// An absolute path.
    pub path: String,
    /// May be secret.
    pub content: Secret,
    /// Octal text.
    pub permissions: String,
    /// A directory is made instead of a file.
    pub directory: bool,
    /// The user that owns the file.
    pub uid: u32,
    /// The group that owns the file.
    pub gid: u32,
    /// The file is removed instead of written.
    pub delete: bool,
}

/// A command of an operator's plan.
#[derive(Clone, PartialEq, Eq)]
pub struct CustomInstruction {
    /// Name in reports.
    pub name: String,
    /// Found along the agent's PATH.
    pub command: String,
    /// May be secret.
    pub args: Vec<String>,
    /// `NAME=value`, may be secret.
    pub env: Vec<String>,
    /// The output is reported also after a success.
    pub save_output: bool,
}

impl fmt::Debug for CustomInstruction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CustomInstruction({})", self.name)
    }
}

impl<C: Content> Step<C> {
    /// Name in journals, logs, reports and stored records.
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
            Self::VerifySystem { .. } => "verify-system",
            Self::StopKubelet => "stop-kubelet",
            Self::RemoveWorkload => "remove-workload",
            Self::StopContainerd => "stop-containerd",
            Self::RemoveNodeState => "remove-node-state",
            Self::WriteCustomFile(_) => "write-custom-file",
            Self::RunCustomInstruction(_) => "run-custom-instruction",
        }
    }

    /// The step is part of plans of operators, and of no other.
    pub const fn is_custom(&self) -> bool {
        matches!(self, Self::WriteCustomFile(_) | Self::RunCustomInstruction(_))
    }

    /// The same step with its contents in another form.
    ///
    /// # Errors
    /// The first error of `replace`.
    pub fn replace_contents<D: Content, R: ReplaceContents<C, D>>(
        &self,
        replace: &mut R,
    ) -> Result<Step<D>, R::Error> {
        Ok(match self {
            Self::RequestCleanup => Step::RequestCleanup,
            Self::CleanCloudInit => Step::CleanCloudInit,
            Self::WriteSeed(seed) => Step::WriteSeed(seed.replace_contents(replace)?),
            Self::WriteNodeIdentity(identity) => Step::WriteNodeIdentity(identity.clone()),
            Self::RemoveNodeIdentity => Step::RemoveNodeIdentity,
            Self::UpgradeSystem(upgrade) => Step::UpgradeSystem(upgrade.replace_contents(replace)?),
            Self::SyncFileSystems => Step::SyncFileSystems,
            Self::Reboot => Step::Reboot,
            Self::VerifySystem { image } => Step::VerifySystem { image: image.clone() },
            Self::StopKubelet => Step::StopKubelet,
            Self::RemoveWorkload => Step::RemoveWorkload,
            Self::StopContainerd => Step::StopContainerd,
            Self::RemoveNodeState => Step::RemoveNodeState,
            Self::WriteCustomFile(file) => Step::WriteCustomFile(replace.replace_file(file)?),
            Self::RunCustomInstruction(found) => {
                Step::RunCustomInstruction(replace.replace_instruction(found)?)
            }
        })
    }
}

impl<C: Content> Seed<C> {
    fn replace_contents<D: Content, R: ReplaceContents<C, D>>(
        &self,
        replace: &mut R,
    ) -> Result<Seed<D>, R::Error> {
        let user_data = self.user_data.as_ref();
        let network_config = self.network_config.as_ref();
        let network_data = self.network_data.as_ref();
        Ok(Seed {
            user_data: user_data.map(|data| replace.replace_secret("user-data", data)).transpose()?,
            meta_data: replace.replace_text("meta-data", &self.meta_data)?,
            network_config: network_config
                .map(|config| replace.replace_text("network-config", config))
                .transpose()?,
            connections: self
                .connections
                .iter()
                .map(|(name, keyfile)| {
                    let replaced = replace.replace_secret(&format!("{name}.nmconnection"), keyfile)?;
                    Ok((name.clone(), replaced))
                })
                .collect::<Result<_, _>>()?,
            network_data: network_data
                .map(|data| replace.replace_secret("network_data.json", data))
                .transpose()?,
        })
    }
}
