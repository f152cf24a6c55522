//! `Metal3Machine` and `Metal3MachineTemplate`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::host::{CleaningMode, CustomDeploy, Image};
use super::{ObjectRef, SecretRef};
use crate::machine::{Initialization, MachineAddress};

/// A machine of Cluster API on a `BareMetalHost`.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "Metal3Machine",
    plural = "metal3machines",
    shortname = "m3m",
    shortname = "m3machine",
    shortname = "m3machines",
    shortname = "metal3m",
    category = "cluster-api",
    namespaced,
    status = "Metal3MachineStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "ProviderID", type_ = "string", json_path = ".spec.providerID", priority = 1),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready"),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels.cluster\\.x-k8s\\.io/cluster-name"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.customDeploy) || !has(self.image) || self.image.url.contains(':')").message("image.url is an absolute URI"))]
#[x_kube(validation = Rule::new("has(self.customDeploy) || !has(self.image) || !self.image.url.matches('^(?i)oci://') || (!has(self.image.checksum) || self.image.checksum == '') && (!has(self.image.checksumType) || self.image.checksumType == '')").message("image.checksum and image.checksumType must be empty for OCI images"))]
#[x_kube(validation = Rule::new("has(self.customDeploy) || !has(self.image) || self.image.url.matches('^(?i)oci://') || has(self.image.checksum) && self.image.checksum != '' || has(self.image.format) && self.image.format == 'live-iso'").message("image.checksum is required for images that are not OCI images"))]
pub struct Metal3MachineSpec {
    /// `metal3://NAMESPACE/HOST/MACHINE`, or the older `metal3://UID`.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub provider_id: Option<String>,
    /// The image of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Rejected, because there is no agent of Ironic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
    /// Secret with user-data, which the bootstrap data of the Machine replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<SecretRef>,
    /// Selector of the hosts that can be chosen.
    #[serde(default, skip_serializing_if = "HostSelector::is_empty")]
    pub host_selector: HostSelector,
    /// The `Metal3DataTemplate` from which the data of the host is rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_template: Option<ObjectRef>,
    /// Secret with meta-data, which replaces the rendered meta-data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<SecretRef>,
    /// Secret with network data, which replaces the rendered network data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretRef>,
    /// Cleaning of the disks between two nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automated_cleaning_mode: Option<CleaningMode>,
    /// Preferred failure domain, unless the Machine has one.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
}

/// Selector of the hosts that can be chosen; all its conditions have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostSelector {
    /// Labels with their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Conditions on single labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<HostRequirement>,
}

impl HostSelector {
    /// The selector allows every host.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }
}

/// A condition on a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct HostRequirement {
    /// Key of the label.
    pub key: String,
    /// `in`, `notin`, `exists`, `!`, `=`, `==`, `!=`, `gt` or `lt`, in any case.
    pub operator: String,
    /// Values to compare the label with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Projection of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3MachineStatus {
    /// Ready, Paused, `AssociateBareMetalHost`, `AssociateMetal3MachineMetaData`,
    /// `Metal3DataReady`, `HostProvisioned`, `NodeLinked`, `LabelsSynced`; by their older names `AssociateBMH`
    /// and `KubernetesNodeReady`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Time of the last change of the addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// Never written, because Cluster API treats it as terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Never written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// Addresses that the host reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// Failure domain of the host by its label, which may differ from the requested one.
    #[serde(deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// State of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Cluster API v1beta1: the infrastructure is provisioned.
    pub ready: bool,
    /// Cluster API v1beta2: the infrastructure is provisioned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// The used Secret with user-data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<SecretRef>,
    /// The used `Metal3Data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rendered_data: Option<ObjectRef>,
    /// The used Secret with meta-data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<SecretRef>,
    /// The used Secret with network data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretRef>,
}

/// The template from which Cluster API clones machines.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "Metal3MachineTemplate",
    plural = "metal3machinetemplates",
    shortname = "m3mt",
    shortname = "m3machinetemplate",
    shortname = "m3machinetemplates",
    shortname = "metal3mt",
    category = "cluster-api",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct Metal3MachineTemplateSpec {
    /// Hosts of a machine that is replaced are kept for its successor.
    #[serde(default)]
    pub node_reuse: bool,
    /// The machine.
    pub template: MachineResource,
}

/// A machine without a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineResource {
    /// Labels and annotations of the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub metadata: Option<serde_json::Value>,
    /// Spec of each machine.
    pub spec: Metal3MachineSpec,
}
