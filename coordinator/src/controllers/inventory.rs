//! `MachineInventory`: what a person may ask of it by annotation, whether its
//! network is the intended one, and whether its owner is there.

mod owner;

use std::sync::Arc;

use coordinator_api::inventory::{MachineInventory, MachineInventoryStatus};
use coordinator_api::names::annotation;
use coordinator_core::{host, network};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::{Context, Error};
use crate::store::report::difference;
use crate::store::{StoreError, status};

/// Looks after the claim, and takes the network that was reported last as the
/// intended one, when a person asks for it. It never changes by itself: a node that holds a virtual
/// address at the moment of a report must not keep it for ever.
///
/// # Errors
/// When Kubernetes cannot be told.
pub async fn reconcile(inventory: Arc<MachineInventory>, context: Arc<Context>) -> Result<Action, Error> {
    owner::look_after(&inventory, &context).await?;
    if inventory.annotations().contains_key(annotation::ACCEPT_OBSERVED_NETWORK) {
        accept(&inventory, &context).await?;
    } else if let Some(new) = judged(&inventory, Timestamp::now()) {
        status::apply(&context.client, &*inventory, new).await?;
    }
    Ok(Action::await_change())
}

async fn accept(inventory: &MachineInventory, context: &Context) -> Result<(), Error> {
    let name = inventory.name_any();
    let api: Api<MachineInventory> =
        Api::namespaced(context.client.clone(), &inventory.namespace().unwrap_or_default());
    let patch = acceptance(inventory);
    let done = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    done.map_err(StoreError::of("accept the network of", "MachineInventory", &name))?;
    let is_known = inventory.status.as_ref().is_some_and(|status| status.observed_network.is_some());
    let note = if is_known {
        "the network reported last is the intended one now"
    } else {
        "no network has been reported yet"
    };
    context.events.normal(inventory, "ObservedNetworkAccepted", note).await;
    Ok(())
}

/// The merge patch that takes the wish off and makes the reported network the
/// intended one, whole: what the host has no more must not stay.
fn acceptance(inventory: &MachineInventory) -> Value {
    let mut patch = json!({
        "metadata": {
            "resourceVersion": inventory.resource_version(),
            "annotations": { annotation::ACCEPT_OBSERVED_NETWORK: null },
        }
    });
    let observed = inventory.status.as_ref().and_then(|status| status.observed_network.as_ref());
    if let Some(observed) = observed {
        let old = inventory.spec.observed_network.as_ref().map_or(json!({}), |old| json!(old));
        if let Some(change) = difference(&old, &json!(observed)) {
            patch["spec"] = json!({ "observedNetwork": change });
        }
    }
    patch
}

/// The status when its judgement of the network is not that of the spec: the
/// host reports again only when its network changes, not when the spec does.
fn judged(inventory: &MachineInventory, now: Timestamp) -> Option<MachineInventoryStatus> {
    let observed = inventory.status.as_ref()?.observed_network.as_ref()?;
    let intended = inventory.spec.observed_network.as_ref()?;
    let drift = network::drift(intended, observed);
    let new = host::observed(inventory, observed.clone(), drift, None, now);
    (Some(&new) != inventory.status.as_ref()).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator_api::conditions::{self, Type};

    fn inventory(intended: Option<&Value>, observed: Option<&Value>) -> MachineInventory {
        serde_json::from_value(json!({
            "apiVersion": "elemental.cattle.io/v1beta1",
            "kind": "MachineInventory",
            "metadata": {
                "name": "host-1", "namespace": "fleet", "resourceVersion": "7", "generation": 2,
                "annotations": { annotation::ACCEPT_OBSERVED_NETWORK: "yes" },
            },
            "spec": { "observedNetwork": intended },
            "status": { "observedNetwork": observed },
        }))
        .unwrap()
    }

    /// RFC 7396.
    fn merge(into: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *into = patch.clone();
            return;
        };
        if !into.is_object() {
            *into = json!({});
        }
        for (key, value) in patch {
            if value.is_null() {
                into.as_object_mut().unwrap().remove(key);
            } else {
                merge(&mut into[key], value);
            }
        }
    }

    fn eth0(address: &str) -> Value {
        json!({ "interfaces": [{ "name": "eth0", "mac": "52:54:00:00:00:01", "addresses": [address] }] })
    }

    #[test]
    fn an_accepted_network_replaces_the_intended_one_whole() {
        let mut rich = eth0("192.0.2.10/24");
        rich["dnsServers"] = json!(["192.0.2.53"]);
        rich["routes"] = json!([{ "destination": "default", "gateway": "192.0.2.1" }]);
        rich["connections"] = json!({ "bond0": "[connection]", "eth0": "[connection]" });
        let mut fewer = eth0("192.0.2.11/24");
        fewer["connections"] = json!({ "eth0": "[connection]" });
        for (name, old, new) in [
            ("the first", None, rich.clone()),
            ("without what is gone", Some(rich.clone()), eth0("192.0.2.11/24")),
            ("without one connection", Some(rich.clone()), fewer),
            ("with more", Some(eth0("192.0.2.11/24")), rich.clone()),
            ("the same", Some(rich.clone()), rich),
        ] {
            let inventory = inventory(old.as_ref(), Some(&new));
            let mut object = json!(inventory);
            let patch = acceptance(&inventory);
            merge(&mut object, &patch);
            assert_eq!(object["spec"]["observedNetwork"], new, "{name}");
            assert_eq!(patch["metadata"]["resourceVersion"], "7", "{name}");
            assert!(object["metadata"]["annotations"].as_object().unwrap().is_empty(), "{name}");
        }
    }

    #[test]
    fn a_wish_before_any_report_is_only_taken_off() {
        let intended = eth0("192.0.2.10/24");
        assert_eq!(acceptance(&inventory(Some(&intended), None)).get("spec"), None);
    }

    #[test]
    fn drift_is_judged_again_when_the_intended_network_changes() {
        let (old, new) = (eth0("192.0.2.10/24"), eth0("192.0.2.11/24"));
        let mut changed = inventory(Some(&old), Some(&new));
        let status = judged(&changed, Timestamp::UNIX_EPOCH).unwrap();
        assert!(conditions::is_true(&status.conditions, Type::NetworkDrift));
        changed.status = Some(status);
        assert_eq!(judged(&changed, Timestamp::UNIX_EPOCH), None, "said once");
        changed.spec.observed_network = serde_json::from_value(new).unwrap();
        let status = judged(&changed, Timestamp::UNIX_EPOCH).unwrap();
        assert!(!conditions::is_true(&status.conditions, Type::NetworkDrift));
    }

    #[test]
    fn nothing_is_judged_before_there_are_two_networks() {
        let network = eth0("192.0.2.10/24");
        for (name, intended, observed) in
            [("none", None, None), ("no report", Some(&network), None), ("no intent", None, Some(&network))]
        {
            assert_eq!(judged(&inventory(intended, observed), Timestamp::UNIX_EPOCH), None, "{name}");
        }
    }
}
