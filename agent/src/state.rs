//! The files that the agent keeps on the disk, and their meaning.

pub mod before_node;
pub mod bootstrap;
pub mod connections;
pub mod duty;
pub mod install_record;
pub mod journal;
pub mod live_boot;
pub mod message;
pub mod network_trial;
pub mod node_identity;
pub mod receipt;
pub mod seed;
pub mod space;
