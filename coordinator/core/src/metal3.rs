//! Decisions of the Metal3 kinds.

pub mod ipam;
