//! The host agent: registers, installs, attaches, carries out plans, reports.

pub mod network;
pub mod durable;
pub mod failpoint;
pub mod paths;
pub mod system;
