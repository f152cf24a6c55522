//! QEMU hosts for tests and for the demo: real firmware, kernel, systemd and cloud-init on this machine's loopback.
//!
//! [`Host::start`] powers a host on and keeps its state as hardware does: a reset boots it again, a
//! power-off leaves it off, [`Host::power_cut`] pulls the plug. What happens inside is read by [`Host::exec`] (the
//! QEMU guest agent) and in the console log; every wait has a deadline, and its error says what was seen last.
//! All processes end with the [`Host`], with a panic, and with this process itself.

mod arguments;
mod config;
mod console;
mod error;
mod guest_agent;
mod host;
mod images;
mod prepare;
mod process;
mod qmp;
mod write_log;

pub use config::{
    BootOrder, Bus, DataDisk, Devices, Firmware, Forward, HostConfig, ImageDisk, Link, Nic, Tpm,
};
pub use error::LabError;
pub use guest_agent::Output;
pub use host::{Host, HostState, Stop};
pub use images::{Image, ImageInputs, Kernel, Network, build};
pub use write_log::WriteLog;
