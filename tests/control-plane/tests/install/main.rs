//! What operators install, by the programs that they install it with.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chart;
mod clusterctl;
#[path = "../common/mod.rs"]
mod common;
mod document;
mod image;
mod storage;

/// API servers are started one after the other: several at once make a small machine miss deadlines.
static SERVERS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
