//! The live system: register this host, then install it or boot its disk.

pub mod boot_order;
pub mod disk_choice;
pub mod handover;
pub mod install;
pub mod installed_disk;
pub mod register;
