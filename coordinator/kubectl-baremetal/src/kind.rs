//! The kinds that are looked at.

use coordinator_api::capi;
use coordinator_api::names::{INFRASTRUCTURE_GROUP, VERSION};
use kube::core::{ApiResource, GroupVersionKind};
use serde::{Serialize, Serializer};

/// A kind, in the order in which they depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::EnumIter, strum::IntoStaticStr)]
pub(crate) enum Kind {
    Cluster,
    KubeadmControlPlane,
    MachineDeployment,
    MachineSet,
    Machine,
    BaremetalCluster,
    Metal3Cluster,
    BaremetalMachine,
    Metal3Machine,
    Metal3Remediation,
    Metal3DataClaim,
    Metal3Data,
    IPClaim,
    IPAddressClaim,
    IPPool,
    MachineInventoryPool,
    BareMetalHost,
    MachineInventory,
    MachineRegistration,
    SeedImage,
}

const CONTROL_PLANE_GROUP: &str = "controlplane.cluster.x-k8s.io";

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }

    /// Group, and versions in order of preference.
    fn versions(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Cluster | Self::MachineDeployment | Self::MachineSet | Self::Machine => {
                (capi::GROUP, &capi::VERSIONS)
            }
            Self::KubeadmControlPlane => (CONTROL_PLANE_GROUP, &capi::VERSIONS),
            Self::BaremetalCluster
            | Self::BaremetalMachine
            | Self::MachineInventoryPool
            | Self::Metal3Cluster
            | Self::Metal3Machine
            | Self::Metal3Remediation
            | Self::Metal3DataClaim
            | Self::Metal3Data => (INFRASTRUCTURE_GROUP, &[VERSION]),
            Self::IPClaim | Self::IPPool => ("ipam.metal3.io", &["v1alpha1"]),
            Self::IPAddressClaim => ("ipam.cluster.x-k8s.io", &["v1beta2"]),
            Self::BareMetalHost => ("metal3.io", &["v1alpha1"]),
            Self::MachineInventory | Self::MachineRegistration | Self::SeedImage => {
                ("elemental.cattle.io", &["v1beta1"])
            }
        }
    }

    /// Whether the kind is one of Cluster API itself.
    pub(crate) fn is_of_cluster_api(self) -> bool {
        matches!(self.versions().0, capi::GROUP | CONTROL_PLANE_GROUP)
    }

    /// Every API resource by which it may be served, in order of preference.
    pub(crate) fn resources(self) -> impl Iterator<Item = GroupVersionKind> {
        let (group, versions) = self.versions();
        versions.iter().map(move |version| GroupVersionKind::gvk(group, version, self.name()))
    }

    /// Plural and short names, as kubectl takes them.
    fn short_names(self) -> &'static [&'static str] {
        match self {
            Self::Cluster => &["cl"],
            Self::KubeadmControlPlane => &["kcp"],
            Self::MachineDeployment => &["md"],
            Self::MachineSet => &["ms"],
            Self::Machine => &["ma"],
            Self::BaremetalCluster => &["bmc"],
            Self::Metal3Cluster => &["m3c"],
            Self::BaremetalMachine => &["bmm"],
            Self::Metal3Machine => &["m3m"],
            Self::Metal3Remediation => &["m3r"],
            Self::Metal3DataClaim => &["m3dc"],
            Self::Metal3Data => &["m3d"],
            Self::IPClaim => &["ipc"],
            Self::IPAddressClaim => &[],
            Self::IPPool => &["ipp"],
            Self::MachineInventoryPool => &["mip", "pool"],
            Self::BareMetalHost => &["bmh"],
            Self::MachineInventory => &["host", "inventory", "machineinventories"],
            Self::MachineRegistration => &["registration"],
            Self::SeedImage => &["iso"],
        }
    }

    /// The kind that a word of the command line names: kind, plural, short name,
    /// with or without its group.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        let (name, _group) = word.split_once('.').unwrap_or((&word, ""));
        Self::all().find(|kind| {
            let own = kind.name().to_lowercase();
            let plural = format!("{own}s");
            name == own || name == plural || kind.short_names().contains(&name)
        })
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        <Self as strum::IntoEnumIterator>::iter()
    }

    pub(crate) fn of(kind: &str) -> Option<Self> {
        Self::all().find(|one| one.name() == kind)
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Where a kind is served.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) kind: Kind,
    pub(crate) resource: ApiResource,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_kinds() {
        for (word, want) in [
            ("Cluster", Some(Kind::Cluster)),
            ("clusters.cluster.x-k8s.io", Some(Kind::Cluster)),
            ("bmm", Some(Kind::BaremetalMachine)),
            ("BaremetalMachines", Some(Kind::BaremetalMachine)),
            ("machineinventories", Some(Kind::MachineInventory)),
            ("host", Some(Kind::MachineInventory)),
            ("bmh", Some(Kind::BareMetalHost)),
            ("m3d", Some(Kind::Metal3Data)),
            ("ippools.ipam.metal3.io", Some(Kind::IPPool)),
            ("ipaddressclaims", Some(Kind::IPAddressClaim)),
            ("pod", None),
        ] {
            assert_eq!(Kind::parse(word), want, "{word}");
        }
    }
}
