//! Rules of the tree, in one program, because each program of tests costs a link.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy exempts only functions marked as tests"
)]

mod advisories;
mod documents;
mod former_release;
mod generated;
mod imports;
mod inline;
mod names;
mod observability;
mod rights;
mod threats;
mod units;
