//! The installed system: attached to the coordinator, carrying out plans.

mod carried;
mod duties;
pub mod error;
pub mod link;
pub mod mailbox;
mod network_trial;
pub mod pace;
mod settings;
mod updates;
pub mod worker;
