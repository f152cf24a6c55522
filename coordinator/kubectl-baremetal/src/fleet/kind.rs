//! The kinds that the plugin reads, in one table.

use coordinator_api::capi;
use coordinator_api::names::{INFRASTRUCTURE_GROUP, VERSION};
use kube::core::GroupVersionKind;
use serde::Serialize;

use crate::failure::Failure;

/// A kind. The order is that of the dependencies, because a fleet lists its objects in it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, strum::EnumIter, strum::IntoStaticStr,
)]
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

/// The API that serves a kind, and the words by which the command line names the kind.
struct Row {
    group: &'static str,
    /// In order of preference.
    versions: &'static [&'static str],
    words: &'static [&'static str],
}

const CONTROL_PLANE_GROUP: &str = "controlplane.cluster.x-k8s.io";

const fn capi(words: &'static [&'static str]) -> Row {
    Row { group: capi::GROUP, versions: &capi::VERSIONS, words }
}

const fn infrastructure(words: &'static [&'static str]) -> Row {
    Row { group: INFRASTRUCTURE_GROUP, versions: &[VERSION], words }
}

const fn metal3(group: &'static str, words: &'static [&'static str]) -> Row {
    Row { group, versions: &["v1alpha1"], words }
}

const fn elemental(words: &'static [&'static str]) -> Row {
    Row { group: "elemental.cattle.io", versions: &["v1beta1"], words }
}

impl Kind {
    const fn row(self) -> Row {
        match self {
            Self::Cluster => capi(&["cl"]),
            Self::KubeadmControlPlane => Row { group: CONTROL_PLANE_GROUP, ..capi(&["kcp"]) },
            Self::MachineDeployment => capi(&["md"]),
            Self::MachineSet => capi(&["ms"]),
            Self::Machine => capi(&["ma"]),
            Self::BaremetalCluster => infrastructure(&["bmc"]),
            Self::Metal3Cluster => infrastructure(&["m3c"]),
            Self::BaremetalMachine => infrastructure(&["bmm"]),
            Self::Metal3Machine => infrastructure(&["m3m"]),
            Self::Metal3Remediation => infrastructure(&["m3r"]),
            Self::Metal3DataClaim => infrastructure(&["m3dc"]),
            Self::Metal3Data => infrastructure(&["m3d"]),
            Self::IPClaim => metal3("ipam.metal3.io", &["ipc"]),
            Self::IPAddressClaim => {
                Row { group: "ipam.cluster.x-k8s.io", versions: &["v1beta2"], words: &[] }
            }
            Self::IPPool => metal3("ipam.metal3.io", &["ipp"]),
            Self::MachineInventoryPool => infrastructure(&["mip", "pool"]),
            Self::BareMetalHost => metal3("metal3.io", &["bmh"]),
            Self::MachineInventory => elemental(&["host", "inventory", "machineinventories"]),
            Self::MachineRegistration => elemental(&["registration"]),
            Self::SeedImage => elemental(&["iso"]),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.into()
    }

    /// `true` for the kinds of Cluster API itself, whose reasons have no explanation here.
    pub(crate) fn is_of_cluster_api(self) -> bool {
        matches!(self.row().group, capi::GROUP | CONTROL_PLANE_GROUP)
    }

    /// The API resources by which the kind may be served, in order of preference.
    pub(crate) fn resources(self) -> impl Iterator<Item = GroupVersionKind> {
        let Row { group, versions, .. } = self.row();
        versions.iter().map(move |version| GroupVersionKind::gvk(group, version, self.name()))
    }

    /// The kind that a word of the command line names: kind, plural or short name, each with
    /// or without the group.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        let (name, _group) = word.split_once('.').unwrap_or((&word, ""));
        Self::all().find(|kind| {
            let own = kind.name().to_lowercase();
            name == own || name.strip_suffix('s') == Some(&*own) || kind.row().words.contains(&name)
        })
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        <Self as strum::IntoEnumIterator>::iter()
    }

    pub(crate) fn of(kind: &str) -> Option<Self> {
        Self::all().find(|one| one.name() == kind)
    }
}

/// Kind and name of the words `KIND/NAME` or `KIND NAME`.
pub(crate) fn parse_object(words: &[String]) -> Result<(Kind, String), Failure> {
    let pair = match words {
        [word] => word.split_once('/'),
        [kind, name] => Some((kind.as_str(), name.as_str())),
        _ => None,
    };
    let (kind, name) =
        pair.ok_or_else(|| Failure::Usage("name the object as KIND/NAME or KIND NAME".to_owned()))?;
    let known = Kind::parse(kind).ok_or_else(|| {
        let kinds: Vec<_> = Kind::all().map(Kind::name).collect();
        Failure::NotFound(format!("{kind} is not a known kind: name one of {}", kinds.join(", ")))
    })?;
    Ok((known, name.to_owned()))
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
