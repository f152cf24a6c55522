//! `Metal3Cluster`: the endpoint that an operator gave.

use coordinator_api::capi::Cluster;
use coordinator_api::conditions::{self, Reason, Type, condition_false, condition_true};
use coordinator_api::machine::Initialization;
use coordinator_api::metal3::cluster::{
    FailureDomain, Metal3Cluster, Metal3ClusterStatus, NamedFailureDomain,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster;

/// Whether a cloud provider sets the providerIDs of nodes. Neither field, or
/// `noCloudProvider: true`: the coordinator does.
#[must_use]
pub fn has_cloud_provider(infrastructure: &Metal3Cluster) -> bool {
    let spec = &infrastructure.spec;
    spec.cloud_provider_enabled.unwrap_or(spec.no_cloud_provider == Some(false))
}

/// The status that follows. `is_list` is the form that Cluster API reads failure
/// domains in.
#[must_use]
pub fn project_status(
    infrastructure: &Metal3Cluster,
    owner: Option<&Cluster>,
    is_list: bool,
    now: Timestamp,
) -> Metal3ClusterStatus {
    let mut status = infrastructure.status.clone().unwrap_or_default();
    let is_paused = cluster::is_paused(infrastructure, owner);
    let mut shown = vec![cluster::paused_condition(is_paused)];
    if !is_paused {
        status.failure_domains = list_domains(infrastructure, is_list);
        if owner.is_none() {
            let message = "no Cluster names this object in spec.infrastructureRef yet";
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
    fn an_endpoint_makes_the_cluster_ready() {
        let named = json!({ "controlPlaneEndpoint": { "host": "10.0.0.1" } });
        let ready = Some(("True", Reason::EndpointKnown));
        for (name, spec, owner, is_ready, want) in [
            ("named", named.clone(), Some(owner(None)), true, ready),
            ("no host", json!({}), Some(owner(None)), false, Some(("False", Reason::EndpointMissing))),
            ("no owner", named.clone(), None, false, Some(("False", Reason::OwnerWaiting))),
            ("paused", named, Some(owner(Some(true))), false, None),
        ] {
            let status = project_status(&cluster(spec), owner.as_ref(), true, Timestamp::UNIX_EPOCH);
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
            project_status(&cluster, Some(&owner(None)), is_list, Timestamp::UNIX_EPOCH).failure_domains
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
