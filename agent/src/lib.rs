//! The host agent: registers, installs, attaches, carries out plans, reports.

pub mod backoff;
pub mod boot;
pub mod calls;
pub mod config;
pub mod console;
pub mod durable;
pub mod engine;
pub mod error;
pub mod executor;
pub mod facts;
pub mod failpoint;
pub mod identity;
pub mod install;
pub mod journal;
pub mod link;
pub mod names;
pub mod network;
pub mod paths;
pub mod register;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod status;
mod steps;
pub mod system;
pub mod tls;
