//! `Metal3Cluster`: the endpoint that an operator gave.

use coordinator_api::capi::Cluster;
use coordinator_api::conditions::{self, ConditionUpdate, Reason, Type, condition_false, condition_true};
use coordinator_api::machine::Initialization;
use coordinator_api::metal3::cluster::{
    FailureDomain, Metal3Cluster, Metal3ClusterStatus, NamedFailureDomain,
};
use coordinator_api::metal3::names;
use coordinator_api::names::annotation;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::cluster;

/// Whether a cloud provider sets the providerIDs of nodes. Neither field, or
/// `noCloudProvider: true`: the coordinator does.
pub fn has_cloud_provider(infrastructure: &Metal3Cluster) -> bool {
    let spec = &infrastructure.spec;
    spec.cloud_provider_enabled.unwrap_or(spec.no_cloud_provider == Some(false))
}

/// What is due for a `Metal3Cluster`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing is written: another system manages it, or it is about to be gone.
    Rest,
    /// Hold it by a finalizer.
    Hold,
    Forget,
    /// Nothing but the status.
    Show,
}

/// Decides; `machines` is how many the Cluster has.
pub fn decide_cluster(infrastructure: &Metal3Cluster, owner: Option<&Cluster>, machines: usize) -> Decision {
    let is_held = infrastructure.finalizers().iter().any(|name| name == names::CLUSTER_FINALIZER);
    let is_deleted = infrastructure.metadata.deletion_timestamp.is_some();
    if infrastructure.annotations().contains_key(annotation::MANAGED_BY) {
        return Decision::Rest;
    }
    if cluster::is_paused(infrastructure, owner) {
        return Decision::Show;
    }
    match (is_deleted, is_held) {
        (false, false) => Decision::Hold,
        (true, false) => Decision::Rest,
        (true, true) if machines == 0 => Decision::Forget,
        (_, true) => Decision::Show,
    }
}

/// Why one in deletion is still there.
fn deletion_condition(machines: usize) -> ConditionUpdate {
    let message = format!(
        "in deletion, and {machines} Metal3Machines of the Cluster exist: delete their Machines; it is held until they are gone"
    );
    condition_false(Type::Ready, Reason::MachinesLeft, message)
}

/// The status that follows. `is_list` is the form that Cluster API reads failure
/// domains in.
pub fn project_status(
    infrastructure: &Metal3Cluster,
    owner: Option<&Cluster>,
    machines: usize,
    is_list: bool,
    now: Timestamp,
) -> Metal3ClusterStatus {
    let mut status = infrastructure.status.clone().unwrap_or_default();
    let is_paused = cluster::is_paused(infrastructure, owner);
    let mut shown = vec![cluster::paused_condition(is_paused)];
    if !is_paused && infrastructure.metadata.deletion_timestamp.is_some() {
        shown.push(deletion_condition(machines));
    } else if !is_paused {
        status.failure_domains = list_domains(infrastructure, is_list);
        if owner.is_none() {
            let message = "no Cluster names this object in spec.infrastructureRef yet: create the Cluster, or correct the reference";
            shown.push(condition_false(Type::Ready, Reason::OwnerWaiting, message));
        } else {
            status.ready = !infrastructure.spec.control_plane_endpoint.host.is_empty();
            let state = |kind| {
                if infrastructure.spec.control_plane_endpoint.host.is_empty() {
                    let message = "spec.controlPlaneEndpoint.host is missing: set it to an address that is served for the API server";
                    return condition_false(kind, Reason::EndpointMissing, message);
                }
                condition_true(kind, Reason::EndpointKnown, "")
            };
            shown.extend([state(Type::BaremetalInfrastructureReady), state(Type::Ready)]);
            // Cluster API has acted on it: it is not taken back.
            if status.ready {
                status.initialization = Some(Initialization { provisioned: Some(true) });
            }
        }
    }
    conditions::set_conditions(&mut status.conditions, &shown, infrastructure.metadata.generation, now);
    status
}

fn list_domains(infrastructure: &Metal3Cluster, is_list: bool) -> Option<Value> {
    let domains = &infrastructure.spec.failure_domains;
    let named = |(name, domain): (&String, &FailureDomain)| NamedFailureDomain {
        name: name.clone(),
        control_plane: domain.control_plane,
        attributes: domain.attributes.clone(),
    };
    let list = || json!(domains.iter().map(named).collect::<Vec<_>>());
    (!domains.is_empty()).then(|| if is_list { list() } else { json!(domains) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator_api::capi::{self, ClusterSpec};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn cluster(spec: Value) -> Metal3Cluster {
        let mut cluster = Metal3Cluster::new("c1", serde_json::from_value(spec).unwrap());
        cluster.metadata.namespace = Some("fleet".into());
        cluster
    }

    fn owner(paused: Option<bool>) -> Cluster {
        Cluster::new(
            "c1",
            &capi::cluster_resource("v1beta2"),
            ClusterSpec { paused, ..ClusterSpec::default() },
        )
    }

    #[test]
    fn a_cluster_is_held_while_machines_exist() {
        use Decision::{Forget, Hold, Rest, Show};
        let deleted = Some(Time(Timestamp::UNIX_EPOCH));
        for (what, is_held, deletion, paused, machines, annotations, want) in [
            ("new", false, None, None, 0, None, Hold),
            ("held", true, None, None, 3, None, Show),
            ("in deletion, with machines", true, deleted.clone(), None, 1, None, Show),
            ("in deletion, without", true, deleted.clone(), None, 0, None, Forget),
            ("in deletion, not held", false, deleted.clone(), None, 0, None, Rest),
            ("new, paused", false, None, Some(true), 0, None, Show),
            ("in deletion, paused", true, deleted.clone(), Some(true), 0, None, Show),
            ("new, paused by itself", false, None, None, 0, Some(annotation::PAUSED), Show),
            ("new, of another system", false, None, None, 0, Some(annotation::MANAGED_BY), Rest),
            ("in deletion, of another system", true, deleted, None, 0, Some(annotation::MANAGED_BY), Rest),
        ] {
            let mut cluster = cluster(json!({}));
            cluster.metadata.deletion_timestamp = deletion;
            cluster.metadata.finalizers = is_held.then(|| vec![names::CLUSTER_FINALIZER.to_owned()]);
            cluster.annotations_mut().extend(annotations.map(|key| (key.to_owned(), String::new())));
            assert_eq!(decide_cluster(&cluster, Some(&owner(paused)), machines), want, "{what}");
        }
        let mut cluster = cluster(json!({ "controlPlaneEndpoint": { "host": "10.0.0.1" } }));
        cluster.status = Some(Metal3ClusterStatus { ready: true, ..Metal3ClusterStatus::default() });
        cluster.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let status = project_status(&cluster, Some(&owner(None)), 2, true, Timestamp::UNIX_EPOCH);
        let ready = conditions::find_condition(&status.conditions, Type::Ready).unwrap();
        assert!(ready.reason == "MachinesLeft" && ready.message.contains("2 Metal3Machines"), "{ready:?}");
        assert!(status.ready, "machines that are there go on");
    }

    #[test]
    fn an_endpoint_makes_the_cluster_ready() {
        let named = json!({ "controlPlaneEndpoint": { "host": "10.0.0.1" } });
        let ready = Some(("True", Reason::EndpointKnown));
        for (name, spec, owner, is_ready, want) in [
            ("named", named.clone(), Some(owner(None)), true, ready),
            ("no host", json!({}), Some(owner(None)), false, Some(("False", Reason::EndpointMissing))),
            ("no owner", named.clone(), None, false, Some(("False", Reason::OwnerWaiting))),
            ("paused", named, Some(owner(Some(true))), false, None),
        ] {
            let status = project_status(&cluster(spec), owner.as_ref(), 0, true, Timestamp::UNIX_EPOCH);
            let found = conditions::find_condition(&status.conditions, Type::Ready);
            let found = found.map(|ready| (ready.status.as_str(), ready.reason.parse().unwrap()));
            assert_eq!(
                (found, status.ready, status.initialization.is_some()),
                (want, is_ready, is_ready),
                "{name}"
            );
        }
    }

    #[test]
    fn failure_domains_have_the_form_of_the_version() {
        let cluster = cluster(json!({
            "controlPlaneEndpoint": { "host": "10.0.0.1" },
            "failureDomains": { "a": { "controlPlane": true } },
        }));
        let domains = |is_list| {
            project_status(&cluster, Some(&owner(None)), 0, is_list, Timestamp::UNIX_EPOCH).failure_domains
        };
        assert_eq!(domains(true), Some(json!([{ "name": "a", "controlPlane": true }])));
        assert_eq!(domains(false), Some(json!({ "a": { "controlPlane": true } })));
    }

    #[test]
    fn both_fields_name_the_cloud_provider() {
        for (spec, want) in [
            (json!({}), false),
            (json!({ "cloudProviderEnabled": true }), true),
            (json!({ "cloudProviderEnabled": false }), false),
            (json!({ "noCloudProvider": true }), false),
            (json!({ "noCloudProvider": false }), true),
        ] {
            assert_eq!(has_cloud_provider(&cluster(spec.clone())), want, "{spec}");
        }
    }
}
