//! From a host in use to a free one.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::metal3::{Consumer, names};
use coordinator_api::names::label;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::provision::change_host;
use super::{Outcome, Situation, Step, choice, is_consumer};
use crate::demand::Blocker;

/// States in which a host is not free yet after its image was removed.
const BUSY: [&str; 7] = [
    "preparing",
    "provisioning",
    "provisioned",
    "deprovisioning",
    "powering off before delete",
    "deleting",
    "externally provisioned",
];

pub(super) fn release_host(situation: &Situation<'_>) -> Outcome {
    let machine = situation.machine;
    if !machine.finalizers().iter().any(|name| name == names::MACHINE_FINALIZER) {
        return Outcome::of_step(Step::Rest);
    }
    let Some(host) = situation.host.filter(|host| is_consumer(host, machine)) else {
        return release_data(situation);
    };
    if host.spec.image.is_some() {
        let change =
            json!({ "spec": { "image": null, "userData": null, "metaData": null, "networkData": null } });
        return change_host(change, "ImageRemoved");
    }
    let status = host.status.clone().unwrap_or_default();
    let state = status.provisioning.state.as_str();
    if BUSY.contains(&state) {
        let error = Some(status.error_message).filter(|error| !error.is_empty());
        let error = error.map(|error| format!(": {error}")).unwrap_or_default();
        let message = format!("BareMetalHost {} is {state}{error}", host.name_any());
        return Outcome::of_blocker(Blocker::waiting_for(Type::HostProvisioned, Reason::Cleaning, message));
    }
    change_host(release_change(situation), "HostReleased")
}

/// The addresses are given back once no node has them any more.
fn release_data(situation: &Situation<'_>) -> Outcome {
    match situation.data_claim {
        Some(claim) if claim.metadata.deletion_timestamp.is_none() => Outcome::of_step(Step::ReleaseData),
        Some(claim) => {
            let message = format!("Metal3DataClaim {} is in deletion: wait", claim.name_any());
            let reason = Reason::WaitingForMetal3Data;
            Outcome::of_blocker(Blocker::waiting_for(Type::Metal3DataReady, reason, message))
        }
        None => Outcome::of_step(Step::RemoveFinalizer),
    }
}

/// A host that is kept for the successor of its machine is held by the Cluster.
fn release_change(situation: &Situation<'_>) -> Value {
    let is_kept = situation.template.is_some_and(|template| template.spec.node_reuse)
        && situation.cluster.is_some_and(|cluster| cluster.metadata.deletion_timestamp.is_none());
    let reuse = situation.owner.and_then(choice::reuse_value).filter(|_| is_kept);
    let holder = reuse.as_ref().zip(situation.cluster).map(|(_, cluster)| Consumer {
        api_version: Some("cluster.x-k8s.io/v1beta1".to_owned()),
        kind: "Cluster".to_owned(),
        name: cluster.name_any(),
        namespace: cluster.namespace(),
        ..Consumer::default()
    });
    json!({
        "metadata": { "labels": { label::CLUSTER_NAME: null, names::NODE_REUSE: reuse } },
        "spec": { "consumerRef": holder },
    })
}
