//! The holder of an internal endpoint, as a Lease of the workload cluster. The Lease only shows the
//! holder, because VRRP decides.

use jiff::Timestamp;
use k8s_openapi::Resource as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{GetParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Client, Resource};
use serde::Deserialize;
use serde_json::{Value, json};

use super::WorkloadClients;
use super::answer::{read_answer, send_request};
use crate::bounded::Text;
use crate::key::Key;
use crate::store::{StoreError, is_not_found};

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
        let _turn = self.take_turn_to_write(cluster).await?;
        let known = read_lease(&client).await.map_err(StoreError::request("get", "Lease", LEASE))?;
        if let Some(change) = change_holder(known.as_ref(), holder, now) {
            let request = match known {
                Some(_) => lease_request().patch(LEASE, &PatchParams::default(), &Patch::Merge(&change)),
                None => lease_request().create(&PostParams::default(), new_lease(change)),
            };
            send_request(&client, request).await.map_err(StoreError::request("write", "Lease", LEASE))?;
        }
        self.lock_holders().insert(cluster.clone(), holder.to_owned());
        Ok(())
    }
}

fn new_lease(mut lease: Value) -> Vec<u8> {
    lease["apiVersion"] = json!(Lease::API_VERSION);
    lease["kind"] = json!(Lease::KIND);
    lease.to_string().into_bytes()
}

/// The fields of a Lease that are used.
#[derive(Deserialize)]
struct LeaseFacts {
    metadata: LeaseMetadata,
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseMetadata {
    resource_version: Option<Text<128>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    holder_identity: Option<Text<1024>>,
    lease_transitions: Option<i32>,
}

fn lease_request() -> Request {
    Request::new(Lease::url_path(&(), Some(NAMESPACE)))
}

async fn read_lease(client: &Client) -> Result<Option<LeaseFacts>, kube::Error> {
    match read_answer(client, lease_request().get(LEASE, &GetParams::default())).await {
        Ok((lease, _)) => Ok(Some(lease)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The change of the Lease; `None` if it names the holder already.
fn change_holder(known: Option<&LeaseFacts>, holder: &str, now: Timestamp) -> Option<Value> {
    let spec = known.map(|lease| &lease.spec);
    let named = spec.and_then(|spec| spec.holder_identity.as_ref());
    if named.is_some_and(|Text(named)| named == holder) {
        return None;
    }
    let transitions = spec.map_or(0, |spec| spec.lease_transitions.unwrap_or(0).saturating_add(1));
    let mut metadata = json!({ "name": LEASE });
    if let Some(Text(version)) = known.and_then(|lease| lease.metadata.resource_version.as_ref()) {
        metadata["resourceVersion"] = json!(version);
    }
    Some(json!({ "metadata": metadata, "spec": {
        "holderIdentity": holder, "acquireTime": MicroTime(now),
        "leaseTransitions": transitions,
    } }))
}
