//! What autoscalers ask of a template whose pool runs no node yet.

use coordinator_api::template::{BaremetalMachineTemplateStatus, NodeInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::host::hardware::Capacity;

/// The status of a template whose pool has this capacity.
pub fn template_status(capacity: &Capacity) -> BaremetalMachineTemplateStatus {
    let resources = [("cpu", capacity.cpu_threads), ("memory", capacity.memory_bytes)];
    let known = resources
        .into_iter()
        .filter_map(|(name, amount)| Some((name.to_owned(), Quantity(amount?.to_string()))));
    let node_info = capacity
        .architecture
        .map(|name| NodeInfo { architecture: name.to_owned(), operating_system: "linux".to_owned() });
    BaremetalMachineTemplateStatus { capacity: known.collect(), node_info }
}
