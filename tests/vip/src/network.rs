//! Namespaces with one card each on a bridge, which is in a namespace too: nothing of the machine's
//! own network is touched.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, ensure};

static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// Of the addresses of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `10.55.0.0/24`
    V4,
    /// `fd55::/64`
    V6,
}

impl Family {
    fn host(self, last: u8) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(10, 55, 0, last).into(),
            Self::V6 => Ipv6Addr::new(0xfd55, 0, 0, 0, 0, 0, 0, last.into()).into(),
        }
    }

    /// The address that the nodes hold.
    pub fn endpoint(self) -> IpAddr {
        self.host(100)
    }

    /// The address of a node.
    pub fn address(self, node: usize) -> IpAddr {
        self.host(u8::try_from(node + 1).unwrap_or(u8::MAX))
    }

    /// All addresses, to listen on.
    pub fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// As `ip` takes it, for a card: usable at once.
    fn on_card(self, address: IpAddr) -> String {
        match self {
            Self::V4 => format!("{address}/24"),
            Self::V6 => format!("{address}/64 nodad"),
        }
    }
}

/// The card of every node.
pub const CARD: &str = "eno1";

/// Runs `ip`.
///
/// # Errors
/// When it fails.
pub fn run_ip(arguments: &str) -> anyhow::Result<String> {
    run_ip_with(&arguments.split(' ').collect::<Vec<_>>())
}

/// Runs `ip`, where an argument may have blanks.
///
/// # Errors
/// When it fails.
pub fn run_ip_with(arguments: &[&str]) -> anyhow::Result<String> {
    let done = Command::new("ip").args(arguments).output().context("run ip")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "ip {}: {said}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// A switch; the nodes' namespaces are plugged into it. Gone with the value.
#[derive(Debug)]
pub struct Network {
    prefix: String,
    nodes: usize,
    pub family: Family,
}

impl Network {
    /// A switch with `nodes` namespaces.
    pub fn create(nodes: usize, family: Family) -> anyhow::Result<Self> {
        let prefix = format!("vip{}-{}", std::process::id(), NETWORKS.fetch_add(1, Ordering::Relaxed));
        let network = Self { prefix, nodes, family };
        let switch = network.switch();
        run_ip(&format!("netns add {switch}"))?;
        for command in ["link set lo up", "link add br0 type bridge", "link set br0 up"] {
            run_ip(&format!("-n {switch} {command}"))?;
        }
        run_ip(&format!("-n {switch} addr add {} dev br0", family.on_card(family.host(254))))?;
        for node in 0..nodes {
            let namespace = network.namespace(node);
            run_ip(&format!("netns add {namespace}"))?;
            run_ip(&format!("-n {namespace} link set lo up"))?;
            run_ip(&format!("-n {namespace} link add {CARD} type veth peer name port{node} netns {switch}"))?;
            run_ip(&format!("-n {switch} link set port{node} master br0 up"))?;
            let address = family.on_card(family.address(node));
            run_ip(&format!("-n {namespace} addr add {address} dev {CARD}"))?;
            run_ip(&format!("-n {namespace} link set {CARD} up"))?;
        }
        Ok(network)
    }

    /// Where the clients are.
    pub fn switch(&self) -> String {
        format!("{}-sw", self.prefix)
    }

    /// Where a node is.
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
        let endpoint = self.family.endpoint();
        let shown = run_ip(&format!("-n {} -o addr show to {endpoint}", self.namespace(node)))?;
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
