//! The installed system: attached to the coordinator, carrying out plans.

mod carried;
pub mod link;
pub mod mailbox;
pub mod pace;
mod settings;
pub mod worker;
