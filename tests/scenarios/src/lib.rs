//! Scenarios in virtual time: the real coordinator, the real engine and link of
//! the agent, an API server in memory, and hosts made of files. Nothing opens a
//! socket, so that virtual time never jumps.
//!
//! [`World`] holds all of it; its methods are what operators, Cluster API and
//! faults do.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "all of this crate is a test: what cannot be goes up as the test's failure"
)]

mod cluster_api;
mod coordinator;
mod doubled_nodes;
mod dump;
mod fault_injection;
mod history;
mod host;
mod host_effects;
mod killable_client;
mod log;
mod metal3;
mod network;
mod operator;
mod outcome;
mod scenario;
mod seen;
mod table;
mod token_search;
mod world;

pub use cluster_api::{BOOTSTRAP_CANARY, NAMESPACE, SILENT, bootstrap_data};
pub use fault_injection::{Call, Fault, Side};
pub use history::{EDITED, Violation, WrittenPlan};
pub use host::{FittedTpm, Host, STRANDED_ADDRESS, UNREACHABLE_COORDINATOR};
pub use outcome::{HostOutcome, Outcome};
pub use scenario::{
    Scenario, Undisturbed, Write, kill_at_drawn_writes, kill_at_every_write, kill_on_side_of_every_write,
};
pub use table::Table;
pub use world::{DEADLINE, MEMORY, World};
