//! What `type: External` has in front of the API servers.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::hosts;
use crate::commands::run_curl;
use crate::forwarder::Forwarder;
use crate::switch;

const INTERVAL: Duration = Duration::from_secs(2);

/// Forwards to the hosts of the control plane that answer /readyz; runs until it
/// is dropped.
pub(super) struct LoadBalancer {
    task: JoinHandle<()>,
}

impl LoadBalancer {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let forwarder = Forwarder::start_at(SocketAddr::from((switch::ADDRESS, hosts::API_PORT))).await?;
        let task = tokio::spawn(async move { follow(&forwarder).await });
        Ok(Self { task })
    }
}

impl Drop for LoadBalancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A first API server that is not ready yet is asked by kubeadm all the same; a
/// host that is off would cost each connection seconds.
async fn follow(forwarder: &Forwarder) {
    let all = hosts::CONTROL_PLANES.map(hosts::api_server);
    let mut last = vec![];
    loop {
        let (mut ready, mut listening) = (vec![], vec![]);
        for server in all {
            if is_listening(server).await {
                listening.push(server);
                if is_ready(server).await {
                    ready.push(server);
                }
            }
        }
        let targets = if ready.is_empty() { listening } else { ready };
        if targets != last {
            forwarder.set_targets(targets.clone());
            last = targets;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn is_listening(server: SocketAddr) -> bool {
    matches!(timeout(INTERVAL, TcpStream::connect(server)).await, Ok(Ok(_)))
}

pub(super) async fn is_ready(server: SocketAddr) -> bool {
    let url = format!("https://{server}/readyz");
    let options = ["--silent", "--fail", "--insecure", "--output", "/dev/null", "--max-time", "5", &url];
    run_curl(options.map(str::to_owned).to_vec()).await.is_ok()
}
