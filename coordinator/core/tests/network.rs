//! Networks of hosts: what is accepted, replayed and reported.

// Tables are long, and a helper that cannot unwrap hides the case.
#![allow(clippy::unwrap_used, clippy::panic, clippy::too_many_lines, clippy::missing_panics_doc)]

#[path = "network/drift.rs"]
mod drift;
#[path = "network/explicit.rs"]
mod explicit;
#[path = "network/observed.rs"]
mod observed;
#[path = "network/properties.rs"]
mod properties;
#[path = "network/refused.rs"]
mod refused;
#[path = "network/reports.rs"]
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
