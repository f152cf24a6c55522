//! A control plane of three hosts, of which one loses its power.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use kube::core::DynamicObject;
use serde_json::json;
use tokio::time::Instant;

use super::{ClusterOfHosts, DEADLINE, NAME, hosts};
use crate::control_planes::{control_planes, has_settled, is_true, patch, until_named};

impl ClusterOfHosts<'_> {
    /// Makes a control plane of three, with no worker yet.
    pub async fn scale_control_plane(&mut self) -> anyhow::Result<()> {
        let [_, more @ ..] = hosts::CONTROL_PLANES;
        self.control_planes = hosts::CONTROL_PLANES.len();
        // Before: what is installed takes time from those that join.
        self.hosts.register(&more).await?;
        self.progress.step("the control plane is scaled to three");
        let count = self.control_planes;
        patch(&control_planes(self.client()), NAME, json!({ "replicas": count })).await?;
        let is_scaled = |found: &DynamicObject| has_settled(found, count) && is_true(found, "Available");
        until_named(&control_planes(self.client()), NAME, DEADLINE, is_scaled).await
    }

    /// Cuts the power of the first host: the others serve the endpoint.
    pub async fn lose_control_plane(&mut self) -> anyhow::Result<()> {
        let [first, ..] = hosts::CONTROL_PLANES;
        self.progress
            .step("the first control plane loses its power: the endpoint answers, and etcd takes writes");
        self.hosts.set_power(first, false).await?;
        let name = "written-without-the-first";
        let written: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        let maps: Api<ConfigMap> = Api::namespaced(self.workload().await?, "default");
        let end = Instant::now() + DEADLINE;
        while let Err(error) = maps.create(&PostParams::default(), &written).await {
            let is_written = matches!(&error, kube::Error::Api(status) if status.code == 409);
            if is_written {
                break;
            }
            ensure!(Instant::now() < end, "two of three control planes take no write: {error}");
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        self.proven
            .push("of three control planes the first lost its power: the others take writes".to_owned());
        self.hosts.set_power(first, true).await?;
        self.await_available(self.release, self.release).await
    }
}
