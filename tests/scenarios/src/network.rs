//! The network between hosts and coordinators: streams in memory that can be
//! cut, or go silent as one does whose other end lost power.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coordinator::listener::Port;
use tokio::io::{DuplexStream, copy_bidirectional, duplex};
use tokio::sync::{mpsc, watch};

/// Bytes on the way in each direction.
const WINDOW: usize = 64 * 1024;
/// Connections that wait to be accepted.
const BACKLOG: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    Cut,
    Silent,
}

struct Connection {
    host: String,
    coordinator: String,
    state: watch::Sender<State>,
}

#[derive(Default)]
struct Topology {
    ports: BTreeMap<String, mpsc::Sender<DuplexStream>>,
    network: Vec<Connection>,
    dials: usize,
    /// Hosts that reach no coordinator.
    partitioned: BTreeSet<String>,
}

#[derive(Clone, Default)]
pub(crate) struct Network(Arc<Mutex<Topology>>);

/// The listener of one coordinator.
pub(crate) struct Socket(mpsc::Receiver<DuplexStream>);

impl Port for Socket {
    type Stream = DuplexStream;

    async fn accept_stream(&mut self) -> (DuplexStream, SocketAddr) {
        match self.0.recv().await {
            Some(stream) => (stream, SocketAddr::from((Ipv4Addr::LOCALHOST, 1))),
            None => std::future::pending().await,
        }
    }
}

impl Network {
    fn topology(&self) -> MutexGuard<'_, Topology> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the listener of `coordinator`.
    pub(crate) fn listen(&self, coordinator: &str) -> Socket {
        let (port, accepted) = mpsc::channel(BACKLOG);
        self.topology().ports.insert(coordinator.to_owned(), port);
        Socket(accepted)
    }

    /// A coordinator's process ends: the kernel closes what it had open.
    pub(crate) fn close(&self, coordinator: &str) {
        self.topology().ports.remove(coordinator);
        self.end(State::Cut, |connection| connection.coordinator == coordinator);
    }

    /// The connections of a host break.
    pub(crate) fn cut(&self, host: &str) {
        self.end(State::Cut, |connection| connection.host == host);
    }

    /// A host loses power: its connections stay open without traffic.
    pub(crate) fn silence(&self, host: &str) {
        self.end(State::Silent, |connection| connection.host == host);
    }

    /// A host and the coordinators lose each other: connections stay open without traffic, and new ones
    /// are refused.
    pub(crate) fn partition(&self, host: &str) {
        self.topology().partitioned.insert(host.to_owned());
        self.silence(host);
    }

    /// A host reaches the coordinators again.
    pub(crate) fn heal(&self, host: &str) {
        self.topology().partitioned.remove(host);
    }

    fn end(&self, state: State, of: impl Fn(&Connection) -> bool) {
        self.topology().network.retain(|connection| {
            if of(connection) {
                connection.state.send_replace(state);
            }
            !of(connection)
        });
    }

    /// One more connection of `host`, each to the next coordinator.
    pub(crate) fn dial(&self, host: &str) -> io::Result<DuplexStream> {
        let mut topology = self.topology();
        let ports: Vec<_> = topology.ports.iter().map(|(name, port)| (name.clone(), port.clone())).collect();
        let dials = topology.dials;
        topology.dials += 1;
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        if topology.partitioned.contains(host) {
            return Err(refused());
        }
        let (coordinator, port) = ports.get(dials % ports.len().max(1)).ok_or_else(refused)?;
        let (near, mut near_end) = duplex(WINDOW);
        let (mut far_end, far) = duplex(WINDOW);
        port.try_send(far).map_err(|_full| refused())?;
        let (state, mut ended) = watch::channel(State::Up);
        topology.network.push(Connection { host: host.to_owned(), coordinator: coordinator.clone(), state });
        tokio::spawn(async move {
            let carry = copy_bidirectional(&mut near_end, &mut far_end);
            let end = async { ended.wait_for(|state| *state != State::Up).await.map(|state| *state) };
            tokio::select! {
                end = end => if end.is_ok_and(|end| end == State::Silent) {
                    std::future::pending::<()>().await;
                },
                _ = carry => {}
            }
        });
        Ok(near)
    }
}
