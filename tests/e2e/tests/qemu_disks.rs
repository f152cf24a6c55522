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
use e2e::installing::{Installing, LVM_ON_MD, hash_disks, make_data_disk, make_disk, make_file_system};
use serde_json::json;

const LONG: Duration = Duration::from_mins(12);
const TWINS: [&str; 2] = ["twin-1", "twin-2"];
const PART: &str = "part";
const DATA: &str = "data";
/// The disk that is missing at first.
const SYSTEM: &str = "/dev/disk/by-id/virtio-system";

/// Two partitions of the system disk.
const TWO_PARTITIONS: &str = "set -e
udevadm settle
disk=$(readlink -f /dev/disk/by-id/virtio-system)
wipefs -aq $disk
printf 'label: gpt\n,2GiB\n,2GiB\n' | sfdisk -q $disk
udevadm settle";

/// Two disks of one model and size with two paths to each, a part of an array, and one with a file system.
fn make_disks(directory: &Path) -> Vec<DataDisk> {
    let twins = TWINS.map(|serial| (serial, Bus::NvmeTwoPaths));
    let others = [PART, DATA].map(|serial| (serial, Bus::Virtio));
    let all = twins.into_iter().chain(others);
    let disks = all.map(|(serial, bus)| make_data_disk(directory, serial, bus).unwrap()).collect();
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

/// Several fit where none is named: each once, whatever paths lead to it, and the part of an array among them.
async fn boot_without_a_device(site: &mut Installing<'_>, iso: &Path) {
    site.set_install(json!({ "device": null })).await.unwrap();
    site.lifecycle.guest().unwrap().boot(iso).await.unwrap();
    let message = site.await_waiting("4 disks fit the device selector").await.unwrap();
    let paths = site.inside("grep -lx 1 /sys/block/nvme*/hidden | wc -l").await.unwrap();
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
async fn select_a_disk_with_data(site: &mut Installing<'_>) {
    let selector = json!([{ "key": "Serial", "operator": "In", "values": [DATA] }]);
    site.set_install(json!({ "device-selector": selector })).await.unwrap();
    site.look_again().await.unwrap();
    site.await_waiting("is not empty: ext4 on the whole disk").await.unwrap();
}

async fn select_a_part_of_an_array(site: &mut Installing<'_>) {
    let selector = json!([{ "key": "Serial", "operator": "In", "values": [PART] }]);
    site.set_install(json!({ "device-selector": selector, "allow-erase": true })).await.unwrap();
    site.look_again().await.unwrap();
    site.await_waiting("vda, is never taken by a selector").await.unwrap();
}

/// The disk that is named is plugged in late, and carries LVM on an array: its path alone is no permission.
async fn plug_the_used_disk_late(site: &mut Installing<'_>) {
    site.set_install(json!({ "device": SYSTEM, "device-selector": null, "allow-erase": false }))
        .await
        .unwrap();
    site.look_again().await.unwrap();
    site.await_waiting("is not there yet").await.unwrap();
    site.inside("systemctl stop baremetal-agent-register").await.unwrap();
    site.lifecycle.guest().unwrap().qemu().unwrap().plug_system_disk().await.unwrap();
    site.inside(&[TWO_PARTITIONS, LVM_ON_MD].join("\n")).await.unwrap();
    site.look_again().await.unwrap();
    site.await_waiting("is not taken by its path alone: in use by md").await.unwrap();
}

/// The annotation of this host is the permission.
async fn name_the_used_disk(site: &mut Installing<'_>) {
    site.name_device(SYSTEM).await.unwrap();
    assert_eq!(site.await_installed(LONG).await.unwrap(), SYSTEM);
    let left = site.inside("lsblk -rno TYPE; cat /proc/mdstat").await.unwrap();
    assert!(!left.contains("lvm") && !left.contains("raid1"), "{left}");
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
    let mut site = Installing::new(&environment, &mut host, progress.clone());
    let iso = site.lifecycle.create_seed(&base).await.unwrap();
    progress.step("fault: several disks fit, two of them alike");
    boot_without_a_device(&mut site, &iso).await;
    progress.step("fault: the disk that is selected is not empty");
    select_a_disk_with_data(&mut site).await;
    progress.step("fault: the disk that is selected is a part of an array");
    select_a_part_of_an_array(&mut site).await;
    progress.step("fault: the disk that is named is plugged in late, with LVM on an array");
    plug_the_used_disk_late(&mut site).await;
    progress.step("the used disk is named for this host");
    name_the_used_disk(&mut site).await;
    site.lifecycle.guest().unwrap().running_mut().unwrap().power_cut().await;
    assert!(hash_disks(&disks).unwrap() == before, "another disk than the named one was written to");
    progress.end();
}
