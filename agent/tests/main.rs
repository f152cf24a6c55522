//! Tests of the agent in one program, because each program of tests costs a link; `crash` kills itself,
//! and is a program of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy exempts only functions marked as tests"
)]

mod console;
mod executor;
mod mounts;
mod system_agent;
mod wipe;
mod wire;
