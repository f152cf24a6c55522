//! The agent's calls against a coordinator of the test's own: real TLS on the
//! loopback, the generated server, no Kubernetes.

// All of it is test code, also what stands outside of test functions.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "wire/coordinator.rs"]
mod coordinator;
#[path = "wire/disks.rs"]
mod disks;
#[path = "wire/link.rs"]
mod link;
#[path = "wire/register.rs"]
mod register;
#[path = "wire/updates.rs"]
mod updates;
#[path = "wire/verifier.rs"]
mod verifier;
