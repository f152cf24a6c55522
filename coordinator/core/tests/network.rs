//! Networks of hosts: what is accepted, replayed and reported.

mod drift;
mod explicit;
mod observed;
mod properties;
mod refused;
mod reports;

use coordinator_api::inventory::MachineInventorySpec;
use coordinator_core::network::{NetworkError, host_network};
use serde_json::Value;

fn replay(network: Value) -> Result<Option<String>, NetworkError> {
    network_config(&MachineInventorySpec {
        observed_network: Some(serde_json::from_value(network).unwrap()),
        ..Default::default()
    })
}

fn network_config(spec: &MachineInventorySpec) -> Result<Option<String>, NetworkError> {
    host_network(spec).map(|network| network.network_config)
}
