//! Whether connections to the endpoint are spread over the API servers, where the kernel has IPVS.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::network::{Family, run_ip};
use crate::node::PORT;
use crate::probe::wait_until;
use crate::site::{PATIENCE, Site};

const NODES: usize = 3;
/// Connections of one look: in turn, so that each member has some.
const CONNECTIONS: usize = 9;
/// Longer than a check of keepalived, in seconds.
const ATTEMPT: &str = "10";

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
    let holder = site.wait_holder(PATIENCE, |_| true)?;
    println!("node {holder} holds the endpoint; without forwarding it serves alone");
    wait_answers(&site, &site.network.switch(), &endpoint)?;
    check_failures(&site, Some(forwarding(family)))?;
    set_forwarding(&site, 1)?;
    site.give_duties(2, &all)?;
    println!("clients outside and on other members reach every API server, the holder's its own");
    wait_answers(&site, &site.network.switch(), &members(&all))?;
    check_failures(&site, None)?;
    let others: Vec<_> = all.iter().copied().filter(|node| *node != holder).collect();
    for node in &others {
        wait_answers(&site, &site.network.namespace(*node), &members(&all))?;
    }
    wait_answers(&site, &site.network.namespace(holder), &endpoint)?;
    println!("an API server that does not answer gets no connection");
    site.nodes[others[0]].kill_api_server();
    wait_answers(&site, &site.network.switch(), &members(&[holder, others[1]]))?;
    site.start_stand_in(others[0])?;
    println!("the next holder spreads them too");
    site.network.set_cable(holder, false)?;
    wait_answers(&site, &site.network.switch(), &members(&others))
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

/// Waits until all connections of a look are answered, by these addresses together.
fn wait_answers(site: &Site, namespace: &str, want: &BTreeSet<IpAddr>) -> anyhow::Result<()> {
    let waited = wait_until("the connections reach those API servers", PATIENCE, || {
        let mut seen = BTreeSet::new();
        for _ in 0..CONNECTIONS {
            let Some(answer) = ask_endpoint(site, namespace)? else {
                return Ok(Err("a connection was not answered".to_owned()));
            };
            seen.insert(answer);
        }
        Ok(if seen == *want { Ok(()) } else { Err(format!("{seen:?} instead of {want:?}")) })
    });
    waited.with_context(|| format!("a client in {namespace}; {}", describe_kernel(site)))
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
