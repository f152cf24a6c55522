//! What a host is made of.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// What the firmware tries first. The other device is tried after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootOrder {
    /// The CD, if one is in the drive.
    Cd,
    /// The system disk; an empty one falls through to the CD.
    Disk,
    /// What the firmware's own variables say: for [`Firmware::Uefi`].
    Variables,
}

/// The firmware that starts the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    /// `SeaBIOS`, QEMU's own.
    Bios,
    /// OVMF; each host has a private copy of the variables.
    Uefi,
}

/// What its disk, its ISO and its cards are behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Devices {
    /// virtio, and the ISO in a drive: any kernel for virtual machines has the drivers.
    Virtio,
    /// As in a server: a disk at `NVMe`, Intel's network cards, the ISO at USB as a BMC attaches it.
    Server,
}

/// The TPM of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tpm {
    Absent,
    /// swtpm, with seeds of its own in the host's directory: the same TPM at every boot.
    Emulated,
}

/// A connection that the host may make: `address:port` as seen by the host leads to a port of this machine's loopback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// An address inside the NIC's network, and none of QEMU's own there (.2 gateway, .3 DNS, from .15 on DHCP).
    pub address: Ipv4Addr,
    /// Port the host calls.
    pub port: u16,
    /// Port on 127.0.0.1 of this machine.
    pub loopback_port: u16,
}

/// Where the cable of a card ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// In a network of its own: nothing outside is reachable but the forwards. DHCP answers there.
    Own {
        /// The /24, by its first address, such as 10.0.2.0.
        network: Ipv4Addr,
        /// The only ways out.
        forwards: Vec<Forward>,
    },
    /// In a tap device of this network namespace, by its name: in whatever that is plugged into.
    Tap(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    pub mac: String,
    pub link: Link,
}

/// What a data disk is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bus {
    /// A virtio controller of its own.
    Virtio,
    /// An `NVMe` subsystem with two controllers: two paths to one disk.
    NvmeTwoPaths,
}

/// A disk beside the system's that the host may write to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDisk {
    /// Serial number, which is in the names of `/dev/disk/by-id` in the host.
    pub serial: String,
    pub path: PathBuf,
    /// Where it is plugged in.
    pub bus: Bus,
}

/// A read-only disk that the host finds by its serial number, or by the label of the file system on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageDisk {
    /// Serial number: `/dev/disk/by-id/virtio-<serial>` in the host.
    pub serial: String,
    pub path: PathBuf,
}

/// A host before it is powered on.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// Name in logs and errors.
    pub name: String,
    /// Private directory: `system.raw`, `console.log`, UEFI variables. It is made, and survives the host.
    pub directory: PathBuf,
    pub uuid: String,
    /// SMBIOS system serial number.
    pub serial: String,
    pub cpus: u8,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// What QEMU may keep of translated code, in MiB. Too little for what runs is translated again and again.
    pub translations_mib: u32,
    /// Size of the system disk in GiB; it takes room only as it is written.
    pub disk_gib: u32,
    /// Whether the system disk is plugged in; see [`crate::Qemu::plug_system_disk`].
    pub has_system_disk: bool,
    /// Whether what the host writes to the system disk is there when it is started again. It always is after a reset.
    pub keeps_writes: bool,
    /// Where the next boot's writes to the system disk are recorded, see [`crate::WriteLog`].
    pub write_log: Option<PathBuf>,
    pub firmware: Firmware,
    /// What it is built of.
    pub devices: Devices,
    pub tpm: Tpm,
    /// The ISO in the drive.
    pub cd: Option<PathBuf>,
    /// What boots first.
    pub boot_order: BootOrder,
    /// Disks beside the system's, with their images made by the caller.
    pub data_disks: Vec<DataDisk>,
    /// Read-only disks.
    pub images: Vec<ImageDisk>,
    /// Network cards, in order.
    pub nics: Vec<Nic>,
}

impl HostConfig {
    /// Its disk, as a raw image with holes.
    pub fn system_disk(&self) -> PathBuf {
        self.directory.join("system.raw")
    }

    /// Takes what is written where writes are not kept.
    pub(crate) fn overlay(&self) -> PathBuf {
        self.directory.join("overlay.qcow2")
    }

    /// A host as the story has it: 2 CPUs, 2 GiB, a 16 GiB disk, a TPM, one NIC for DHCP (10.0.2.0) and one for a static
    /// address (10.77.0.0), no CD. `number` makes UUID, serial number and MACs unique and lasting.
    pub fn new(name: &str, directory: &Path, number: u8) -> Self {
        let nic = |index: u8, network| Nic {
            mac: format!("52:54:00:4c:{number:02x}:{index:02x}"),
            link: Link::Own { network, forwards: Vec::new() },
        };
        Self {
            name: name.to_owned(),
            directory: directory.to_owned(),
            uuid: format!("4c616200-0000-4000-8000-0000000000{number:02x}"),
            serial: format!("LAB-{number:03}"),
            cpus: 2,
            memory_mib: 2048,
            translations_mib: 256,
            disk_gib: 16,
            has_system_disk: true,
            keeps_writes: true,
            write_log: None,
            firmware: Firmware::Uefi,
            devices: Devices::Virtio,
            tpm: Tpm::Emulated,
            cd: None,
            boot_order: BootOrder::Disk,
            data_disks: Vec::new(),
            images: Vec::new(),
            nics: vec![nic(1, Ipv4Addr::new(10, 0, 2, 0)), nic(2, Ipv4Addr::new(10, 77, 0, 0))],
        }
    }

    /// Lets the host reach `loopback_port` of this machine as `address:port`, through its first NIC.
    pub fn forward(mut self, address: Ipv4Addr, port: u16, loopback_port: u16) -> Self {
        if let Some(Link::Own { forwards, .. }) = self.nics.first_mut().map(|nic| &mut nic.link) {
            forwards.push(Forward { address, port, loopback_port });
        }
        self
    }

    /// The same host with a card at each of these tap devices, two at most, and no other.
    pub fn at_taps(mut self, taps: &[&str]) -> Self {
        self.nics.truncate(taps.len());
        for (nic, tap) in self.nics.iter_mut().zip(taps) {
            nic.link = Link::Tap((*tap).to_owned());
        }
        self
    }
}
