//! A switch in a network namespace of this program: guests are plugged in,
//! and reach its processes and each other, and nothing else.

mod dhcp;
mod vlan;

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::site::GUEST_GATEWAY;

pub use dhcp::DhcpServer;

/// The address of this program at the switch, which is a /24.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Taps of the two segments of [`create_segments`].
pub const SEGMENTS: [&str; 2] = ["dynamic", "static"];
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
    begin()?;
    add_bridge("br0")?;
    let device = match vlan {
        Some(id) => vlan::plug(id)?,
        None => "br0",
    };
    run_ip(&format!("addr add {ADDRESS}/24 dev {device}"))?;
    for tap in taps {
        add_tap(tap, "br0")?;
    }
    Ok(())
}

/// Makes two segments like those that QEMU gives each guest: in the first one DHCP answers, and this program is at the
/// address that guests know; in the second one nothing answers.
///
/// # Errors
/// When a command fails, or this is a namespace with links of others.
pub fn create_segments(directory: &Path) -> anyhow::Result<DhcpServer> {
    begin()?;
    for (bridge, tap) in ["br0", "br1"].into_iter().zip(SEGMENTS) {
        add_bridge(bridge)?;
        add_tap(tap, bridge)?;
    }
    run_ip(&format!("addr add {GUEST_GATEWAY}/24 dev br0"))?;
    DhcpServer::start("br0", directory)
}

/// Pulls the cable of a host out of the switch, or plugs it in again.
///
/// # Errors
/// When the command fails.
pub fn set_plugged(tap: &str, is_plugged: bool) -> anyhow::Result<()> {
    let change = if is_plugged { "master br0" } else { "nomaster" };
    run_ip(&format!("link set dev {tap} {change}")).map(drop)
}

fn begin() -> anyhow::Result<()> {
    let links = run_ip("-brief link")?;
    ensure!(links.lines().count() == 1, "this network namespace is in use:\n{links}");
    run_ip("link set lo up").map(drop)
}

fn add_bridge(name: &str) -> anyhow::Result<()> {
    run_ip(&format!("link add {name} type bridge"))?;
    run_ip(&format!("link set dev {name} up")).map(drop)
}

fn add_tap(tap: &str, bridge: &str) -> anyhow::Result<()> {
    run_ip(&format!("tuntap add {tap} mode tap"))?;
    run_ip(&format!("link set dev {tap} master {bridge} up")).map(drop)
}

fn run_ip(arguments: &str) -> anyhow::Result<String> {
    let done = Command::new("ip").args(arguments.split(' ')).output().context("run ip")?;
    ensure!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr).trim());
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
