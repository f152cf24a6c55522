//! The kinds as Kubernetes serves them, and every name that is written on an
//! object, once: groups, annotations, labels, finalizers, Secret keys,
//! conditions and reasons.
//!
//! The names are those of the systems whose manifests must apply unchanged;
//! what is ours is in the group `baremetal.cluster.io` and says so.

#![warn(missing_docs)]
// kube's derives repeat `type_` in each printcolumn and make a hidden copy of
// each spec; the bools are the field's API.
#![allow(clippy::duplicated_attributes, clippy::struct_excessive_bools, unreachable_pub)]

pub mod capi;
pub mod capi_ipam;
pub mod cluster;
pub mod conditions;
pub mod crds;
pub mod explain;
pub mod hardware;
pub mod inventory;
pub mod machine;
pub mod metal3;
pub mod names;
pub mod network;
pub mod notes;
pub mod object;
pub mod pool;
pub mod registration;
mod schema;
pub mod seed_image;
pub mod template;
