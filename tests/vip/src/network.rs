//! Namespaces with one card each on a bridge, which is in a namespace too: nothing of the machine's
//! own network is touched.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, ensure};

static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// The address that the nodes hold.
pub const ENDPOINT: Ipv4Addr = Ipv4Addr::new(10, 55, 0, 100);
/// Where clients are.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 55, 0, 254);
/// The card of every node.
pub const CARD: &str = "eno1";

/// Runs `ip`.
///
/// # Errors
/// When it fails.
pub fn run_ip(arguments: &str) -> anyhow::Result<String> {
    let done = Command::new("ip").args(arguments.split(' ')).output().context("run ip")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "ip {arguments}: {said}");
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// A switch; the nodes' namespaces are plugged into it. Gone with the value.
#[derive(Debug)]
pub struct Network {
    prefix: String,
    nodes: usize,
}

impl Network {
    /// A switch with `nodes` namespaces.
    ///
    /// # Errors
    /// Without root.
    pub fn create(nodes: usize) -> anyhow::Result<Self> {
        let prefix = format!("vip{}-{}", std::process::id(), NETWORKS.fetch_add(1, Ordering::Relaxed));
        let network = Self { prefix, nodes };
        let switch = network.switch();
        run_ip(&format!("netns add {switch}"))?;
        for command in ["link set lo up", "link add br0 type bridge", "link set br0 up"] {
            run_ip(&format!("-n {switch} {command}"))?;
        }
        run_ip(&format!("-n {switch} addr add {CLIENT}/24 dev br0"))?;
        for node in 0..nodes {
            let namespace = network.namespace(node);
            run_ip(&format!("netns add {namespace}"))?;
            run_ip(&format!("-n {namespace} link set lo up"))?;
            run_ip(&format!("-n {namespace} link add {CARD} type veth peer name port{node} netns {switch}"))?;
            run_ip(&format!("-n {switch} link set port{node} master br0 up"))?;
            run_ip(&format!("-n {namespace} addr add {}/24 dev {CARD}", address(node)))?;
            run_ip(&format!("-n {namespace} link set {CARD} up"))?;
        }
        Ok(network)
    }

    /// Where the clients are.
    #[must_use]
    pub fn switch(&self) -> String {
        format!("{}-sw", self.prefix)
    }

    /// Where a node is.
    #[must_use]
    pub fn namespace(&self, node: usize) -> String {
        format!("{}-n{node}", self.prefix)
    }

    /// Pulls the cable of a node, or plugs it in.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn set_cable(&self, node: usize, is_plugged: bool) -> anyhow::Result<()> {
        let state = if is_plugged { "up" } else { "down" };
        run_ip(&format!("-n {} link set port{node} {state}", self.switch())).map(drop)
    }

    /// Whether the node has the endpoint on an interface.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn holds(&self, node: usize) -> anyhow::Result<bool> {
        let shown = run_ip(&format!("-n {} -o addr show to {ENDPOINT}", self.namespace(node)))?;
        Ok(!shown.trim().is_empty())
    }

    /// The nodes that hold the endpoint.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn holders(&self) -> anyhow::Result<Vec<usize>> {
        let mut holders = Vec::new();
        for node in 0..self.nodes {
            if self.holds(node)? {
                holders.push(node);
            }
        }
        Ok(holders)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for node in 0..self.nodes {
            let _ = run_ip(&format!("netns del {}", self.namespace(node)));
        }
        let _ = run_ip(&format!("netns del {}", self.switch()));
    }
}

/// The address of a node.
#[must_use]
pub fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 55, 0, u8::try_from(node + 1).unwrap_or(u8::MAX))
}
