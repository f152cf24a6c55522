//! A real host with several disks, whose own comes last: which one it installs on, and that no other is written to.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use ::qemu::{Bus, DataDisk};
use coordinator_api::names::annotation;
use e2e::guest_site::GuestSite;
use e2e::host::Host as _;
use e2e::installing::{Installing, hash_disks, make_disk, make_file_system};
use serde_json::json;

const LONG: Duration = Duration::from_mins(12);
/// Of every disk but that of the system.
const DISK_BYTES: u64 = 1 << 30;
const TWINS: [&str; 2] = ["twin-1", "twin-2"];
const PART: &str = "part";
const DATA: &str = "data";
/// The disk that is missing at first.
const SYSTEM: &str = "/dev/disk/by-id/virtio-system";

/// Makes LVM on an array on two partitions of the system disk, as an installer of another system does.
const LVM_ON_MD: &str = "set -e
udevadm settle
disk=$(readlink -f /dev/disk/by-id/virtio-system)
wipefs -aq $disk
printf 'label: gpt\n,2GiB\n,2GiB\n' | sfdisk -q $disk
udevadm settle
mdadm --create /dev/md100 --quiet --run --level=1 --metadata=1.2 --raid-devices=2 ${disk}1 ${disk}2
pvcreate -qy /dev/md100
vgcreate -q vg_old /dev/md100
lvcreate -qy -L 64M -n root vg_old
mkfs.ext4 -q /dev/vg_old/root
udevadm settle";

/// Two disks of one model and size with two paths to each, a part of an array, and one with a file system.
fn make_disks(directory: &Path) -> Vec<DataDisk> {
    let make = |serial: &str, bus| {
        let path = directory.join(serial);
        make_disk(&path, DISK_BYTES).unwrap();
        DataDisk { serial: serial.to_owned(), path, bus }
    };
    let mut disks: Vec<_> = TWINS.iter().map(|serial| make(serial, Bus::NvmeTwoPaths)).collect();
    disks.extend([PART, DATA].map(|serial| make(serial, Bus::Virtio)));
    write_superblock(&directory.join(PART));
    make_file_system(&directory.join(DATA)).unwrap();
    disks
}

/// What a part of an array of Linux begins with, in version 1.2 of its format: without it no array can be
/// made where the kernel has none.
fn write_superblock(disk: &Path) {
    const AT: u64 = 4096;
    let mut block = [0; 256];
    let numbers = |list: &[u32]| list.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
    let fields = [
        ("magic number and version", 0, numbers(&[0xa92b_4efc, 1])),
        ("array", 16, vec![1; 16]),
        ("level", 72, numbers(&[1])),
        ("number of parts", 92, numbers(&[2])),
        ("where the data begin, in sectors", 128, numbers(&[2048])),
        ("where this is, in sectors", 144, numbers(&[8])),
        ("part", 168, vec![2; 16]),
    ];
    for (_, at, bytes) in fields {
        block[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    let words = block.chunks_exact(4).map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap())));
    let sum: u64 = words.sum();
    let sum = u32::try_from((sum & 0xffff_ffff) + (sum >> 32)).unwrap();
    block[216..220].copy_from_slice(&sum.to_le_bytes());
    File::options().write(true).open(disk).unwrap().write_all_at(&block, AT).unwrap();
}

struct Site<'a>(Installing<'a>);

impl Site<'_> {
    /// Several fit where none is named: each once, whatever paths lead to it, and the part of an array among them.
    async fn boot_without_a_device(&mut self, iso: &Path) {
        self.0.set_install(json!({ "device": null })).await.unwrap();
        self.0.lifecycle.guest().unwrap().boot(iso).await.unwrap();
        let message = self.0.await_waiting("4 disks fit the device selector").await.unwrap();
        let paths = self.0.inside("grep -lx 1 /sys/block/nvme*/hidden | wc -l").await.unwrap();
        assert_eq!(paths, "4", "the kernel hides two paths to each");
        for serial in TWINS {
            let listed = format!("model QEMU NVMe Ctrl, serial {serial}");
            assert_eq!(message.matches(&listed).count(), 1, "{message}");
        }
        // mdadm may have begun to assemble the array.
        let part = ["(but vda is a part of something larger (linux_raid_member))", "vda (but in use by md"];
        assert!(part.iter().any(|part| message.contains(part)), "{message}");
        assert!(message.contains("[ext4 on the whole disk]"), "{message}");
        assert!(message.contains(annotation::INSTALL_DEVICE), "{message}");
    }

    /// The only one that is selected has a foreign file system.
    async fn select_a_disk_with_data(&mut self) {
        let selector = json!([{ "key": "Serial", "operator": "In", "values": [DATA] }]);
        self.0.set_install(json!({ "device-selector": selector })).await.unwrap();
        self.0.inside("systemctl restart baremetal-agent-register").await.unwrap();
        self.0.await_waiting("is not empty: ext4 on the whole disk").await.unwrap();
    }

    async fn select_a_part_of_an_array(&mut self) {
        let selector = json!([{ "key": "Serial", "operator": "In", "values": [PART] }]);
        self.0.set_install(json!({ "device-selector": selector, "allow-erase": true })).await.unwrap();
        self.0.inside("systemctl restart baremetal-agent-register").await.unwrap();
        self.0.await_waiting("vda, is never taken by a selector").await.unwrap();
    }

    /// The disk that is named is plugged in late, and carries LVM on an array: its path alone is no permission.
    async fn plug_the_used_disk_late(&mut self) {
        self.0
            .set_install(json!({ "device": SYSTEM, "device-selector": null, "allow-erase": false }))
            .await
            .unwrap();
        self.0.inside("systemctl restart baremetal-agent-register").await.unwrap();
        self.0.await_waiting("is not there yet").await.unwrap();
        self.0.inside("systemctl stop baremetal-agent-register").await.unwrap();
        self.0.lifecycle.guest().unwrap().qemu().unwrap().plug_system_disk().await.unwrap();
        self.0.inside(LVM_ON_MD).await.unwrap();
        self.0.inside("systemctl start --no-block baremetal-agent-register").await.unwrap();
        self.0.await_waiting("is not taken by its path alone: in use by md").await.unwrap();
    }

    /// The annotation of this host is the permission.
    async fn name_the_used_disk(&mut self) {
        self.0.name_device(SYSTEM).await.unwrap();
        assert_eq!(self.0.await_installed(LONG).await.unwrap(), SYSTEM);
        let left = self.0.inside("lsblk -rno TYPE; cat /proc/mdstat").await.unwrap();
        assert!(!left.contains("lvm") && !left.contains("raid1"), "{left}");
    }
}

// Fault: a live system has several disks that fit, two of them alike and with two paths to each.
// Shown: condition `Installed`: `InstallWaiting` with each disk once; nothing is written.
// Fault: the disk that is selected holds a foreign file system.
// Shown: condition `Installed`: `InstallWaiting` with what is on it; nothing is written.
// Fault: a selector fits a disk that is a part of an array.
// Shown: condition `Installed`: `InstallWaiting`; nothing is written.
// Fault: the disk that is named appears late, and carries LVM on an array.
// Shown: condition `Installed`: `InstallWaiting`; the annotation of the host has it taken apart and installed on.
#[tokio::test(flavor = "multi_thread")]
async fn real_host_installs_on_its_named_disk_alone() {
    let site = GuestSite::start().await.unwrap();
    let GuestSite { environment, host, base, progress, watching: _watching, .. } = site;
    let disks = make_disks(environment.directory.path());
    let config = host.qemu_config().unwrap();
    std::fs::create_dir_all(&config.directory).unwrap();
    make_disk(&config.system_disk(), u64::from(config.disk_gib) << 30).unwrap();
    make_file_system(&config.system_disk()).unwrap();
    let before = hash_disks(&disks).unwrap();
    let mut host = host.with_data_disks(disks.clone());
    let mut site = Site(Installing::new(&environment, &mut host, progress.clone()));
    let iso = site.0.lifecycle.create_seed(&base).await.unwrap();
    progress.step("fault: several disks fit, two of them alike");
    site.boot_without_a_device(&iso).await;
    progress.step("fault: the disk that is selected is not empty");
    site.select_a_disk_with_data().await;
    progress.step("fault: the disk that is selected is a part of an array");
    site.select_a_part_of_an_array().await;
    progress.step("fault: the disk that is named is plugged in late, with LVM on an array");
    site.plug_the_used_disk_late().await;
    progress.step("the used disk is named for this host");
    site.name_the_used_disk().await;
    site.0.lifecycle.guest().unwrap().running_mut().unwrap().power_cut().await;
    assert!(hash_disks(&disks).unwrap() == before, "another disk than the named one was written to");
    progress.end();
}
