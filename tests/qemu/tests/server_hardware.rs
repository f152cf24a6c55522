//! The images for real servers on a host with the devices of one: the ISO at USB, a disk at `NVMe`, Intel's
//! network cards.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use guest::steps::{BOOT, reboot, running, shell};
use guest::{Guest, Image, ImageInputs, Kernel, build};
use qemu::{Devices, HostConfig, Qemu};

/// Of controllers and cards that QEMU does not emulate.
const DRIVERS: &str = "megaraid_sas mpt3sas mpi3mr smartpqi hpsa aacraid ahci vmd \
    ixgbe i40e ice igb tg3 bnxt_en bnx2x mlx4_en mlx5_core qede be2net sfc bonding 8021q";

async fn new_server() -> Guest {
    let inputs = ImageInputs::from_env()
        .expect("set AGENT, KUBERNETES_BIN and CONTAINERD_BIN, or run `make test-lab`");
    let iso = build(Image::Iso, &ImageInputs { kernel: Kernel::Generic, ..inputs }).await.unwrap();
    let directory = std::env::temp_dir().join(format!("server-hardware-{}", std::process::id()));
    let mut config = HostConfig::new("server", &directory, 1);
    config.devices = Devices::Server;
    config.cd = Some(iso);
    Qemu::start(config).await.unwrap()
}

async fn check_devices(host: &Guest) {
    let drivers = "for card in /sys/class/net/e*; do basename $(readlink $card/device/driver); done";
    assert_eq!(shell(host, drivers).await, "e1000e\ne1000e");
    assert_eq!(shell(host, "lsblk -ndo TRAN /dev/nvme0n1").await, "nvme");
    let mitigated = "grep -c -e mitigations=off -e nokaslr /proc/cmdline || true";
    assert_eq!(shell(host, mitigated).await, "0", "what only emulated hosts may do without");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_boots_the_iso_and_its_disk() {
    let host = new_server().await;
    host.wait_for_boot(1, BOOT).await.unwrap();
    host.wait_for_console("register and install this host", BOOT).await.unwrap();
    assert_eq!(running(&host).await, "live_mode live");
    check_devices(&host).await;
    let medium = "lsblk -ndo TRAN $(findmnt -no SOURCE /run/initramfs/live)";
    assert_eq!(shell(&host, medium).await, "usb");
    shell(&host, &format!("modinfo -n {DRIVERS}")).await;
    shell(&host, "elemental install --reboot=false --system dir:/run/rootfsbase /dev/nvme0n1").await;
    reboot(&host, 2).await;
    assert_eq!(running(&host).await, "active_mode live");
    check_devices(&host).await;
}
