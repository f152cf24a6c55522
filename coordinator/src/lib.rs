//! The coordinator: effects around the decisions of `coordinator-core`.
//!
//! [`service`] puts it together: one watch a kind ([`watches`]), one port for
//! hosts ([`serve`], [`rpc`], [`seed_iso`]), one leader ([`lease`]) whose
//! [`controllers`] observe, decide, apply one effect through [`store`], and
//! project the status.

pub mod base_image;
pub mod ca;
pub mod capi;
pub mod clock;
pub mod config;
pub mod controllers;
pub mod events;
pub mod health;
pub mod lease;
pub mod metrics;
pub mod rpc;
pub mod seed_iso;
pub mod serve;
pub mod service;
pub mod shutdown;
pub mod store;
pub mod telemetry;
pub mod tls;
pub mod watch;
pub mod watches;
