//! `BaremetalMachine`: a machine of Cluster API on a host.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A machine of Cluster API on a host.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "BaremetalMachine",
    shortname = "bmm",
    namespaced,
    status = "BaremetalMachineStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Inventory", type_ = "string", json_path = ".status.machineInventoryRef.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(
        name = "Pool",
        type_ = "string",
        json_path = ".spec.machineInventoryPoolRef.name",
        priority = 1
    ),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(oldSelf.providerID) || (has(self.providerID) && self.providerID == oldSelf.providerID)").message("providerID never changes once it is set"))]
#[x_kube(validation = Rule::new("self.machineInventoryPoolRef == oldSelf.machineInventoryPoolRef").message("machineInventoryPoolRef never changes: make a new machine"))]
pub struct BaremetalMachineSpec {
    /// The pool whose hosts the machine may claim.
    pub machine_inventory_pool_ref: LocalRef,
    /// Choice of the host. Only `Ordered` is supported: the first available member in
    /// the order of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_policy: Option<AllocationPolicy>,
    /// `baremetal:///<inventory>`, written once, after the host reported its verified
    /// plan. Absent: the host has not reported it yet.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub provider_id: Option<String>,
}

/// An object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalRef {
    /// Name of the object.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// Choice of a member of the pool. Absent: `Ordered`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AllocationPolicy {
    /// The first available member in the pool's order.
    #[default]
    Ordered,
}

/// Projection of the claim and the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BaremetalMachineStatus {
    /// Ready, Paused, `InventoryAllocated`, `BootstrapReady`, `ImageResolved`,
    /// `PlanApplied`, `NodeLinked`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Lifecycle phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Cluster API v1beta1: the infrastructure is provisioned.
    pub ready: bool,
    /// Cluster API v1beta2: the infrastructure is provisioned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Copy of `spec.providerID`.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Addresses that the host reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// Failure domain of the host: its label
    /// `infrastructure.cluster.x-k8s.io/failure-domain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// The claimed host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_inventory_ref: Option<LocalRef>,
    /// The Secret that holds the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_secret_ref: Option<LocalRef>,
    /// SHA-256 of the newest plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_applied_plan_checksum: Option<String>,
    /// SHA-256 of the bootstrap data in that plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_applied_bootstrap_hash: Option<String>,
    /// Never written, because Cluster API treats it as terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Never written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
}

/// Lifecycle phases of a machine.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr,
)]
pub enum Phase {
    /// The machine has no host yet.
    Pending,
    /// A host is claimed.
    Allocated,
    /// A reprovision plan is in flight.
    Reprovisioning,
    /// The plan succeeded and was verified.
    Running,
    /// A clean plan is in flight.
    Preparing,
    /// An operator has to act.
    Failed,
}

/// Cluster API v1beta2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Initialization {
    /// True after the infrastructure was provisioned; it is never set to false again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<bool>,
}

/// An address in the form of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachineAddress {
    /// `InternalIP` or Hostname.
    #[serde(rename = "type")]
    pub kind: String,
    /// The address.
    pub address: String,
}
