//! Whether connections to the endpoint are spread over the API servers, where the kernel has IPVS.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::network::{Family, run_ip};
use crate::node::PORT;
use crate::probe::wait_until;
use crate::site::{Site, TIME_LIMIT};

const NODES: usize = 3;
/// Connections of one look: in turn, so that each member has some.
const CONNECTIONS: usize = 9;
/// Longer than a check of keepalived, in seconds.
const ATTEMPT: &str = "10";

/// Where connections come from. The endpoint may move at any time: a slow machine misses its checks.
#[derive(Clone, Copy, Debug)]
enum Clients {
    Outside,
    /// All members but the one that holds the endpoint.
    OtherMembers,
    Holder,
}

impl Clients {
    fn namespaces(self, site: &Site, holders: &[usize]) -> Vec<String> {
        let is_chosen = |node: &usize| match self {
            Self::Outside => false,
            Self::OtherMembers => !holders.contains(node),
            Self::Holder => holders.contains(node),
        };
        let members = (0..NODES).filter(is_chosen).map(|node| site.network.namespace(node));
        let outside = matches!(self, Self::Outside).then(|| site.network.switch());
        members.chain(outside).collect()
    }
}

/// Plays a control plane in namespaces of this machine: `program` is `vip-agent`.
///
/// # Errors
/// What is not as it should be, or without root and IPVS.
pub fn check_spread(family: Family, program: &Path) -> anyhow::Result<()> {
    let mut site = Site::create(NODES, family, program)?;
    let endpoint = BTreeSet::from([family.endpoint()]);
    let members =
        |nodes: &[usize]| -> BTreeSet<IpAddr> { nodes.iter().map(|node| family.address(*node)).collect() };
    let all: Vec<_> = (0..NODES).collect();
    for node in &site.nodes {
        node.show_kernel()?;
    }
    set_forwarding(&site, 0)?;
    site.give_duties(1, &all)?;
    site.start_agents()?;
    for node in &all {
        site.start_stand_in(*node)?;
    }
    let holder = site.wait_holder(TIME_LIMIT, |_| true)?;
    println!("node {holder} holds the endpoint; without forwarding it serves alone");
    wait_answers(&site, Clients::Outside, &endpoint)?;
    check_failures(&site, Some(forwarding(family)))?;
    set_forwarding(&site, 1)?;
    site.give_duties(2, &all)?;
    println!("clients outside and on other members reach every API server, the holder's its own");
    wait_answers(&site, Clients::Outside, &members(&all))?;
    check_failures(&site, None)?;
    wait_answers(&site, Clients::OtherMembers, &members(&all))?;
    wait_answers(&site, Clients::Holder, &endpoint)?;
    println!("an API server that does not answer gets no connection");
    let holder = site.wait_holder(TIME_LIMIT, |_| true)?;
    let others = |gone: usize| -> Vec<usize> { (0..NODES).filter(|node| *node != gone).collect() };
    let dead = others(holder)[0];
    site.nodes[dead].kill_api_server();
    wait_answers(&site, Clients::Outside, &members(&others(dead)))?;
    site.start_stand_in(dead)?;
    println!("the next holder spreads them too");
    let holder = site.wait_holder(TIME_LIMIT, |_| true)?;
    site.network.set_cable(holder, false)?;
    wait_answers(&site, Clients::Outside, &members(&others(holder)))
}

fn forwarding(family: Family) -> &'static str {
    match family {
        Family::V4 => "net.ipv4.ip_forward",
        Family::V6 => "net.ipv6.conf.all.forwarding",
    }
}

fn set_forwarding(site: &Site, value: u8) -> anyhow::Result<()> {
    let setting = forwarding(site.network.family);
    for node in 0..NODES {
        let namespace = site.network.namespace(node);
        run_ip(&format!("netns exec {namespace} sysctl -qw {setting}={value}"))?;
    }
    Ok(())
}

/// Waits until all connections of a look are answered, those of each client by these addresses
/// together, while the endpoint stays where it is.
fn wait_answers(site: &Site, clients: Clients, want: &BTreeSet<IpAddr>) -> anyhow::Result<()> {
    let waited = wait_until("the connections reach those API servers", TIME_LIMIT, || {
        let holders = site.network.holders()?;
        if holders.is_empty() {
            return Ok(Err("no node holds it".to_owned()));
        }
        for namespace in clients.namespaces(site, &holders) {
            let mut seen = BTreeSet::new();
            for _ in 0..CONNECTIONS {
                let Some(answer) = ask_endpoint(site, &namespace)? else {
                    return Ok(Err(format!("a connection of {namespace} was not answered")));
                };
                seen.insert(answer);
            }
            if seen != *want {
                return Ok(Err(format!("{namespace}: {seen:?} instead of {want:?}")));
            }
        }
        let later = site.network.holders()?;
        Ok(if later == holders { Ok(()) } else { Err(format!("it moved from {holders:?} to {later:?}")) })
    });
    waited.with_context(|| format!("{clients:?}; {}", describe_kernel(site)))
}

/// What IPVS has in each node.
fn describe_kernel(site: &Site) -> String {
    let tables = (0..NODES).map(|node| {
        let namespace = site.network.namespace(node);
        let script = "cat /proc/net/ip_vs /proc/net/ip_vs_conn; nft list ruleset";
        let shown = Command::new("ip").args(["netns", "exec", &namespace, "sh", "-c", script]).output();
        let shown = shown.map(|shown| String::from_utf8_lossy(&shown.stdout).into_owned());
        format!("{namespace}: {}", shown.unwrap_or_default())
    });
    tables.collect::<Vec<_>>().join("\n")
}

/// The address by which an API server accepted the connection.
fn ask_endpoint(site: &Site, namespace: &str) -> anyhow::Result<Option<IpAddr>> {
    let endpoint = site.network.family.endpoint();
    let authority = site.nodes[0].root().join("/etc/kubernetes/pki/ca.crt");
    let done = Command::new("ip")
        .args(["netns", "exec", namespace, "curl", "--silent", "--max-time", ATTEMPT])
        .args(["--resolve", &format!("kubernetes:{PORT}:{endpoint}")])
        .arg("--cacert")
        .arg(authority)
        .arg(format!("https://kubernetes:{PORT}/readyz"))
        .output()
        .context("run curl")?;
    Ok(String::from_utf8_lossy(&done.stdout).parse().ok())
}

/// Whether every node says that connections are spread, or why not.
fn check_failures(site: &Site, cause: Option<&str>) -> anyhow::Result<()> {
    for node in &site.nodes {
        let state = node.state();
        let message = state.failure.map(|failure| failure.message);
        let is_as_said = match (cause, &message) {
            (Some(cause), Some(message)) => message.contains(cause) && !state.spreads,
            (None, None) => state.spreads,
            _ => false,
        };
        ensure!(is_as_said, "a node says {message:?} instead of {cause:?}");
    }
    Ok(())
}
