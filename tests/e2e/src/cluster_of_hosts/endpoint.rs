//! The endpoint that the control planes hold, as a client outside of the cluster sees it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{bail, ensure};
use control_plane::kubeconfig;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::load_balancer::is_ready;
use super::{ADDRESS, ClusterOfHosts, DEADLINE, hosts};

/// Longest wait for a connection: a lost packet is not sent again within it.
const CONNECT: Duration = Duration::from_millis(40);
/// Longest wait for the answer to a write.
const WRITE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_secs(1);

/// A client that opens a connection for each request.
pub(super) struct EndpointClient {
    kubeconfig: String,
}

/// Time from a loss to the first connection and to the first write after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    pub(super) connection: Duration,
    pub(super) write: Duration,
}

impl EndpointClient {
    /// Creates a `ConfigMap`. Returns whether the answer came in time and was good.
    pub(super) async fn write(&self) -> bool {
        let create = async {
            let map: ConfigMap =
                serde_json::from_value(json!({ "metadata": { "generateName": "written-" } }))?;
            let maps: Api<ConfigMap> =
                Api::namespaced(kubeconfig::client(&self.kubeconfig).await?, "default");
            anyhow::Ok(maps.create(&PostParams::default(), &map).await?)
        };
        matches!(timeout(WRITE, create).await, Ok(Ok(_)))
    }

    /// Runs `lose`, and measures from its beginning until a connection and a write succeed.
    pub(super) async fn measure_outage(
        &self,
        lose: impl AsyncFnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Outage> {
        let start = Instant::now();
        lose().await?;
        let address = SocketAddr::new(ADDRESS.parse()?, hosts::API_PORT);
        while !matches!(timeout(CONNECT, TcpStream::connect(address)).await, Ok(Ok(_))) {
            ensure!(start.elapsed() < DEADLINE, "no connection to {address}");
            // A refusal comes at once.
            sleep(Duration::from_millis(2)).await;
        }
        let connection = start.elapsed();
        while !self.write().await {
            ensure!(start.elapsed() < DEADLINE, "no write through {address}");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Outage { connection, write: start.elapsed() })
    }
}

impl ClusterOfHosts<'_> {
    pub(super) async fn endpoint_client(&self) -> anyhow::Result<EndpointClient> {
        Ok(EndpointClient { kubeconfig: self.kubeconfig().await? })
    }

    /// Waits until one host has the address. Two have it for a moment when it moves.
    pub(super) async fn await_holder(&self) -> anyhow::Result<u8> {
        let end = Instant::now() + DEADLINE;
        loop {
            let holders = self.hosts.list_holders(ADDRESS).await?;
            match *holders {
                [holder] => return Ok(holder),
                _ if Instant::now() < end => sleep(LOOK).await,
                _ => bail!("{ADDRESS} is held by {holders:?}"),
            }
        }
    }

    /// Waits until the API server of each control plane is ready, and the endpoint takes writes.
    pub(super) async fn await_ready_members(&self, client: &EndpointClient) -> anyhow::Result<()> {
        let end = Instant::now() + DEADLINE;
        for number in &self.members {
            while !is_ready(hosts::api_server(*number)).await {
                ensure!(Instant::now() < end, "the API server of host {number} is not ready");
                sleep(LOOK).await;
            }
        }
        while !client.write().await {
            ensure!(Instant::now() < end, "the endpoint takes no writes");
            sleep(LOOK).await;
        }
        Ok(())
    }
}
