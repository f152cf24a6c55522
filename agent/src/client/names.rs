//! Resolves names without `getaddrinfo`, because a static executable cannot load name service
//! modules: literals, `/etc/hosts`, then DNS.
//!
//! Each server is asked separately ([`server`]), because the library takes the error of one server
//! for the answer of all.

mod server;

use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::Hosts;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};

use crate::ground::failure::Failure;
use crate::ground::paths::Root;
use crate::host::network::resolver::{Resolver, read_name_servers};
use server::{NoAddress, Server};

/// Deadline of one answer; each server is asked twice.
const DEADLINE: Duration = Duration::from_secs(2);
const ROUNDS: usize = 2;

#[derive(Clone, Debug)]
pub struct Names {
    root: Root,
    /// Port of the name servers; only tests use another one than 53.
    port: u16,
    deadline: Duration,
}

impl Names {
    pub fn below(root: &Root) -> Self {
        Self { root: root.clone(), port: 53, deadline: DEADLINE }
    }

    /// Addresses of `host`, IPv4 first.
    pub async fn resolve_host(&self, host: &str) -> Result<Vec<IpAddr>, Failure> {
        if let Ok(address) = host.parse() {
            return Ok(vec![address]);
        }
        let name = Name::from_str_relaxed(host).map_err(|error| unknown_name(host, &error.to_string()))?;
        let known = self.read_hosts(&name);
        if !known.is_empty() {
            return Ok(known);
        }
        let resolver = read_name_servers(&self.root);
        if resolver.servers.is_empty() {
            return Err(unknown_name(host, "/etc/resolv.conf names no server"));
        }
        self.ask_servers(&name, &resolver).await.map_err(|reason| unknown_name(host, &reason))
    }

    /// The addresses in `/etc/hosts`, IPv4 first.
    fn read_hosts(&self, name: &Name) -> Vec<IpAddr> {
        let mut hosts = Hosts::default();
        let read = fs::File::open(self.root.join("/etc/hosts")).and_then(|file| hosts.read_hosts_conf(file));
        if let Err(error) = read {
            tracing::debug!(%error, "no /etc/hosts");
        }
        [RecordType::A, RecordType::AAAA]
            .into_iter()
            .filter_map(|kind| hosts.lookup_static_host(&Query::query(name.to_lowercase(), kind)))
            .flat_map(|found| {
                found.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>()
            })
            .collect()
    }

    /// The addresses from the first server that knows any; else the reason of each server's last
    /// failure.
    async fn ask_servers(&self, name: &Name, resolver: &Resolver) -> Result<Vec<IpAddr>, String> {
        let search: Vec<_> =
            resolver.search.iter().filter_map(|domain| Name::from_str_relaxed(domain).ok()).collect();
        let mut failures = Vec::new();
        for _ in 0..ROUNDS {
            failures.clear();
            for text in &resolver.servers {
                let asked = match Server::parse(text) {
                    Some(server) => server.ask(name, &search, self.port, self.deadline).await,
                    None => Err(NoAddress::Failed("is no address".to_owned())),
                };
                match asked {
                    Ok(found) => return Ok(found),
                    Err(why) => failures.push((text, why)),
                }
            }
            // A server that does not know the name would give the same answer again.
            if failures.iter().all(|(_, why)| *why == NoAddress::Unknown) {
                break;
            }
        }
        let told: Vec<_> = failures.iter().map(|(server, why)| format!("{server} {why}")).collect();
        Err(told.join(", "))
    }
}

fn unknown_name(host: &str, reason: &str) -> Failure {
    Failure::input_output(
        format!("the name {host} has no address: {reason}"),
        "correct DNS, or use an address in the coordinator's server URL",
    )
}

#[cfg(test)]
mod tests;
