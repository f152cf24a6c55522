//! The coordinator as a host sees it: where it is, how to connect, its calls.

pub mod backoff;
pub mod calls;
pub mod config;
pub mod names;
pub mod rejection;
mod server_verifier;
pub mod tls;
pub mod transport;
