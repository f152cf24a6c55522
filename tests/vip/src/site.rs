//! A whole control plane.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;
use control_plane::parts::Parts;

use crate::network::{Family, Network};
use crate::node::{Keys, Node};
use crate::probe::{wait_until, write_through};

/// For waits on real API servers on a busy machine.
pub const TIME_LIMIT: Duration = Duration::from_mins(3);
/// Longer than a check takes: an address that no member took meanwhile is held by none.
const SETTLED: Duration = Duration::from_secs(10);

/// The nodes of one cluster on one network.
pub struct Site {
    // Dropped in this order: what runs, then the namespaces.
    pub nodes: Vec<Node>,
    /// What they are plugged into.
    pub network: Network,
    program: PathBuf,
    keys: Keys,
}

impl Site {
    /// Nodes without anything running; `program` is `vip-agent`.
    pub fn create(nodes: usize, family: Family, program: &Path) -> anyhow::Result<Self> {
        let (network, keys) = (Network::create(nodes, family)?, Keys::create()?);
        let nodes = (0..nodes).map(|node| Node::create(&network, node, &keys)).collect::<Result<_, _>>()?;
        Ok(Self { nodes, network, program: program.to_owned(), keys })
    }

    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Gives `members` their duties of that generation.
    ///
    /// # Errors
    /// When one is refused.
    pub fn give_duties(&self, generation: u64, members: &[usize]) -> anyhow::Result<()> {
        members.iter().try_for_each(|member| self.nodes[*member].give_duty(generation, members))
    }

    /// Starts the agents.
    ///
    /// # Errors
    /// When one does not start.
    pub fn start_agents(&mut self) -> anyhow::Result<()> {
        self.nodes.iter_mut().try_for_each(|node| node.start_agent(&self.program))
    }

    /// Starts a stand-in for an API server on a node.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_stand_in(&mut self, node: usize) -> anyhow::Result<()> {
        self.nodes[node].start_stand_in(&self.program)
    }

    /// Starts etcd and an API server on every node.
    ///
    /// # Errors
    /// When a part is missing.
    pub fn start_kubernetes(&mut self, parts: &Parts) -> anyhow::Result<()> {
        let all: Vec<_> = (0..self.nodes.len()).collect();
        self.nodes.iter_mut().try_for_each(|node| node.start_etcd(parts, &all))?;
        self.nodes.iter_mut().try_for_each(|node| node.start_api_server(parts))
    }

    /// Makes etcd's leader the one of a node.
    ///
    /// # Errors
    /// When etcd has no leader in time, or refuses.
    pub fn make_etcd_leader(&self, parts: &Parts, node: usize) -> anyhow::Result<()> {
        let lead = || {
            let (own, leader) = self.nodes[node].etcd_ids(parts)?;
            if own == leader {
                return Ok(());
            }
            for other in &self.nodes {
                if other.etcd_ids(parts)?.0 == leader {
                    other.hand_over_etcd(parts, own)?;
                }
            }
            bail!("{leader:x} led, and was asked to hand over")
        };
        // A member that has just returned is refused until it has caught up.
        wait_until("another leader of etcd", TIME_LIMIT, || Ok(lead().map_err(|error| format!("{error:#}"))))
    }

    /// Waits until exactly one node holds the endpoint, and `fits` it.
    ///
    /// # Errors
    /// When that is not so in time.
    pub fn wait_holder(&self, limit: Duration, fits: impl Fn(usize) -> bool) -> anyhow::Result<usize> {
        wait_until("one holder", limit, || {
            let holders = self.network.holders()?;
            Ok(match holders[..] {
                [holder] if fits(holder) => Ok(holder),
                _ => Err(format!("{holders:?}; {}", self.describe())),
            })
        })
    }

    /// Waits until no node holds it, and none takes it.
    ///
    /// # Errors
    /// When that is not so in time.
    pub fn wait_no_holder(&self, limit: Duration) -> anyhow::Result<()> {
        let mut since = None;
        wait_until("no holder", limit, || {
            let holders = self.network.holders()?;
            if !holders.is_empty() {
                since = None;
                return Ok(Err(format!("{holders:?}; {}", self.describe())));
            }
            let lasts = since.get_or_insert_with(Instant::now).elapsed() >= SETTLED;
            Ok(if lasts { Ok(()) } else { Err("not for long".to_owned()) })
        })
    }

    /// Waits until a client writes through the endpoint; `name` is that of no other write. The client
    /// gives an attempt up after `attempt_limit`: what is under way when etcd loses its leader is
    /// answered late.
    ///
    /// # Errors
    /// When it cannot in time.
    pub fn wait_write(&self, name: &str, attempt_limit: Duration) -> anyhow::Result<()> {
        let pki = self.nodes[0].root().join("/etc/kubernetes/pki");
        let mut attempt = 0;
        wait_until("a write through the endpoint", TIME_LIMIT, || {
            attempt += 1;
            let name = format!("{name}-{attempt}");
            let endpoint = self.network.family.endpoint();
            let is_written = write_through(&self.network.switch(), endpoint, &pki, &name, attempt_limit)?;
            Ok(if is_written { Ok(()) } else { Err(format!("holders {:?}", self.network.holders()?)) })
        })
    }

    fn describe(&self) -> String {
        let states = self.nodes.iter().map(|node| {
            let log = std::fs::read_to_string(node.log("agent")).unwrap_or_default();
            let tail: Vec<_> = log.lines().rev().take(8).collect();
            format!("{:?} {tail:?}", node.state().failure)
        });
        states.collect::<Vec<_>>().join("\n")
    }
}
