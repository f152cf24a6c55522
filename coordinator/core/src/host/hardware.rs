//! The hardware that a host reports, bounded, and the capacity of a node on it.

use coordinator_api::hardware::{DiskStatus, HardwareStatus};
use proto::platform::list_gaps;
use proto::v1alpha1::{Disk, HostFacts};

/// Disks that a status names.
const DISKS: usize = 64;
/// Longest text of hardware in a status, bytes.
const TEXT_BYTES: usize = 128;

/// The capacity of a node on a host, if the host told it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub cpu_threads: Option<i64>,
    pub memory_bytes: Option<i64>,
    /// Name in Kubernetes: `amd64`, `arm64`, `ppc64le`, `s390x`.
    pub architecture: Option<&'static str>,
}

pub fn describe_hardware(facts: &HostFacts) -> HardwareStatus {
    let model = facts.processors.first().map_or(&facts.cpu_model, |processor| &processor.model);
    let threads: u32 =
        facts.processors.iter().fold(0, |sum, processor| processor.threads.saturating_add(sum));
    HardwareStatus {
        architecture: bound_text(&facts.architecture),
        cpu_model: bound_text(model),
        cpu_threads: i64::from(facts.cpu_threads.max(threads)),
        memory_bytes: clamp_bytes(facts.memory_bytes),
        disks: facts.disks.iter().take(DISKS).map(describe_disk).collect(),
        below_minimum: facts
            .platform
            .as_ref()
            .map(list_gaps)
            .unwrap_or_default()
            .iter()
            .map(|gap| bound_text(gap))
            .collect(),
    }
}

fn describe_disk(disk: &Disk) -> DiskStatus {
    DiskStatus {
        name: bound_text(&format!("/dev/{}", disk.name)),
        size_bytes: clamp_bytes(disk.size_bytes),
        model: bound_text(&disk.model),
        serial_number: bound_text(&disk.serial),
        rotational: disk.rotational,
    }
}

fn bound_text(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES)].to_owned()
}

fn clamp_bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Capacity {
    /// Zero and names that Kubernetes does not have are unknown.
    pub fn of_hardware(hardware: &HardwareStatus) -> Self {
        Self {
            cpu_threads: known_number(hardware.cpu_threads),
            memory_bytes: known_number(hardware.memory_bytes),
            architecture: name_architecture(&hardware.architecture),
        }
    }
}

fn known_number(number: i64) -> Option<i64> {
    (number > 0).then_some(number)
}

/// Kubernetes and images name an architecture otherwise than the kernel does.
pub fn name_architecture(kernel: &str) -> Option<&'static str> {
    match kernel {
        "x86_64" => Some("amd64"),
        "aarch64" => Some("arm64"),
        "powerpc64" | "ppc64le" => Some("ppc64le"),
        "s390x" => Some("s390x"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proto::v1alpha1::Processor;

    use super::*;

    #[test]
    fn threads_of_all_sockets_count() {
        let socket = |model: &str| Processor { model: model.into(), threads: 16, ..Processor::default() };
        let facts = HostFacts {
            processors: vec![socket("a"), socket("b")],
            memory_bytes: 1 << 30,
            architecture: "x86_64".into(),
            disks: vec![Disk { name: "sda".into(), size_bytes: u64::MAX, ..Disk::default() }],
            ..HostFacts::default()
        };
        let hardware = describe_hardware(&facts);
        assert_eq!((hardware.cpu_threads, hardware.cpu_model.as_str()), (32, "a"));
        assert_eq!((hardware.disks[0].name.as_str(), hardware.disks[0].size_bytes), ("/dev/sda", i64::MAX));
        let known =
            Capacity { cpu_threads: Some(32), memory_bytes: Some(1 << 30), architecture: Some("amd64") };
        assert_eq!(Capacity::of_hardware(&hardware), known);
    }

    #[test]
    fn what_is_not_told_is_unknown() {
        let facts = HostFacts { architecture: "riscv64".into(), ..HostFacts::default() };
        assert_eq!(Capacity::of_hardware(&describe_hardware(&facts)), Capacity::default());
    }
}
