//! A control plane of three hosts is scaled to one and back.

use serde_json::json;

use super::{ClusterOfHosts, NAME};
use crate::control_planes::{control_planes, patch};

impl ClusterOfHosts<'_> {
    /// Scales the control plane to one host, and to as many as before.
    pub async fn scale_to_one_and_back(&mut self) -> anyhow::Result<()> {
        let count = self.control_planes;
        for replicas in [1, count] {
            self.progress.step(&format!("the control plane is scaled to {replicas}"));
            self.control_planes = replicas;
            patch(&control_planes(self.client()), NAME, json!({ "replicas": replicas })).await?;
            self.await_available(self.release, self.release).await?;
        }
        self.proven.push(format!("the control plane was scaled to one and back to {count}"));
        Ok(())
    }
}
