//! Names of objects, at the ground of the crate.

pub use coordinator_api::object::{Key, Namespace, ObjectName};
use kube::Resource;
use kube::runtime::reflector::{Lookup, ObjectRef};

/// Whether the object of a change exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Exists,
    Deleted,
}

/// Look-ups in stores of kube-runtime.
pub trait StoreKey {
    fn object_ref<K: Resource<DynamicType = ()>>(&self) -> ObjectRef<K>;

    /// For a kind that is known by its version.
    fn object_ref_with<K: Lookup>(&self, kind: K::DynamicType) -> ObjectRef<K>;
}

impl StoreKey for Key {
    fn object_ref<K: Resource<DynamicType = ()>>(&self) -> ObjectRef<K> {
        ObjectRef::new(&self.name).within(&self.namespace)
    }

    fn object_ref_with<K: Lookup>(&self, kind: K::DynamicType) -> ObjectRef<K> {
        ObjectRef::new_with(&self.name, kind).within(&self.namespace)
    }
}

/// The object of a kind that owns `object`.
pub fn find_owner(object: &impl Resource<DynamicType = ()>, kind: &str) -> Option<Key> {
    let owner = object.meta().owner_references.iter().flatten().find(|owner| owner.kind == kind)?;
    Some(Key::of(object).in_namespace_of(&owner.name))
}
