//! A host in User Mode Linux through the story of [`guest::life`].
//!
//! It needs root and three variables, which `make test` sets: `AGENT`, `KUBERNETES_BIN`, `CONTAINERD_BIN`.

use guest::steps::{BOOT, shell};
use guest::{Guest, Image, ImageInputs, Kernel, build, life};
use uml::{HostConfig, Uml};

#[tokio::test(flavor = "multi_thread")]
async fn a_host_installs_upgrades_and_falls_back() {
    let inputs =
        ImageInputs::from_env().expect("set AGENT, KUBERNETES_BIN and CONTAINERD_BIN, or run `make test`");
    let inputs = ImageInputs { kernel: Kernel::Uml, ..inputs };
    let directory = std::env::temp_dir().join(format!("life-in-uml-{}", std::process::id()));
    let mut config = HostConfig::new("life", &directory, 1, &[]);
    config.cd = Some(build(Image::Iso, &inputs).await.unwrap());
    config.images = vec![build(Image::Os, &inputs).await.unwrap()];
    let machine = Uml::new(config);
    let mut host = Guest::start(machine.clone()).await.unwrap();
    host.wait_for_boot(1, BOOT).await.unwrap();
    // Disks of servers: SCSI with serial numbers, several paths, arrays.
    let disks = "modprobe --all scsi_debug sd_mod dm_multipath dm_log_writes raid1 && \
        for second in $(seq 60); do ls /dev/disk/by-id/scsi-* && exit; sleep 1; done; false";
    shell(&host, disks).await;
    // Networks of servers, and the endpoint of control planes.
    shell(&host, "modprobe --all 8021q bonding vxlan br_netfilter ip_vs nf_tables && nft list ruleset").await;
    shell(&host, "modprobe --remove scsi_debug").await;
    life::play(&mut host, "/dev/ubda", || machine.set_cd_first(true)).await;
}
