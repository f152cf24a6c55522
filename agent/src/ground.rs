//! Files that survive a power cut, paths, failures: the ground of all other rooms.

pub mod backoff;
pub mod durable;
pub mod error;
pub mod failpoint;
pub mod file_changes;
pub mod overwrite;
pub mod paths;
pub mod version;
