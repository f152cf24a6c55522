//! The contract between the coordinator and the agent of a host.
//!
//! [`v1alpha1`] is generated from `proto/baremetal/v1alpha1/*.proto`. The other modules hold
//! messages after their check, so that for example a [`plan::Plan`] cannot be invalid. The
//! generated clients and servers are behind the features `client` and `server`.

#![warn(missing_docs)]

pub mod agent_mark;
pub mod balancer;
#[cfg(any(feature = "client", feature = "server"))]
mod codec;
pub mod distribution;
pub mod facts;
pub mod fields;
#[cfg(feature = "generate")]
pub mod generate;
pub mod limits;
pub mod plan;
pub mod platform;
pub mod proof;
pub mod refusal;
pub mod size;
pub mod staged;
pub mod tpm;
pub mod update_keys;
mod wire;

/// The generated wire messages.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
#[path = "generated/baremetal.v1alpha1.rs"]
pub mod v1alpha1;
