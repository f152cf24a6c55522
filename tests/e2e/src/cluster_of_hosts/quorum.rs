//! etcd of a control plane without quorum is restored by the commands of the
//! document, on its host.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use contract::documents::{Block, QUORUM, Reader, fill};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{ClusterOfHosts, DEADLINE, hosts};
use crate::requests::retry;

const DOCUMENT: &str = "docs/replace.md";
const SECTION: &str = "A control plane without quorum";
/// Written before the snapshot, and after it.
const KEPT: &str = "written-before-the-snapshot";
const LOST: &str = "written-after-the-snapshot";
const POLL_INTERVAL: Duration = Duration::from_secs(5);

impl ClusterOfHosts<'_> {
    /// Restores etcd of the only control plane, which has `release` like the worker, from
    /// a snapshot.
    pub async fn restore_etcd(&mut self, release: &str) -> anyhow::Result<()> {
        self.progress.step(&format!("etcd is restored from a snapshot: {DOCUMENT}, {SECTION}"));
        let mut reader = Reader::of(QUORUM);
        let blocks: Vec<String> = reader
            .read(DOCUMENT, SECTION)?
            .into_iter()
            .filter(Block::is_commands)
            .map(|block| format!("set -e\n{}", block.content))
            .collect();
        reader.finish()?;
        let [save, restore, remove] = &*blocks else { anyhow::bail!("other commands: {blocks:#?}") };
        let (host, client) = (hosts::CONTROL_PLANES[0], self.workload().await?);
        let address = find_control_plane(&client).await?;
        let maps: Api<ConfigMap> = Api::namespaced(client, "default");
        write_map(&maps, KEPT).await?;
        self.hosts.run_on(host, save).await?;
        write_map(&maps, LOST).await?;
        self.hosts.run_on(host, &fill(restore, &[("ADDRESS", address)])).await?;
        await_restored(&maps).await?;
        self.hosts.run_on(host, remove).await?;
        self.await_available(release, release).await?;
        self.proven.push(format!("etcd was restored from a snapshot by the commands of {DOCUMENT}"));
        Ok(())
    }
}

/// The address of the only control plane.
async fn find_control_plane(client: &Client) -> anyhow::Result<String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let role = ListParams::default().labels("node-role.kubernetes.io/control-plane");
    let nodes = retry("list control planes", async || nodes.list(&role).await).await?.items;
    let [node] = &*nodes else { anyhow::bail!("{} control planes", nodes.len()) };
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let internal = addresses.into_iter().flatten().find(|address| address.type_ == "InternalIP");
    let internal = internal.with_context(|| format!("{} has no InternalIP", node.name_any()))?;
    Ok(internal.address.clone())
}

async fn write_map(maps: &Api<ConfigMap>, name: &str) -> anyhow::Result<()> {
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
    retry("write a ConfigMap", async || maps.create(&PostParams::default(), &map).await).await?;
    Ok(())
}

/// Waits until what was written after the snapshot is gone, and checks that the rest is there.
async fn await_restored(maps: &Api<ConfigMap>) -> anyhow::Result<()> {
    let end = Instant::now() + DEADLINE;
    loop {
        match maps.get_opt(LOST).await {
            Ok(None) => break,
            answer => ensure!(Instant::now() < end, "the snapshot is not restored: {answer:?}"),
        }
        sleep(POLL_INTERVAL).await;
    }
    ensure!(retry("read a ConfigMap", async || maps.get_opt(KEPT).await).await?.is_some(), "{KEPT} is lost");
    Ok(())
}
