//! Status writes: none when nothing changed.

use std::fmt::Debug;

use kube::api::PostParams;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StoreError;

/// A kind of ours with a status.
pub trait HasStatus:
    Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
    /// Its status.
    type Status: PartialEq + Debug;
    /// The status as it was read.
    fn status(&self) -> Option<&Self::Status>;
    /// Puts a status on it.
    fn set_status(&mut self, status: Self::Status);
}

macro_rules! has_status {
    ($($kind:ty => $status:ty),+ $(,)?) => {$(
        impl HasStatus for $kind {
            type Status = $status;
            fn status(&self) -> Option<&Self::Status> {
                self.status.as_ref()
            }
            fn set_status(&mut self, status: Self::Status) {
                self.status = Some(status);
            }
        }
    )+};
}

has_status! {
    coordinator_api::cluster::BaremetalCluster => coordinator_api::cluster::BaremetalClusterStatus,
    coordinator_api::inventory::MachineInventory => coordinator_api::inventory::MachineInventoryStatus,
    coordinator_api::machine::BaremetalMachine => coordinator_api::machine::BaremetalMachineStatus,
    coordinator_api::pool::MachineInventoryPool => coordinator_api::pool::MachineInventoryPoolStatus,
    coordinator_api::registration::MachineRegistration => coordinator_api::registration::MachineRegistrationStatus,
    coordinator_api::seed_image::SeedImage => coordinator_api::seed_image::SeedImageStatus,
}

/// Whether a status was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was, once.
    Changed,
    /// It was already so.
    Unchanged,
}

/// Writes `status` unless the object already has it. The object's
/// `resourceVersion` is the precondition.
///
/// # Errors
/// Conflict when the object has changed.
pub async fn apply<K: HasStatus>(
    client: &Client,
    object: &K,
    status: K::Status,
) -> Result<Written, StoreError> {
    if object.status() == Some(&status) {
        return Ok(Written::Unchanged);
    }
    let mut object = object.clone();
    object.set_status(status);
    object.meta_mut().managed_fields = None;
    let name = object.name_any();
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let done = api.replace_status(&name, &PostParams::default(), &object).await;
    done.map_err(StoreError::of("write the status of", K::kind_name(), &name))?;
    Ok(Written::Changed)
}

trait KindName {
    fn kind_name() -> &'static str;
}

impl<K: HasStatus> KindName for K {
    fn kind_name() -> &'static str {
        std::any::type_name::<K>().rsplit("::").next().unwrap_or("object")
    }
}
