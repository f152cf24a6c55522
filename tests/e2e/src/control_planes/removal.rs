//! A worker that is named for removal when its deployment is scaled down.

use anyhow::Context as _;
use coordinator_api::inventory::MachineInventory;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{Cluster, DEADLINE};
use crate::lifecycle::{cluster_api, is_free};
use crate::requests::retry;
use crate::watching::until;

const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";

impl Cluster<'_> {
    /// Marks the Machine of one worker; the result is its host.
    ///
    /// # Errors
    /// When there is none, or the API server refuses.
    pub async fn mark_worker(&self) -> anyhow::Result<String> {
        let (worker, host) = self.find_worker().await?;
        let owner = worker.owner_references().iter().find(|owner| owner.kind == "Machine");
        let machine = &owner.context("a worker without Machine")?.name;
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { DELETE_MACHINE: "" } } }));
        let machines = cluster_api(self.client(), "Machine");
        retry("mark a Machine", async || machines.patch(machine, &PatchParams::default(), &patch).await)
            .await?;
        Ok(host)
    }

    /// Waits until the host is available: while another worker runs, it is the
    /// removed one that was freed.
    ///
    /// # Errors
    /// When it is not.
    pub async fn await_freed(&self, host: &str) -> anyhow::Result<()> {
        until(&self.api::<MachineInventory>(), host, DEADLINE, is_free).await?;
        Ok(())
    }
}
