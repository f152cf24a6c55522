//! The connection to the coordinator below TLS.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::config::Config;
use super::error::{Answer, CallError};
use super::names::Names;
use crate::host::network::KernelNetwork;
use crate::host::network::settle::SettledNetwork;

/// Deadline of each step of a new connection.
pub(super) const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// The way to the coordinator.
pub trait Transport: Send + Sync {
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    fn dial(&self, config: &Config) -> impl Future<Output = Result<Self::Stream, CallError>> + Send;
}

/// TCP, with the name service of the host.
impl Transport for KernelNetwork {
    type Stream = TcpStream;

    async fn dial(&self, config: &Config) -> Result<TcpStream, CallError> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let addresses = Names::below(self.root()).resolve_host(&config.host).await;
        for address in addresses.map_err(|failure| CallError { failure, answer: Answer::Nothing })? {
            let address = SocketAddr::new(address, config.port);
            match timeout(CONNECT_DEADLINE, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // The messages are small and wait for an answer, so they are not delayed.
                    let _ = stream.set_nodelay(true);
                    // If this fails, the pings of HTTP/2 find a dead peer, only later.
                    let _ = watch_peer(&stream);
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_elapsed) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(CallError::away(&config.address(), &last))
    }
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
    type Stream = TcpStream;

    async fn dial(&self, config: &Config) -> Result<TcpStream, CallError> {
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
