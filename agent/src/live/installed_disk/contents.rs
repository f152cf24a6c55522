//! Finds out from the partitions of a disk whether a system of Elemental has run from it.

use std::io;

use super::{Mounted, Mounts, unreadable};
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
    /// The disk stopped answering.
    Silent,
}

/// The entries that an install leaves on the persistent partition before its record, even if it is
/// interrupted.
const OF_INSTALL: [&str; 2] = ["lost+found", PERSISTENT_STATE];
/// The files that upstream's registration leaves on the OEM partition, which mean that another
/// operator knows the host.
const OF_REGISTRATION: [&str; 3] = ["elemental-registration.yaml", "elemental-state.yaml", "registration"];
/// Number of entries in a message.
const NAMED: usize = 5;

pub(super) async fn read_partition(
    disk: &Disk,
    partition: &Partition,
    mounts: &impl Mounts,
) -> Result<Contents, Failure> {
    let is_formatted = !partition.file_system.is_empty();
    let name = partition.name.clone();
    let looked =
        mounts.look_into(&partition.name, move |mounted| describe_contents(mounted, &name, is_formatted));
    let cause = match looked.await {
        Ok(Ok(contents)) => return Ok(contents),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(Contents::Silent),
        Ok(Err(cause)) => cause,
        Err(error) => error.to_string(),
    };
    Err(unreadable(&format!("{} of {}", partition.name, disk.name_and_path()), &cause))
}

fn describe_contents(
    mounted: io::Result<Mounted>,
    name: &str,
    is_formatted: bool,
) -> Result<Contents, String> {
    let mounted = match mounted {
        Ok(mounted) => mounted,
        // The partition has a name and no file system, because an install was interrupted.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && !is_formatted => {
            return Ok(Contents::Unused);
        }
        Err(error) => return Err(error.to_string()),
    };
    if let Some(record) = InstallRecord::read(&mounted.state()).map_err(|failure| failure.message)? {
        return Ok(Contents::Installed(record));
    }
    let entries = mounted.list_entries().map_err(|error| error.to_string())?;
    let entries: Vec<_> = entries.into_iter().filter(|name| !OF_INSTALL.contains(&name.as_str())).collect();
    Ok(match entries.as_slice() {
        [] => Contents::Unused,
        entries => {
            let named = entries.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if entries.len() > NAMED { ", …" } else { "" };
            Contents::Used(format!("an Elemental system in use on {name} ({named}{more})"))
        }
    })
}

/// The registration of another operator. An unreadable OEM partition counts as none, because an
/// interrupted install may leave a damaged one.
pub(super) async fn find_registration(disk: &Disk, mounts: &impl Mounts) -> Option<String> {
    let partition = disk.partitions.iter().find(|partition| partition.file_system == "COS_OEM")?;
    let looked =
        mounts.look_into(&partition.name, |mounted| mounted.and_then(|mounted| mounted.list_entries()));
    let entries = looked.await.ok()?.ok()?;
    let found = entries.into_iter().find(|name| OF_REGISTRATION.contains(&name.as_str()))?;
    Some(format!("an Elemental system that another operator registered on {} ({found})", partition.name))
}
