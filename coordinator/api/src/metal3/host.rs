//! `BareMetalHost` of `metal3.io`: a host that names an inventory is provisioned
//! by the coordinator; all others are left alone.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Consumer, SecretRef};

/// A host, as the baremetal-operator describes it.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    kind = "BareMetalHost",
    plural = "baremetalhosts",
    shortname = "bmh",
    shortname = "bmhost",
    namespaced,
    status = "BareMetalHostStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Status", type_ = "string", json_path = ".status.operationalStatus", priority = 1),
    printcolumn(name = "State", type_ = "string", json_path = ".status.provisioning.state"),
    printcolumn(name = "Consumer", type_ = "string", json_path = ".spec.consumerRef.name"),
    printcolumn(name = "BMC", type_ = "string", json_path = ".spec.bmc.address", priority = 1),
    printcolumn(name = "Online", type_ = "string", json_path = ".spec.online"),
    printcolumn(name = "Error", type_ = "string", json_path = ".status.errorType"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalHostSpec {
    /// Not read: the image decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// What becomes of the disks between two nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automated_cleaning_mode: Option<CleaningMode>,
    /// Refused where an inventory is named: two would drive one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<Bmc>,
    /// MAC address of the card that the host boots from.
    #[serde(default, rename = "bootMACAddress", skip_serializing_if = "Option::is_none")]
    pub boot_mac_address: Option<String>,
    /// Without effect: the host boots from its disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_mode: Option<String>,
    /// Who uses the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer_ref: Option<Consumer>,
    /// Refused: there is no agent of Ironic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
    /// For operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// As it always is: no host is powered off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_power_off: Option<bool>,
    /// Refused: a host that registers is installed by its seed ISO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub externally_provisioned: Option<bool>,
    /// Refused: a BMC writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub firmware: Option<Value>,
    /// Not read; Metal3 ignores it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_profile: Option<String>,
    /// What the host is to run. Without it, it is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Without effect: hosts are inspected when they register.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inspection_mode: Option<String>,
    /// Secret with the key `metaData`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<SecretRef>,
    /// Secret with the key `networkData`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretRef>,
    /// Refused: there is no Ironic that attaches ports of switches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::any_list")]
    pub network_interfaces: Vec<Value>,
    /// Only `true` has an effect: no BMC switches power.
    #[serde(default)]
    pub online: bool,
    /// Refused: the network of the live system is that of its seed ISO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preprovisioning_network_data_name: Option<String>,
    /// Refused: a BMC writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub raid: Option<Value>,
    /// Refused: the install disk is chosen by the registration of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub root_device_hints: Option<Value>,
    /// Refused: kubelet's own configuration sets taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::any_list")]
    pub taints: Vec<Value>,
    /// Secret with the key `userData` or `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<SecretRef>,
}

/// What becomes of the disks between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CleaningMode {
    /// The node is removed.
    Metadata,
    /// As Metadata: what held secrets never stays. Disks that the node did not
    /// install are left alone in both.
    Disabled,
}

/// A BMC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bmc {
    /// URL.
    #[serde(default)]
    pub address: String,
    /// Secret with its credentials.
    #[serde(default)]
    pub credentials_name: String,
    /// Whether its certificate is verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_certificate_verification: Option<bool>,
}

/// A deploy procedure of Ironic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CustomDeploy {
    /// Its name.
    pub method: String,
}

/// An image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// `oci://` and the reference of an OS image.
    pub url: String,
    /// SHA-256 digest of the OCI image: 64 hexadecimal digits, also behind `sha256:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// `sha256`, `auto` or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "checksum_type")]
    pub checksum_type: Option<String>,
    /// Format of a disk image: none of them is supported, an empty one is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "image_format")]
    pub format: Option<String>,
    /// Refused: a Secret for the registry is named by an annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci_auth_secret_name: Option<String>,
}

fn checksum_type(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "enum": ["md5", "sha256", "sha512", "auto"] })
}

fn image_format(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "enum": ["", "raw", "qcow2", "vdi", "vmdk", "live-iso"] })
}

/// Projection of the inventory and its plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BareMetalHostStatus {
    /// Ours: Ready and those of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Errors since the last success.
    pub error_count: i32,
    /// Cause and next action.
    pub error_message: String,
    /// `registration error`, `inspection error` or `provisioning error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// `OK`, `discovered` or `error`.
    pub operational_status: String,
    /// Whether the host has a connection to the coordinator.
    pub powered_on: bool,
    /// What the host reported of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
    /// Where the host stands.
    pub provisioning: Provisioning,
    /// Always 0: newer definitions of the kind ask for it.
    pub provisioning_fail_count: i32,
    /// When the status changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
}

/// Where a host stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Provisioning {
    /// UID of the inventory.
    #[serde(rename = "ID")]
    pub id: String,
    /// As the baremetal-operator names it.
    pub state: String,
    /// The image that runs or is being written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
}

/// What a host reported of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Hardware {
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Name that the host goes by.
    pub hostname: String,
    /// Interfaces; one entry for each address.
    pub nics: Vec<Nic>,
    /// Memory that the kernel can use, MiB.
    #[serde(rename = "ramMebibytes", skip_serializing_if = "Option::is_none")]
    pub ram_mebibytes: Option<i64>,
    /// Disks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub storage: Vec<Storage>,
}

/// Processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Cpu {
    /// As the kernel names it: `x86_64`, `aarch64`.
    pub arch: String,
    /// Model of the first one.
    pub model: String,
    /// Threads of all.
    pub count: i64,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Storage {
    /// Path of the device.
    pub name: String,
    /// Whether it has platters.
    pub rotational: bool,
    /// Bytes.
    pub size_bytes: i64,
    /// Model, where it tells one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Serial number, where it tells one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub serial_number: String,
}

/// An interface, or one address of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Nic {
    /// Name.
    pub name: String,
    /// MAC address.
    pub mac: String,
    /// IP address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}
