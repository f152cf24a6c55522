//! The coordinator as a host sees it: where it is, how to connect, its calls.

pub mod calls;
pub mod config;
pub mod error;
pub mod names;
pub mod registration;
pub mod rejection;
mod server_verifier;
pub mod tls;
pub mod transport;
