//! `Metal3DataTemplate`: the template of each machine's data.

mod meta_data;
mod network_data;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use meta_data::{
    Key, KeyAnnotation, KeyIndex, KeyInterface, KeyLabel, KeyObject, KeyPool, KeyValue, MetaDataSpec,
};
pub use network_data::{
    Bond, DynamicNetwork, Ethernet, Gateway, Links, MacAddress, NetworkDataSpec, Networks, PoolRef,
    RouteSpec, Services, StaticNetwork, Vlan,
};
pub(crate) use network_data::{bond_mode, default_mtu};

/// The template of each machine's data.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "Metal3DataTemplate",
    plural = "metal3datatemplates",
    shortname = "m3dt",
    shortname = "m3datatemplate",
    shortname = "m3datatemplates",
    shortname = "metal3dt",
    category = "cluster-api",
    namespaced,
    status = "Metal3DataTemplateStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels.cluster\\.x-k8s\\.io/cluster-name"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.metaData) == has(oldSelf.metaData) && (!has(self.metaData) || self.metaData == oldSelf.metaData)").message("metaData is immutable"))]
#[x_kube(validation = Rule::new("has(self.networkData) == has(oldSelf.networkData) && (!has(self.networkData) || self.networkData == oldSelf.networkData)").message("networkData is immutable"))]
#[x_kube(validation = Rule::new("has(self.templateReference) == has(oldSelf.templateReference) && (!has(self.templateReference) || self.templateReference == oldSelf.templateReference)").message("templateReference is immutable: indexes are given by it"))]
pub struct Metal3DataTemplateSpec {
    /// The Cluster that the template belongs to.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Name of a replaced template, with which this template shares its indexes.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    pub template_reference: Option<String>,
    /// Meta-data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<MetaDataSpec>,
    /// Network data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<NetworkDataSpec>,
}

/// Indexes in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3DataTemplateStatus {
    /// Time of the last change of `indexes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// Indexes by the names of their claims.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub indexes: BTreeMap<String, i64>,
}

/// Metal3 has one kind of pools.
const POOL_KIND: &str = "!has(self.kind) || self.kind in ['', 'IPPool'] \
     || has(self.apiGroup) && !(self.apiGroup in ['', 'ipam.metal3.io'])";

/// The object with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The Machine of Cluster API.
    Machine,
    /// The `Metal3Machine`.
    Metal3Machine,
    /// The `BareMetalHost`.
    BareMetalHost,
}

/// An annotation of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FromAnnotation {
    /// The object.
    pub object: Source,
    /// Key of the annotation.
    pub annotation: String,
}
