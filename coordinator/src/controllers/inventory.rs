//! `MachineInventory`: what a person may ask of it by annotation.

use std::sync::Arc;

use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{Context, Error};
use crate::store::StoreError;

/// Takes the network that was reported last as the intended one, when a person
/// asks for it. It never changes by itself: a node that holds a virtual
/// address at the moment of a report must not keep it for ever.
///
/// # Errors
/// When Kubernetes cannot be told.
pub async fn reconcile(inventory: Arc<MachineInventory>, context: Arc<Context>) -> Result<Action, Error> {
    if !inventory.annotations().contains_key(annotation::ACCEPT_OBSERVED_NETWORK) {
        return Ok(Action::await_change());
    }
    let observed = inventory.status.as_ref().and_then(|status| status.observed_network.as_ref());
    let mut patch = json!({
        "metadata": {
            "resourceVersion": inventory.resource_version(),
            "annotations": { annotation::ACCEPT_OBSERVED_NETWORK: null },
        }
    });
    if let Some(observed) = observed {
        patch["spec"] = json!({ "observedNetwork": observed });
    }
    let name = inventory.name_any();
    let api: Api<MachineInventory> =
        Api::namespaced(context.client.clone(), &inventory.namespace().unwrap_or_default());
    let done = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    done.map_err(StoreError::of("accept the network of", "MachineInventory", &name))?;
    let note = if observed.is_some() {
        "the network reported last is the intended one now"
    } else {
        "no network has been reported yet"
    };
    context.events.normal(&*inventory, "ObservedNetworkAccepted", note).await;
    Ok(Action::await_change())
}
