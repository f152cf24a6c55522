//! Decisions of the Metal3 kinds.

pub mod cluster;
pub mod conversion;
pub mod data;
pub mod host;
pub mod ipam;
pub mod machine;
pub mod orphan;
pub mod remediation;
mod selector;
