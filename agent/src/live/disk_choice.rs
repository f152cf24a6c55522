//! Chooses the disk for the system: a named one, or the only one that fits. The choice is never a
//! guess.

mod contents;
mod requirement;

use std::fmt::Write as _;

use proto::v1alpha1::DeviceRequirement;

use self::requirement::holds_requirement;
use super::installed_disk::{InstalledDisk, UsedDisk};
use crate::ground::failure::Failure;
use crate::host::facts::disks::{Disk, DiskState};

/// The next action for a disk that a selector or a path alone does not take.
const TAKE_APART: &str = "if all of it may be erased, name it in the annotation baremetal.cluster.io/install-device on the MachineInventory (`kubectl baremetal install-on`), or set device and allow-erase in the install block of the MachineRegistration; else name another disk";

/// The request of the registration, or of the inventory's annotation.
#[derive(Clone, Debug, PartialEq)]
pub enum DiskRequest {
    Device {
        path: String,
        /// Kernel name of the device to which the path leads; `None` while the path does not exist.
        name: Option<String>,
    },
    /// All requirements must hold; an empty list fits every disk.
    Selector(Vec<DeviceRequirement>),
}

impl DiskRequest {
    pub const fn is_device(&self) -> bool {
        matches!(self, Self::Device { .. })
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Rules<'a> {
    /// A selector may choose a disk that is not empty.
    pub allow_erase: bool,
    /// The annotation on the host's own inventory names the device.
    pub is_annotated: bool,
    /// Disks with the installed system of another host.
    pub foreign: &'a [InstalledDisk],
    /// Disks with a system in use that this agent did not install.
    pub used: &'a [UsedDisk],
    /// Kernel names of the disks that the annotation gives up beside the device.
    pub given_up: &'a [String],
    /// Kernel names of the disks that do not answer.
    pub silent: &'a [String],
}

/// Chooses the one whole disk that fits. The live medium is never chosen; a removable disk only if
/// it is named for this very host; a disk on which something else is built only if it is named for
/// this very host, or named while `allow_erase` is set (decision 77); a disk that is not empty only
/// if it is named or `allow_erase` is set; and no disk at all while another disk carries labels of
/// Elemental.
///
/// The failure names the candidates, for the inventory's condition and the console.
pub fn choose_disk<'a>(
    disks: &'a [Disk],
    wish: &DiskRequest,
    rules: &Rules<'_>,
) -> Result<&'a Disk, Failure> {
    let list = || list_disks(disks, rules);
    let chosen = match wish {
        DiskRequest::Device { path, name } => {
            let allowed =
                disks.iter().filter(|disk| is_fixed(disk) || (rules.is_annotated && is_writable(disk)));
            let named = find_named(allowed, path, name.as_deref(), list)?;
            check_named(disks, named, path, rules)?;
            named
        }
        DiskRequest::Selector(requirements) => {
            let chosen = find_selected(disks, requirements, rules)?;
            if let Some(reason) = rules.describe_exclusion(chosen) {
                let (name, candidates) = (&chosen.name, list());
                return Err(Failure::refused(
                    format!(
                        "the only disk that fits the device selector, {name}, is never taken by a selector: {reason} (disks: {candidates})"
                    ),
                    TAKE_APART,
                ));
            }
            if let Some(contents) = rules.contents(chosen)
                && !rules.allow_erase
            {
                let (name, candidates) = (&chosen.name, list());
                return Err(Failure::refused(
                    format!(
                        "the only disk that fits the device selector, {name}, is not empty: {contents} (disks: {candidates})"
                    ),
                    "if it may be erased, name it in the annotation baremetal.cluster.io/install-device on the MachineInventory, or set allow-erase in the install block of the MachineRegistration",
                ));
            }
            chosen
        }
    };
    if let Some(owner) = rules.owner(chosen)
        && !rules.is_annotated
    {
        let (name, candidates) = (&chosen.name, list());
        return Err(Failure::refused(
            format!(
                "{name} fits, but carries the installed system of another host, {owner} (disks: {candidates})"
            ),
            "disconnect it from this host; if it may be erased, name it in the annotation baremetal.cluster.io/install-device on the MachineInventory",
        ));
    }
    check_others(disks, chosen, rules)?;
    Ok(chosen)
}

/// Refuses while another device could be the chosen disk, or could be booted in its place.
fn check_others(disks: &[Disk], chosen: &Disk, rules: &Rules<'_>) -> Result<(), Failure> {
    let others =
        disks.iter().filter(|disk| disk.name != chosen.name && !disk.live_medium && !disk.is_part_of(chosen));
    let others = others.filter(|disk| !rules.given_up.contains(&disk.name));
    let labelled: Vec<_> = others.clone().filter(|disk| !disk.elemental_labels().is_empty()).collect();
    let mut doubtful = others.clone().filter(|disk| disk.may_be(chosen));
    let is_doubtful = |disk: &&Disk| !rules.is_annotated || !disk.elemental_labels().is_empty();
    if let Some(other) = doubtful.find(is_doubtful) {
        let [first, second] = [chosen, other].map(Disk::name_and_path);
        return Err(Failure::refused(
            format!(
                "{first} fits, and {second} has the same WWN with another serial number or size, so both may be paths to one disk"
            ),
            "leave one path to the disk connected, or use a live system that joins the paths (multipathd); if they are two disks, name one in the annotation baremetal.cluster.io/install-device on the MachineInventory",
        ));
    }
    let is_dead_system = |disk: &&Disk| rules.is_silent(disk) && disk.persistent_partition().is_some();
    if let Some(dead) = others.clone().find(is_dead_system)
        && !rules.is_annotated
    {
        return Err(Failure::refused(
            format!("{} does not answer reads, and may carry the system of this host", dead.name_and_path()),
            "replace or disconnect that disk; to install on another one all the same, name it in the annotation baremetal.cluster.io/install-device on the MachineInventory",
        ));
    }
    if labelled.is_empty() {
        return Ok(());
    }
    let labelled: Vec<_> = labelled.into_iter().map(|disk| describe_labels(disk, rules)).collect();
    Err(Failure::refused(
        format!(
            "other disks carry file systems of Elemental, and this host could boot or upgrade the wrong one: {}",
            labelled.join("; ")
        ),
        "take them out; or, where no host needs them, give them up by `kubectl baremetal install-on` with --erase (\"Wipe a disk\" in docs/operations.md)",
    ))
}

impl Rules<'_> {
    /// The other host whose system is on this disk.
    fn owner(&self, disk: &Disk) -> Option<String> {
        let found = self.foreign.iter().find(|found| found.disk == disk.name)?;
        Some(format!("{} with UUID {}", found.record.inventory, found.record.smbios_uuid))
    }

    fn is_silent(&self, disk: &Disk) -> bool {
        disk.state == DiskState::Silent || self.silent.contains(&disk.name)
    }

    /// The reason for which no selector takes the disk.
    fn describe_exclusion(&self, disk: &Disk) -> Option<String> {
        let silent = self.is_silent(disk).then(|| format!("{} does not answer reads", disk.name));
        silent.or_else(|| contents::describe_exclusion(disk))
    }

    /// The content of this disk that only an operator may give up.
    fn contents(&self, disk: &Disk) -> Option<String> {
        let used = self.used.iter().find(|used| used.disk == disk.name).map(|used| used.contents.clone());
        let found: Vec<_> = contents::describe_foreign(disk).into_iter().chain(used).collect();
        (!found.is_empty()).then(|| found.join(", "))
    }
}

fn describe_labels(disk: &Disk, rules: &Rules<'_>) -> String {
    let owner = rules.owner(disk).map_or_else(String::new, |owner| format!(", the system of {owner}"));
    format!("{} ({}{owner})", disk.name_and_path(), disk.elemental_labels().join(", "))
}

fn is_fixed(disk: &Disk) -> bool {
    !disk.removable && is_writable(disk)
}

fn is_writable(disk: &Disk) -> bool {
    !disk.live_medium && disk.state != DiskState::ReadOnly
}

fn find_named<'a>(
    mut disks: impl Iterator<Item = &'a Disk>,
    path: &str,
    name: Option<&str>,
    list: impl Fn() -> String,
) -> Result<&'a Disk, Failure> {
    let Some(name) = name else {
        return Err(Failure::refused(
            format!("the install device {path} is not there yet (disks: {})", list()),
            "link it to the right disk, or set the annotation baremetal.cluster.io/install-device on the MachineInventory",
        ));
    };
    let Some(disk) = disks.find(|disk| disk.has_name(name)) else {
        return Err(Failure::refused(
            format!(
                "the install device {path} leads to {name}, which is no whole fixed disk of this host that can be written (disks: {})",
                list()
            ),
            "set the annotation baremetal.cluster.io/install-device on the MachineInventory to a whole disk; by the annotation a removable one is taken too",
        ));
    };
    Ok(disk)
}

/// Refuses a named disk that only an explicit act takes, or none.
fn check_named(disks: &[Disk], named: &Disk, path: &str, rules: &Rules<'_>) -> Result<(), Failure> {
    let name = &named.name;
    if let Some(whole) = find_whole(disks, named) {
        return Err(Failure::refused(
            format!(
                "the install device {path} leads to {name}, which is a part of {}",
                whole.name_and_path()
            ),
            "name that volume in the annotation baremetal.cluster.io/install-device on the MachineInventory",
        ));
    }
    if rules.is_silent(named) {
        return Err(Failure::refused(
            format!("the install device {path} leads to {name}, which does not answer reads"),
            "replace the disk, or name another one in the annotation baremetal.cluster.io/install-device on the MachineInventory",
        ));
    }
    match contents::describe_exclusion(named) {
        Some(reason) if !rules.is_annotated && !rules.allow_erase => Err(Failure::refused(
            format!(
                "the install device {path} leads to {name}, which is not taken by its path alone: {reason} (disks: {})",
                list_disks(disks, rules)
            ),
            TAKE_APART,
        )),
        _ => Ok(()),
    }
}

/// The RAID volume or multipath device of which this disk is a part.
fn find_whole<'a>(disks: &'a [Disk], part: &Disk) -> Option<&'a Disk> {
    disks.iter().find(|disk| part.is_part_of(disk))
}

/// True if an explicit act has to empty the disk before the install.
pub fn must_be_emptied(disk: &Disk) -> bool {
    contents::is_used(disk)
}

/// Disks that are not empty are counted as well, even if something is built on them, because an
/// empty disk beside them is not necessarily the right one.
fn find_selected<'a>(
    disks: &'a [Disk],
    requirements: &[DeviceRequirement],
    rules: &Rules<'_>,
) -> Result<&'a Disk, Failure> {
    let list = || list_disks(disks, rules);
    let mut fitting = Vec::new();
    for disk in disks.iter().filter(|disk| is_fixed(disk) && find_whole(disks, disk).is_none()) {
        let mut fits = true;
        for requirement in requirements {
            fits &= holds_requirement(disk, requirement).map_err(|reason| {
                let message = format!("the device selector is invalid: {reason}");
                Failure::refused(message, "correct it in the MachineRegistration")
            })?;
        }
        if fits {
            fitting.push(disk);
        }
    }
    match fitting.as_slice() {
        [disk] => Ok(disk),
        [] => Err(Failure::refused(
            format!("no disk fits the device selector (disks: {})", list()),
            "correct it, or set the annotation baremetal.cluster.io/install-device on the MachineInventory",
        )),
        several => {
            let (count, names) = (several.len(), several.iter().map(|disk| name_with_exclusion(disk, rules)));
            let names = names.collect::<Vec<_>>().join(", ");
            Err(Failure::refused(
                format!("{count} disks fit the device selector, {names} (disks: {})", list()),
                "narrow it, or set the annotation baremetal.cluster.io/install-device on the MachineInventory",
            ))
        }
    }
}

fn name_with_exclusion(disk: &Disk, rules: &Rules<'_>) -> String {
    let exclusion = rules.describe_exclusion(disk);
    exclusion.map_or_else(|| disk.name.clone(), |reason| format!("{} (but {reason})", disk.name))
}

/// Lists every disk with its identifiers, and the reason for which it is not chosen.
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
    if disk.removable {
        return Some("removable".to_owned());
    }
    if disk.state == DiskState::ReadOnly {
        return Some("write-protected".to_owned());
    }
    rules
        .describe_exclusion(disk)
        .or_else(|| rules.owner(disk).map(|owner| format!("installed system of {owner}")))
        .or_else(|| rules.contents(disk).filter(|_| !rules.allow_erase))
}

#[cfg(test)]
mod tests;
