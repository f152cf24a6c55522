//! What one source can take from the others. All hosts are at 127.0.0.1, the
//! flood comes from 127.0.0.2.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::world::{Host, World};
use crate::ca::Role;
use crate::config::ConnectionLimits;

/// More than the handshakes that may run at a time.
const FLOOD: usize = 600;
const HOSTS: usize = 50;

async fn connect_from_elsewhere(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    socket.connect(address).await.unwrap()
}

/// Keeps a connection that sends nothing; one that was accepted is opened again
/// as soon as it is closed.
async fn hold_connection(address: SocketAddr, mut stream: TcpStream, rejected: Arc<AtomicUsize>) {
    let hold = ConnectionLimits::default().handshake_timeout / 2;
    loop {
        let opened = tokio::time::Instant::now();
        // An end or a reset: the connection is closed.
        let _ = stream.read(&mut [0]).await;
        if opened.elapsed() < hold {
            rejected.fetch_add(1, Ordering::Relaxed);
            return;
        }
        stream = connect_from_elsewhere(address).await;
    }
}

/// As many connections stay open as the coordinator allows.
async fn start_flood(world: &World) -> JoinSet<()> {
    let (address, rejected) = (world.replicas[0].address, Arc::new(AtomicUsize::new(0)));
    let mut flood = JoinSet::new();
    for _ in 0..FLOOD {
        let stream = connect_from_elsewhere(address).await;
        flood.spawn(hold_connection(address, stream, rejected.clone()));
    }
    let limit = ConnectionLimits::default().source_handshakes;
    world.until(|| rejected.load(Ordering::Relaxed) >= FLOOD - limit).await;
    flood
}

#[tokio::test]
async fn flood_of_silent_connections_leaves_room_for_hosts() {
    let world = World::start().await;
    let _flood = start_flood(&world).await;
    let mut links = vec![];
    for number in 0..HOSTS {
        let host = Host::new(&number.to_string());
        world.connect(None).await.register(&host, "token").await.unwrap();
        let chain = host.certificate(&world.authority, Role::Installed);
        let mut link = world.connect(Some((&host, &chain))).await;
        let stream = link.attach(Host::hello("boot-1")).await.unwrap();
        links.push((link, stream));
    }
    world.until(|| world.context().sessions.count_sessions() == HOSTS).await;
    let counted = world.metrics();
    assert!(counted.contains("connection_failures_total{reason=\"SourceHandshakes\"}"), "{counted}");
    assert!(!counted.contains("reason=\"SourceAnonymous\""), "{counted}");
}
