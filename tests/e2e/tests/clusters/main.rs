//! Tests on real API servers: what they accept, and the lifecycle of simulated
//! hosts, undisturbed, disturbed, restored and moved, as workers and as control
//! planes.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod control_planes;
mod deleted;
mod disturbed;
mod documented;
mod explained;
mod kinds;
mod lifecycle;
mod metal3;
mod moved;
mod page;
mod plugin;
mod restored;
mod rights;
mod rotated;
mod scraped;
mod secrets;
mod tables;
mod templates;
mod traced;
mod updated;
mod versions;
