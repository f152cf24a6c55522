//! The kinds of Cluster API Provider Metal3 and of its address manager, for
//! hosts without a BMC. Names, fields and defaults are theirs.

pub mod ipam;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crds;

/// Every definition that `--metal3=full` needs.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![ipam::IPPool::crd(), ipam::IPClaim::crd(), ipam::IPAddress::crd()];
    for crd in &mut crds {
        crds::label_definition(crd);
    }
    crds
}

/// A reference to an object; its kind follows from the field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Name of the object.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Namespace of the object; that of the referring one where it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Written by CAPM3; not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Written by CAPM3; not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Written by CAPM3; not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

impl ObjectRef {
    /// An object of this namespace.
    #[must_use]
    pub fn within(namespace: &str, name: &str) -> Self {
        Self { name: name.to_owned(), namespace: Some(namespace.to_owned()), ..Self::default() }
    }
}

/// Names on Metal3 objects.
pub mod names {
    /// Annotation of an `IPClaim`: the address that is wanted.
    pub const REQUESTED_ADDRESS: &str = "ipAddress";
    /// Ours, annotation of an `IPClaim`: the address that was chosen, written before
    /// the `IPAddress`, so that a stale cache never gives a claim a second one.
    pub const CHOSEN_ADDRESS: &str = "baremetal.cluster.io/ip-address";
    /// Finalizer of an `IPClaim`: held until its address is free again.
    pub const CLAIM_FINALIZER: &str = "ipclaim.ipam.metal3.io";
    /// Finalizer of an `IPAddress`: held while its claim exists.
    pub const ADDRESS_FINALIZER: &str = "ipaddress.ipam.metal3.io";
    /// Finalizer of an `IPPool`: held while an address of it is in use.
    pub const POOL_FINALIZER: &str = "ippool.ipam.metal3.io";
}
