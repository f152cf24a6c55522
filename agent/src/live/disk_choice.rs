//! Which disk the system goes to: one that is named, or the only one
//! that fits, or none: never a guess.

mod contents;
mod error;
mod requirement;

use std::fmt::Write as _;

use proto::v1alpha1::DeviceRequirement;

pub use self::error::DiskChoiceError;
use self::requirement::holds_requirement;
use super::installed_disk::{InstalledDisk, UsedDisk};
use crate::host::facts::disks::Disk;

/// What the registration, or the inventory's annotation, asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum DiskRequest {
    Device {
        path: String,
        /// Kernel name that it leads to; nothing while the path is not there.
        name: Option<String>,
    },
    /// Requirements that must all hold; none leaves every disk.
    Selector(Vec<DeviceRequirement>),
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Rules<'a> {
    /// A selector may take a disk that is not empty.
    pub allow_erase: bool,
    /// The device was named for this very host, by the annotation on its
    /// inventory.
    pub is_annotated: bool,
    /// Disks with the installed system of another host.
    pub foreign: &'a [InstalledDisk],
    /// Disks with a system in use that this agent did not install.
    pub used: &'a [UsedDisk],
}

/// Chooses the one whole disk that fits: never the live medium, or one that
/// something else is built on; a removable one only when it is named for this
/// very host; one that is not empty only when it is named or `allow_erase` is
/// set; and none at all while another disk carries labels of Elemental.
///
/// # Errors
/// [`DiskChoiceError`] as a value: the caller waits for the operator or for the device.
pub fn choose_disk<'a>(
    disks: &'a [Disk],
    wish: &DiskRequest,
    rules: &Rules<'_>,
) -> Result<&'a Disk, DiskChoiceError> {
    let list = || list_disks(disks, rules);
    let chosen = match wish {
        DiskRequest::Device { path, name } => {
            let may_take = |disk: &&Disk| is_fixed(disk) || (rules.is_annotated && !disk.live_medium);
            find_named(disks.iter().filter(may_take), path, name.as_deref(), list)?
        }
        DiskRequest::Selector(requirements) => {
            let chosen = find_selected(disks, requirements, list)?;
            if let Some(contents) = rules.contents(chosen)
                && !rules.allow_erase
            {
                let name = chosen.name.clone();
                return Err(DiskChoiceError::NotEmpty { name, contents, candidates: list() });
            }
            chosen
        }
    };
    if let Some(owner) = rules.owner(chosen)
        && !rules.is_annotated
    {
        return Err(DiskChoiceError::OtherHost { name: chosen.name.clone(), owner, candidates: list() });
    }
    let is_other = |disk: &&Disk| disk.name != chosen.name && !disk.live_medium && !disk.is_part_of(chosen);
    let others = disks.iter().filter(is_other);
    let labelled: Vec<_> = others.filter_map(|disk| describe_labels(disk, rules)).collect();
    if labelled.is_empty() {
        return Ok(chosen);
    }
    Err(DiskChoiceError::ForeignLabels { disks: labelled.join("; ") })
}

impl Rules<'_> {
    /// The other host whose system is on this disk.
    fn owner(&self, disk: &Disk) -> Option<String> {
        let found = self.foreign.iter().find(|found| found.disk == disk.name)?;
        Some(format!("{} with UUID {}", found.record.inventory, found.record.smbios_uuid))
    }

    /// What is on this disk that only an operator may give up.
    fn contents(&self, disk: &Disk) -> Option<String> {
        let used = self.used.iter().find(|used| used.disk == disk.name).map(|used| used.contents.clone());
        let found: Vec<_> = contents::describe_foreign(disk).into_iter().chain(used).collect();
        (!found.is_empty()).then(|| found.join(", "))
    }
}

fn describe_labels(disk: &Disk, rules: &Rules<'_>) -> Option<String> {
    let labels = disk.elemental_labels();
    let owner = rules.owner(disk).map(|owner| format!(", the system of {owner}")).unwrap_or_default();
    (!labels.is_empty()).then(|| format!("{} ({}{owner})", disk.name_and_path(), labels.join(", ")))
}

fn is_fixed(disk: &Disk) -> bool {
    !disk.removable && !disk.live_medium
}

fn find_named<'a>(
    mut disks: impl Iterator<Item = &'a Disk>,
    path: &str,
    name: Option<&str>,
    list: impl Fn() -> String,
) -> Result<&'a Disk, DiskChoiceError> {
    let path = path.to_owned();
    let Some(name) = name else {
        return Err(DiskChoiceError::NotThere { path, candidates: list() });
    };
    let Some(disk) = disks.find(|disk| disk.name == name) else {
        return Err(DiskChoiceError::NotADisk { path, name: name.to_owned(), candidates: list() });
    };
    match contents::describe_exclusion(disk) {
        None => Ok(disk),
        Some(reason) => {
            Err(DiskChoiceError::Excluded { path, name: name.to_owned(), reason, candidates: list() })
        }
    }
}

/// A disk that is not empty counts: that the others are empty does not make one
/// of them the right one.
fn find_selected<'a>(
    disks: &'a [Disk],
    requirements: &[DeviceRequirement],
    list: impl Fn() -> String,
) -> Result<&'a Disk, DiskChoiceError> {
    let mut fitting = Vec::new();
    for disk in disks.iter().filter(|disk| is_fixed(disk) && contents::describe_exclusion(disk).is_none()) {
        let mut fits = true;
        for requirement in requirements {
            fits &= holds_requirement(disk, requirement)
                .map_err(|reason| DiskChoiceError::Selector { reason })?;
        }
        if fits {
            fitting.push(disk);
        }
    }
    match fitting.as_slice() {
        [disk] => Ok(disk),
        [] => Err(DiskChoiceError::NoneFits { candidates: list() }),
        several => {
            let names: Vec<_> = several.iter().map(|disk| disk.name.as_str()).collect();
            let (count, names) = (names.len(), names.join(", "));
            Err(DiskChoiceError::SeveralFit { count, names, candidates: list() })
        }
    }
}

/// Every disk with what identifies it, and why it is not taken unasked.
fn list_disks(disks: &[Disk], rules: &Rules<'_>) -> String {
    let mut text = String::new();
    for disk in disks.iter().filter(|disk| !disk.live_medium) {
        if !text.is_empty() {
            text.push_str("; ");
        }
        let _ = write!(text, "{}, {} bytes", disk.name_and_path(), disk.size_bytes);
        for (what, value) in [("model", &disk.model), ("serial", &disk.serial), ("wwn", &disk.wwn)] {
            if !value.is_empty() {
                let _ = write!(text, ", {what} {value}");
            }
        }
        if let Some(reason) = describe_obstacle(disk, rules) {
            let _ = write!(text, " [{reason}]");
        }
    }
    if text.is_empty() { "none".to_owned() } else { text }
}

fn describe_obstacle(disk: &Disk, rules: &Rules<'_>) -> Option<String> {
    let removable = || disk.removable.then(|| "removable".to_owned());
    let owner = || rules.owner(disk).map(|owner| format!("installed system of {owner}"));
    let contents = || rules.contents(disk).filter(|_| !rules.allow_erase);
    removable().or_else(|| contents::describe_exclusion(disk)).or_else(owner).or_else(contents)
}

#[cfg(test)]
mod tests;
