//! The machine below the agent: its hardware, its network, its operating system.

pub mod authorities;
pub mod command;
pub mod credentials;
pub mod elemental;
pub mod facts;
pub mod image;
pub mod kept_paths;
pub mod kernel_log;
pub mod kernel_state;
pub mod left_behind;
pub mod network;
pub mod observed;
pub mod proxy;
pub mod sysfs;
pub mod system;
mod units;
pub mod wipe;
