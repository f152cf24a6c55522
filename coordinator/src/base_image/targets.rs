//! Where base images may come from: the coordinator's network reaches more than
//! the author of a `SeedImage` may.

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

/// What `--allow-base` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedBase {
    Network(IpNet),
    Host(String),
}

impl FromStr for AllowedBase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(network) = parse_network(text) {
            return Ok(Self::Network(network));
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
        if text.is_empty() || !text.bytes().all(is_name) {
            return Err("give an address, a CIDR or a host name".to_owned());
        }
        Ok(Self::Host(text.to_ascii_lowercase()))
    }
}

pub(crate) fn parse_network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    text.parse::<IpNet>().or_else(|_| address()).map_err(|error| error.to_string())
}

/// DNS has no address of a name, or did not answer.
#[derive(Debug, thiserror::Error)]
#[error("cannot resolve {0}")]
pub(super) struct UnknownHost(String, #[source] io::Error);

/// Decides where a fetch may go; also the resolver of the client, so that the
/// address that was judged is the one that is connected to.
#[derive(Clone, Debug)]
pub(super) struct Targets(Arc<Rules>);

#[derive(Debug)]
struct Rules {
    allowed: Vec<AllowedBase>,
    refused: Vec<IpNet>,
}

impl Targets {
    pub(super) fn new(allowed: Vec<AllowedBase>, refused: Vec<IpNet>) -> Self {
        Self(Arc::new(Rules { allowed, refused }))
    }

    /// Whether the host of a URL may be asked, as far as its name says.
    pub(super) fn allows_uri(&self, uri: &Uri) -> bool {
        let host = uri.host().unwrap_or_default();
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) => self.allows_address(address),
            Err(_) => self.names_host(host) || !is_internal(host),
        }
    }

    fn names_host(&self, host: &str) -> bool {
        let is_named = |allowed: &AllowedBase| matches!(allowed, AllowedBase::Host(name) if name.eq_ignore_ascii_case(host));
        self.0.allowed.iter().any(is_named)
    }

    fn allows_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_in = |allowed: &AllowedBase| matches!(allowed, AllowedBase::Network(network) if network.contains(&address));
        if self.0.allowed.iter().any(is_in) {
            return true;
        }
        let is_special = match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        let is_refused = || self.0.refused.iter().any(|network| network.contains(&address));
        !(is_special
            || address.is_loopback()
            || address.is_multicast()
            || address.is_unspecified()
            || is_refused())
    }
}

/// Names of the cluster, and those that its resolver completes to one.
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
            // Absolute: no search domain of the cluster completes it.
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
            Targets::new(allowed, vec![parse_network("10.96.0.0/12").unwrap()])
        };
        for (url, want) in [
            ("http://10.0.0.1/x", true),
            ("http://192.168.1.1/x", true),
            ("http://[fd00::1]/x", true),
            ("https://images.example/x", true),
            ("http://10.97.0.1/x", false),
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
        let allowed = targets(&["127.0.0.1", "10.96.0.0/16", "minio.default.svc"]);
        for url in ["http://127.0.0.1/x", "http://10.96.0.1/x", "http://minio.default.svc/x"] {
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
