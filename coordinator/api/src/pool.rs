//! `MachineInventoryPool`: the hosts that a group of machines may use.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The hosts that the machines of one cluster may claim, in order.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "MachineInventoryPool",
    shortname = "mip",
    namespaced,
    status = "MachineInventoryPoolStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "Total", type_ = "integer", json_path = ".status.total"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.available"),
    printcolumn(name = "Allocated", type_ = "integer", json_path = ".status.allocated"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct MachineInventoryPoolSpec {
    /// Name of the Cluster whose machines take hosts of this pool.
    #[schemars(length(min = 1))]
    pub cluster_name: String,
    /// The listed hosts. A machine takes the first available one.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub machine_inventories: Vec<PoolMember>,
    /// Ours: hosts by their labels, beside those that are listed; they come after
    /// them, in the order of their names. An empty selector selects every host of the
    /// namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// Ours: a machine prefers a host that a machine of the same control plane or
    /// deployment held before, and of the others one that none held. Absent: the
    /// order of the pool decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_reuse: Option<bool>,
    /// Ours: a machine in deletion whose host is unreachable for this long is
    /// removed without a clean; the host is cleaned when it returns. Absent:
    /// the machine waits. A Go duration, such as `30m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandon_unreachable_after: Option<kube::core::Duration>,
}

/// A host of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolMember {
    /// Name of the `MachineInventory`.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Name of the node, at most 63 characters, because the kubelet writes it into a label.
    /// Absent: the name of the inventory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub hostname: Option<String>,
    /// Interface that holds the address of the cluster's internal endpoint while the
    /// host belongs to the control plane. Absent: `networkDevice` of the cluster. In a
    /// cluster without such an endpoint the field has no effect and is named by the
    /// condition `FieldsIgnored`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_device: Option<String>,
}

/// Numbers of members by state; each member is counted once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineInventoryPoolStatus {
    /// Ready, `MembersValid`, `AdmissionOpen`, `FieldsIgnored`, Paused.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Members that a machine can claim.
    pub available: i32,
    /// Members that a machine holds.
    pub allocated: i32,
    /// Members that execute a clean plan, or get one next because their machine is being
    /// deleted.
    pub preparing: i32,
    /// Members that execute a reprovision plan.
    pub reprovisioning: i32,
    /// Members that are not ready, failed, without plan Secret, missing or in another
    /// pool.
    pub unavailable: i32,
    /// All members.
    pub total: i32,
}
