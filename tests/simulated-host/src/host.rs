//! The files of one host, and its boots.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use agent::boot;
use agent::ground::paths::{Root, StateDir};
use agent::live::installed_disk::{Access, Mounted, Mounts};

use crate::SimulatedSystem;
use crate::firmware::{self, Identity};

/// The persistent partition of the only disk.
const PERSISTENT: &str = "vda5";

/// A host with one disk: the root of its live system, the root of the system
/// on its disk, and the persistent partition, each a directory.
#[derive(Clone, Debug)]
pub struct SimulatedHost {
    directory: PathBuf,
}

/// A seed ISO and the firmware that boots it.
#[derive(Clone, Copy, Debug)]
pub struct Medium<'a> {
    /// The image of the live system.
    pub image: &'a str,
    /// `livecd-cloud-config.yaml`.
    pub seed: &'a [u8],
    pub boot_id: &'a str,
    /// What the firmware says.
    pub identity: Identity<'a>,
}

/// A boot of the disk, up to the end of cloud-init.
#[derive(Debug)]
pub struct Boot {
    /// The system that runs.
    pub system: SimulatedSystem,
    /// What early boot could not do.
    pub problems: Vec<String>,
    /// Whether cloud-init joined a node in this boot.
    pub has_joined: bool,
}

impl SimulatedHost {
    /// The host whose files are in `directory`.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// The live system's files.
    pub fn live(&self) -> Root {
        Root::at(self.directory.join("live"))
    }

    /// The installed system's files.
    pub fn disk(&self) -> Root {
        Root::at(self.directory.join("disk"))
    }

    /// The agent's state on the persistent partition.
    pub fn persistent(&self) -> StateDir {
        StateDir::on_persistent_partition(&self.directory.join(PERSISTENT))
    }

    /// Boots the live system of `medium`; nothing of an earlier live boot is
    /// left.
    pub fn boot_medium(&self, medium: &Medium<'_>) -> io::Result<SimulatedSystem> {
        let root = self.live();
        match fs::remove_dir_all(root.join("/")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let system = SimulatedSystem::installed(root.clone(), medium.image)?;
        fs::remove_file(root.join("/run/elemental/active_mode"))?;
        for (path, content) in [
            ("/run/elemental/live_mode", &b""[..]),
            ("/proc/sys/kernel/random/boot_id", medium.boot_id.as_bytes()),
            ("/run/initramfs/live/livecd-cloud-config.yaml", medium.seed),
            ("/sys/block/vda/size", b"33554432"),
            ("/sys/block/vda/serial", medium.identity.serial.as_bytes()),
            ("/sys/block/vda/vda5/partition", b"5"),
            ("/sys/block/vda/vda5/uevent", b"PARTNAME=persistent\n"),
            ("/dev/vda", b""),
            ("/sys/firmware/dmi/tables/smbios_entry_point", &firmware::entry_point()),
            ("/sys/firmware/dmi/tables/DMI", &firmware::tables(medium.identity)),
        ] {
            write(&root.join(path), content)?;
        }
        Ok(system)
    }

    /// Boots the disk, with `first_image` when it was never booted: early
    /// boot, then cloud-init.
    pub fn boot_disk(&self, first_image: &str) -> io::Result<Boot> {
        let root = self.disk();
        let system = SimulatedSystem::new(root.clone());
        if root.os_release().exists() {
            system.power_cycle()?;
        } else {
            SimulatedSystem::installed(root.clone(), first_image)?;
            fs::create_dir_all(root.join("/var/lib"))?;
            // Where the installed system mounts its persistent partition.
            std::os::unix::fs::symlink(self.persistent().path(), root.state().path())?;
        }
        let problems = boot::run(&root).problems.iter().map(ToString::to_string).collect();
        let before = system.joins();
        system.run_cloud_init()?;
        let has_joined = system.joins() > before;
        Ok(Boot { system, problems, has_joined })
    }
}

impl Mounts for SimulatedHost {
    /// The persistent partition holds a file system once an install ran.
    fn mount(&self, partition: &str, _: Access) -> io::Result<Mounted> {
        let path = self.directory.join(partition);
        if partition == PERSISTENT && SimulatedSystem::new(self.live()).installs() > 0 {
            fs::create_dir_all(&path)?;
        }
        if path.exists() { Ok(Mounted::directory(path)) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    fs::write(path, content)
}
