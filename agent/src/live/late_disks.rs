//! Waits for disks that appear late. Controllers of SAS, FC and RAID look for disks for up to a
//! minute after the start of the kernel, and udev does not wait for them.

use std::time::Duration;

use crate::ground::paths::Root;
use crate::host::sysfs::{list_children, read_line};
use crate::live::installed_disk::Mounts;
use crate::state::message::Console;

/// Time without a new device.
const QUIET: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// A device that comes and goes does not hold the host back for ever.
const LIMIT: Duration = Duration::from_mins(5);
/// Drivers of controllers that find their disks late and have no class of their own.
const DRIVERS: [&str; 10] = [
    "megaraid_sas",
    "mpt3sas",
    "mpt2sas",
    "mpi3mr",
    "smartpqi",
    "hpsa",
    "aacraid",
    "arcmsr",
    "pm80xx",
    "isci",
];

/// Returns at once on a host whose controllers show their disks before udev settles.
pub async fn await_quiet(root: &Root, mounts: &impl Mounts, console: &mut Console) {
    let Some(controller) = find_late_controller(root) else { return };
    console.print_message(&format!(
        "{controller} may show disks late: waiting until no device appeared for {} s",
        QUIET.as_secs()
    ));
    let mut known = list_devices(root);
    let (mut quiet, mut waited) = (Duration::ZERO, Duration::ZERO);
    while quiet < QUIET && waited < LIMIT {
        mounts.settle(LOOK_INTERVAL).await;
        waited += LOOK_INTERVAL;
        let devices = list_devices(root);
        let is_new = devices.iter().any(|device| !known.contains(device));
        quiet = if is_new { Duration::ZERO } else { quiet + LOOK_INTERVAL };
        known = devices;
    }
}

fn list_devices(root: &Root) -> Vec<String> {
    list_children(&root.join("/sys/block"))
}

/// The host adapter for which the look for disks takes long, for the console.
fn find_late_controller(root: &Root) -> Option<String> {
    let of_class = |class: &str| {
        let host = list_children(&root.join("/sys/class").join(class)).into_iter().next()?;
        Some(format!("{class} {host}"))
    };
    of_class("sas_host").or_else(|| of_class("fc_host")).or_else(|| {
        let hosts = root.join("/sys/class/scsi_host");
        let drivers =
            list_children(&hosts).into_iter().map(|host| read_line(&hosts.join(host).join("proc_name")));
        drivers.into_iter().find(|driver| DRIVERS.contains(&driver.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io;
    use std::sync::Mutex;

    use super::*;
    use crate::live::installed_disk::{Access, Mounted};

    /// A host on which a disk appears during each of these pauses.
    struct Host {
        root: Root,
        appears: Vec<usize>,
        pauses: Mutex<usize>,
    }

    impl Mounts for Host {
        async fn settle(&self, pause: Duration) {
            tokio::time::sleep(pause).await;
            let mut pauses = self.pauses.lock().unwrap();
            if self.appears.contains(&pauses) {
                fs::create_dir_all(self.root.join(format!("/sys/block/sd{pauses}"))).unwrap();
            }
            *pauses += 1;
        }

        fn mount(&self, _: &str, _: Access) -> io::Result<Mounted> {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn late_controllers_get_a_quiet_time() {
        for (name, file, appears, seconds) in [
            ("no late controller", "/sys/class/scsi_host/host0/proc_name", vec![], 0),
            ("SAS", "/sys/class/sas_host/host0/uevent", vec![], 30),
            ("FC", "/sys/class/fc_host/host0/uevent", vec![], 30),
            ("a disk after 25 s", "/sys/class/sas_host/host0/uevent", vec![4], 25 + 30),
            ("disks without end", "/sys/class/sas_host/host0/uevent", (0..100).collect(), 300),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let root = Root::at(directory.path());
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "ahci\n").unwrap();
            let host = Host { root: root.clone(), appears, pauses: Mutex::new(0) };
            let start = tokio::time::Instant::now();
            await_quiet(&root, &host, &mut Console::new(&root)).await;
            assert_eq!(start.elapsed().as_secs(), seconds, "{name}");
        }
    }

    #[test]
    fn raid_controllers_are_known_by_driver() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let file = root.join("/sys/class/scsi_host/host1/proc_name");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        for (driver, is_late) in [("megaraid_sas\n", true), ("smartpqi\n", true), ("ahci\n", false)] {
            fs::write(&file, driver).unwrap();
            assert_eq!(find_late_controller(&root).is_some(), is_late, "{driver}");
        }
    }
}
