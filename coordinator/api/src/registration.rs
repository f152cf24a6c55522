//! `MachineRegistration`: the registration of hosts.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::network::RegistrationNetwork;

/// Settings of hosts that register: the name, labels and annotations of their
/// inventories, and their install.
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
    /// Template of the name of the inventory. Keys such as `${System Information/UUID}` are
    /// replaced by facts of the host. If the host does not report a fact, the name is
    /// random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_name: Option<String>,
    /// Labels of the inventory; the values are templates. They follow the facts of the host
    /// until a plan is written for it. Pools select by labels, so that they are the
    /// operator's from then on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub machine_inventory_labels: BTreeMap<String, String>,
    /// Annotations of the inventory; the values are templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub machine_inventory_annotations: BTreeMap<String, String>,
    /// Prefix of the labels and annotations with facts of a host, before a slash. `-`: no
    /// prefix. Absent: `elemental.cattle.io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_prefix: Option<String>,
    /// The token, which is the last part of the registration URL. No two registrations
    /// have the same token. Absent: a random token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 16, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub token: Option<String>,
    /// Ours: admission of new hosts. With `Manual` they wait for an operator, who sets the
    /// annotation `baremetal.cluster.io/approval` of the `MachineInventory`.
    #[serde(default)]
    #[schemars(default)]
    pub approval: ApprovalPolicy,
    /// Ours: time (RFC 3339) after which the token registers no new hosts. Hosts with an
    /// inventory register by their key. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_expires_at: Option<Time>,
    /// Ours: largest number of inventories of this registration, those that wait for
    /// approval included; beyond it no new host registers. Absent: 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_hosts: Option<u32>,
    /// Ours: number of new hosts that each replica of the coordinator admits in a minute;
    /// 200, or this number if it is larger, may come at once. Absent: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub new_hosts_per_minute: Option<u32>,
    /// Configuration that hosts receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Config>,
}

/// Admission of a new host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalPolicy {
    /// The token admits the host.
    #[default]
    Automatic,
    /// The host is `Pending` until an operator admits it.
    Manual,
}

/// Configuration that hosts receive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Config {
    /// cloud-config of the installed system: for yip if it has `stages`, else for
    /// cloud-init.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub cloud_config: Option<Value>,
    /// Configuration of Elemental.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elemental: Option<Elemental>,
    /// An explicit network for every host of this registration, which is copied to new
    /// inventories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<RegistrationNetwork>,
}

/// Configuration of Elemental.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Elemental {
    /// Settings of the install.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<Install>,
    /// Settings of the registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registration: Option<Registration>,
    /// Settings of a reset, which is not supported because hosts are cleaned by plans.
    /// `enabled` is rejected. Any other value than the default has no effect and is named by
    /// the condition `FieldsIgnored`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default = "default_reset")]
    pub reset: Option<Reset>,
    /// The field has no effect and is named by `FieldsIgnored`, because no host holds a
    /// Kubernetes credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub system_agent: Option<Value>,
}

/// Settings of the install.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Install {
    /// Path of the disk, which takes precedence over the selector. The install waits for a
    /// path that does not exist yet. All data on the disk is erased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Requirements that exactly one disk must fulfil. With neither a device nor a selector
    /// the host must have exactly one disk that can be chosen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_selector: Vec<DeviceRequirement>,
    /// Allow the choice of a disk that is not empty. Disks in use by RAID, LVM, multipath,
    /// ZFS or Ceph, and disks with the installed system of another host, are never chosen.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_erase: bool,
    /// Source of the system. Absent: the live image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_uri: Option<String>,
    /// Settings of snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default = "default_snapshotter")]
    pub snapshotter: Option<Snapshotter>,
    /// Verbose output of the install.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
    /// Restart after the install. Absent: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reboot: Option<bool>,
    /// Switch off after the install.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub poweroff: bool,
    /// Eject the medium at reboot.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub eject_cd: bool,
    /// Keep the existing partitions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_format: bool,
    /// Do not change the firmware's boot entries.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disable_boot_entry: bool,
    /// The field has no effect because the installer detects the firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// The field is not supported. Name the image in `system-uri`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso: Option<String>,
    /// The field has no effect because the installer no longer has this option.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tty: Option<String>,
    /// The field has no effect because the image has the configuration of the installer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_dir: Option<String>,
    /// URLs or paths of cloud-configs of yip, which the installer copies to the
    /// installed system.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub config_urls: Vec<String>,
}

/// A requirement on a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceRequirement {
    /// Attribute to compare. WWN, Serial, Model, Rotational and Path are ours.
    pub key: DeviceKey,
    /// Operator of the comparison.
    pub operator: DeviceOperator,
    /// Values to compare with. Sizes are Kubernetes quantities.
    #[serde(default)]
    pub values: Vec<String>,
}

/// Attribute of a disk.
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

/// Operator of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[allow(missing_docs)]
pub enum DeviceOperator {
    In,
    NotIn,
    Gt,
    Lt,
}

/// Settings of snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Snapshotter {
    /// loopdevice or btrfs.
    #[serde(rename = "type")]
    pub kind: String,
    /// Number of snapshots to keep, including the running one.
    #[schemars(range(min = 2))]
    pub max_snaps: i32,
}

impl Default for Snapshotter {
    fn default() -> Self {
        Self { kind: "loopdevice".to_owned(), max_snaps: 2 }
    }
}

#[allow(clippy::unnecessary_wraps, reason = "serde needs the type of the field")]
fn default_snapshotter() -> Option<Snapshotter> {
    Some(Snapshotter::default())
}

/// Settings of a reset, which is not supported. The defaults are the defaults of the
/// elemental operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Reset {
    /// A registration with `true` admits no host.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enabled: bool,
    /// The field has no effect.
    pub reset_persistent: bool,
    /// The field has no effect.
    pub reset_oem: bool,
    /// The field has no effect.
    pub reboot: bool,
    /// The field has no effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub poweroff: bool,
    /// The field has no effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
    /// The field has no effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disable_boot_entry: bool,
    /// The field has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_uri: Option<String>,
    /// The field has no effect.
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

#[allow(clippy::unnecessary_wraps, reason = "serde needs the type of the field")]
fn default_reset() -> Option<Reset> {
    Some(Reset::default())
}

/// Settings of the registration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Registration {
    /// Authentication of hosts. Only `tpm` is supported, because a name that is printed on
    /// the host proves no identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default = "default_tpm")]
    pub auth: Option<String>,
    /// The field has no effect because the coordinator sets the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert: Option<String>,
    /// Accept hosts whose key is a file instead of a TPM.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub emulate_tpm: bool,
    /// The number has no effect and is named by `FieldsIgnored`, because a key from a seed is
    /// no secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated_tpm_seed: Option<i64>,
    /// Ours: the proxy by which hosts reach the coordinator, in the live and in the installed
    /// system. The environment of the agent and `/etc/sysconfig/proxy` on the host take precedence.
    /// Absent: hosts connect directly.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^https?://[^\s/]+/?$"))]
    pub https_proxy: Option<String>,
    /// Labels of the inventories, with the prefix `labelPrefix`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Ours: names, domains, addresses and subnets that hosts reach without `https-proxy`,
    /// separated by commas. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
    /// Use no facts of the hardware for names, labels and annotations, so that templates only
    /// have the keys below `Random/`. Hosts still send the facts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_smbios: bool,
    /// The field is not supported because elemental installs hosts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_toolkit: bool,
    /// The field has no effect because the coordinator sets the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

#[allow(clippy::unnecessary_wraps, reason = "serde needs the type of the field")]
fn default_tpm() -> Option<String> {
    Some("tpm".to_owned())
}

/// Address of the registration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineRegistrationStatus {
    /// Ready.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The secret part of the URL, a copy from the Secret. To invalidate all earlier ISOs,
    /// rotate the token or change `spec.token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registration_token: Option<String>,
    /// URL in the seed ISOs.
    #[serde(rename = "registrationURL", skip_serializing_if = "Option::is_none")]
    pub registration_url: Option<String>,
    /// Ours: reservations of `spec.maxHosts` of the last minutes, by `spec.tpmHash`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reservations: BTreeMap<String, Time>,
    /// Ours: the newest refusal of a host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<LastRefusal>,
    /// Never set, because there is no service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_ref: Option<ObjectReference>,
}

/// A refusal of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastRefusal {
    /// Name of the refusal, which the console of the host shows too.
    pub reason: String,
    /// Cause and next action.
    pub message: String,
    /// Time of the refusal, which is updated after some minutes while the refusal lasts.
    pub time: Time,
    /// Generation of the registration at the refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
