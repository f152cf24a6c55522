//! A TCP forwarder in front of replicas, as the Service of a cluster is: it connects to the first
//! replica that accepts.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Forwards until it is dropped.
pub(crate) struct Forwarder {
    pub(crate) address: SocketAddr,
    replicas: Arc<Mutex<Vec<SocketAddr>>>,
    task: JoinHandle<()>,
}

impl Forwarder {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = port.local_addr()?;
        let replicas = Arc::<Mutex<Vec<SocketAddr>>>::default();
        let shared = replicas.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = port.accept().await {
                let replicas = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
                tokio::spawn(forward(stream, replicas));
            }
        });
        Ok(Self { address, replicas, task })
    }

    /// Replaces the replicas; connections stay as they are.
    pub(crate) fn set_replicas(&self, replicas: Vec<SocketAddr>) {
        *self.replicas.lock().unwrap_or_else(PoisonError::into_inner) = replicas;
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut stream: TcpStream, replicas: Vec<SocketAddr>) {
    for replica in replicas {
        if let Ok(mut upstream) = TcpStream::connect(replica).await {
            // Small messages, each waited for.
            let _ = (stream.set_nodelay(true), upstream.set_nodelay(true));
            // Either end may break the connection: that is what is measured.
            let _ = copy_bidirectional(&mut stream, &mut upstream).await;
            return;
        }
    }
}
