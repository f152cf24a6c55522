//! What the hardware and the running system say of themselves: hints for names
//! and labels, and what the installer chooses the disk from. Nothing here is
//! an identity.

pub mod disks;
pub mod nics;
pub mod os_release;
pub mod smbios;
pub mod told;

use std::fs;

use proto::limits;
use proto::v1alpha1::{HostFacts, OperatingSystem};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::paths::Root;

/// Collects everything. A fact that cannot be read is an absent fact.
#[must_use]
pub fn collect(root: &Root) -> HostFacts {
    let (cpu_threads, cpu_model, memory_bytes) = processors_and_memory();
    let mut facts = HostFacts {
        smbios: smbios::read(root),
        cpu_threads,
        cpu_model,
        memory_bytes,
        disks: disks::read(root).into_iter().map(Into::into).collect(),
        nics: nics::read(root),
        hostname: read_line(root, "/proc/sys/kernel/hostname"),
        operating_system: Some(operating_system(root)),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_id: read_line(root, "/proc/sys/kernel/random/boot_id"),
    };
    facts.smbios.truncate(limits::SMBIOS_SECTIONS);
    facts.disks.truncate(limits::DISKS);
    facts.nics.truncate(limits::INTERFACES);
    facts
}

fn processors_and_memory() -> (u32, String, u64) {
    let wanted = RefreshKind::nothing()
        .with_cpu(CpuRefreshKind::nothing())
        .with_memory(MemoryRefreshKind::nothing().with_ram());
    let Ok(system) = System::new_with_specifics(wanted) else {
        return Default::default();
    };
    let model = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
    let threads = u32::try_from(system.cpus().len()).unwrap_or(u32::MAX);
    (threads, model.unwrap_or_default(), system.total_memory())
}

fn operating_system(root: &Root) -> OperatingSystem {
    let text = fs::read_to_string(root.os_release()).unwrap_or_default();
    let mut system = os_release::parse_os_release(&text);
    system.boot_mode = root.boot_mode().into();
    system
}

fn read_line(root: &Root, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_default().trim().to_owned()
}
