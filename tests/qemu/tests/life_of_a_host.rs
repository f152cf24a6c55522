//! A QEMU host through the story of [`guest::life`].
//!
//! It needs root and three variables, which `make test` sets: `AGENT`, `KUBERNETES_BIN`, `CONTAINERD_BIN`.

use guest::{Guest, Image, ImageInputs, build, life};
use qemu::{BootOrder, Firmware, HostConfig, ImageDisk, Qemu};

#[tokio::test(flavor = "multi_thread")]
async fn a_host_installs_upgrades_and_falls_back() {
    let inputs =
        ImageInputs::from_env().expect("set AGENT, KUBERNETES_BIN and CONTAINERD_BIN, or run `make test`");
    let iso = build(Image::Iso, &inputs).await.unwrap();
    let os = build(Image::Os, &inputs).await.unwrap();
    let directory = std::env::temp_dir().join(format!("life-of-a-host-{}", std::process::id()));
    let mut config = HostConfig::new("life", &directory, 1);
    config.firmware = Firmware::Bios;
    config.cd = Some(iso);
    config.images = vec![ImageDisk { serial: "os-images".into(), path: os }];
    let machine = Qemu::new(config).unwrap();
    let mut host = Guest::start(machine.clone()).await.unwrap();
    life::play(&mut host, "/dev/disk/by-id/virtio-system", || machine.set_boot_order(BootOrder::Cd)).await;
}
