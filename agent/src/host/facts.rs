//! What the hardware and the running system report: hints for names
//! and labels, and what the installer chooses the disk from. Nothing here is
//! an identity.

pub mod disks;
pub mod nics;
pub mod os_release;
pub mod smbios;

use std::collections::BTreeMap;
use std::fs;

use proto::limits;
use proto::v1alpha1::{HostFacts, ObservedNetwork};
use serde_json::{Value, json};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::paths::Root;

/// Collects everything. A fact that cannot be read is an absent fact.
#[must_use]
pub fn collect_facts(root: &Root) -> HostFacts {
    let (cpu_threads, cpu_model, memory_bytes) = processors_and_memory();
    let mut facts = HostFacts {
        smbios: smbios::read_sections(root),
        cpu_threads,
        cpu_model,
        memory_bytes,
        disks: disks::read_disks(root).into_iter().map(Into::into).collect(),
        nics: nics::read_nics(root),
        hostname: read_line(root, "/proc/sys/kernel/hostname"),
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

fn read_line(root: &Root, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_default().trim().to_owned()
}

/// What the `facts` verb prints: all that a registration sends, what a device
/// selector can match, and the keys of name and label templates. No secret is
/// in it.
#[must_use]
pub fn render_facts(root: &Root, network: Option<&ObservedNetwork>) -> Value {
    let facts = collect_facts(root);
    json!({
        "templateKeys": template_keys(&facts),
        "facts": facts,
        "disks": disks::read_disks(root),
        "observedNetwork": network,
    })
}

/// `${Title/Key}` with its value here, for `machineName` and label templates.
/// Of sections with one title the last wins, as upstream.
fn template_keys(facts: &HostFacts) -> BTreeMap<String, String> {
    facts
        .smbios
        .iter()
        .flat_map(|section| {
            let title = &section.title;
            let key = move |key: &String| format!("${{{title}/{key}}}");
            section.values.iter().map(move |(name, value)| (key(name), value.clone()))
        })
        .collect()
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
