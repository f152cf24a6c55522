//! Every decision, without an effect.
//!
//! A decision is a function from parsed values to what is due; nothing here
//! uses a client, a file, a clock or a random number. In the order of the
//! lifecycle: [`attestation`] verifies a TPM, [`inventory`] names a host,
//! [`pool`] says which can be claimed, [`demand`] what a machine asks for,
//! [`assignment`] what is due for it, [`plan`] what the host executes,
//! [`host_decision`] what is due for a host alone,
//! [`provider_id`] how its node is called, [`node_link`] which Node it is,
//! [`load_balancer`] who holds the endpoint's address, [`reboot`] which boot of a
//! host ends on request, [`trace`] which spans tell of it.

pub mod assignment;
pub mod attestation;
pub mod bootstrap;

pub mod cloud_init;
pub mod cluster;
pub mod demand;
pub mod host;
pub mod host_decision;
pub mod ids;
pub mod image_catalog;
pub mod inventory;
pub mod load_balancer;
pub mod machine_status;
pub mod metal3;
pub mod network;
pub mod node_link;
pub mod plan;
pub mod pool;
pub mod problem;
pub mod provider_id;
pub mod reboot;
pub mod registry_access;
pub mod retry;
#[cfg(test)]
mod samples;
pub mod seed_image;
mod text;
pub mod trace;
mod yaml;
