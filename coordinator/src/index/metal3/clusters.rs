//! The Cluster of an object, and the objects that rest while their Cluster is paused.

use std::collections::HashSet;

use coordinator_api::capi_ipam::IPAddressClaim;
use coordinator_api::metal3::data::{Metal3Data, Metal3DataClaim};
use coordinator_api::metal3::data_template::Metal3DataTemplate;
use coordinator_api::metal3::ipam::{IPAddress, IPClaim, IPPool};
use coordinator_api::names::label;
use kube::{Resource, ResourceExt as _};

use crate::index::groups::Partition;
use crate::key::{Key, Kind, OfKind, Presence};

/// An object that rests while its Cluster is paused.
pub trait OfCluster: OfKind + Resource<DynamicType = ()> + Sized {
    /// The Cluster that its spec names.
    fn cluster_in_spec(&self) -> Option<&str> {
        None
    }

    /// The Cluster of the spec, or else that of the label.
    fn find_cluster(&self) -> Option<Key> {
        let label = self.labels().get(label::CLUSTER_NAME).map(String::as_str);
        let name = self.cluster_in_spec().or(label).filter(|name| !name.is_empty())?;
        Some(Key::of(self).in_namespace_of(name))
    }
}

impl OfCluster for IPAddress {}

impl OfCluster for IPClaim {}

impl OfCluster for Metal3DataClaim {}

impl OfCluster for Metal3Data {}

impl OfCluster for IPPool {
    fn cluster_in_spec(&self) -> Option<&str> {
        self.spec.cluster_name.as_deref()
    }
}

impl OfCluster for Metal3DataTemplate {
    fn cluster_in_spec(&self) -> Option<&str> {
        self.spec.cluster_name.as_deref()
    }
}

impl OfCluster for IPAddressClaim {
    fn cluster_in_spec(&self) -> Option<&str> {
        self.spec.cluster_name.as_deref()
    }
}

/// Objects by Cluster, and the Clusters that are paused.
#[derive(Debug, Default)]
pub(super) struct Clusters {
    members: Partition<Key, (Kind, Key)>,
    paused: HashSet<Key>,
}

impl Clusters {
    pub(super) fn apply_member<K: OfCluster>(&mut self, object: &K, presence: Presence) {
        let cluster = object.find_cluster().filter(|_| presence == Presence::Exists);
        self.members.set_group(&(K::KIND, Key::of(object)), cluster.as_ref());
    }

    /// The objects that continue, because a pause has ended.
    pub(super) fn apply_cluster(&mut self, cluster: &Key, is_paused: bool) -> Vec<(Kind, Key)> {
        if is_paused {
            self.paused.insert(cluster.clone());
            return vec![];
        }
        let has_ended = self.paused.remove(cluster);
        let members = has_ended.then(|| self.members.group_members(cluster).cloned());
        members.into_iter().flatten().collect()
    }
}
