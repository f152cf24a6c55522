//! The client of the coordinator: its address, the connection, and the calls.

mod attempts;
pub mod calls;
pub mod config;
pub mod error;
pub mod names;
pub mod registration;
pub mod rejection;
mod server_verifier;
pub mod tls;
pub mod transport;
mod tunnel;
