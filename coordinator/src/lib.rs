//! The coordinator: effects around the decisions of `coordinator-core`.
//!
//! [`run`] puts it together: one watch per kind ([`watch`]), one port for hosts
//! ([`listener`], [`rpc`], [`seed_iso`]), one leader ([`lease`]) whose
//! [`controllers`] gather, decide, apply one effect through [`store`], and
//! project the status.

pub mod agent_file;
pub mod base_image;
mod bounded;
pub mod ca;
pub mod client;
pub mod clock;
pub mod cluster_api;
pub mod config;
pub mod controllers;
pub mod conversion;
pub mod credential;
pub mod diagnostics;
pub mod egress;
pub mod events;
pub mod health;
pub mod index;
pub mod key;
pub mod lease;
pub mod listener;
pub mod metrics;
pub mod permits;
pub mod port;
pub mod quantities;
pub mod rpc;
pub mod run;
pub mod seed_iso;
pub mod shutdown;
pub mod store;
pub mod telemetry;
pub mod tls;
pub mod traces;
pub mod watch;
pub mod workload;
mod write_limits;

#[cfg(test)]
mod tests;
