//! Every decision, without an effect.
//!
//! A decision is a function from what was observed to what is due; nothing
//! here knows a client, a file, a clock or a random number. In the order of the
//! story: [`inventory`] names a host, [`pool`] says who can be claimed,
//! [`machine`] what is due, [`plan`] what the host does, [`provider_id`] what
//! its node is called.

pub mod bootstrap;
pub mod cloud_init;
pub mod cluster;
pub mod host;
pub mod image_catalog;
pub mod inventory;
pub mod machine;
pub mod network;
pub mod plan;
pub mod pool;
pub mod provider_id;
pub mod retry;
#[cfg(test)]
mod samples;
pub mod seed_image;
mod yaml;
