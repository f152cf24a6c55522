//! The host agent: registers, installs, attaches, carries out plans, reports.

pub mod network;
