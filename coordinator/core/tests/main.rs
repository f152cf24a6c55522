//! Tests of decisions by their public functions, in one program, because each program of tests costs a link.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    clippy::missing_panics_doc,
    reason = "clippy exempts only functions marked as tests, and tables are long"
)]

mod bootstrap;
mod inventory;
mod metal3_conversion;
mod network;
mod network_connections;
mod registration_fields;
