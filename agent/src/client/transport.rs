//! The connection to the coordinator below TLS.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::attempts::{connect_first, order_addresses};
use super::config::Config;
use super::error::{Answer, CallError};
use super::names::Names;
use super::tunnel::open_tunnel;
use crate::ground::failure::Failure;
use crate::ground::paths::Root;
use crate::host::network::KernelNetwork;
use crate::host::network::settle::SettledNetwork;
use crate::host::proxy::ProxySettings;

/// Deadline of each step of a new connection.
pub(super) const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Gets the bytes of one connection that the coordinator sent, after TLS.
pub type Tap = Box<dyn FnMut(&[u8]) + Send>;

/// The way to the coordinator.
pub trait Transport: Send + Sync {
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    fn dial(&self, config: &Config) -> impl Future<Output = Result<Self::Stream, CallError>> + Send;

    /// A tap for one more connection. Only tests have one, which search the bytes for secrets.
    fn tap(&self) -> Option<Tap> {
        None
    }
}

/// A connection to the coordinator, which is TCP or a tunnel.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// TCP, with the name service and the proxy of the host.
impl Transport for KernelNetwork {
    type Stream = Box<dyn Connection>;

    async fn dial(&self, config: &Config) -> Result<Self::Stream, CallError> {
        let settings = ProxySettings::read(self.root()).or(config.proxy());
        let address = config.address();
        let Some(proxy) = settings.choose(&address)? else {
            let addresses = resolve_host(self.root(), &config.host).await.map_err(unresolved)?;
            let stream = connect_any(addresses, config.port).await;
            return Ok(Box::new(stream.map_err(|error| CallError::away(&address, &error))?));
        };
        let addresses = resolve_host(self.root(), &proxy.host).await.map_err(|failure| {
            let next_action = format!("correct DNS, or name the proxy by its address in {}", proxy.source);
            unresolved(failure.context(format!("cannot reach the {proxy}")).with_next_action(next_action))
        })?;
        let stream = connect_any(addresses, proxy.port).await;
        let stream = stream.map_err(|error| CallError::proxy_away(&proxy, &error))?;
        Ok(Box::new(open_tunnel(self.root(), &proxy, &address, stream).await?))
    }
}

async fn resolve_host(root: &Root, host: &str) -> Result<Vec<IpAddr>, Failure> {
    Names::below(root).resolve_host(host).await
}

fn unresolved(failure: Failure) -> CallError {
    CallError { failure, answer: Answer::Nothing }
}

async fn connect_any(addresses: Vec<IpAddr>, port: u16) -> io::Result<TcpStream> {
    let addresses = order_addresses(addresses);
    let stream =
        connect_first(addresses, CONNECT_DEADLINE, move |address| TcpStream::connect((address, port)))
            .await?;
    // The messages are small and wait for an answer, so they are not delayed.
    let _ = stream.set_nodelay(true);
    // If this fails, the pings of HTTP/2 find a dead peer, only later.
    let _ = watch_peer(&stream);
    Ok(stream)
}

/// Lets the kernel close a connection within 40 s after the other end lost power.
fn watch_peer(stream: &TcpStream) -> nix::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &20)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &5)?;
    setsockopt(stream, sockopt::TcpKeepCount, &4)?;
    // The kernel does not probe while data waits for an acknowledgement.
    setsockopt(stream, sockopt::TcpUserTimeout, &40_000)
}

/// TCP, after the network has settled.
impl Transport for SettledNetwork {
    type Stream = Box<dyn Connection>;

    async fn dial(&self, config: &Config) -> Result<Self::Stream, CallError> {
        self.settle().await;
        self.kernel().dial(config).await
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::getsockopt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_kernel_watches_the_other_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        watch_peer(&stream).unwrap();
        assert!(getsockopt(&stream, sockopt::KeepAlive).unwrap());
        let idle = getsockopt(&stream, sockopt::TcpKeepIdle).unwrap();
        let interval = getsockopt(&stream, sockopt::TcpKeepInterval).unwrap();
        let count = getsockopt(&stream, sockopt::TcpKeepCount).unwrap();
        let unanswered = getsockopt(&stream, sockopt::TcpUserTimeout).unwrap();
        assert_eq!((idle + interval * count, unanswered), (40, 40_000));
    }
}
