//! The live system: register this host, then install it or boot its disk.

pub mod boot_order;
pub mod choose;
pub mod found;
pub mod install;
pub mod leave;
pub mod register;
