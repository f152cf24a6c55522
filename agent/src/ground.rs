//! Files that survive a power cut, paths and failures: every other room stands on this one.

pub mod backoff;
pub mod durable;
pub mod failpoint;
pub mod failure;
pub mod file_changes;
#[cfg(test)]
pub(crate) mod limited;
pub mod overwrite;
pub mod paths;
pub mod tree;
pub mod version;
