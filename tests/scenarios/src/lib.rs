//! The story in its first depth: the coordinator as it is, the agent's engine
//! and line as they are, an API server in memory, hosts made of files, and a
//! clock that a test turns. Nothing here opens a socket, so that virtual time
//! never jumps.
//!
//! [`World`] holds it all; its verbs are what people, Cluster API, operators
//! and bad luck do.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "all of this crate is a test: what cannot be goes up as the test's failure"
)]

mod cables;
mod cluster_api;
mod coordinator;
mod dump;
mod history;
mod host;
mod log;
mod mortal;
mod outcome;
mod people;
mod rigged;
mod table;
mod world;

pub use cluster_api::{BOOTSTRAP_CANARY, NAMESPACE, bootstrap_data};
pub use history::Violation;
pub use host::Host;
pub use outcome::Outcome;
pub use rigged::{Ending, Side};
pub use table::Table;
pub use world::{DEADLINE, World};
