//! A host in User Mode Linux whose disks come from another use: the kernel's own device mapper, arrays and SCSI.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use ::qemu::{Bus, DataDisk};
use e2e::guest_site::GuestSite;
use e2e::host::Host as _;
use e2e::installing::{Installing, LVM_ON_MD, hash_disks, make_data_disk, make_file_system};
use serde_json::json;

const LONG: Duration = Duration::from_mins(6);
/// A disk that nobody names, with a file system.
const DATA: &str = "data";
/// The other disk of a volume group, which the host has as `ubde`, after the ISO, the OS images and [`DATA`].
const SPANNED: &str = "spanned";

/// A disk of 32 GiB on two paths. Both have one store behind them.
const ADD_TWO_PATHS: &str = "set -e
modprobe --all sd_mod dm_multipath
modprobe scsi_debug add_host=2 max_luns=1 dev_size_mb=64 virtual_gb=32 vpd_use_hostno=0
udevadm settle
test \"$(lsblk -dnro NAME,MODEL | grep -c scsi_debug)\" = 2";
/// Joins both paths, as multipathd does.
const JOIN_PATHS: &str = "set -e
set -- $(lsblk -dnro NAME,MODEL,MAJ:MIN,WWN | awk '/scsi_debug/ { print $1, $3, $4 }')
sectors=$(cat /sys/block/$1/size)
modprobe dm_round_robin
echo \"0 $sectors multipath 0 0 1 1 round-robin 0 2 1 $2 1000 $5 1000\" |
    dmsetup create mpatha --uuid mpath-${3#0x}
udevadm settle";
const REMOVE_PATHS: &str = "set -e
dmsetup remove --retry mpatha
udevadm settle
modprobe --remove scsi_debug";

/// The partitions of the system disk.
const PART: &str = "set -e
modprobe raid1
udevadm settle
disk=/dev/ubda
printf 'label: gpt\n,1GiB\n,1GiB\n,1GiB\n,1GiB\n,1GiB\n,1GiB\n' | sfdisk -q $disk
udevadm settle";
/// A volume group with a second disk, LUKS, VMFS, and an OSD of Ceph.
const USE: &str = "wipefs -aq /dev/ubde
pvcreate -qy ${disk}3 /dev/ubde
vgcreate -q vg_wide ${disk}3 /dev/ubde
lvcreate -qy -l 100%FREE -n data vg_wide
printf 'LUKS\\272\\276\\0\\1' | dd of=${disk}4 conv=fsync status=none
printf '\\015\\320\\001\\300' | dd of=${disk}5 bs=1M seek=1 conv=fsync status=none
printf 'bluestore block device\\n' | dd of=${disk}6 conv=fsync status=none
udevadm settle";

fn make_disks(directory: &Path) -> Vec<DataDisk> {
    let disks = [DATA, SPANNED].map(|serial| make_data_disk(directory, serial, Bus::Virtio).unwrap());
    for disk in &disks {
        make_file_system(&disk.path).unwrap();
    }
    disks.into()
}

/// No disk is named, and several fit.
async fn boot_without_a_device(site: &mut Installing<'_>, iso: &Path) {
    site.set_install(json!({ "device": null })).await.unwrap();
    site.lifecycle.guest().unwrap().boot(iso).await.unwrap();
    let message = site.await_waiting("3 disks fit the device selector").await.unwrap();
    assert_eq!(message.matches("[ext4 on the whole disk]").count(), 2, "{message}");
}

async fn show_two_paths(site: &mut Installing<'_>) {
    site.inside(ADD_TWO_PATHS).await.unwrap();
    site.look_again().await.unwrap();
    let message = site.await_waiting("model scsi_debug").await.unwrap();
    assert_eq!(message.matches("model scsi_debug").count(), 1, "it is one disk: {message}");
    site.inside(JOIN_PATHS).await.unwrap();
    site.look_again().await.unwrap();
    let message = site.await_waiting("dm-uuid-mpath-").await.unwrap();
    assert!(message.starts_with("4 disks fit the device selector"), "it is one disk: {message}");
    site.inside(REMOVE_PATHS).await.unwrap();
}

/// The path alone is no permission to erase, and the name of one disk none for the other one.
async fn name_the_used_disks(site: &mut Installing<'_>) {
    site.inside("systemctl stop baremetal-agent-register").await.unwrap();
    site.inside(&[PART, LVM_ON_MD, USE].join("\n")).await.unwrap();
    site.set_install(json!({ "device": "/dev/ubda", "allow-erase": false })).await.unwrap();
    site.look_again().await.unwrap();
    site.await_waiting("is not taken by its path alone: in use by").await.unwrap();
    site.name_device("/dev/ubda").await.unwrap();
    let refused = site.await_waiting("spans other disks").await.unwrap();
    assert!(refused.contains("ubde") && !refused.contains("ubdd"), "{refused}");
    let kept = site.inside("lsblk -rno NAME,TYPE").await.unwrap();
    assert!(kept.contains("vg_old-root lvm") && kept.contains("vg_wide-data lvm"), "{kept}");
    site.name_device("/dev/ubda,/dev/ubde").await.unwrap();
    assert_eq!(site.await_installed(LONG).await.unwrap(), "/dev/ubda");
    let left =
        site.inside("lsblk -rno NAME,TYPE,FSTYPE; test ! -e /proc/mdstat || cat /proc/mdstat").await.unwrap();
    for used in ["lvm", "raid1", "LVM2_member", "linux_raid_member", "crypto_LUKS", "VMFS", "ceph_bluestore"]
    {
        assert!(!left.contains(used), "{used}: {left}");
    }
}

async fn play(site: GuestSite) -> anyhow::Result<()> {
    let GuestSite { environment, host, base, progress, watching: _watching, .. } = site;
    let disks = make_disks(environment.directory.path());
    let before = hash_disks(&disks[..1])?;
    let mut host = host.with_data_disks(disks.clone());
    let mut site = Installing::new(&environment, &mut host, progress.clone());
    let iso = site.lifecycle.create_seed(&base).await?;
    progress.step("fault: several disks fit");
    boot_without_a_device(&mut site, &iso).await;
    progress.step("fault: a disk has two paths");
    show_two_paths(&mut site).await;
    progress.step("fault: the disk that is named comes from another use");
    name_the_used_disks(&mut site).await;
    site.lifecycle.guest()?.running_mut()?.power_cut().await;
    assert!(hash_disks(&disks[..1])? == before, "a disk that nobody named was written to");
    progress.end();
    Ok(())
}

// Fault: a disk of a host has two paths, with and without a multipath device.
// Shown: condition `Installed`: `InstallWaiting` with the disk once; nothing is written.
// Fault: the disk that is named carries LVM on an array, LUKS, VMFS, BlueStore, and a part of a volume group.
// Shown: condition `Installed`: `InstallWaiting` with what lies on it, and with the other disk of the volume group; the annotation of the host that names both has them taken apart.
#[test]
fn uml_host_gives_used_disks_up() {
    GuestSite::run_in_uml(play).unwrap();
}
