//! The live system: registers this host, then installs it or boots its disk.

pub mod boot_order;
pub mod disk_choice;
pub mod handover;
pub mod install;
pub mod installed_disk;
pub mod late_disks;
pub mod register;
pub mod used_disk;
