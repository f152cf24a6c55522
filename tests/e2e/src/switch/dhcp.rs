//! A DHCP server at a bridge: busybox has one.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

use guest::process::Process;

/// The address that QEMU's own server gives, and its gateway, which does not answer.
const CONFIGURATION: &str =
    "start 10.0.2.15\nend 10.0.2.15\noption subnet 255.255.255.0\noption router 10.0.2.2\n";

/// It ends when it is dropped.
#[derive(Debug)]
pub struct DhcpServer {
    _process: Process,
}

impl DhcpServer {
    pub(super) fn start(bridge: &str, directory: &Path) -> anyhow::Result<Self> {
        let path = |name: &str| directory.join(name);
        let [leases, pid, file] = ["udhcpd.leases", "udhcpd.pid", "udhcpd.conf"].map(path);
        File::create(&leases)?;
        let places =
            format!("interface {bridge}\nlease_file {}\npidfile {}\n", leases.display(), pid.display());
        fs::write(&file, format!("{CONFIGURATION}{places}"))?;
        let arguments = ["udhcpd", "-f", &file.display().to_string()].map(str::to_owned);
        let log = File::create(path("udhcpd.log"))?;
        let (process, _ended) = Process::start("busybox", &arguments, Stdio::null(), log)?;
        Ok(Self { _process: process })
    }
}
