use std::fs;
use std::sync::Mutex;

use super::*;
use crate::host::command::Captured;
use crate::host::facts::disks::read_disks;
use crate::host::system::Output;
use crate::live::installed_disk::{Access, Mounted};
use crate::state::message::Console;

/// Programs that change the files of a root as they would change a host.
struct Tools {
    root: Root,
    ran: Mutex<Vec<String>>,
    /// Labels that `wipefs` finds one by one.
    labels: Mutex<u32>,
}

impl Mounts for Tools {
    async fn settle(&self, _: Duration) {}

    async fn run_tool(&self, invocation: &Invocation) -> Result<Captured, CommandError> {
        let line = format!("{} {}", invocation.program, invocation.args.join(" "));
        self.ran.lock().unwrap().push(line.clone());
        let remove = |path: &str| drop(fs::remove_dir_all(self.root.join(path)));
        let mut stdout = String::new();
        match line.as_str() {
            "dmsetup remove --retry vg0-root" => {
                remove("/sys/block/dm-0");
                remove("/sys/block/md127/holders/dm-0");
            }
            "mdadm --stop /dev/md127" => {
                remove("/sys/block/md127");
                remove("/sys/block/sda/sda1/holders/md127");
            }
            "wipefs --all /dev/sda1" => {
                let mut labels = self.labels.lock().unwrap();
                *labels = labels.saturating_sub(1);
                if *labels == 0 {
                    fs::write(self.root.join("/run/udev/data/b8:1"), "").unwrap();
                }
            }
            "wipefs --noheadings --parsable /dev/sda1" if *self.labels.lock().unwrap() > 0 => {
                "0x0,uuid,,zfs_member\n".clone_into(&mut stdout);
            }
            "blockdev --rereadpt /dev/sda" => {
                remove("/sys/block/sda/sda1");
            }
            _ => {}
        }
        Ok(Captured { stdout, shown: Output(String::new()) })
    }

    fn mount(&self, _: &str, _: Access) -> std::io::Result<Mounted> {
        Err(std::io::ErrorKind::InvalidInput.into())
    }
}

/// LVM on an array on a partition of sda, beside a disk with data that has the same serial number and size, as
/// disks of some makers have.
fn used_host() -> (tempfile::TempDir, Tools) {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    for (path, text) in [
        ("sda/size", "8192\n"),
        ("sda/dev", "8:0\n"),
        ("sda/serial", "S1\n"),
        ("sda/sda1/partition", "1\n"),
        ("sda/sda1/size", "4096\n"),
        ("sda/sda1/dev", "8:1\n"),
        ("sda/sda1/holders/md127/size", ""),
        ("md127/md/metadata_version", "1.2\n"),
        ("md127/slaves/sda1/size", ""),
        ("md127/holders/dm-0/size", ""),
        ("dm-0/dm/uuid", "LVM-x\n"),
        ("dm-0/dm/name", "vg0-root\n"),
        ("dm-0/slaves/md127/size", ""),
        ("sdb/size", "8192\n"),
        ("sdb/dev", "8:16\n"),
        ("sdb/serial", "S1\n"),
    ] {
        root.put(&format!("/sys/block/{path}"), text.as_bytes());
    }
    root.put("/run/udev/data/b8:0", b"E:ID_PART_TABLE_TYPE=gpt\n");
    root.put("/run/udev/data/b8:16", b"E:ID_FS_TYPE=ext4\nE:ID_FS_USAGE=filesystem\n");
    root.put(
        "/run/udev/data/b8:1",
        b"E:ID_FS_TYPE=linux_raid_member\nE:ID_FS_USAGE=raid\nE:ID_FS_UUID=u-1\n",
    );
    for (device, bytes) in [("sda", 4 << 20), ("sda1", 2 << 20), ("sdb", 4 << 20)] {
        root.put(&format!("/dev/{device}"), vec![7; bytes]);
    }
    (directory, Tools { root, ran: Mutex::default(), labels: Mutex::new(3) })
}

#[tokio::test]
async fn used_disk_is_emptied_and_no_other() {
    let (_directory, tools) = used_host();
    let root = &tools.root;
    let disks = read_disks(root);
    let target = disks.iter().find(|disk| disk.name == "sda").unwrap();
    assert!(must_be_emptied(target));
    check_disks(root, &disks, &[target]).await.unwrap();
    assert!(tools.ran.lock().unwrap().is_empty(), "a check changes nothing");
    empty_disks(root, &tools, &[target]).await.unwrap();
    let ran = tools.ran.lock().unwrap();
    assert_eq!(ran[..2], ["dmsetup remove --retry vg0-root", "mdadm --stop /dev/md127"]);
    let wiped = ran.iter().filter(|line| *line == "wipefs --all /dev/sda1").count();
    assert_eq!(wiped, 3, "until nothing is found: {ran:?}");
    assert!(!ran.iter().any(|line| line.contains("sdb")), "{ran:?}");
    let disks = read_disks(root);
    assert!(!must_be_emptied(disks.iter().find(|disk| disk.name == "sda").unwrap()), "{disks:?}");
    assert_eq!(fs::read(root.join("/dev/sda")).unwrap()[..1 << 20], vec![0; 1 << 20]);
    assert_eq!(fs::read(root.join("/dev/sdb")).unwrap(), vec![7; 4 << 20]);
}

#[tokio::test]
async fn spanning_array_is_refused_with_names() {
    let (_directory, tools) = used_host();
    let root = &tools.root;
    for path in ["md127/slaves/sdb", "sdb/holders/md127"] {
        fs::create_dir_all(root.join("/sys/block").join(path)).unwrap();
    }
    let disks = read_disks(root);
    let target = disks.iter().find(|disk| disk.name == "sda").unwrap();
    let refusal = check_disks(root, &disks, &[target]).await.unwrap_err();
    assert!(
        refusal.message.contains("md127, which lies on it, spans other disks: sdb = /dev/sdb"),
        "{refusal}"
    );
    assert!(refusal.next_action.contains("--erase"), "{refusal}");
    empty_disks(root, &tools, &[target]).await.unwrap_err();
    assert!(tools.ran.lock().unwrap().is_empty(), "nothing was changed");
}

#[tokio::test]
async fn typed_disk_is_emptied_once_in_a_boot() {
    let (_directory, tools) = used_host();
    let root = &tools.root;
    let type_line = |line: &str| {
        fs::create_dir_all(root.join("/proc")).unwrap();
        fs::write(root.join("/proc/cmdline"), line).unwrap();
    };
    let erase = async || erase_typed(root, &tools, &mut Console::new(root)).await;
    type_line("cdrom quiet");
    erase().await.unwrap();
    assert!(tools.ran.lock().unwrap().is_empty(), "nothing is typed");
    type_line("cdrom baremetal.erase=/dev/nothing quiet");
    let refusal = erase().await.unwrap_err();
    assert!(refusal.message.contains("baremetal.erase=/dev/nothing leads to no whole disk"), "{refusal}");
    type_line("cdrom baremetal.erase=/dev/sda quiet");
    erase().await.unwrap();
    let ran = tools.ran.lock().unwrap().len();
    assert!(ran > 0);
    erase().await.unwrap();
    assert_eq!(tools.ran.lock().unwrap().len(), ran, "the agent was started again");
}
