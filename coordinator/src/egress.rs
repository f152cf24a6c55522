//! Servers that the coordinator asks because an object or a Secret of a namespace names them: those of base
//! images, and the API servers of workload clusters. They are limited, because the coordinator's network
//! reaches hosts that the author of the object may not reach.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::dns::Name;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tower::Service;

/// A host or network that is allowed (`--allow-base`, `--allow-workload`) or refused.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    Network(IpNet),
    Host(String),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(network) = parse_network(text) {
            return Ok(Self::Network(network));
        }
        let is_name = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
        if text.is_empty() || !is_name {
            return Err("give an address, a CIDR or a host name".to_owned());
        }
        Ok(Self::Host(text.to_ascii_lowercase()))
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        match target {
            Target::Network(network) => network.to_string(),
            Target::Host(name) => name,
        }
    }
}

impl Target {
    fn is_host(&self, host: &str) -> bool {
        matches!(self, Self::Host(name) if name.eq_ignore_ascii_case(host.trim_end_matches('.')))
    }
}

pub(crate) fn parse_network(text: &str) -> Result<IpNet, String> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map_err(|error| error.to_string())
}

/// The API server and the Services of the pod's namespace, from the environment variables that
/// Kubernetes sets.
pub(crate) fn list_services(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<Target> {
    let services =
        variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    services
        .filter(|(name, _)| name.ends_with("_SERVICE_HOST"))
        .filter_map(|(_, value)| value.parse().ok())
        .collect()
}

/// DNS has no address of a name, or did not answer.
#[derive(Debug, thiserror::Error)]
#[error("cannot resolve {0}")]
pub(crate) struct UnknownHost(String, #[source] io::Error);

/// Networks that no object may name.
const REFUSED: [IpNet; 15] = [
    // This network, link-local with the metadata services of most clouds, IETF protocols with that of
    // Oracle, Alibaba's metadata service, Azure's wire server, reserved.
    v4([0, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([192, 0, 0, 0], 24),
    v4([100, 100, 100, 200], 32),
    v4([168, 63, 129, 16], 32),
    v4([240, 0, 0, 0], 4),
    // Addresses that carry one of IPv4 (compatible, Teredo, 6to4), link-local, and the metadata services
    // of AWS, Google, Scaleway, Akamai and Alibaba.
    v6([0, 0, 0, 0, 0, 0, 0, 0], 96),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32),
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    v6([0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0], 32),
    v6([0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0], 32),
    v6([0xfd00, 0x0042, 0, 0, 0, 0, 0, 0x0042], 128),
    v6([0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1], 128),
    v6([0xfd00, 0x0100, 0, 0, 0, 0, 0x0100, 0x0200], 128),
];

/// Prefixes under which a NAT64 gateway translates the last four bytes to an address of IPv4.
const NAT64: [IpNet; 2] =
    [v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48)];

const fn v4(octets: [u8; 4], length: u8) -> IpNet {
    IpNet::new_assert(IpAddr::V4(Ipv4Addr::from_octets(octets)), length)
}

const fn v6(segments: [u16; 8], length: u8) -> IpNet {
    IpNet::new_assert(IpAddr::V6(Ipv6Addr::from_segments(segments)), length)
}

fn holds(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

/// The address of IPv4 that the last four bytes stand for: a NAT64 gateway sends there, and clouds give their
/// metadata service the unique local address that ends in its link-local one.
fn find_translated(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = address else { return None };
    let [.., a, b, c, d] = v6.octets();
    let v4 = Ipv4Addr::from_octets([a, b, c, d]);
    let is_carried = holds(&NAT64, address) || (v6.is_unique_local() && v4.is_link_local());
    is_carried.then_some(IpAddr::V4(v4))
}

/// Flags for the API servers of workload clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct WorkloadTargets {
    /// Addresses, CIDRs and host names of workload clusters' API servers that are asked although they
    /// are loopback, link-local, multicast, the API server, a Service of the coordinator's namespace,
    /// or refused by `--refuse-workload` and `--own-address`; or although their kubeconfig says http.
    #[arg(long, env = "ALLOW_WORKLOAD", value_delimiter = ',')]
    pub allow_workload: Vec<Target>,
    /// CIDRs that kubeconfigs of workload clusters may not name.
    #[arg(long, env = "REFUSE_WORKLOAD", value_delimiter = ',', value_parser = parse_network)]
    pub refuse_workload: Vec<IpNet>,
}

impl WorkloadTargets {
    /// The rules for kubeconfigs, on a pod with these addresses.
    pub fn into_targets(self, own_addresses: &[IpNet]) -> Targets {
        let mut refused = list_services(std::env::vars_os());
        refused.extend(self.refuse_workload.iter().chain(own_addresses).copied().map(Target::Network));
        // Hosted control planes have names of the cluster, whose addresses are judged as all others are.
        Targets(Arc::new(Rules { allowed: self.allow_workload, refused, may_be_internal: true }))
    }
}

/// Decides if a host may be asked. It is also the resolver of the client, so that the client
/// connects to the address that was checked.
#[derive(Clone, Debug)]
pub struct Targets(Arc<Rules>);

#[derive(Debug)]
struct Rules {
    allowed: Vec<Target>,
    refused: Vec<Target>,
    /// Names of the cluster are resolved, with its search domains.
    may_be_internal: bool,
}

impl Targets {
    pub(crate) fn new(allowed: Vec<Target>, refused: Vec<Target>) -> Self {
        Self(Arc::new(Rules { allowed, refused, may_be_internal: false }))
    }

    /// Decides by the name of the host alone; its addresses are checked when they are resolved.
    pub(crate) fn allows_uri(&self, uri: &Uri) -> bool {
        uri.host().is_none_or(|host| self.allows_host(host))
    }

    /// Tells whether the host of the URI is allowed by a flag.
    pub(crate) fn names_uri(&self, uri: &Uri) -> bool {
        uri.host().is_some_and(|host| match parse_address(host) {
            Some(address) => is_in_networks(&self.0.allowed, address.to_canonical()),
            None => self.names_host(host),
        })
    }

    fn allows_host(&self, host: &str) -> bool {
        if let Some(address) = parse_address(host) {
            return self.allows_address(address);
        }
        let is_internal = is_internal(host) && !self.0.may_be_internal;
        self.names_host(host) || !(is_internal || self.0.refused.iter().any(|source| source.is_host(host)))
    }

    fn names_host(&self, host: &str) -> bool {
        self.0.allowed.iter().any(|source| source.is_host(host))
    }

    fn allows_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_allowed = is_in_networks(&self.0.allowed, address);
        if let Some(translated) = find_translated(address) {
            // A gateway that is allowed still leads to what is refused.
            return is_allowed && self.allows_address(translated);
        }
        is_allowed
            || !(holds(&REFUSED, address)
                || address.is_loopback()
                || address.is_multicast()
                || is_in_networks(&self.0.refused, address))
    }
}

fn parse_address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn is_in_networks(hosts: &[Target], address: IpAddr) -> bool {
    hosts.iter().any(|host| matches!(host, Target::Network(network) if network.contains(&address)))
}

/// A name of the cluster, or a name that the cluster's resolver completes to one.
fn is_internal(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let ends = [".svc", ".cluster.local", ".localhost"];
    host == "localhost" || ends.iter().any(|end| host.ends_with(end)) || host.contains(".svc.")
}

impl Service<Name> for Targets {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let targets = self.clone();
        Box::pin(async move {
            let host = name.as_str();
            let is_named = targets.names_host(host);
            // The dot makes the name absolute, so that no search domain of the cluster completes it.
            let absolute = if is_named || targets.0.may_be_internal {
                host.to_owned()
            } else {
                format!("{}.", host.trim_end_matches('.'))
            };
            let found = tokio::net::lookup_host((absolute, 0)).await;
            let found = found.map_err(|error| io::Error::other(UnknownHost(host.to_owned(), error)))?;
            let allowed: Vec<_> =
                found.filter(|found| is_named || targets.allows_address(found.ip())).collect();
            if allowed.is_empty() {
                return Err(io::Error::other(format!("{host} has no address that is allowed")));
            }
            Ok(allowed.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_targets_need_the_flag() {
        let targets = |allowed: &[&str]| {
            let allowed = allowed.iter().map(|text| text.parse().unwrap()).collect();
            let services = [
                ("KUBERNETES_SERVICE_HOST", "fd00:10::1"),
                ("REGISTRY_SERVICE_HOST", "172.20.0.7"),
                ("API_SERVICE_HOST", "api.example"),
                ("REGISTRY_SERVICE_PORT", "443"),
            ];
            let variables = services.map(|(name, value)| (name.into(), value.into()));
            let mut refused = list_services(variables.into_iter());
            refused.push("10.96.0.0/12".parse().unwrap());
            Targets::new(allowed, refused)
        };
        for (url, want) in [
            ("http://10.0.0.1/x", true),
            ("http://192.168.1.1/x", true),
            ("http://[fd00::1]/x", true),
            ("https://images.example/x", true),
            ("http://10.97.0.1/x", false),
            ("https://[fd00:10::1]/x", false),
            ("https://172.20.0.7/x", false),
            ("https://172.20.0.8/x", true),
            ("https://API.example./x", false),
            ("http://127.0.0.1:1/x", false),
            ("http://[::1]/x", false),
            ("http://[::ffff:127.0.0.1]/x", false),
            ("http://169.254.169.254/x", false),
            ("http://[fe80::1]/x", false),
            ("http://0.0.0.0/x", false),
            ("http://224.0.0.1/x", false),
            ("http://255.255.255.255/x", false),
            ("http://localhost/x", false),
            ("http://minio.default.svc/x", false),
            ("http://minio.default.svc.example.internal/x", false),
            ("http://Minio.default.SVC.cluster.local./x", false),
        ] {
            assert_eq!(targets(&[]).allows_uri(&url.parse().unwrap()), want, "{url}");
        }
        let allowed = targets(&["127.0.0.1", "10.96.0.0/16", "minio.default.svc", "172.20.0.7"]);
        let urls = [
            "http://127.0.0.1/x",
            "http://10.96.0.1/x",
            "http://minio.default.svc/x",
            "https://172.20.0.7/x",
        ];
        for url in urls {
            assert!(allowed.allows_uri(&url.parse().unwrap()), "{url}");
        }
        assert!(!allowed.allows_uri(&"http://other.default.svc/x".parse().unwrap()));
    }

    #[test]
    fn metadata_services_are_refused_everywhere() {
        for (url, want) in [
            ("http://100.100.100.200/latest/meta-data", false),
            ("http://100.100.100.201/x", true),
            ("http://168.63.129.16/machine", false),
            ("http://192.0.0.192/opc/v1", false),
            ("http://[fd00:ec2::254]/latest", false),
            ("http://[fd20:ce::254]/computeMetadata", false),
            ("http://[fd00:42::42]/conf", false),
            ("http://[fd00:c1::a9fe:a9fe]/opc", false),
            ("http://[fd00:a9fe:a9fe::1]/v1", false),
            ("http://[fd00:100::100:200]/latest", false),
            ("http://[fd12:3456::a9fe:a9fe]/of-another-cloud", false),
            ("http://[fd12:3456::a9:a9fe]/x", true),
            ("http://[fd00:42::43]/x", true),
            ("http://[64:ff9b::a9fe:a9fe]/x", false),
            ("http://[64:ff9b::808:808]/x", false),
            ("http://[64:ff9b:1::a9fe:a9fe]/x", false),
            ("http://[2002:a9fe:a9fe::1]/x", false),
            ("http://[2001:0:a9fe:a9fe::1]/x", false),
            ("http://[::169.254.169.254]/x", false),
            ("http://[::ffff:169.254.169.254]/x", false),
            ("http://[::]/x", false),
        ] {
            let url = url.parse().unwrap();
            assert_eq!(Targets::new(vec![], vec![]).allows_uri(&url), want, "{url}");
            assert_eq!(WorkloadTargets::default().into_targets(&[]).allows_uri(&url), want, "{url}");
        }
    }

    #[test]
    fn allowed_gateway_leads_to_allowed_addresses() {
        let targets = Targets::new(vec!["64:ff9b::/96".parse().unwrap()], vec![]);
        for (url, want) in [
            ("http://[64:ff9b::8.8.8.8]/x", true),
            ("http://[64:ff9b::169.254.169.254]/x", false),
            ("http://[64:ff9b::127.0.0.1]/x", false),
        ] {
            assert_eq!(targets.allows_uri(&url.parse().unwrap()), want, "{url}");
        }
    }

    #[tokio::test]
    async fn kubeconfigs_name_clusters_and_no_loopback() {
        let flags = WorkloadTargets {
            allow_workload: vec!["192.0.2.7".parse().unwrap()],
            refuse_workload: vec!["10.96.0.0/12".parse().unwrap()],
        };
        let targets = flags.into_targets(&["192.0.2.0/28".parse().unwrap()]);
        for (url, want) in [
            ("https://10.0.0.1:6443", true),
            ("https://tenant.hosted.svc:6443", true),
            ("https://10.97.0.1:6443", false),
            ("https://192.0.2.1:6443", false),
            ("https://192.0.2.7:6443", true),
            ("https://127.0.0.1:6443", false),
            ("https://169.254.169.254", false),
            ("https://[fd00:ec2::254]", false),
            ("https://[64:ff9b::a9fe:a9fe]", false),
        ] {
            assert_eq!(targets.allows_uri(&url.parse().unwrap()), want, "{url}");
        }
        assert!(targets.clone().call(Name::from_str("localhost").unwrap()).await.is_err());
    }

    #[tokio::test]
    async fn resolved_addresses_are_judged_too() {
        let resolve = async |allowed: &[&str]| {
            let allowed = allowed.iter().map(|text| text.parse().unwrap()).collect();
            Targets::new(allowed, vec![]).call(Name::from_str("localhost").unwrap()).await
        };
        assert!(resolve(&[]).await.is_err());
        assert!(resolve(&["localhost"]).await.is_ok());
    }
}
