//! Facts of the hardware and of the running system: hints for names and labels, and the input of
//! the disk choice. No fact identifies the host.

mod disk_paths;
pub mod disks;
pub mod graphics;
mod joined_disks;
pub mod memory;
pub mod nics;
pub mod os_release;
mod platform;
pub mod probe;
pub mod processors;
pub mod smbios;

use std::collections::BTreeMap;

use proto::v1alpha1::{HostFacts, ObservedNetwork};
use proto::{limits, size};
use serde_json::{Value, json};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::ground::paths::Root;
use crate::ground::version::own_version;
use crate::host::sysfs::read_line;

/// Collects all facts; a fact that cannot be read is left out. `network` provides the addresses of
/// the interfaces.
pub fn collect_facts(root: &Root, network: Option<&ObservedNetwork>) -> HostFacts {
    let (cpu_threads, cpu_model, memory_bytes) = processors_and_memory();
    let mut facts = HostFacts {
        smbios: smbios::read_sections(root),
        cpu_threads,
        cpu_model,
        memory_bytes,
        disks: disks::read_disks(root).into_iter().map(Into::into).collect(),
        nics: nics::read_nics(root, network),
        hostname: read_line(&root.join("/proc/sys/kernel/hostname")),
        physical_memory_bytes: memory::read_physical(root),
        page_sizes: memory::read_page_sizes(root),
        processors: processors::read_processors(root),
        graphics_cards: graphics::read_cards(root),
        operating_system: Some(os_release::read(root)),
        chassis_type: read_line(&root.join("/sys/class/dmi/id/chassis_type")).parse().unwrap_or(0),
        agent_version: own_version().to_string(),
        registration_address: network.and_then(find_address).unwrap_or_default(),
        architecture: std::env::consts::ARCH.to_owned(),
        platform: Some(platform::read(root)),
    };
    facts.smbios.truncate(limits::SMBIOS_SECTIONS);
    facts.disks.truncate(limits::DISKS);
    facts.nics.truncate(limits::INTERFACES);
    facts.processors.truncate(limits::CARDS);
    facts.graphics_cards.truncate(limits::CARDS);
    let left_out = size::bound_facts(&mut facts);
    if left_out > 0 {
        tracing::warn!(left_out, "disks or network cards left out, the registration has no room for them");
    }
    facts
}

/// An address of the interface with the default route, else of any interface.
fn find_address(network: &ObservedNetwork) -> Option<String> {
    let mut routes = network.routes.iter();
    let route = routes.find(|route| matches!(route.destination.as_str(), "0.0.0.0/0" | "::/0"));
    let interfaces = network.interfaces.iter();
    let mut interfaces =
        interfaces.filter(|interface| route.is_none_or(|route| route.interface == interface.name));
    let address = interfaces.find_map(|interface| interface.addresses.first())?;
    Some(without_prefix(address))
}

/// The address without its prefix length.
fn without_prefix(address: &str) -> String {
    address.split_once('/').map_or(address, |(address, _)| address).to_owned()
}

fn processors_and_memory() -> (u32, String, u64) {
    let wanted = RefreshKind::nothing()
        .with_cpu(CpuRefreshKind::nothing())
        .with_memory(MemoryRefreshKind::nothing().with_ram());
    let Ok(system) = System::new_with_specifics(wanted) else {
        return Default::default();
    };
    let model = system.cpus().first().map_or_else(String::new, |cpu| cpu.brand().trim().to_owned());
    let threads = u32::try_from(system.cpus().len()).unwrap_or(u32::MAX);
    (threads, model, system.total_memory())
}

/// The output of the verb `facts`: the content of a registration, the values that a device selector
/// matches, and the keys of name and label templates. It holds no secret.
pub fn render_facts(root: &Root, network: Option<&ObservedNetwork>) -> Value {
    let facts = collect_facts(root, network);
    json!({
        "templateKeys": template_keys(&facts),
        "facts": facts,
        "disks": disks::read_disks(root),
        "observedNetwork": network,
    })
}

/// `${Title/Key}` with its value, for `machineName` and label templates.
fn template_keys(facts: &HostFacts) -> BTreeMap<String, String> {
    let values = proto::facts::fact_values(facts);
    values.into_iter().map(|(key, value)| (format!("${{{key}}}"), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::v1alpha1::SmbiosSection;

    #[test]
    fn template_keys_have_the_form_of_templates() {
        let section = |serial: &str| SmbiosSection {
            title: "System Information".to_owned(),
            values: [("Serial Number".to_owned(), serial.to_owned())].into(),
        };
        let facts = HostFacts { smbios: vec![section("a"), section("b")], ..HostFacts::default() };
        assert_eq!(template_keys(&facts)["${System Information/Serial Number}"], "b");
    }
}
