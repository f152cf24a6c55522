//! `SeedImage`: an ISO that carries one registration.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::object::{Key, Namespace};

/// An ISO of a base ISO and one registration, which the coordinator serves.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "elemental.cattle.io",
    version = "v1beta1",
    kind = "SeedImage",
    namespaced,
    status = "SeedImageStatus",
    derive = "Default",
    derive = "PartialEq",
    // `attr` takes no `serde`. Objects of the elemental operator may have no spec.
    attr = "cfg_attr(all(), serde(default))",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Download", type_ = "string", json_path = ".status.downloadURL", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct SeedImageSpec {
    /// The base ISO: an OCI reference (`registry.example.com/os/image-iso:v1`, with
    /// or without `oci://`) of an image with the ISO in a layer, an http(s) URL, or
    /// `file:///` and a path below `--base-image-directory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_image: Option<String>,
    /// Ours: Secret of type `kubernetes.io/dockerconfigjson` in this namespace, for the
    /// registry of an OCI reference. Absent: the registry is accessed without a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_image_pull_secret: Option<String>,
    /// Ours: Secret in this namespace whose key `ca.crt` has further CA certificates for
    /// the registry or https server. Absent: only the CA certificates of the
    /// coordinator's system are trusted.
    #[serde(default, rename = "baseImageCASecret", skip_serializing_if = "Option::is_none")]
    pub base_image_ca_secret: Option<String>,
    /// Ours: required digest of the base ISO, as `sha256:` and 64 hexadecimal digits.
    /// Absent: any ISO that the source serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^sha256:[0-9a-f]{64}$"))]
    pub base_image_digest: Option<String>,
    /// The `MachineRegistration`. Its namespace defaults to the namespace of this object.
    /// A registration in another namespace has to grant the use by its annotation
    /// `baremetal.cluster.io/seed-image-namespaces`.
    #[serde(default)]
    pub registration_ref: ObjectReference,
    /// The field has no effect and is named by the condition `FieldsIgnored`, because no
    /// pod is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub build_container: Option<Value>,
    /// Minutes until the download is closed; 0 keeps it open.
    #[serde(default = "an_hour")]
    #[schemars(default = "an_hour")]
    pub cleanup_after_minutes: i32,
    /// cloud-config of the live system.
    #[serde(default, rename = "cloud-config", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub cloud_config: Option<Value>,
    /// Create the ISO and its download token again. The field is reset to false when it is
    /// done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retrigger_build: bool,
    // `IntOrString` has 32 bits, which the default exceeds. An object that cannot be read
    // would break the watch on all objects.
    /// The field has no effect, because nothing is copied. A value other than the default
    /// is named by `FieldsIgnored`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::quantity_value", default = "default_size")]
    pub size: Option<Value>,
    /// Platform of the coordinator's agent: `linux/amd64` (or `linux/x86_64`) or
    /// `linux/arm64` (or `linux/aarch64`). Other platforms are rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^$|^\S+\/\S+$"))]
    pub target_platform: Option<String>,
    /// `iso`. The type `raw` is rejected.
    #[serde(default, rename = "type")]
    pub kind: SeedImageType,
}

fn an_hour() -> i32 {
    60
}

/// The default of `spec.size`.
#[allow(clippy::unnecessary_wraps)] // The type of the field.
pub fn default_size() -> Option<Value> {
    Some(json!(6_u64 << 30))
}

impl SeedImage {
    /// The registration that the image names. Its namespace defaults to the namespace of
    /// the image.
    pub fn registration_key(&self) -> Key {
        let reference = &self.spec.registration_ref;
        let namespace = reference.namespace.as_deref().map_or_else(|| Namespace::of(self), Namespace::from);
        Key::new(namespace, reference.name.as_deref().unwrap_or(""))
    }
}

/// Form of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SeedImageType {
    /// Bootable ISO.
    #[default]
    Iso,
    /// Disk image, which is not supported.
    Raw,
}

/// State of the ISO and its download.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SeedImageStatus {
    /// Ready, `SeedImageReady`, `FieldsIgnored`, `BaseImageInCatalog`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// URL of the ISO.
    #[serde(rename = "downloadURL", skip_serializing_if = "Option::is_none")]
    pub download_url: Option<String>,
    /// URL of the SHA-256 of the ISO, in the format of sha256sum.
    #[serde(rename = "checksumURL", skip_serializing_if = "Option::is_none")]
    pub checksum_url: Option<String>,
    /// The secret part of both URLs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub download_token: Option<String>,
    /// State of the build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<SeedImageState>,
    /// Ours: the generation of the spec to which the state belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ours: digest of the base ISO, as `sha256:` and 64 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_digest: Option<String>,
    /// Ours: digest of the manifest of the OCI image with the base ISO.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_manifest_digest: Option<String>,
    /// Ours: time when the download was opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opened: Option<Time>,
    /// Ours: the time of `cleanupAfterMinutes` is over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
}

/// States of a seed image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[allow(missing_docs)]
pub enum SeedImageState {
    NotStarted,
    Initialized,
    Started,
    Completed,
    Failed,
}
