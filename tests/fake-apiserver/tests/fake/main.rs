//! Tests of the fake against itself, and of the fake by the suite that the real server passes.

#![expect(clippy::unwrap_used, reason = "clippy allows it only in functions marked as tests")]

mod access;
mod conformance;
mod faults;
mod patch_types;
mod restore;
mod runtime;
#[path = "../suite/mod.rs"]
mod suite;
