//! Which disk the system goes to: one that is named, or the only one
//! that fits, or none (`D10`: never a guess).

use std::fmt::Write as _;

use proto::v1alpha1::DeviceRequirement;

use crate::error::NextAction;
use crate::host::facts::disks::Disk;

/// What the registration, or the inventory's annotation, asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum DiskRequest {
    /// One path.
    Device {
        /// As written.
        path: String,
        /// Kernel name that it leads to; nothing while the path is not there.
        name: Option<String>,
    },
    /// Requirements that must all hold; none leaves every disk.
    Selector(Vec<DeviceRequirement>),
}

/// Why no disk is chosen. The text is for the inventory's condition and the
/// console: it names the candidates and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskChoiceError {
    /// The path does not exist. Often on purpose: it is linked later.
    #[error("the install device {path} is not there yet (disks: {candidates})")]
    NotThere {
        /// As written.
        path: String,
        /// What there is.
        candidates: String,
    },
    /// The path leads to a partition, an optical drive, or the live medium.
    #[error(
        "the install device {path} leads to {name}, which is no whole fixed disk of this host (disks: {candidates})"
    )]
    NotADisk {
        /// As written.
        path: String,
        /// Where it leads.
        name: String,
        /// What there is.
        candidates: String,
    },
    /// Nothing fits.
    #[error("no disk fits the device selector (disks: {candidates})")]
    NoneFits {
        /// What there is.
        candidates: String,
    },
    /// More than one fits.
    #[error("{count} disks fit the device selector ({candidates})")]
    SeveralFit {
        /// How many.
        count: usize,
        /// Which.
        candidates: String,
    },
    /// The selector cannot be understood.
    #[error("the device selector is invalid: {reason}")]
    Selector {
        /// Which requirement, and why.
        reason: String,
    },
    /// A second Elemental system would make every label ambiguous.
    #[error(
        "other disks carry file systems of Elemental, and this host could boot or upgrade the wrong one: {disks}"
    )]
    ForeignLabels {
        /// Which, with their labels.
        disks: String,
    },
}

impl NextAction for DiskChoiceError {
    fn next_action(&self) -> Option<&str> {
        Some(match self {
            Self::NotThere { .. } => {
                "link it to the right disk, or set the annotation baremetal.cluster.io/install-device on the MachineInventory"
            }
            Self::NotADisk { .. } => {
                "set the annotation baremetal.cluster.io/install-device on the MachineInventory"
            }
            Self::NoneFits { .. } => {
                "correct it, or set the annotation baremetal.cluster.io/install-device on the MachineInventory"
            }
            Self::SeveralFit { .. } => {
                "narrow it, or set the annotation baremetal.cluster.io/install-device on the MachineInventory"
            }
            Self::Selector { .. } => "correct it in the MachineRegistration",
            Self::ForeignLabels { .. } => "wipe them (wipefs -a) or take them out",
        })
    }
}

/// Chooses the one whole disk that fits: never a removable one, never the live
/// medium, and none at all while another disk carries labels of Elemental.
///
/// # Errors
/// [`DiskChoiceError`] as a value: the caller waits for the operator or for the device.
pub fn choose_disk<'a>(disks: &'a [Disk], wish: &DiskRequest) -> Result<&'a Disk, DiskChoiceError> {
    let fixed: Vec<_> = disks.iter().filter(|disk| !disk.removable && !disk.live_medium).collect();
    let chosen = match wish {
        DiskRequest::Device { path, name } => find_named(&fixed, path, name.as_deref())?,
        DiskRequest::Selector(requirements) => find_selected(&fixed, requirements)?,
    };
    let foreign: Vec<_> = disks
        .iter()
        .filter(|disk| disk.name != chosen.name && !disk.live_medium)
        .filter(|disk| !disk.elemental_labels().is_empty())
        .map(|disk| format!("{} ({})", disk.device_path().display(), disk.elemental_labels().join(", ")))
        .collect();
    if !foreign.is_empty() {
        return Err(DiskChoiceError::ForeignLabels { disks: foreign.join("; ") });
    }
    Ok(chosen)
}

fn find_named<'a>(fixed: &[&'a Disk], path: &str, name: Option<&str>) -> Result<&'a Disk, DiskChoiceError> {
    let path = path.to_owned();
    let Some(name) = name else {
        return Err(DiskChoiceError::NotThere { path, candidates: list_disks(fixed) });
    };
    fixed.iter().find(|disk| disk.name == name).copied().ok_or_else(|| DiskChoiceError::NotADisk {
        path,
        name: name.to_owned(),
        candidates: list_disks(fixed),
    })
}

fn find_selected<'a>(
    fixed: &[&'a Disk],
    requirements: &[DeviceRequirement],
) -> Result<&'a Disk, DiskChoiceError> {
    let mut fitting = Vec::new();
    for disk in fixed {
        let mut fits = true;
        for requirement in requirements {
            fits &= holds_requirement(disk, requirement)
                .map_err(|reason| DiskChoiceError::Selector { reason })?;
        }
        if fits {
            fitting.push(*disk);
        }
    }
    match fitting.as_slice() {
        [disk] => Ok(disk),
        [] => Err(DiskChoiceError::NoneFits { candidates: list_disks(fixed) }),
        several => Err(DiskChoiceError::SeveralFit { count: several.len(), candidates: list_disks(several) }),
    }
}

fn list_disks(disks: &[&Disk]) -> String {
    if disks.is_empty() {
        return "none".to_owned();
    }
    let mut text = String::new();
    for disk in disks {
        if !text.is_empty() {
            text.push_str("; ");
        }
        let path = disk.links.first().cloned().unwrap_or_else(|| disk.device_path().display().to_string());
        let _ = write!(text, "{} = {path}, {} bytes", disk.name, disk.size_bytes);
        for (what, value) in [("model", &disk.model), ("serial", &disk.serial), ("wwn", &disk.wwn)] {
            if !value.is_empty() {
                let _ = write!(text, ", {what} {value}");
            }
        }
    }
    text
}

fn holds_requirement(disk: &Disk, requirement: &DeviceRequirement) -> Result<bool, String> {
    let DeviceRequirement { key, operator, values } = requirement;
    let one_of = |matches: &dyn Fn(&str) -> bool| values.iter().any(|value| matches(value.trim()));
    let inside = match key.as_str() {
        "Size" => return holds_size(disk.size_bytes, operator, values),
        "Name" => one_of(&|value| value.strip_prefix("/dev/").unwrap_or(value) == disk.name),
        "Path" => one_of(&|value| {
            disk.device_path().to_str() == Some(value) || disk.links.iter().any(|link| link == value)
        }),
        "WWN" => one_of(&|value| !disk.wwn.is_empty() && normalise_wwn(value) == normalise_wwn(&disk.wwn)),
        "Serial" => one_of(&|value| value == disk.serial),
        "Model" => one_of(&|value| value == disk.model),
        "Rotational" => {
            one_of(&|value| value.eq_ignore_ascii_case(if disk.rotational { "true" } else { "false" }))
        }
        _ => return Err(format!("key {key:?} is none of Name, Size, WWN, Serial, Model, Rotational, Path")),
    };
    match operator.as_str() {
        "In" => Ok(inside),
        "NotIn" => Ok(!inside),
        _ => Err(format!("operator {operator:?} of {key} is neither In nor NotIn")),
    }
}

fn holds_size(size: u64, operator: &str, values: &[String]) -> Result<bool, String> {
    let bounds = values.iter().map(|value| parse_quantity(value)).collect::<Result<Vec<_>, _>>()?;
    match (operator, bounds.as_slice()) {
        ("In", _) => Ok(bounds.contains(&size)),
        ("NotIn", _) => Ok(!bounds.contains(&size)),
        ("Gt", [bound]) => Ok(size > *bound),
        ("Lt", [bound]) => Ok(size < *bound),
        ("Gt" | "Lt", _) => Err(format!("operator {operator} of Size takes one value")),
        _ => Err(format!("operator {operator:?} of Size is none of In, NotIn, Gt, Lt")),
    }
}

/// A Kubernetes quantity of bytes: `500G`, `1Ti`, `1000204886016`.
fn parse_quantity(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit {
        "" => 1,
        "k" | "K" => 1000,
        "M" => 1000_u64.pow(2),
        "G" => 1000_u64.pow(3),
        "T" => 1000_u64.pow(4),
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return Err(format!("{text:?} is no size such as 500G or 1Ti")),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| format!("{text:?} is no size such as 500G or 1Ti"))
}

/// One spelling for what udev, sysfs and link names write differently.
fn normalise_wwn(text: &str) -> String {
    let lower = text.trim().to_ascii_lowercase();
    ["wwn-", "naa.", "eui.", "nvme-", "0x"]
        .iter()
        .fold(lower, |text, prefix| text.strip_prefix(prefix).map(str::to_owned).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::explain;
    use crate::host::facts::disks::Partition;

    const GIB: u64 = 1 << 30;

    fn disk(name: &str, size_bytes: u64) -> Disk {
        Disk {
            name: name.to_owned(),
            size_bytes,
            model: "Model X".to_owned(),
            serial: format!("serial-{name}"),
            wwn: format!("0x5000{name}"),
            links: vec![format!("/dev/disk/by-id/{name}-link")],
            ..Disk::default()
        }
    }

    fn with_label(name: &str, label: &str) -> Disk {
        let partition = Partition { file_system: label.to_owned(), ..Partition::default() };
        Disk { partitions: vec![partition], ..disk(name, 100 * GIB) }
    }

    fn require(key: &str, operator: &str, values: &[&str]) -> DeviceRequirement {
        DeviceRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: values.iter().map(ToString::to_string).collect(),
        }
    }

    fn name_of(result: &Result<&Disk, DiskChoiceError>) -> Option<String> {
        result.as_ref().ok().map(|disk| disk.name.clone())
    }

    #[test]
    fn a_selector_takes_exactly_one_disk() {
        let disks = [
            Disk { rotational: true, ..disk("sda", 4000 * GIB) },
            disk("sdb", 100 * GIB),
            disk("nvme0n1", 500 * GIB),
            Disk { removable: true, ..disk("sdc", 16 * GIB) },
            Disk { live_medium: true, ..disk("sdd", 8 * GIB) },
        ];
        for (name, requirements, want) in [
            ("name", vec![require("Name", "In", &["sdb"])], Some("sdb")),
            ("name with /dev", vec![require("Name", "In", &["/dev/sdb", "/dev/sdx"])], Some("sdb")),
            ("several left", vec![require("Rotational", "In", &["false"])], None),
            ("platters", vec![require("Rotational", "In", &["true"])], Some("sda")),
            (
                "all requirements",
                vec![require("Rotational", "In", &["false"]), require("Size", "Gt", &["200Gi"])],
                Some("nvme0n1"),
            ),
            ("smaller than", vec![require("Size", "Lt", &["101Gi"])], Some("sdb")),
            ("exact size", vec![require("Size", "In", &["500Gi"])], Some("nvme0n1")),
            ("serial", vec![require("Serial", "In", &["serial-sda"])], Some("sda")),
            ("not in", vec![require("Name", "NotIn", &["sda", "sdb"])], Some("nvme0n1")),
            ("WWN spelled as a link", vec![require("WWN", "In", &["wwn-0X5000SDB"])], Some("sdb")),
            ("stable path", vec![require("Path", "In", &["/dev/disk/by-id/sdb-link"])], Some("sdb")),
            ("model of all", vec![require("Model", "In", &["Model X"])], None),
            ("removable only", vec![require("Name", "In", &["sdc"])], None),
            ("live medium only", vec![require("Name", "In", &["sdd"])], None),
            ("no requirement", vec![], None),
        ] {
            let chosen = choose_disk(&disks, &DiskRequest::Selector(requirements));
            assert_eq!(name_of(&chosen).as_deref(), want, "{name}");
        }
        let only = [disk("vda", GIB), Disk { live_medium: true, ..disk("vdb", GIB) }];
        assert_eq!(name_of(&choose_disk(&only, &DiskRequest::Selector(vec![]))).as_deref(), Some("vda"));
    }

    #[test]
    fn a_named_device_must_be_a_whole_disk() {
        let disks = [disk("sda", GIB), disk("sdb", GIB)];
        let device = |name: Option<&str>| DiskRequest::Device {
            path: "/dev/target".into(),
            name: name.map(str::to_owned),
        };
        assert_eq!(name_of(&choose_disk(&disks, &device(Some("sdb")))).as_deref(), Some("sdb"));
        for (name, wish, want) in [
            ("not there", device(None), "not there yet"),
            ("a partition", device(Some("sda1")), "no whole fixed disk"),
        ] {
            let message = explain(&choose_disk(&disks, &wish).unwrap_err());
            assert!(
                message.contains(want) && message.contains("/dev/disk/by-id/sda-link"),
                "{name}: {message}"
            );
            assert!(message.contains("baremetal.cluster.io/install-device"), "{name}: {message}");
        }
    }

    #[test]
    fn labels_of_elemental_on_another_disk_stop_the_install() {
        for (name, disks, stops) in [
            ("on another", vec![disk("sda", GIB), with_label("sdb", "COS_STATE")], true),
            ("on the chosen one", vec![with_label("sda", "COS_STATE"), disk("sdb", GIB)], false),
            ("of the live image", vec![disk("sda", GIB), with_label("sdb", "COS_LIVE")], false),
            ("of another system", vec![disk("sda", GIB), with_label("sdb", "DATA")], false),
        ] {
            let wish = DiskRequest::Selector(vec![require("Name", "In", &["sda"])]);
            let chosen = choose_disk(&disks, &wish);
            assert_eq!(
                matches!(chosen, Err(DiskChoiceError::ForeignLabels { .. })),
                stops,
                "{name}: {chosen:?}"
            );
        }
    }

    #[test]
    fn invalid_selectors_are_reported() {
        for (name, requirement, want) in [
            ("key", require("Colour", "In", &["red"]), "Colour"),
            ("operator", require("Name", "Gt", &["sda"]), "Gt"),
            ("operator of a size", require("Size", "Like", &["1G"]), "Like"),
            ("two bounds", require("Size", "Gt", &["1G", "2G"]), "one value"),
            ("no number", require("Size", "Gt", &["big"]), "big"),
            ("too large a number", require("Size", "Gt", &["99999999999Ti"]), "99999999999Ti"),
        ] {
            let chosen =
                choose_disk(&[disk("sda", GIB)], &DiskRequest::Selector(vec![requirement])).map(drop);
            let message = explain(&chosen.unwrap_err());
            assert!(message.contains(want) && message.contains("correct it"), "{name}: {message}");
        }
    }
}
