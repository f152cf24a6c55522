//! `Metal3Cluster`: an endpoint that an operator names.

use coordinator_api::capi::Cluster;
use coordinator_api::conditions::{self, Reason, Type, condition_false, condition_true};
use coordinator_api::machine::Initialization;
use coordinator_api::metal3::cluster::{Metal3Cluster, Metal3ClusterStatus, NamedFailureDomain};
use coordinator_api::metal3::names;
use coordinator_api::names::annotation;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::cluster;
use crate::pause;
use crate::problem::Problem;

/// A cloud provider sets the providerIDs of nodes. If neither field is set, or
/// `noCloudProvider` is true, the coordinator sets them.
pub fn has_cloud_provider(infrastructure: &Metal3Cluster) -> bool {
    let spec = &infrastructure.spec;
    spec.cloud_provider_enabled.unwrap_or(spec.no_cloud_provider == Some(false))
}

/// The change that is due for a `Metal3Cluster`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing is written, because another system manages the object, or it is being deleted.
    Rest,
    AddFinalizer,
    RemoveFinalizer,
    WriteStatus,
}

/// Decides; `machines` is the number of `Metal3Machine` objects of the Cluster.
pub fn decide_cluster(infrastructure: &Metal3Cluster, owner: Option<&Cluster>, machines: usize) -> Decision {
    let is_held = infrastructure.finalizers().iter().any(|name| name == names::CLUSTER_FINALIZER);
    let is_deleted = infrastructure.metadata.deletion_timestamp.is_some();
    if infrastructure.annotations().contains_key(annotation::MANAGED_BY) {
        return Decision::Rest;
    }
    if pause::is_paused(infrastructure, owner) {
        return Decision::WriteStatus;
    }
    match (is_deleted, is_held) {
        (false, false) => Decision::AddFinalizer,
        (true, false) => Decision::Rest,
        (true, true) if machines == 0 => Decision::RemoveFinalizer,
        (_, true) => Decision::WriteStatus,
    }
}

fn machines_left(machines: usize) -> Problem {
    let message = format!("this object is in deletion and held by {machines} Metal3Machines of the Cluster");
    Problem::new(Reason::MachinesLeft, message, "delete their Machines")
}

/// The status. `is_list` is the form in which Cluster API reads failure domains.
pub fn project_status(
    infrastructure: &Metal3Cluster,
    owner: Option<&Cluster>,
    machines: usize,
    is_list: bool,
    now: Timestamp,
) -> Metal3ClusterStatus {
    let mut status = infrastructure.status.clone().unwrap_or_default();
    let is_paused = pause::is_paused(infrastructure, owner);
    let mut shown = vec![pause::paused_condition(is_paused)];
    if !is_paused && infrastructure.metadata.deletion_timestamp.is_some() {
        shown.push(machines_left(machines).condition_false(Type::Ready));
    } else if !is_paused {
        status.failure_domains = list_domains(infrastructure, is_list);
        if owner.is_none() {
            shown.push(cluster::owner_missing().condition_false(Type::Ready));
        } else {
            status.ready = !infrastructure.spec.control_plane_endpoint.host.is_empty();
            shown.extend([Type::BaremetalInfrastructureReady, Type::Ready].map(|kind| {
                if status.ready {
                    return condition_true(kind, Reason::EndpointKnown, "");
                }
                condition_false(kind, Reason::EndpointMissing, "spec.controlPlaneEndpoint.host is missing")
                    .with_next_action("set it to an address that is served for the API server")
            }));
            // The field stays because Cluster API has acted on it.
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
    if domains.is_empty() || !is_list {
        return (!domains.is_empty()).then(|| json!(domains));
    }
    let named = domains.iter().map(|(name, domain)| NamedFailureDomain {
        name: name.clone(),
        control_plane: domain.control_plane,
        attributes: domain.attributes.clone(),
    });
    Some(json!(named.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::bare_cluster;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn cluster(spec: Value) -> Metal3Cluster {
        let mut cluster = Metal3Cluster::new("c1", serde_json::from_value(spec).unwrap());
        cluster.metadata.namespace = Some("fleet".into());
        cluster
    }

    #[test]
    fn a_cluster_is_held_while_machines_exist() {
        use Decision::{AddFinalizer, RemoveFinalizer, Rest, WriteStatus};
        let deleted = Some(Time(Timestamp::UNIX_EPOCH));
        for (what, is_held, deletion, paused, machines, annotations, want) in [
            ("new", false, None, None, 0, None, AddFinalizer),
            ("held", true, None, None, 3, None, WriteStatus),
            ("in deletion, with machines", true, deleted.clone(), None, 1, None, WriteStatus),
            ("in deletion, without", true, deleted.clone(), None, 0, None, RemoveFinalizer),
            ("in deletion, not held", false, deleted.clone(), None, 0, None, Rest),
            ("new, paused", false, None, Some(true), 0, None, WriteStatus),
            ("in deletion, paused", true, deleted.clone(), Some(true), 0, None, WriteStatus),
            ("new, paused by itself", false, None, None, 0, Some(annotation::PAUSED), WriteStatus),
            ("new, of another system", false, None, None, 0, Some(annotation::MANAGED_BY), Rest),
            ("in deletion, of another system", true, deleted, None, 0, Some(annotation::MANAGED_BY), Rest),
        ] {
            let mut cluster = cluster(json!({}));
            cluster.metadata.deletion_timestamp = deletion;
            cluster.metadata.finalizers = is_held.then(|| vec![names::CLUSTER_FINALIZER.to_owned()]);
            cluster.annotations_mut().extend(annotations.map(|key| (key.to_owned(), String::new())));
            assert_eq!(decide_cluster(&cluster, Some(&bare_cluster(paused)), machines), want, "{what}");
        }
        let mut cluster = cluster(json!({ "controlPlaneEndpoint": { "host": "10.0.0.1" } }));
        cluster.status = Some(Metal3ClusterStatus { ready: true, ..Metal3ClusterStatus::default() });
        cluster.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let status = project_status(&cluster, Some(&bare_cluster(None)), 2, true, Timestamp::UNIX_EPOCH);
        let ready = conditions::find_condition(&status.conditions, Type::Ready).unwrap();
        assert!(ready.reason == "MachinesLeft" && ready.message.contains("2 Metal3Machines"), "{ready:?}");
        assert!(status.ready, "machines that are there go on");
    }

    #[test]
    fn an_endpoint_makes_the_cluster_ready() {
        let named = json!({ "controlPlaneEndpoint": { "host": "10.0.0.1" } });
        let ready = Some(("True", Reason::EndpointKnown));
        for (name, spec, owner, is_ready, want) in [
            ("named", named.clone(), Some(bare_cluster(None)), true, ready),
            ("no host", json!({}), Some(bare_cluster(None)), false, Some(("False", Reason::EndpointMissing))),
            ("no owner", named.clone(), None, false, Some(("False", Reason::OwnerWaiting))),
            ("paused", named, Some(bare_cluster(Some(true))), false, None),
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
            project_status(&cluster, Some(&bare_cluster(None)), 0, is_list, Timestamp::UNIX_EPOCH)
                .failure_domains
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
