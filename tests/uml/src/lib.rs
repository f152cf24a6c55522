//! Hosts in User Mode Linux for tests: the kernel is a process of this machine. The programs on it are real, from systemd
//! to kubelet, and run at the speed of this machine.
//!
//! [`Uml`] is the machine of a [`guest::Guest`]. It plays firmware and boot loader: `firmware` finds the disk or the ISO
//! that boots, and `grub` runs the `grub.cfg` of that volume with the boot variables that it keeps.

mod arguments;
mod config;
mod firmware;
mod grub;
mod machine;
mod smbios;
mod volumes;

pub use config::{HostConfig, Nic};
pub use machine::Uml;
