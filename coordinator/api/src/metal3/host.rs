//! `BareMetalHost` of `metal3.io`. The coordinator provisions a host that names an
//! inventory, and does not change any other host.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Consumer, SecretRef};

/// A host in the form of the baremetal-operator.
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
    // `attr` takes no `serde`. Objects of the baremetal-operator may have no spec.
    attr = "cfg_attr(all(), serde(default))",
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
    /// Not read, because the image decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Cleaning of the disks between two nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automated_cleaning_mode: Option<CleaningMode>,
    /// Rejected if an inventory is named, because only one system may control the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<Bmc>,
    /// MAC address of the card that the host boots from.
    #[serde(default, rename = "bootMACAddress", skip_serializing_if = "Option::is_none")]
    pub boot_mac_address: Option<String>,
    /// The field has no effect because the host boots from its disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_mode: Option<String>,
    /// The user of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer_ref: Option<Consumer>,
    /// Rejected, because there is no agent of Ironic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
    /// Text for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The field has no effect because no host is powered off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_power_off: Option<bool>,
    /// Rejected, because the seed ISO installs each host that registers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub externally_provisioned: Option<bool>,
    /// Rejected, because only a BMC can apply it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub firmware: Option<Value>,
    /// Not read, and ignored by Metal3 too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_profile: Option<String>,
    /// The image of the host. Absent: the host is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// The field has no effect because hosts are inspected when they register.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inspection_mode: Option<String>,
    /// Secret with the key `metaData`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<SecretRef>,
    /// Secret with the key `networkData`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretRef>,
    /// Rejected, because there is no Ironic that attaches ports of switches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::any_list")]
    pub network_interfaces: Vec<Value>,
    /// Power state. Only `true` has an effect, because there is no BMC.
    #[serde(default)]
    pub online: bool,
    /// Rejected, because the seed ISO has the network of the live system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preprovisioning_network_data_name: Option<String>,
    /// Rejected, because only a BMC can apply it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub raid: Option<Value>,
    /// Rejected, because the registration of the host chooses the install disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub root_device_hints: Option<Value>,
    /// Rejected, because the configuration of the kubelet sets taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::any_list")]
    pub taints: Vec<Value>,
    /// Secret with the key `userData` or `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<SecretRef>,
}

/// Cleaning of the disks between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CleaningMode {
    /// The node is removed.
    Metadata,
    /// The same as `Metadata`, because data with secrets never stays. Disks that the node
    /// did not install are not changed in either mode.
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
    /// The certificate of the BMC is not verified.
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
    /// SHA-256 digest of the OCI image: 64 hexadecimal digits, with or without `sha256:`.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// `sha256`, `auto`, empty or absent.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "checksum_type")]
    pub checksum_type: Option<String>,
    /// Format of a disk image. No format is supported; an empty text stands for no format.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "image_format")]
    pub format: Option<String>,
    /// Rejected, because an annotation names the Secret for the registry.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    pub oci_auth_secret_name: Option<String>,
}

fn checksum_type(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "enum": ["", "md5", "sha256", "sha512", "auto"] })
}

fn image_format(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "enum": ["", "raw", "qcow2", "vdi", "vmdk", "live-iso"] })
}

/// Projection of the inventory and its plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BareMetalHostStatus {
    /// Ours: Ready, and the conditions of the plan.
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
    /// The host has registered. A host without a BMC is never known to be off, so that nothing that waits
    /// for this to be false fences a node that may run.
    pub powered_on: bool,
    /// Facts that the host reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
    /// Progress of the provisioning.
    pub provisioning: Provisioning,
    /// Always 0. Newer definitions of the kind require the field.
    pub provisioning_fail_count: i32,
    /// Time of the last change of the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
}

/// Progress of the provisioning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Provisioning {
    /// UID of the inventory.
    #[serde(rename = "ID")]
    pub id: String,
    /// State by its name in the baremetal-operator.
    pub state: String,
    /// The running image, or the image that is being installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
}

/// Facts that a host reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Hardware {
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Host name.
    pub hostname: String,
    /// Interfaces; one entry for each address.
    pub nics: Vec<Nic>,
    /// Memory that the kernel can use, in MiB.
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
    /// Architecture by its name in the kernel, for example `x86_64` or `aarch64`.
    pub arch: String,
    /// Model of the first processor.
    pub model: String,
    /// Threads of all processors.
    pub count: i64,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Storage {
    /// Path of the device.
    pub name: String,
    /// The disk has rotating platters.
    pub rotational: bool,
    /// Size in bytes.
    pub size_bytes: i64,
    /// Model, if the disk reports one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Serial number, if the disk reports one.
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
