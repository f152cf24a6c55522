//! A switch in a network namespace of this program: QEMU guests are plugged in,
//! and reach its processes and each other, and nothing else.

mod vlan;

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

/// The address of this program at the switch, which is a /24.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Set in the namespace.
const ENTERED: &str = "BAREMETAL_SWITCH";

/// Starts this program again in a network namespace of its own, which ends with
/// its last process. Returns where it runs in one already.
pub fn enter() -> anyhow::Result<()> {
    if std::env::var_os(ENTERED).is_some() {
        return Ok(());
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "--"]).arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
    let error = command.env(ENTERED, "1").exec();
    bail!("unshare --net: {error}")
}

/// Makes the switch, with this program and `taps` plugged in. Where there is a VLAN, this program
/// is in it alone.
///
/// # Errors
/// When a command fails, or this is a namespace with links of others.
pub fn create(taps: &[String], vlan: Option<u16>) -> anyhow::Result<()> {
    let links = run_ip("-brief link")?;
    ensure!(links.lines().count() == 1, "this network namespace is in use:\n{links}");
    for command in ["link set lo up", "link add br0 type bridge", "link set br0 up"] {
        run_ip(command)?;
    }
    let device = match vlan {
        Some(id) => vlan::plug(id)?,
        None => "br0",
    };
    run_ip(&format!("addr add {ADDRESS}/24 dev {device}"))?;
    for tap in taps {
        run_ip(&format!("tuntap add {tap} mode tap"))?;
        run_ip(&format!("link set {tap} master br0 up"))?;
    }
    Ok(())
}

fn run_ip(arguments: &str) -> anyhow::Result<String> {
    let done = Command::new("ip").args(arguments.split(' ')).output().context("run ip")?;
    ensure!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr).trim());
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
