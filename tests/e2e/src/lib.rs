//! End to end: real API servers, Cluster API's real manager, two replicas of
//! the real coordinator, and hosts, from seed ISO to Node and back.
//!
//! [`environment::Environment`] is everything but the hosts;
//! [`lifecycle::Lifecycle`] runs the steps with a [`host::Host`], which is
//! simulated or QEMU. The demo and the tests run the same steps.

pub mod agents;
pub mod backup;
pub mod bonded_host;
pub mod cluster_api_suite;
pub mod cluster_of_hosts;
pub mod collector;
pub mod commands;
pub mod control_planes;
pub mod environment;
pub mod fleet;
pub mod forwarder;
pub mod guest_site;
pub mod history;
pub mod host;
pub mod installing;
pub mod lifecycle;
pub mod manifests;
pub mod program;
pub mod progress;
pub mod provider;
pub mod replicas;
pub mod requests;
pub mod seed;
pub mod serve;
pub mod site;
pub mod switch;
pub mod watching;
