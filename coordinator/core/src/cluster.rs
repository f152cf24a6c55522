//! The infrastructure of a cluster.

mod endpoint;

use std::collections::BTreeMap;

use coordinator_api::capi::{Cluster, ClusterStatus};
use coordinator_api::cluster::{
    BaremetalCluster, BaremetalClusterStatus, Endpoint, LoadBalancer, LoadBalancerType,
};
use coordinator_api::conditions::{self, ConditionUpdate, Reason, Type};
use coordinator_api::machine::Initialization;
use coordinator_api::names::annotation;
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::load_balancer::Internal;
use crate::pause;
use crate::problem::Problem;
pub use endpoint::EndpointAnswer;

/// The change that is due for a `BaremetalCluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Write the endpoint of the load balancer into the spec.
    Fill(Endpoint),
    /// Only the status is written.
    Rest,
    Paused,
    /// Nothing is written because the annotation `cluster.x-k8s.io/managed-by` is set.
    ExternallyManaged,
    /// No Cluster owns the object yet.
    OwnerMissing,
    /// Neither endpoint nor load balancer is named, and the Cluster has no endpoint yet.
    EndpointMissing,
    /// The hosts cannot hold the endpoint of the load balancer.
    Unsupported,
}

/// Limit of Cluster API for the failure domains in the status of a Cluster.
const MOST_DOMAINS: usize = 100;

/// The Cluster, if the Node of a machine stays after it: Cluster API finds the Node by the providerID of the
/// machine, which one without it does not have, and only if the Cluster names a control plane. No Node has
/// joined a control plane that is not initialized. With a Cluster in deletion all its Nodes go.
pub fn leftover_cluster(cluster: Option<&Cluster>, has_provider_id: bool) -> Option<String> {
    let cluster = cluster?;
    let is_managed = cluster.spec.control_plane_ref.as_ref().is_some_and(|named| !named.kind.is_empty());
    let is_initialized = cluster.status.as_ref().is_some_and(ClusterStatus::is_control_plane_initialized);
    let is_left = !is_managed || (is_initialized && !has_provider_id);
    (is_left && cluster.metadata.deletion_timestamp.is_none()).then(|| cluster.name_any())
}

pub fn decide_cluster(cluster: &BaremetalCluster, owner: Option<&Cluster>) -> Decision {
    if cluster.annotations().contains_key(annotation::MANAGED_BY) {
        return Decision::ExternallyManaged;
    }
    if pause::is_paused(cluster, owner) {
        return Decision::Paused;
    }
    let Some(owner) = owner else { return Decision::OwnerMissing };
    let balancer = cluster.spec.control_plane_load_balancer.as_ref();
    if balancer.is_some_and(|balancer| is_internal(balancer) && Internal::parse(balancer).is_none()) {
        return Decision::Unsupported;
    }
    if cluster.spec.control_plane_endpoint.is_some() {
        return Decision::Rest;
    }
    match balancer {
        Some(balancer) => Decision::Fill(Endpoint { host: balancer.host.clone(), port: balancer.port }),
        // The control plane provider or an operator has set it on the Cluster, which nothing is added to.
        None if owner.spec.endpoint().is_some() => Decision::Rest,
        None => Decision::EndpointMissing,
    }
}

/// The endpoint of the infrastructure, or of the Cluster where that names none.
pub fn find_endpoint(cluster: &BaremetalCluster, owner: &Cluster) -> Option<Endpoint> {
    cluster.spec.control_plane_endpoint.clone().or_else(|| {
        let named = owner.spec.endpoint()?;
        Some(Endpoint { host: named.host.clone(), port: named.port })
    })
}

/// Inputs of the status beside the decision.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Result of [`render_domains`].
    pub domains: Option<Value>,
    pub endpoint: EndpointAnswer,
    /// The endpoint by which clients reach the cluster.
    pub named_endpoint: Option<Endpoint>,
    /// The endpoint has to answer only after that.
    pub is_control_plane_initialized: bool,
}

pub fn cluster_status(
    cluster: &BaremetalCluster,
    decision: &Decision,
    observed: Observed,
    now: Timestamp,
) -> BaremetalClusterStatus {
    let mut status = cluster.status.clone().unwrap_or_default();
    let mut updates = vec![pause::paused_condition(*decision == Decision::Paused)];
    updates.extend(endpoint::endpoint_conditions(decision, &observed));
    // `ready` does not depend on an answer at the endpoint, because machines are created first.
    match decision {
        Decision::Fill(_) | Decision::Rest => {
            status.ready = true;
            status.initialization = Some(Initialization { provisioned: Some(true) });
        }
        // `initialization` stays because Cluster API has acted on it.
        Decision::EndpointMissing | Decision::Unsupported => status.ready = false,
        Decision::Paused | Decision::ExternallyManaged | Decision::OwnerMissing => {}
    }
    if *decision != Decision::Paused {
        status.failure_domains = observed.domains;
    }
    let generation = cluster.metadata.generation;
    conditions::set_conditions(&mut status.conditions, &updates, generation, now);
    conditions::set_undecided(&mut status.conditions, &decided_types(cluster), generation, now);
    status
}

/// Conditions that are `Unknown` until their first decision.
fn decided_types(cluster: &BaremetalCluster) -> Vec<Type> {
    let mut types = vec![Type::Ready, Type::EndpointReady];
    if cluster.spec.control_plane_load_balancer.as_ref().is_some_and(is_internal) {
        types.extend([Type::NetworkDeviceReady, Type::NetworkConfigValid, Type::LoadBalancerReady]);
    }
    types
}

fn is_internal(balancer: &LoadBalancer) -> bool {
    balancer.kind == LoadBalancerType::Internal
}

/// Failure domains in the form of Cluster API's `version`: a list, or at v1beta1 a map by name.
/// The value of a domain is true if the domain is for the control plane.
pub fn render_domains(domains: &BTreeMap<String, bool>, version: &str) -> Option<Value> {
    let domains = select_domains(domains);
    if domains.is_empty() {
        return None;
    }
    if version == "v1beta1" {
        let map = domains.into_iter().map(|(name, is)| (name.clone(), json!({ "controlPlane": is })));
        return Some(Value::Object(map.collect()));
    }
    Some(domains.into_iter().map(|(name, is)| json!({ "name": name, "controlPlane": is })).collect())
}

/// The domains that fit, in the order of their names. Domains of the control plane take precedence
/// because Cluster API places machines by them.
fn select_domains(domains: &BTreeMap<String, bool>) -> Vec<(&String, &bool)> {
    let mut selected: Vec<_> = domains.iter().collect();
    selected.sort_by_key(|(_, is_control_plane)| !**is_control_plane);
    selected.truncate(MOST_DOMAINS);
    selected.sort_unstable();
    selected
}

/// The status after the API server refused the change.
pub fn failed_status(
    cluster: &BaremetalCluster,
    failed: ConditionUpdate,
    now: Timestamp,
) -> BaremetalClusterStatus {
    let mut status = cluster.status.clone().unwrap_or_default();
    let generation = cluster.metadata.generation;
    let updates = [pause::paused_condition(false), failed];
    conditions::set_conditions(&mut status.conditions, &updates, generation, now);
    conditions::set_undecided(&mut status.conditions, &[Type::EndpointReady], generation, now);
    status
}

/// The problem of an infrastructure cluster without a Cluster.
pub(crate) fn owner_missing() -> Problem {
    let message = "no Cluster names this object in spec.infrastructureRef yet";
    Problem::new(Reason::OwnerWaiting, message, "create the Cluster, or correct the reference")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::bare_cluster;
    use coordinator_api::cluster::BaremetalClusterSpec;

    #[test]
    fn what_is_not_decided_yet_is_unknown() {
        let of = |balancer: Option<LoadBalancerType>| {
            let balancer =
                balancer.map(|kind| LoadBalancer { host: "10.0.0.9".into(), port: 6443, kind, vrid: None });
            let spec = BaremetalClusterSpec { control_plane_load_balancer: balancer, ..Default::default() };
            let cluster = BaremetalCluster::new("c1", spec);
            let decision = decide_cluster(&cluster, Some(&bare_cluster(Some(true))));
            cluster_status(&cluster, &decision, Observed::default(), Timestamp::UNIX_EPOCH).conditions
        };
        let always = ["EndpointReady", "Ready"];
        let of_hosts =
            ["EndpointReady", "LoadBalancerReady", "NetworkConfigValid", "NetworkDeviceReady", "Ready"];
        for (balancer, want) in [
            (None, &always[..]),
            (Some(LoadBalancerType::External), &always),
            (Some(LoadBalancerType::Internal), &of_hosts),
        ] {
            let shown = of(balancer);
            let unknown = shown.iter().filter(|condition| condition.status == "Unknown");
            assert!(unknown.clone().all(|condition| condition.reason == Reason::NotDecided.as_str()));
            let mut kinds: Vec<_> = unknown.map(|condition| condition.type_.as_str()).collect();
            kinds.sort_unstable();
            assert_eq!(kinds, want, "{balancer:?}");
        }
    }

    #[test]
    fn endpoint_comes_from_spec_or_load_balancer() {
        let endpoint = Endpoint { host: "192.0.2.1".into(), port: 6443 };
        let internal = LoadBalancer { host: "192.0.2.1".into(), port: 6443, ..Default::default() };
        let external = LoadBalancer { kind: LoadBalancerType::External, ..internal.clone() };
        let named =
            BaremetalClusterSpec { control_plane_endpoint: Some(endpoint.clone()), ..Default::default() };
        let balanced =
            BaremetalClusterSpec { control_plane_load_balancer: Some(external), ..Default::default() };
        let unnamed = LoadBalancer { host: "vip.example".into(), ..internal.clone() };
        let by_name =
            BaremetalClusterSpec { control_plane_load_balancer: Some(unnamed), ..Default::default() };
        let of_hosts = BaremetalClusterSpec {
            control_plane_load_balancer: Some(internal.clone()),
            ..Default::default()
        };
        let both = BaremetalClusterSpec { control_plane_load_balancer: Some(internal), ..named.clone() };
        let none = BaremetalClusterSpec::default();
        for (name, spec, owner, want) in [
            ("named", &named, Some(bare_cluster(None)), Decision::Rest),
            ("balanced", &balanced, Some(bare_cluster(None)), Decision::Fill(endpoint.clone())),
            ("neither", &none, Some(bare_cluster(None)), Decision::EndpointMissing),
            ("of hosts", &of_hosts, Some(bare_cluster(None)), Decision::Fill(endpoint)),
            ("named, of hosts", &both, Some(bare_cluster(None)), Decision::Rest),
            ("of hosts, by name", &by_name, Some(bare_cluster(None)), Decision::Unsupported),
            ("no owner", &named, None, Decision::OwnerMissing),
            ("paused", &named, Some(bare_cluster(Some(true))), Decision::Paused),
        ] {
            let cluster = BaremetalCluster::new("c1", spec.clone());
            let decision = decide_cluster(&cluster, owner.as_ref());
            assert_eq!(decision, want, "{name}");
            let status = cluster_status(&cluster, &decision, Observed::default(), Timestamp::UNIX_EPOCH);
            let is_there = matches!(decision, Decision::Rest | Decision::Fill(_));
            assert_eq!((status.ready, status.initialization.is_some()), (is_there, is_there), "{name}");
        }
    }

    #[test]
    fn what_is_provisioned_stays_provisioned() {
        let mut cluster = BaremetalCluster::new("c1", BaremetalClusterSpec::default());
        let provisioned = Some(Initialization { provisioned: Some(true) });
        cluster.status =
            Some(BaremetalClusterStatus { ready: true, initialization: provisioned, ..Default::default() });
        let status =
            cluster_status(&cluster, &Decision::Unsupported, Observed::default(), Timestamp::UNIX_EPOCH);
        assert_eq!((status.ready, status.initialization), (false, provisioned));
        let ready = conditions::find_condition(&status.conditions, Type::Ready).unwrap();
        assert_eq!(ready.reason, Reason::FieldUnsupported.as_str());
        assert!(ready.message.contains("spec.controlPlaneLoadBalancer.host"), "{}", ready.message);
    }

    #[test]
    fn a_pause_leaves_readiness_as_it_was() {
        let mut cluster = BaremetalCluster::new("c1", BaremetalClusterSpec::default());
        cluster.status = Some(BaremetalClusterStatus { ready: true, ..Default::default() });
        assert!(
            cluster_status(&cluster, &Decision::Paused, Observed::default(), Timestamp::UNIX_EPOCH).ready
        );
    }

    #[test]
    fn failure_domains_are_a_list_or_a_map() {
        let domains = BTreeMap::from([("a".to_owned(), true), ("b".to_owned(), false)]);
        let list = json!([{ "name": "a", "controlPlane": true }, { "name": "b", "controlPlane": false }]);
        assert_eq!(render_domains(&domains, "v1beta2"), Some(list));
        let map = json!({ "a": { "controlPlane": true }, "b": { "controlPlane": false } });
        assert_eq!(render_domains(&domains, "v1beta1"), Some(map));
        assert_eq!(render_domains(&BTreeMap::new(), "v1beta2"), None);
    }

    #[test]
    fn most_failure_domains_keep_the_control_planes() {
        let mut domains: BTreeMap<_, _> = (0..99).map(|rack| (format!("a-{rack:02}"), false)).collect();
        domains.insert("b-1".to_owned(), true);
        let names = |domains: &BTreeMap<String, bool>| -> Vec<String> {
            let list = render_domains(domains, "v1beta2").unwrap();
            let names = list.as_array().unwrap().iter();
            names.map(|domain| domain["name"].as_str().unwrap().to_owned()).collect()
        };
        let all: Vec<_> = domains.keys().cloned().collect();
        assert_eq!(names(&domains), all, "100 of them fit");
        domains.insert("b-2".to_owned(), true);
        let mut kept = all;
        kept.remove(98);
        kept.push("b-2".to_owned());
        assert_eq!(names(&domains), kept, "one of workers is left out");
        let map = render_domains(&domains, "v1beta1").unwrap();
        assert_eq!(map.as_object().unwrap().len(), 100);
    }
}
