//! The connection to the coordinator below TLS.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::config::Config;
use super::names::Names;
use super::tls::ConnectError;
use crate::host::network::KernelNetwork;
use crate::host::network::settle::SettledNetwork;

/// Deadline of each step of a new connection.
pub(super) const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// How the agent reaches its coordinator.
pub trait Transport: Send + Sync {
    /// A byte stream.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Opens a connection to the coordinator of `config`.
    fn dial(&self, config: &Config) -> impl Future<Output = Result<Self::Stream, ConnectError>> + Send;
}

/// TCP, with the name service of the host.
impl Transport for KernelNetwork {
    type Stream = TcpStream;

    async fn dial(&self, config: &Config) -> Result<TcpStream, ConnectError> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in Names::below(self.root()).resolve_host(&config.host).await? {
            let address = SocketAddr::new(address, config.port);
            match timeout(CONNECT_DEADLINE, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Small messages that wait for an answer: never delay them.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_elapsed) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(ConnectError::Away { address: config.address(), source: last })
    }
}

/// The same, once the network has settled.
impl Transport for SettledNetwork {
    type Stream = TcpStream;

    async fn dial(&self, config: &Config) -> Result<TcpStream, ConnectError> {
        self.settle().await;
        self.kernel().dial(config).await
    }
}
