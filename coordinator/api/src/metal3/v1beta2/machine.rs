//! `Metal3Machine` and `Metal3MachineTemplate` at v1beta2.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Deprecated, Reference, TemplateMetadata};
use crate::machine::{Initialization, MachineAddress};
use crate::metal3::SecretRef;
use crate::metal3::host::{CleaningMode, CustomDeploy};
use crate::metal3::machine::HostSelector;

/// A machine of Cluster API on a `BareMetalHost`.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Metal3Machine",
    plural = "metal3machines",
    namespaced,
    status = "Metal3MachineStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "ProviderID", type_ = "string", json_path = ".spec.providerID", priority = 1),
    printcolumn(name = "Provisioned", type_ = "string", json_path = ".status.initialization.provisioned"),
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
#[x_kube(validation = Rule::new("has(self.customDeploy) || !has(self.image) || !self.image.url.matches('^(?i)oci://') || (!has(self.image.checksum) || self.image.checksum == '') && !has(self.image.checksumType)").message("image.checksum and image.checksumType must be empty for OCI images"))]
#[x_kube(validation = Rule::new("has(self.customDeploy) || !has(self.image) || self.image.url.matches('^(?i)oci://') || has(self.image.checksum) && self.image.checksum != '' || has(self.image.diskFormat) && self.image.diskFormat == 'live-iso'").message("image.checksum is required for images that are not OCI images"))]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_selector: Option<HostSelector>,
    /// The `Metal3DataTemplate` from which the data of the host is rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_template: Option<Reference>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
}

/// An image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// `oci://` and the reference of an OS image.
    pub url: String,
    /// SHA-256 digest of the OCI image: 64 hexadecimal digits, with or without `sha256:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// `sha256`, `auto` or absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "checksum_type")]
    pub checksum_type: Option<String>,
    /// Format of a disk image. No format is supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "disk_format")]
    pub disk_format: Option<String>,
}

fn checksum_type(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "enum": ["md5", "sha256", "sha512", "auto"] })
}

fn disk_format(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "enum": ["raw", "qcow2", "vdi", "vmdk", "live-iso"] })
}

/// Projection of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3MachineStatus {
    /// Ready, Paused, `AssociateBareMetalHost`, `AssociateMetal3MachineMetaData`,
    /// `Metal3DataReady`, `HostProvisioned`, `NodeLinked`, `LabelsSynced`; by their older names `AssociateBMH`
    /// and `KubernetesNodeReady`.
    pub conditions: Vec<Condition>,
    /// Time of the last change of the addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// Addresses that the host reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// Failure domain of the host by its label, which may differ from the requested one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// Ours: state of the host, which CAPM3 shows at v1beta1 alone. Absent: no host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The infrastructure is provisioned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// The used Secret with user-data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<SecretRef>,
    /// The used `Metal3Data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rendered_data: Option<Reference>,
    /// The used Secret with meta-data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<SecretRef>,
    /// The used Secret with network data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretRef>,
    /// Status in the form of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<Deprecated>,
}

/// The template from which Cluster API clones machines.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Metal3MachineTemplate",
    plural = "metal3machinetemplates",
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
    pub metadata: Option<TemplateMetadata>,
    /// Spec of each machine.
    pub spec: Metal3MachineSpec,
}
