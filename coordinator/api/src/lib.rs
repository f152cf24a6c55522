//! The kinds as Kubernetes serves them, and each name on an object once: kinds,
//! groups, annotations, labels, finalizers, Secret keys, conditions and reasons.
//!
//! The names are the names of the systems whose manifests must apply unchanged. Our
//! own names have the prefix `baremetal.cluster.io`, and their comments begin with
//! "Ours".

#![warn(missing_docs)]
// The derives of `kube` repeat `type_` in each printcolumn and create a hidden copy of
// each spec. The bools are given by upstream's API.
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
