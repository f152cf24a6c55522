//! Whether a system of Elemental has run from a disk, by what is on its
//! partitions.

use std::io;

use super::{Access, FindError, Mounts};
use crate::ground::paths::PERSISTENT_STATE;
use crate::host::facts::disks::{Disk, Partition};
use crate::state::install_record::InstallRecord;

/// What is on a persistent partition.
pub(super) enum Contents {
    /// Nothing that an install does not leave: no system has run from this disk.
    Unused,
    /// What a running system left, described.
    Used(String),
    /// A record of this agent.
    Installed(InstallRecord),
}

/// What an install leaves on the persistent partition before its record, also
/// one that was cut off.
const OF_INSTALL: [&str; 2] = ["lost+found", PERSISTENT_STATE];
/// What upstream's registration leaves on the OEM partition: the host is known
/// to another operator.
const OF_REGISTRATION: [&str; 3] = ["elemental-registration.yaml", "elemental-state.yaml", "registration"];
/// Entries that a message names.
const NAMED: usize = 5;

pub(super) fn read_partition(
    disk: &Disk,
    partition: &Partition,
    mounts: &impl Mounts,
) -> Result<Contents, FindError> {
    let failed = |source| {
        let partition = format!("{} of {}", partition.name, disk.name_and_path());
        FindError::Mount { partition, source }
    };
    let formatted = !partition.file_system.is_empty();
    let mounted = match mounts.mount(&partition.name, Access::Read) {
        Ok(mounted) => mounted,
        // Named but not formatted: an install was cut off before.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && !formatted => {
            return Ok(Contents::Unused);
        }
        Err(source) => return Err(failed(source)),
    };
    if let Some(record) = InstallRecord::read(&mounted.state()).map_err(|error| failed(error.source))? {
        return Ok(Contents::Installed(record));
    }
    let entries = mounted.list_entries().map_err(failed)?;
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

/// The registration of another operator, where the OEM partition can be read:
/// that of an install which was cut off may be damaged.
pub(super) fn find_registration(disk: &Disk, mounts: &impl Mounts) -> Option<String> {
    let partition = disk.partitions.iter().find(|partition| partition.file_system == "COS_OEM")?;
    let entries = mounts.mount(&partition.name, Access::Read).ok()?.list_entries().ok()?;
    let found = entries.into_iter().find(|name| OF_REGISTRATION.contains(&name.as_str()))?;
    Some(format!("an Elemental system that another operator registered on {} ({found})", partition.name))
}
