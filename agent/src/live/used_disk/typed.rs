//! The disks that an operator types on the kernel's command line of a live system: the explicit act
//! for a host that does not get as far as its inventory.

use crate::ground::durable;
use crate::ground::failure::Failure;
use crate::ground::paths::{Root, read_or_empty};
use crate::host::facts::disks::{self, Disk, DiskState};
use crate::live::installed_disk::Mounts;
use crate::state::message::Console;

const OPTION: &str = "baremetal.erase=";
/// The disks were emptied in this boot. The agent may be started again after it installed one.
const DONE: &str = "typed-disks-are-empty";

/// Empties the disks that the command line names, once in a boot.
pub async fn erase_typed(root: &Root, mounts: &impl Mounts, console: &mut Console) -> Result<(), Failure> {
    let command_line = read_or_empty(root.join("/proc/cmdline"));
    let paths: Vec<_> =
        command_line.split_whitespace().filter_map(|word| word.strip_prefix(OPTION)).collect();
    let done = root.runtime().join(DONE);
    if paths.is_empty() || done.exists() {
        return Ok(());
    }
    let disks = disks::look_at_disks(root).await;
    let targets = paths.iter().map(|path| find_target(root, &disks, path)).collect::<Result<Vec<_>, _>>()?;
    super::check_disks(root, &disks, &targets).await?;
    for disk in &targets {
        console.print_message(&format!("{OPTION} erases everything on {}", disk.name_and_path()));
    }
    super::empty_disks(root, mounts, &targets).await?;
    durable::create_directory(&root.runtime())?;
    durable::write(&done, b"")
}

fn find_target<'a>(root: &Root, disks: &'a [Disk], path: &str) -> Result<&'a Disk, Failure> {
    let found = disks::find_by_path(root, disks, path);
    found.filter(|disk| !disk.live_medium && disk.state != DiskState::ReadOnly).ok_or_else(|| {
        Failure::refused(
            format!("{OPTION}{path} leads to no whole disk of this host that can be written"),
            "boot the ISO again with the path of a disk, or without the option",
        )
    })
}
