//! One address for hosts in front of coordinator replicas that come and go, as
//! a Service or a DNS name is.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Forwards each new connection to the next target that accepts one.
#[derive(Debug)]
pub struct Forwarder {
    address: SocketAddr,
    targets: Arc<Mutex<Targets>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Targets {
    addresses: Vec<SocketAddr>,
    next: usize,
}

impl Targets {
    /// All targets, beginning with the one whose turn it is.
    fn rotate(&mut self) -> Vec<SocketAddr> {
        let mut addresses = self.addresses.clone();
        if !addresses.is_empty() {
            addresses.rotate_left(self.next % self.addresses.len());
            self.next += 1;
        }
        addresses
    }
}

impl Forwarder {
    /// Listens on `port` of loopback. Without targets it closes every
    /// connection at once.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn start(port: u16) -> std::io::Result<Self> {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await
    }

    /// The same at any address.
    ///
    /// # Errors
    /// When it is taken.
    pub async fn start_at(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let targets = Arc::<Mutex<Targets>>::default();
        let task = tokio::spawn(forward(listener, targets.clone()));
        Ok(Self { address, targets, task })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// Replaces the targets of new connections; open ones stay.
    pub fn set_targets(&self, addresses: Vec<SocketAddr>) {
        *self.targets.lock().unwrap_or_else(PoisonError::into_inner) = Targets { addresses, next: 0 };
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(listener: TcpListener, targets: Arc<Mutex<Targets>>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((mut client, _)) = listener.accept().await else { continue };
        let addresses = targets.lock().unwrap_or_else(PoisonError::into_inner).rotate();
        connections.spawn(async move {
            if let Some(mut server) = connect_first(addresses).await {
                // Its end, however it ends, is the end of both sides.
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn connect_first(addresses: Vec<SocketAddr>) -> Option<TcpStream> {
    for address in addresses {
        if let Ok(stream) = TcpStream::connect(address).await {
            return Some(stream);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpSocket;

    /// A server that answers each connection with its name.
    async fn serve(name: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(name.as_bytes()).await.unwrap();
            }
        });
        address
    }

    async fn ask(forwarder: &Forwarder) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, forwarder.port())).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn connections_go_to_live_targets_in_turn() {
        let forwarder = Forwarder::start(control_plane::ports::free().unwrap()).await.unwrap();
        assert_eq!(ask(&forwarder).await, "");
        let (a, b) = (serve("a").await, serve("b").await);
        forwarder.set_targets(vec![a, b]);
        assert_eq!([ask(&forwarder).await, ask(&forwarder).await, ask(&forwarder).await], ["a", "b", "a"]);
        // It never listens: a listener that is closed lives on in a process that another test starts at that moment.
        let dead = TcpSocket::new_v4().unwrap();
        dead.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        forwarder.set_targets(vec![dead.local_addr().unwrap(), b]);
        assert_eq!([ask(&forwarder).await, ask(&forwarder).await], ["b", "b"]);
        forwarder.set_targets(vec![]);
        assert_eq!(ask(&forwarder).await, "");
    }
}
