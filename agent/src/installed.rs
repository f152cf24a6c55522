//! The installed system: stays attached to the coordinator and runs plans.

mod carried;
mod duties;
pub mod link;
mod network_trial;
mod own_kernel;
pub mod pace;
mod settings;
mod updates;
pub mod worker;
