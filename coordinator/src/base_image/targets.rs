//! Hosts from which base images may be fetched. They are limited, because the coordinator's network
//! reaches hosts that the author of a `SeedImage` may not reach.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::dns::Name;
use ipnet::IpNet;
use tower::Service;

/// A host or network that is allowed (`--allow-base`) or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseHost {
    Network(IpNet),
    Host(String),
}

impl FromStr for BaseHost {
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

impl BaseHost {
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
pub(super) fn list_services(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<BaseHost> {
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
pub(super) struct UnknownHost(String, #[source] io::Error);

/// Decides if a host may be asked. It is also the resolver of the client, so that the client
/// connects to the address that was checked.
#[derive(Clone, Debug)]
pub(super) struct Targets(Arc<Rules>);

#[derive(Debug)]
struct Rules {
    allowed: Vec<BaseHost>,
    refused: Vec<BaseHost>,
}

impl Targets {
    pub(super) fn new(allowed: Vec<BaseHost>, refused: Vec<BaseHost>) -> Self {
        Self(Arc::new(Rules { allowed, refused }))
    }

    /// Decides by the name of the host alone; its addresses are checked when they are resolved.
    pub(super) fn allows_uri(&self, uri: &Uri) -> bool {
        uri.host().is_none_or(|host| self.allows_host(host))
    }

    fn allows_host(&self, host: &str) -> bool {
        if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse() {
            return self.allows_address(address);
        }
        self.names_host(host)
            || !(is_internal(host) || self.0.refused.iter().any(|source| source.is_host(host)))
    }

    fn names_host(&self, host: &str) -> bool {
        self.0.allowed.iter().any(|source| source.is_host(host))
    }

    fn allows_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if is_in_networks(&self.0.allowed, address) {
            return true;
        }
        let is_special = match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        !(is_special
            || address.is_loopback()
            || address.is_multicast()
            || address.is_unspecified()
            || is_in_networks(&self.0.refused, address))
    }
}

fn is_in_networks(hosts: &[BaseHost], address: IpAddr) -> bool {
    hosts.iter().any(|host| matches!(host, BaseHost::Network(network) if network.contains(&address)))
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
            let absolute =
                if is_named { host.to_owned() } else { format!("{}.", host.trim_end_matches('.')) };
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
