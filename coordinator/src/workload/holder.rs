//! The holder of an internal endpoint, as a Lease of the workload cluster. The Lease only shows the
//! holder, because VRRP decides.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::WorkloadClients;
use crate::key::Key;
use crate::store::StoreError;

/// The namespace of the Leases of Kubernetes' own control plane.
const NAMESPACE: &str = "kube-system";
pub const LEASE: &str = "baremetal-control-plane-endpoint";

impl WorkloadClients {
    /// Forgets all holders, because another leader may have written other ones.
    pub fn forget_holders(&self) {
        self.lock_holders().clear();
    }

    /// Writes the holder if it differs from the one that was written last.
    pub async fn show_holder(
        &self,
        management: &Client,
        cluster: &Key,
        holder: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if self.lock_holders().get(cluster).is_some_and(|shown| shown == holder) {
            return Ok(());
        }
        // If there is no client, the condition of the endpoint shows the cause.
        let Ok(client) = self.open_client(management, cluster).await? else { return Ok(()) };
        let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
        let known = leases.get_opt(LEASE).await.map_err(StoreError::request("get", "Lease", LEASE))?;
        if let Some(change) = change_holder(known.as_ref(), holder, now) {
            let written = match known {
                Some(_) => leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(&change)).await,
                None => create(&leases, change).await,
            };
            written.map_err(StoreError::request("write", "Lease", LEASE))?;
        }
        self.lock_holders().insert(cluster.clone(), holder.to_owned());
        Ok(())
    }
}

async fn create(leases: &Api<Lease>, lease: Value) -> Result<Lease, kube::Error> {
    let lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
    leases.create(&PostParams::default(), &lease).await
}

/// The change of the Lease; `None` if it names the holder already.
fn change_holder(known: Option<&Lease>, holder: &str, now: Timestamp) -> Option<Value> {
    let spec = known.and_then(|lease| lease.spec.as_ref());
    if spec.and_then(|spec| spec.holder_identity.as_deref()) == Some(holder) {
        return None;
    }
    let transitions = spec.map_or(0, |spec| spec.lease_transitions.unwrap_or(0).saturating_add(1));
    let mut metadata = json!({ "name": LEASE });
    if let Some(version) = known.and_then(ResourceExt::resource_version) {
        metadata["resourceVersion"] = json!(version);
    }
    Some(json!({ "metadata": metadata, "spec": {
        "holderIdentity": holder, "acquireTime": MicroTime(now),
        "leaseTransitions": transitions,
    } }))
}
