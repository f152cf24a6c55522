//! Finds out from the partitions of a disk whether a system of Elemental has run from it.

use std::io;

use super::{Access, Mounts, unreadable};
use crate::ground::failure::Failure;
use crate::ground::paths::PERSISTENT_STATE;
use crate::host::facts::disks::{Disk, Partition};
use crate::state::install_record::InstallRecord;

/// The content of a persistent partition.
pub(super) enum Contents {
    /// The partition holds only files of an install, so no system has run from this disk.
    Unused,
    /// A running system left this content.
    Used(String),
    /// The partition holds a record of this agent.
    Installed(InstallRecord),
}

/// The entries that an install leaves on the persistent partition before its record, even if it is
/// interrupted.
const OF_INSTALL: [&str; 2] = ["lost+found", PERSISTENT_STATE];
/// The files that upstream's registration leaves on the OEM partition, which mean that another
/// operator knows the host.
const OF_REGISTRATION: [&str; 3] = ["elemental-registration.yaml", "elemental-state.yaml", "registration"];
/// Number of entries in a message.
const NAMED: usize = 5;

pub(super) fn read_partition(
    disk: &Disk,
    partition: &Partition,
    mounts: &impl Mounts,
) -> Result<Contents, Failure> {
    let failed = |cause: &str| unreadable(&format!("{} of {}", partition.name, disk.name_and_path()), cause);
    let formatted = !partition.file_system.is_empty();
    let mounted = match mounts.mount(&partition.name, Access::Read) {
        Ok(mounted) => mounted,
        // The partition has a name and no file system, because an install was interrupted.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && !formatted => {
            return Ok(Contents::Unused);
        }
        Err(error) => return Err(failed(&error.to_string())),
    };
    if let Some(record) = InstallRecord::read(&mounted.state()).map_err(|failure| failed(&failure.message))? {
        return Ok(Contents::Installed(record));
    }
    let entries = mounted.list_entries().map_err(|error| failed(&error.to_string()))?;
    let entries: Vec<_> = entries.into_iter().filter(|name| !OF_INSTALL.contains(&name.as_str())).collect();
    Ok(match entries.as_slice() {
        [] => Contents::Unused,
        entries => {
            let named = entries.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if entries.len() > NAMED { ", …" } else { "" };
            Contents::Used(format!("an Elemental system in use on {} ({named}{more})", partition.name))
        }
    })
}

/// The registration of another operator. An unreadable OEM partition counts as none, because an
/// interrupted install may leave a damaged one.
pub(super) fn find_registration(disk: &Disk, mounts: &impl Mounts) -> Option<String> {
    let partition = disk.partitions.iter().find(|partition| partition.file_system == "COS_OEM")?;
    let entries = mounts.mount(&partition.name, Access::Read).ok()?.list_entries().ok()?;
    let found = entries.into_iter().find(|name| OF_REGISTRATION.contains(&name.as_str()))?;
    Some(format!("an Elemental system that another operator registered on {} ({found})", partition.name))
}
