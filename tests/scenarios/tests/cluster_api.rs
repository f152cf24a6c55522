//! Each rule of Cluster API's contracts for infrastructure providers, as a test with the name of
//! the rule; at v1beta1 those that differ from v1beta2.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod contract;
mod definitions;
mod v1beta1;
