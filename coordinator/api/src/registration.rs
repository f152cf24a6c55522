//! `MachineRegistration`: how hosts become inventories.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::network::RegistrationNetwork;

/// Declares how hosts register: the name, labels and annotations of their
/// inventories, and how they are installed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "elemental.cattle.io",
    version = "v1beta1",
    kind = "MachineRegistration",
    namespaced,
    status = "MachineRegistrationStatus",
    derive = "Default",
    derive = "PartialEq",
    // `attr` takes no `serde`. Objects of the elemental operator may have no spec.
    attr = "cfg_attr(all(), serde(default))",
    printcolumn(name = "URL", type_ = "string", json_path = ".status.registrationURL", priority = 1),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct MachineRegistrationSpec {
    /// Name of the inventory; `${System Information/UUID}` and the like are
    /// replaced by what the host reports. Where the host does not report it, the
    /// name is random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_name: Option<String>,
    /// Labels of the inventory, templates too.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub machine_inventory_labels: BTreeMap<String, String>,
    /// Annotations of the inventory, templates too.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub machine_inventory_annotations: BTreeMap<String, String>,
    /// Prefix of the labels and annotations that a host states of itself, before
    /// a slash; `elemental.cattle.io` when absent, none when `-`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_prefix: Option<String>,
    /// The token, instead of a random one: the last part of the registration
    /// URL. No two registrations have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub token: Option<String>,
    /// Ours: whether new hosts wait for an operator (annotation
    /// `baremetal.cluster.io/approval` of the `MachineInventory`).
    #[serde(default)]
    #[schemars(default)]
    pub approval: ApprovalPolicy,
    /// Ours: from then on (RFC 3339) the token registers no new host. Hosts with an
    /// inventory are known by their key. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_expires_at: Option<Time>,
    /// Ours: no new host registers while so many inventories of this
    /// registration exist. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_hosts: Option<u32>,
    /// Configuration that hosts receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Config>,
}

/// Who admits a new host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalPolicy {
    /// Its token.
    #[default]
    Automatic,
    /// Its token and an operator: until then it is `Pending`.
    Manual,
}

/// Configuration that hosts receive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Config {
    /// cloud-config of the installed system; of yip where it has `stages`, else
    /// of cloud-init.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub cloud_config: Option<Value>,
    /// Configuration of Elemental.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elemental: Option<Elemental>,
    /// An explicit network for every host of this registration: copied to the
    /// inventories that it makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<RegistrationNetwork>,
}

/// Configuration of Elemental.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Elemental {
    /// How to install.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<Install>,
    /// How to register.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registration: Option<Registration>,
    /// How a host would be reset: `enabled` is refused, and another value than the default has no
    /// effect and is named by the condition `FieldsIgnored`. Hosts are cleaned by plans.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default = "default_reset")]
    pub reset: Option<Reset>,
    /// Without effect, and named by `FieldsIgnored`: no host holds a Kubernetes credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub system_agent: Option<Value>,
}

/// How to install.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Install {
    /// Path of the disk; wins over the selector. A path that does not exist
    /// yet is waited for. What is on the disk is erased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Requirements that must leave exactly one disk. With neither a device
    /// nor a selector the host must have exactly one disk that can be chosen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_selector: Vec<DeviceRequirement>,
    /// Take the disk that the selector leaves also when it is not empty. Disks
    /// in use by RAID, LVM, multipath, ZFS or Ceph, and installed systems of
    /// other hosts, stay out of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_erase: bool,
    /// Source of the system; the live image when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_uri: Option<String>,
    /// How snapshots are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default = "default_snapshotter")]
    pub snapshotter: Option<Snapshotter>,
    /// Verbose output of the install.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
    /// Restart after the install; the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reboot: Option<bool>,
    /// Switch off after the install.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub poweroff: bool,
    /// Eject the medium at reboot.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub eject_cd: bool,
    /// Keep the partitions that are there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_format: bool,
    /// Do not change the firmware's boot entries.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disable_boot_entry: bool,
    /// Without effect: the installer finds it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Not supported: name the image in `system-uri`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso: Option<String>,
    /// Without effect: the installer has no such option any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tty: Option<String>,
    /// Without effect: the installer's configuration is that of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_dir: Option<String>,
    /// URLs or paths of cloud-configs of yip, which the installer copies to the
    /// installed system.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub config_urls: Vec<String>,
}

/// One requirement on a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceRequirement {
    /// Attribute that is compared; WWN, Serial, Model, Rotational and Path are ours.
    pub key: DeviceKey,
    /// Operator of the comparison.
    pub operator: DeviceOperator,
    /// Values to compare with; sizes as Kubernetes quantities.
    #[serde(default)]
    pub values: Vec<String>,
}

/// What of a disk is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[allow(missing_docs)]
pub enum DeviceKey {
    Name,
    Size,
    WWN,
    Serial,
    Model,
    Rotational,
    Path,
}

/// How it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[allow(missing_docs)]
pub enum DeviceOperator {
    In,
    NotIn,
    Gt,
    Lt,
}

/// How snapshots are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Snapshotter {
    /// loopdevice or btrfs.
    #[serde(rename = "type")]
    pub kind: String,
    /// Number of snapshots kept, the running one included.
    #[schemars(range(min = 2))]
    pub max_snaps: i32,
}

impl Default for Snapshotter {
    fn default() -> Self {
        Self { kind: "loopdevice".to_owned(), max_snaps: 2 }
    }
}

#[allow(clippy::unnecessary_wraps)] // The type of the field.
fn default_snapshotter() -> Option<Snapshotter> {
    Some(Snapshotter::default())
}

/// How a host would be reset. The defaults are those of the elemental operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Reset {
    /// Not supported: a registration with it admits no host.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enabled: bool,
    /// Without effect.
    pub reset_persistent: bool,
    /// Without effect.
    pub reset_oem: bool,
    /// Without effect.
    pub reboot: bool,
    /// Without effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub poweroff: bool,
    /// Without effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
    /// Without effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disable_boot_entry: bool,
    /// Without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_uri: Option<String>,
    /// Without effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub config_urls: Vec<String>,
}

impl Default for Reset {
    fn default() -> Self {
        Self {
            enabled: false,
            reset_persistent: true,
            reset_oem: true,
            reboot: true,
            poweroff: false,
            debug: false,
            disable_boot_entry: false,
            system_uri: None,
            config_urls: vec![],
        }
    }
}

#[allow(clippy::unnecessary_wraps)] // The type of the field.
fn default_reset() -> Option<Reset> {
    Some(Reset::default())
}

/// How to register.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Registration {
    /// Only `tpm` is implemented: a name that is printed on the host authenticates nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default = "default_tpm")]
    pub auth: Option<String>,
    /// Set by the coordinator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert: Option<String>,
    /// Accept hosts whose key is a file instead of a TPM.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub emulate_tpm: bool,
    /// Accepted and ignored with a warning: a key from a seed is no secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated_tpm_seed: Option<i64>,
    /// Labels of the inventories, below `labelPrefix`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Use no data of the hardware for names, labels and annotations: templates have the keys
    /// below `Random/` alone. Hosts send the data all the same.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_smbios: bool,
    /// Not supported: hosts are installed by elemental.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_toolkit: bool,
    /// Set by the coordinator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

#[allow(clippy::unnecessary_wraps)] // The type of the field.
fn default_tpm() -> Option<String> {
    Some("tpm".to_owned())
}

/// Where hosts register.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineRegistrationStatus {
    /// Ready.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The secret part of the URL. It follows the Secret and is not edited: to invalidate
    /// all earlier ISOs, rotate the token or change `spec.token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registration_token: Option<String>,
    /// What goes into seed ISOs.
    #[serde(rename = "registrationURL", skip_serializing_if = "Option::is_none")]
    pub registration_url: Option<String>,
    /// Ours: places of `spec.maxHosts` that were given away in the last minutes,
    /// by `spec.tpmHash`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reservations: BTreeMap<String, Time>,
    /// Ours: the host that was refused last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<LastRefusal>,
    /// Never set: there is no service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_ref: Option<ObjectReference>,
}

/// A host that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastRefusal {
    /// Name of the refusal, as on the host's console.
    pub reason: String,
    /// Cause and next action.
    pub message: String,
    /// Written again after some minutes while it lasts.
    pub time: Time,
    /// Generation of the registration that refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
