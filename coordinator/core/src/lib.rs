//! Every decision, without an effect.
//!
//! A decision is a function from parsed values to an effect; nothing here uses a client, a file, a
//! clock or a random number. In the order of the lifecycle: [`attestation`] verifies a TPM,
//! [`inventory`] names a host, [`pool`] chooses a host for a claim, [`demand`] reads the demand of a
//! machine, [`assignment`] decides about the machine and its host, [`plan`] renders the steps of the
//! host, [`host_decision`] decides about a host alone, [`provider_id`] names its node, [`node_link`]
//! finds the Node, [`load_balancer`] elects the holder of the endpoint's address, [`reboot`] ends a
//! boot on request, [`trace`] makes the spans.

pub mod assignment;
pub mod attestation;
pub mod bootstrap;

pub mod cloud_init;
pub mod cluster;
pub mod demand;
pub mod holding;
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
pub mod pause;
pub mod plan;
pub mod pool;
pub mod problem;
pub mod provider_id;
pub mod reboot;
pub mod registry_access;
mod release;
pub mod retry;
#[cfg(test)]
mod samples;
pub mod seed_image;
mod text;
pub mod trace;
mod yaml;
