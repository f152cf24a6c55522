//! The watches of the process, one per kind, or one per kind and watched namespace: stores that all
//! parts read, and the index of the objects that concern each other.
//!
//! Secrets are never watched. Every replica keeps its stores filled, so that a new leader starts
//! at once.
//!
//! An event goes into the store, then to the observer and into the index, then to the queues of
//! the controllers. The shared streams of kube-runtime 5.0 are not used, because they announce
//! an event before the index is updated, carry no deletion, and never poll a subscriber again
//! whose object was deleted when it is read.

mod follow;
mod listing;
mod start;

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use coordinator_api::capi_ipam::IPAddressClaim;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::core::ApiResource;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;

use crate::key::{Key, Kind, object_ref};
use listing::Unlisted;

pub use follow::{ChangeHandlers, Observer, Watched};
pub use start::start_watches;

/// Versions at which the kinds of Cluster API are served.
#[derive(Clone, Debug)]
pub struct ApiVersions {
    pub machine: ApiResource,
    pub cluster: ApiResource,
}

impl ApiVersions {
    /// Tells whether Cluster API serves its claims on addresses at the version that is read,
    /// because these kinds have one version.
    fn has_address_claims(&self) -> bool {
        self.machine.version == IPAddressClaim::version(&())
    }

    fn resource_of(&self, kind: Kind) -> &ApiResource {
        if kind == Kind::Machine { &self.machine } else { &self.cluster }
    }
}

/// The store of a kind.
struct Stored<K: Watched> {
    objects: Store<K>,
    kind: K::DynamicType,
}

/// The stores of all kinds that are watched. Clones share them.
#[derive(Clone)]
pub struct Cache {
    /// Each is a [`Stored`] of the type of its kind.
    stores: Arc<HashMap<Kind, Box<dyn Any + Send + Sync>>>,
    unlisted: Unlisted,
}

impl Cache {
    fn find_stored<K: Watched>(&self) -> Option<&Stored<K>> {
        self.stores.get(&K::KIND)?.downcast_ref()
    }

    pub fn watches(&self, kind: Kind) -> bool {
        self.stores.contains_key(&kind)
    }

    /// The store of a kind. It stays empty if the kind is not watched.
    pub fn store<K: Watched + Resource<DynamicType = ()>>(&self) -> Store<K> {
        self.find_stored()
            .map_or_else(|| Writer::default().as_reader(), |stored: &Stored<K>| stored.objects.clone())
    }

    pub fn get<K: Watched>(&self, key: &Key) -> Option<Arc<K>> {
        let stored = self.find_stored::<K>()?;
        stored.objects.get(&object_ref(key, stored.kind.clone()))
    }

    pub fn image_catalog(&self) -> Option<Arc<ConfigMap>> {
        self.store::<ConfigMap>().state().into_iter().next()
    }

    /// Waits until every watch has listed its kind. Kinds that an installation may lack are not
    /// waited for.
    pub async fn wait_until_filled(&self) {
        self.unlisted.wait_none().await;
    }
}
