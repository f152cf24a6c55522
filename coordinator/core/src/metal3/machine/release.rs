//! Release of the host of a machine in deletion.

use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::explain::EventReason;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::{Consumer, names};
use coordinator_api::names::{annotation, kind, label};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::provision::{self, change_host, describe_state};
use super::{Outcome, Situation, Step, choice, is_consumer, pause};
use crate::problem::{Blocker, Problem};

/// Time for which a host is kept if the template names none. A successor is created when the machine
/// is deleted, and therefore needs little time.
const KEPT_FOR: Duration = Duration::from_mins(30);
/// States of a host that is not free yet after its image was removed.
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
        return change_host(removal_change(situation, host), EventReason::ImageRemoved);
    }
    if is_busy(host) {
        let problem = Problem::of_cause(Reason::Cleaning, describe_state(host));
        return Outcome::of_blocker(Blocker::waiting_for(Type::HostProvisioned, problem));
    }
    change_host(release_change(situation), EventReason::HostReleased)
}

/// The host is not free yet.
pub(super) fn is_busy(host: &BareMetalHost) -> bool {
    host.status.as_ref().is_some_and(|status| BUSY.contains(&status.provisioning.state.as_str()))
}

/// Removes the image and the Secrets of the machine from the host. Secrets of the host's operator stay.
fn removal_change(situation: &Situation<'_>, host: &BareMetalHost) -> Value {
    let mut change = json!({ "image": null, "userData": null });
    let given = provision::find_given(situation, host);
    for (key, given) in [("metaData", given.meta_data), ("networkData", given.network_data)] {
        if given.is_some() {
            change[key] = Value::Null;
        }
    }
    json!({ "spec": change })
}

/// Releases the data claim. Its addresses are released after the node was removed.
fn release_data(situation: &Situation<'_>) -> Outcome {
    match situation.data_claim {
        Some(claim) if claim.metadata.deletion_timestamp.is_none() => Outcome::of_step(Step::ReleaseData),
        Some(claim) => {
            let message = format!("Metal3DataClaim {} is in deletion", claim.name_any());
            let reason = Reason::WaitingForMetal3Data;
            Outcome::of_blocker(Blocker::waiting_for(
                Type::Metal3DataReady,
                Problem::of_cause(reason, message),
            ))
        }
        None => Outcome::of_step(Step::RemoveFinalizer),
    }
}

/// The control plane whose newest template decides if the host is kept, because `nodeReuse` is set in
/// the template of an upgrade and not in the template of the replaced machines. `None` if the template
/// of the machine decides, or there is nothing to decide.
pub fn deciding_control_plane<'a>(situation: &Situation<'a>) -> Option<&'a OwnerReference> {
    situation.machine.metadata.deletion_timestamp.as_ref()?;
    let host = situation.host.filter(|host| is_consumer(host, situation.machine))?;
    let cluster = situation.cluster.filter(|cluster| cluster.metadata.deletion_timestamp.is_none());
    cluster.filter(|_| host.spec.image.is_none())?;
    choice::control_plane_of(situation.owner?)
}

/// The `Metal3MachineTemplate` that a control plane of either version names.
pub fn template_of_control_plane(control_plane: &Value) -> Option<&str> {
    let template = control_plane.pointer("/spec/machineTemplate")?;
    let reference =
        template.pointer("/spec/infrastructureRef").or_else(|| template.get("infrastructureRef"))?;
    (reference["kind"] == kind::METAL3_MACHINE_TEMPLATE).then_some(reference["name"].as_str()?)
}

/// Time until which a host that is released now is kept.
fn keep_end(situation: &Situation<'_>) -> Timestamp {
    let asked = situation.template.and_then(|template| template.annotations().get(names::KEEP_HOSTS_FOR));
    let asked = asked.and_then(|text| text.parse::<kube::core::Duration>().ok());
    let kept_for = asked.filter(|asked| !asked.is_negative()).map_or(KEPT_FOR, Duration::from);
    situation.now.checked_add(kept_for).unwrap_or(Timestamp::MAX)
}

/// Releases the host to its Cluster if it is kept for the successor of the machine, else completely.
fn release_change(situation: &Situation<'_>) -> Value {
    let is_kept = situation.template.is_some_and(|template| template.spec.node_reuse)
        && situation.cluster.is_some_and(|cluster| cluster.metadata.deletion_timestamp.is_none());
    let reuse = situation.owner.and_then(choice::reuse_value).filter(|_| is_kept);
    let holder = reuse.as_ref().zip(situation.cluster).map(|(_, cluster)| Consumer {
        api_version: Some("cluster.x-k8s.io/v1beta1".to_owned()),
        kind: kind::CLUSTER.to_owned(),
        name: cluster.name_any(),
        namespace: cluster.namespace(),
        ..Consumer::default()
    });
    let kept_until = reuse.as_ref().map(|_| keep_end(situation).to_string());
    let mut annotations = json!({ names::KEPT_UNTIL: kept_until, annotation::BLOCK_MOVE: null });
    if pause::is_paused_by_cluster(situation) {
        annotations[names::HOST_PAUSES[0]] = Value::Null;
    }
    json!({
        "metadata": {
            "labels": { label::CLUSTER_NAME: null, names::NODE_REUSE: reuse },
            "annotations": annotations,
        },
        "spec": { "consumerRef": holder },
    })
}
