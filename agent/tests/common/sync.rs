//! What a real host flushes before it reboots: the root and its own disks.

use std::fs;
use std::process::ExitCode;

use agent::ground::paths::Root;
use agent::host::elemental::Elemental;
use agent::host::system::System as _;
use anyhow::{Result, ensure};

/// Directories on disks of the host.
const DISKS: [&str; 2] = ["oem", "var/lib/kubelet"];

/// In the child: flushes them.
pub(crate) fn play(root: &Root) -> Result<ExitCode> {
    let mut table = vec![];
    for (device, directory) in DISKS.iter().enumerate() {
        fs::create_dir_all(root.join(directory))?;
        table.push(format!("2{device} 1 8:{device} / /{directory} rw - ext4 /dev/sda{device} rw"));
    }
    fs::create_dir_all(root.join("/proc/self"))?;
    fs::write(root.join("/proc/self/mountinfo"), table.join("\n"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Elemental::new(root.clone()).sync())?;
    Ok(ExitCode::SUCCESS)
}

/// `asked`: what the kernel was asked to flush.
pub(crate) fn check(root: &Root, asked: &[String]) -> Result<()> {
    for directory in std::iter::once("").chain(DISKS) {
        let want = format!("syncfs {}", root.join(directory).display());
        let want = want.trim_end_matches('/');
        ensure!(asked.iter().any(|made| made == want), "not asked for: {want}; asked for: {asked:?}");
    }
    Ok(())
}
