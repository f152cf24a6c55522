//! Names of objects and the table of kinds, at the ground of the crate.

use coordinator_api::capi;
pub use coordinator_api::object::{Key, Namespace, ObjectName};
use kube::Resource;
use kube::runtime::reflector::{Lookup, ObjectRef};

/// Tells whether the object of a change exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Exists,
    Deleted,
}

/// The place where the objects of a kind are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// All watched namespaces.
    Everywhere,
    /// All watched namespaces, at the version that Cluster API serves.
    Versioned,
    /// A single namespace, and there only the objects that the coordinator uses.
    Selected,
    /// All watched namespaces, with `--metal3=hosts` or `--metal3=full`.
    Metal3Hosts,
    /// All watched namespaces, with `--metal3=full`.
    Metal3Full,
    /// All watched namespaces, with `--metal3=full`, if Cluster API serves the kind. Nothing
    /// waits for the first list, because an installation may lack the kind.
    Optional,
}

/// The table of kinds: the kind, the type of its objects, the place where they are watched,
/// `queue` if a controller reconciles them, and the function of
/// [`crate::watch::ChangeHandlers`] that records their changes. Name, group and plural follow
/// from the type.
macro_rules! for_each_kind {
    ($callback:ident) => {
        $callback! {
            MachineInventory: coordinator_api::inventory::MachineInventory, Everywhere, queue, apply_inventory;
            MachineRegistration: coordinator_api::registration::MachineRegistration, Everywhere, queue, apply_registration;
            SeedImage: coordinator_api::seed_image::SeedImage, Everywhere, queue, apply_seed_image;
            MachineInventoryPool: coordinator_api::pool::MachineInventoryPool, Everywhere, queue, index.apply_pool;
            BaremetalCluster: coordinator_api::cluster::BaremetalCluster, Everywhere, queue, index.apply_baremetal_cluster;
            BaremetalMachine: coordinator_api::machine::BaremetalMachine, Everywhere, queue, index.apply_machine;
            BaremetalMachineTemplate: coordinator_api::template::BaremetalMachineTemplate, Everywhere, queue, index.apply_template;
            Machine: coordinator_api::capi::Machine, Versioned, none, apply_machine;
            Cluster: coordinator_api::capi::Cluster, Versioned, none, apply_cluster;
            ConfigMap: k8s_openapi::api::core::v1::ConfigMap, Selected, none, apply_catalog;
            Lease: k8s_openapi::api::coordination::v1::Lease, Selected, none, apply_lease;
            BareMetalHost: coordinator_api::metal3::host::BareMetalHost, Metal3Hosts, queue, metal3.apply_host;
            Metal3Machine: coordinator_api::metal3::machine::Metal3Machine, Metal3Full, queue, metal3.apply_machine;
            Metal3MachineTemplate: coordinator_api::metal3::machine::Metal3MachineTemplate, Metal3Full, none, metal3.apply_machine_template;
            Metal3Cluster: coordinator_api::metal3::cluster::Metal3Cluster, Metal3Full, queue, metal3.apply_infrastructure;
            Metal3DataTemplate: coordinator_api::metal3::data_template::Metal3DataTemplate, Metal3Full, queue, metal3.apply_data_template;
            Metal3DataClaim: coordinator_api::metal3::data::Metal3DataClaim, Metal3Full, queue, metal3.apply_data_claim;
            Metal3Data: coordinator_api::metal3::data::Metal3Data, Metal3Full, queue, metal3.apply_data;
            Metal3Remediation: coordinator_api::metal3::remediation::Metal3Remediation, Metal3Full, queue, metal3.apply_remediation;
            IPPool: coordinator_api::metal3::ipam::IPPool, Metal3Full, queue, metal3.apply_ip_pool;
            IPClaim: coordinator_api::metal3::ipam::IPClaim, Metal3Full, queue, metal3.apply_ip_claim;
            IPAddress: coordinator_api::metal3::ipam::IPAddress, Metal3Full, queue, metal3.apply_ip_address;
            IPAddressClaim: coordinator_api::capi_ipam::IPAddressClaim, Optional, queue, metal3.apply_address_claim;
            CapiIPAddress: coordinator_api::capi_ipam::IPAddress, Optional, none, metal3.apply_given_address;
        }
    };
}
pub(crate) use for_each_kind;

/// An object of a kind of the table.
pub trait OfKind {
    const KIND: Kind;
}

macro_rules! declare_kinds {
    ($($kind:ident: $object:ty, $place:ident, $queue:ident, $($record:ident).+;)*) => {
        /// A kind that is watched.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
        pub enum Kind {
            $($kind,)*
        }

        impl Kind {
            pub fn place(self) -> Place {
                match self {
                    $(Self::$kind => Place::$place,)*
                }
            }
        }

        $(impl OfKind for $object {
            const KIND: Kind = Kind::$kind;
        })*
    };
}
for_each_kind!(declare_kinds);

impl Kind {
    /// The name for logs and metrics. Metal3 and Cluster API both have a kind `IPAddress`.
    pub fn name(self) -> &'static str {
        match self {
            Self::CapiIPAddress => "IPAddress of Cluster API",
            kind => kind.into(),
        }
    }
}

/// The reference to an object for stores and controllers of kube-runtime.
pub fn object_ref<K: Lookup>(key: &Key, kind: K::DynamicType) -> ObjectRef<K> {
    ObjectRef::new_with(&key.name, kind).within(&key.namespace)
}

/// The object of Cluster API that owns `object`. Other groups have kinds of the same names.
pub fn find_owner(object: &impl Resource<DynamicType = ()>, kind: &str) -> Option<Key> {
    let mut owners = object.meta().owner_references.iter().flatten();
    let owner = owners.find(|owner| capi::is_owner(owner, kind))?;
    Some(Key::of(object).in_namespace_of(&owner.name))
}

#[cfg(test)]
mod tests {
    use coordinator_api::machine::BaremetalMachine;
    use serde_json::json;

    use super::*;

    #[test]
    fn owners_of_other_groups_are_passed_over() {
        let owned_by = |owners: &[(&str, &str)]| {
            let owners: Vec<_> = owners
                .iter()
                .map(|(version, name)| json!({ "apiVersion": version, "kind": "Machine", "name": name, "uid": "u" }))
                .collect();
            let machine: BaremetalMachine = serde_json::from_value(json!({
                "metadata": { "name": "m", "namespace": "fleet", "ownerReferences": owners },
                "spec": { "machineInventoryPoolRef": { "name": "pool" } },
            }))
            .unwrap();
            find_owner(&machine, "Machine").map(|key| key.name.to_string())
        };
        let other = ("machine.openshift.io/v1beta1", "other");
        let ours = ("cluster.x-k8s.io/v1beta2", "ours");
        assert_eq!(owned_by(&[other, ours]).as_deref(), Some("ours"));
        assert_eq!(owned_by(&[ours, other]).as_deref(), Some("ours"));
        assert_eq!(owned_by(&[other, ("v1", "core")]), None);
    }
}
