//! Connections to the endpoint in a QEMU guest, whose kernel has IPVS: the one of the machine that runs the tests may
//! have none.
//!
//! It needs root and three variables, which `make test-lab` sets: `AGENT`, `KUBERNETES_BIN`, `CONTAINERD_BIN`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use guest::{Image, ImageInputs, build};
use qemu::{HostConfig, ImageDisk, Qemu};

const BOOT: Duration = Duration::from_secs(400);
const CHECK: Duration = Duration::from_mins(10);

/// A disk that holds the program, as a tar archive.
fn pack_program(directory: &Path) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_vip-agent"));
    let archive = directory.join("program.tar");
    let mut tar = Command::new("tar");
    tar.arg("--create").arg("--file").arg(&archive);
    tar.arg("--directory").arg(program.parent().unwrap()).arg("vip-agent");
    assert!(tar.status().unwrap().success());
    archive
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_with_ipvs_spreads_connections() {
    let inputs = ImageInputs::from_env()
        .expect("set AGENT, KUBERNETES_BIN and CONTAINERD_BIN, or run `make test-lab`");
    let iso = build(Image::Iso, &inputs).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut config = HostConfig::new("spread", &directory.path().join("host"), 1);
    config.cd = Some(iso);
    config.images = vec![ImageDisk { serial: "program".into(), path: pack_program(directory.path()) }];
    let host = Qemu::start(config).await.unwrap();
    host.wait_for_boot(1, BOOT).await.unwrap();
    let unpacked = host.exec(&["tar", "-xf", "/dev/disk/by-id/virtio-program", "-C", "/run"]).await.unwrap();
    assert_eq!(unpacked.code, 0, "{}", unpacked.stderr);
    for family in ["ipv6", "ipv4"] {
        let script = format!("/run/vip-agent check-spread {family} 2>&1");
        let checked = host.exec_within(&["sh", "-c", &script], CHECK).await.unwrap();
        println!("{}", checked.stdout);
        assert_eq!(checked.code, 0, "{}", checked.stdout);
    }
}
