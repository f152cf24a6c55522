//! When the certificates of control planes expire: Cluster API reads it from the API server on each
//! host, which the simulation does not have.

use std::pin::pin;

use anyhow::Context as _;
use futures::StreamExt as _;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::requests::retry;

/// As Cluster API writes it once it has read it.
const EXPIRY: &str = "machine.cluster.x-k8s.io/certificates-expiry";
const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";

/// Annotates the bootstrap configuration of each control plane, until it is dropped.
pub(super) async fn state_expiry(client: &Client) -> anyhow::Result<()> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "bootstrap.cluster.x-k8s.io",
        "v1beta2",
        "KubeadmConfig",
    ));
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let mut events = pin!(watcher(all, watcher::Config::default().labels(CONTROL_PLANE)).default_backoff());
    while let Some(event) = events.next().await {
        let Ok(Event::InitApply(config) | Event::Apply(config)) = event else { continue };
        if config.annotations().contains_key(EXPIRY) {
            continue;
        }
        let namespace = config.namespace().context("a KubeadmConfig without namespace")?;
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kind);
        let patch =
            Patch::Merge(json!({ "metadata": { "annotations": { EXPIRY: "2099-01-01T00:00:00Z" } } }));
        let state = async || match api.patch(&config.name_any(), &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            patched => patched.map(drop),
        };
        retry("state when certificates expire", state).await?;
    }
    anyhow::bail!("the watch of KubeadmConfigs ended")
}
