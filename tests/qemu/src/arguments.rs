//! The QEMU command line of a host: pure.

use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::{Value, json};

use crate::config::{BootOrder, Bus, DataDisk, Devices, Firmware, Forward, HostConfig, Link, Nic, Tpm};

/// Where OVMF lies on Debian: 4 MiB variant, no Secure Boot.
pub(crate) const OVMF_CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";

/// Name of the socket by which QEMU controls the TPM.
pub(crate) const TPM_SOCKET: &str = "tpm";

/// All arguments after the program's name. `sockets` is a short directory: the kernel cuts socket paths at 107 bytes.
pub(crate) fn arguments(config: &HostConfig, sockets: &Path) -> Vec<String> {
    let mut list = machine(config);
    list.extend(disks(config));
    for (index, nic) in config.nics.iter().enumerate() {
        list.extend(network(index, nic, config.devices));
    }
    list.extend(channels(config, sockets));
    if config.tpm == Tpm::Emulated {
        let chardev = format!("socket,id=tpm,path={}", sockets.join(TPM_SOCKET).display());
        list.extend(["-chardev".into(), chardev]);
        list.extend(words("-tpmdev emulator,id=tpm0,chardev=tpm -device tpm-tis,tpmdev=tpm0"));
    }
    list
}

/// The command line of the TPM; it ends with its QEMU. Paths are absolute: swtpm changes its directory.
pub(crate) fn tpm_arguments(state: &Path, sockets: &Path) -> Vec<String> {
    let mut list = words("socket --tpm2 --terminate --tpmstate");
    list.push(format!("dir={}", state.display()));
    list.extend(["--ctrl".into(), format!("type=unixio,path={}", sockets.join(TPM_SOCKET).display())]);
    list
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(ToOwned::to_owned).collect()
}

fn machine(config: &HostConfig) -> Vec<String> {
    // `pc`: the cloud kernel has no AHCI, so on q35 a CD is invisible.
    let machine = match config.devices {
        Devices::Virtio => "pc",
        Devices::Server => "q35",
    };
    // A warm reset inside one QEMU is ten times slower than a new one, so a reset ends QEMU (-no-reboot). A fifth level
    // of page tables is one more to emulate.
    let mut list = words("-nodefaults -no-user-config -cpu max,la57=off -display none -no-reboot -machine");
    list.push(machine.to_owned());
    // Emulation always: KVM opens on some machines and then hangs a stock kernel. tb-size bounds the translation
    // cache, which otherwise adds a gigabyte.
    let accelerator = format!("tcg,thread=multi,tb-size={}", config.translations_mib);
    list.extend(["-accel".into(), accelerator]);
    list.extend(["-name".into(), config.name.clone(), "-uuid".into(), config.uuid.clone()]);
    list.extend(["-smp".into(), config.cpus.to_string(), "-m".into(), config.memory_mib.to_string()]);
    let smbios =
        format!("type=1,manufacturer=lab,product=lab host,serial={},uuid={}", config.serial, config.uuid);
    list.extend(["-smbios".into(), smbios]);
    list.extend(words("-rtc base=utc -device virtio-rng-pci -device VGA"));
    if config.firmware == Firmware::Uefi {
        let variables = config.directory.join("uefi-variables.fd");
        list.extend(["-drive".into(), format!("if=pflash,unit=0,format=raw,readonly=on,file={OVMF_CODE}")]);
        list.extend(["-drive".into(), format!("if=pflash,unit=1,format=raw,file={}", variables.display())]);
    }
    list
}

fn disks(config: &HostConfig) -> Vec<String> {
    let (cd, disk) = match config.boot_order {
        BootOrder::Cd => (",bootindex=1", ",bootindex=2"),
        BootOrder::Disk => (",bootindex=2", ",bootindex=1"),
        BootOrder::Variables => ("", ""),
    };
    let mut list = if config.has_system_disk { system_disk(config, disk) } else { Vec::new() };
    for (index, disk) in config.data_disks.iter().enumerate() {
        list.extend(data_disk(index, disk));
    }
    for (index, image) in config.images.iter().enumerate() {
        let drive = format!("if=none,id=image{index},format=raw,readonly=on,file={}", image.path.display());
        let device = format!("virtio-blk-pci,drive=image{index},serial={}", image.serial);
        list.extend(["-drive".into(), drive, "-device".into(), device]);
    }
    if let Some(iso) = &config.cd {
        let drive = format!("if=none,id=cd,format=raw,media=cdrom,readonly=on,file={}", iso.display());
        list.extend(["-drive".into(), drive]);
        match config.devices {
            Devices::Virtio => list.extend(["-device".into(), format!("ide-cd,drive=cd{cd}")]),
            Devices::Server => {
                list.extend(words("-device qemu-xhci -device"));
                list.push(format!("usb-storage,drive=cd{cd}"));
            }
        }
    }
    list
}

fn system_disk(config: &HostConfig, order: &str) -> Vec<String> {
    let system = config.system_disk();
    let drive = match &config.write_log {
        Some(log) => recorded_drive(&system, log),
        None if config.keeps_writes => format!("format=raw,file={}", system.display()),
        None => format!("format=qcow2,file={}", config.overlay().display()),
    };
    vec![
        "-drive".into(),
        // writeback honours flushes: what the guest synced survives a power cut, what it did not is lost. What the
        // guest trims is a hole in the file, as it is gone from a flash disk.
        format!("if=none,id=system,cache=writeback,discard=unmap,{drive}"),
        "-device".into(),
        match config.devices {
            Devices::Virtio => format!("virtio-blk-pci,drive=system,serial=system{order}"),
            Devices::Server => format!("nvme,drive=system,serial=system{order}"),
        },
    ]
}

/// Commands of the monitor that plug in the same disk, behind virtio.
pub(crate) fn plug_system_disk(disk: &Path) -> [Value; 2] {
    let file = json!({ "driver": "file", "filename": disk, "discard": "unmap" });
    let node = json!({ "driver": "raw", "node-name": "system", "discard": "unmap", "file": file });
    let device =
        json!({ "driver": "virtio-blk-pci", "id": "system-disk", "drive": "system", "serial": "system" });
    [
        json!({ "execute": "blockdev-add", "arguments": node }),
        json!({ "execute": "device_add", "arguments": device }),
    ]
}

fn data_disk(index: usize, disk: &DataDisk) -> Vec<String> {
    let DataDisk { serial, path, bus } = disk;
    let drive = format!("if=none,id=data{index},cache=writeback,format=raw,file={}", path.display());
    let devices = match bus {
        Bus::Virtio => vec![format!("virtio-blk-pci,drive=data{index},serial={serial}")],
        Bus::NvmeTwoPaths => vec![
            format!("nvme-subsys,id=subsystem{index},nqn={serial}"),
            format!("nvme,id=path{index}a,serial={serial},subsys=subsystem{index}"),
            format!("nvme,id=path{index}b,serial={serial},subsys=subsystem{index}"),
            // At one controller by its bus, and at all of the subsystem since it is shared.
            format!("nvme-ns,drive=data{index},bus=path{index}a,shared=on"),
        ],
    };
    let devices = devices.into_iter().flat_map(|device| ["-device".to_owned(), device]);
    ["-drive".to_owned(), drive].into_iter().chain(devices).collect()
}

/// Options of a disk whose writes are recorded in `log`, which exists.
pub(crate) fn recorded_drive(disk: &Path, log: &Path) -> String {
    let below = |name: &str, path: &Path| {
        format!("{name}.driver=raw,{name}.file.driver=file,{name}.file.filename={}", path.display())
    };
    format!("driver=blklogwrites,{},{}", below("file", disk), below("log", log))
}

fn network(index: usize, nic: &Nic, devices: Devices) -> Vec<String> {
    let backend = match &nic.link {
        Link::Own { network, forwards } => own_network(index, *network, forwards),
        Link::Tap(name) => format!("tap,id=net{index},ifname={name},script=no,downscript=no"),
    };
    let card = match devices {
        Devices::Virtio => "virtio-net-pci",
        Devices::Server => "e1000e",
    };
    let device = format!("{card},netdev=net{index},mac={},romfile=", nic.mac);
    vec!["-netdev".into(), backend, "-device".into(), device]
}

fn own_network(index: usize, network: Ipv4Addr, forwards: &[Forward]) -> String {
    // restrict=on: without it a guest reaches whatever this machine reaches.
    let mut options = vec![format!("user,id=net{index},restrict=on,net={network}/24")];
    for forward in forwards {
        // A process for each connection: QEMU's own `-tcp:` form shares a single one among all.
        options.push(format!(
            "guestfwd=tcp:{}:{}-cmd:socat - TCP:127.0.0.1:{}",
            forward.address, forward.port, forward.loopback_port
        ));
    }
    options.join(",")
}

fn channels(config: &HostConfig, sockets: &Path) -> Vec<String> {
    let console = config.directory.join("console.log");
    // append: the log of one host over all its boots.
    let mut list = vec!["-chardev".into(), format!("file,id=console,append=on,path={}", console.display())];
    list.extend(words("-serial chardev:console"));
    for (id, socket) in [("monitor", "qmp"), ("control", "control"), ("agent", "agent")] {
        let path = sockets.join(socket);
        list.extend([
            "-chardev".into(),
            format!("socket,id={id},server=on,wait=off,path={}", path.display()),
        ]);
    }
    // A monitor has one client: who waits for its end, and who gives it commands.
    list.extend(words("-mon chardev=monitor,mode=control -mon chardev=control,mode=control"));
    list.extend(words("-device virtio-serial-pci"));
    list.extend(words("-device virtserialport,chardev=agent,name=org.qemu.guest_agent.0"));
    list
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::config::ImageDisk;

    #[test]
    fn the_command_line_says_what_the_configuration_says() {
        let mut plain =
            HostConfig::new("one", Path::new("/d"), 7).forward(Ipv4Addr::new(10, 0, 2, 100), 443, 8443);
        let mut full = plain.clone();
        plain.firmware = Firmware::Bios;
        plain.tpm = Tpm::Absent;
        full.cd = Some(PathBuf::from("/live.iso"));
        full.images = vec![ImageDisk { serial: "os".into(), path: "/os.iso".into() }];
        let mut cd_first = full.clone();
        cd_first.boot_order = BootOrder::Cd;
        let mut by_variables = full.clone();
        by_variables.boot_order = BootOrder::Variables;
        let mut at_tap = plain.clone().at_taps(&["host1"]);
        at_tap.translations_mib = 1024;
        let mut server = cd_first.clone();
        server.devices = Devices::Server;
        let mut forgetful = plain.clone();
        forgetful.keeps_writes = false;
        let mut recorded = plain.clone();
        recorded.write_log = Some(PathBuf::from("/d/log"));
        let cases = [
            ("a card at a switch", &at_tap, "tap,id=net0,ifname=host1,script=no,downscript=no", true),
            ("no other card", &at_tap, "id=net1", false),
            ("much translated code", &at_tap, "-accel tcg,thread=multi,tb-size=1024", true),
            ("no CD, no drive", &plain, "ide-cd", false),
            ("the disk is first", &full, "ide-cd,drive=cd,bootindex=2", true),
            ("the CD is first", &cd_first, "ide-cd,drive=cd,bootindex=1", true),
            ("the firmware decides", &by_variables, "bootindex", false),
            ("a server has no CD drive", &server, "-device usb-storage,drive=cd,bootindex=1", true),
            ("its disk", &server, "-device nvme,drive=system,serial=system,bootindex=2", true),
            ("its cards", &server, "-device e1000e,netdev=net1", true),
            ("writes are kept", &plain, "discard=unmap,format=raw,file=/d/system.raw", true),
            ("writes are not kept", &forgetful, "discard=unmap,format=qcow2,file=/d/overlay.qcow2", true),
            ("writes are recorded", &recorded, "log.file.filename=/d/log", true),
            ("networks are closed", &plain, "id=net1,restrict=on,net=10.77.0.0/24", true),
            (
                "a process a connection",
                &plain,
                "guestfwd=tcp:10.0.2.100:443-cmd:socat - TCP:127.0.0.1:8443",
                true,
            ),
            ("MACs are fixed", &plain, "mac=52:54:00:4c:07:01", true),
            ("disks have serial numbers", &full, "virtio-blk-pci,drive=image0,serial=os", true),
            ("no TPM", &plain, "tpm", false),
            ("a TPM of its own", &full, "socket,id=tpm,path=/s/tpm", true),
            ("BIOS has no flash", &plain, "pflash", false),
            (
                "UEFI has private variables",
                &full,
                "if=pflash,unit=1,format=raw,file=/d/uefi-variables.fd",
                true,
            ),
        ];
        for (name, config, text, want) in cases {
            let line = arguments(config, Path::new("/s")).join(" ");
            assert_eq!(line.contains(text), want, "{name}: {line}");
        }
    }

    #[test]
    fn data_disks_have_their_bus() {
        let data = |serial: &str, bus| DataDisk { serial: serial.into(), path: "/x".into(), bus };
        let mut config = HostConfig::new("one", Path::new("/d"), 7);
        config.has_system_disk = false;
        config.data_disks = vec![data("one", Bus::Virtio), data("two", Bus::NvmeTwoPaths)];
        let line = arguments(&config, Path::new("/s")).join(" ");
        for (name, text, want) in [
            ("no system disk", "drive=system", false),
            ("another disk", "virtio-blk-pci,drive=data0,serial=one", true),
            ("a disk with two paths", "nvme,id=path1b,serial=two,subsys=subsystem1", true),
            ("at both", "nvme-ns,drive=data1,bus=path1a,shared=on", true),
        ] {
            assert_eq!(line.contains(text), want, "{name}: {line}");
        }
    }
}
