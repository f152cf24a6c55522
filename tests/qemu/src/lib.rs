//! QEMU hosts for tests and for the demo: real firmware, kernel, systemd and cloud-init on this machine's loopback.
//!
//! [`Qemu`] is the machine of a [`guest::Guest`]. It has the hardware that its [`HostConfig`] names.

mod arguments;
mod config;
mod machine;
mod prepare;
mod qmp;
mod write_log;

pub use config::{
    BootOrder, Bus, DataDisk, Devices, Firmware, Forward, HostConfig, ImageDisk, Link, Nic, Tpm,
};
pub use machine::Qemu;
pub use write_log::WriteLog;
