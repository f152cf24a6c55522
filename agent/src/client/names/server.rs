//! A name server: UDP, TCP after a truncated answer, and the link of a link-local address.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::Resolver;
use hickory_resolver::config::{
    LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::iocompat::AsyncIoTokioAsStd;
use hickory_resolver::net::runtime::{RuntimeProvider, TokioHandle, TokioRuntimeProvider, TokioTime};
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::rr::Name;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::time::timeout;

/// Why a server gave no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoAddress {
    Unknown,
    /// The server did not answer, or answered with an error.
    Failed(String),
}

impl From<NetError> for NoAddress {
    fn from(error: NetError) -> Self {
        match error {
            NetError::Dns(DnsError::NoRecordsFound(_)) => Self::Unknown,
            error => Self::Failed(error.to_string()),
        }
    }
}

impl fmt::Display for NoAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => formatter.write_str("knows none"),
            Self::Failed(why) => write!(formatter, "failed ({why})"),
        }
    }
}

/// An address, and the link of a link-local address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    address: IpAddr,
    link: Option<Arc<str>>,
}

impl Server {
    /// `192.0.2.1`, `2001:db8::1`, `fe80::1%eth0`; systemd-resolved writes
    /// `fe80::1%2`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, link) = match text.split_once('%') {
            Some((address, link)) => (address, Some(name_link(link)?)),
            None => (text, None),
        };
        Some(Self { address: address.parse().ok()?, link })
    }

    /// Asks for both address families. Relative names are also tried in each domain of `search`.
    pub(super) async fn ask(
        &self,
        name: &Name,
        search: &[Name],
        port: u16,
        deadline: Duration,
    ) -> Result<Vec<IpAddr>, NoAddress> {
        let resolver = self.build_resolver(search, port, deadline)?;
        let found: Vec<_> = resolver.lookup_ip(name.clone()).await?.iter().collect();
        if found.is_empty() { Err(NoAddress::Unknown) } else { Ok(found) }
    }

    fn build_resolver(
        &self,
        search: &[Name],
        port: u16,
        deadline: Duration,
    ) -> Result<Resolver<Sockets>, NetError> {
        let mut server = NameServerConfig::udp_and_tcp(self.address);
        server.connections.iter_mut().for_each(|connection| connection.port = port);
        let config = ResolverConfig::from_parts(None, search.to_vec(), vec![server]);
        let mut options = ResolverOpts::default();
        options.timeout = deadline;
        options.attempts = 0;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.use_hosts_file = ResolveHosts::Never;
        let sockets = Sockets { tokio: TokioRuntimeProvider::new(), link: self.link.clone() };
        Resolver::builder_with_config(config, sockets).with_options(options).build()
    }
}

/// The name of a link that is given by name or by index.
fn name_link(text: &str) -> Option<Arc<str>> {
    let Ok(index) = text.parse() else {
        return (!text.is_empty()).then(|| text.into());
    };
    nix::net::if_::if_indextoname(index).ok()?.to_str().ok().map(Into::into)
}

/// Sockets that are bound to the link, because the library's addresses have no scope.
#[derive(Clone)]
struct Sockets {
    tokio: TokioRuntimeProvider,
    link: Option<Arc<str>>,
}

type Opening<T> = Pin<Box<dyn Send + Future<Output = io::Result<T>>>>;

impl RuntimeProvider for Sockets {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = UdpSocket;
    type Tcp = AsyncIoTokioAsStd<TcpStream>;

    fn create_handle(&self) -> TokioHandle {
        self.tokio.create_handle()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        local: Option<SocketAddr>,
        limit: Option<Duration>,
    ) -> Opening<Self::Tcp> {
        let (Some(link), Some(limit)) = (self.link.clone(), limit) else {
            return self.tokio.connect_tcp(server, local, limit);
        };
        Box::pin(async move {
            let socket = TcpSocket::new_v6()?;
            socket.bind_device(Some(link.as_bytes()))?;
            let stream = timeout(limit, socket.connect(server)).await??;
            Ok(AsyncIoTokioAsStd(stream))
        })
    }

    fn bind_udp(&self, local: SocketAddr, server: SocketAddr) -> Opening<UdpSocket> {
        let opening = self.tokio.bind_udp(local, server);
        let link = self.link.clone();
        Box::pin(async move {
            let socket = opening.await?;
            if let Some(link) = link {
                socket.bind_device(Some(link.as_bytes()))?;
            }
            Ok(socket)
        })
    }
}
