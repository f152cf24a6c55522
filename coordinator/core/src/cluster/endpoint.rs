//! The conditions `EndpointReady` and `Ready` of a cluster.

use coordinator_api::cluster::Endpoint;
use coordinator_api::conditions::{ConditionUpdate, Reason, Type, condition_true};

use super::{Decision, Observed, owner_missing};
use crate::problem::Problem;

/// Answer of the API server behind the endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EndpointAnswer {
    #[default]
    NotAsked,
    /// The coordinator has no credentials to ask with.
    Unasked(Problem),
    /// The server that the kubeconfig names, where it is known.
    Answered(Option<Endpoint>),
    Silent(Problem),
}

/// Tells that another server than the endpoint has answered. Names and addresses are not resolved, so that
/// two spellings of one server differ.
fn judge_server(endpoint: Option<&Endpoint>, server: Option<&Endpoint>) -> Option<Problem> {
    let (endpoint, server) = (endpoint?, server?);
    if endpoint.port == server.port && bare_host(endpoint).eq_ignore_ascii_case(bare_host(server)) {
        return None;
    }
    let [endpoint, server] = [endpoint, server].map(|one| format!("{}, port {}", one.host, one.port));
    let message =
        format!("the kubeconfig names {server}, which answers; the endpoint {endpoint} was not asked");
    let action = "correct the kubeconfig or the endpoint, unless both lead to one API server";
    Some(Problem::new(Reason::EndpointElsewhere, message, action))
}

/// A host without the brackets of an IPv6 address.
fn bare_host(endpoint: &Endpoint) -> &str {
    endpoint.host.trim_start_matches('[').trim_end_matches(']')
}

/// `Ready` needs no answer of the endpoint until the control plane is initialized, because the
/// first machine brings the API server.
pub(super) fn endpoint_conditions(decision: &Decision, observed: &Observed) -> Vec<ConditionUpdate> {
    match decision {
        Decision::Paused | Decision::ExternallyManaged => vec![],
        Decision::OwnerMissing => vec![owner_missing().condition_false(Type::Ready)],
        Decision::EndpointMissing => {
            let message = "no endpoint is named, and the Cluster has none yet";
            let action = "set spec.controlPlaneEndpoint or spec.controlPlaneLoadBalancer, or wait where a control plane provider sets spec.controlPlaneEndpoint of the Cluster";
            both_false(&Problem::new(Reason::EndpointMissing, message, action))
        }
        Decision::Unsupported => {
            let message = "spec.controlPlaneLoadBalancer.host is no IP address, which type Internal needs because the hosts hold the address";
            let action = "recreate the cluster with an address in the hosts' network, or with type External";
            both_false(&Problem::new(Reason::FieldUnsupported, message, action))
        }
        Decision::Fill(_) | Decision::Rest => {
            let answer = answer_condition(&observed.endpoint, observed.named_endpoint.as_ref());
            let known = condition_true(Type::Ready, Reason::EndpointKnown, "");
            let ready = match (&observed.endpoint, &answer) {
                (EndpointAnswer::Silent(_), Some(silent)) if observed.is_control_plane_initialized => {
                    ConditionUpdate { kind: Type::Ready, ..silent.clone() }
                }
                _ => known,
            };
            [ready].into_iter().chain(answer).collect()
        }
    }
}

fn both_false(problem: &Problem) -> Vec<ConditionUpdate> {
    [Type::Ready, Type::EndpointReady].map(|kind| problem.condition_false(kind)).into()
}

fn answer_condition(answer: &EndpointAnswer, named: Option<&Endpoint>) -> Option<ConditionUpdate> {
    let kind = Type::EndpointReady;
    match answer {
        EndpointAnswer::NotAsked => None,
        EndpointAnswer::Answered(server) => Some(match judge_server(named, server.as_ref()) {
            Some(problem) => problem.condition_unknown(kind),
            None => condition_true(kind, Reason::EndpointReachable, ""),
        }),
        EndpointAnswer::Unasked(problem) => Some(problem.condition_unknown(kind)),
        EndpointAnswer::Silent(problem) => Some(problem.condition_false(kind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_endpoint_counts_after_api_server_answered() {
        let problem = |reason| Problem::of_cause(reason, "why".to_owned());
        let (silent, unasked) = (Reason::WorkloadUnreachable, Reason::KubeconfigMissing);
        for (name, answer, is_initialized, ready, endpoint) in [
            ("first", EndpointAnswer::NotAsked, false, "True EndpointKnown", None),
            (
                "no kubeconfig",
                EndpointAnswer::Unasked(problem(unasked)),
                true,
                "True EndpointKnown",
                Some("Unknown KubeconfigMissing"),
            ),
            (
                "before kubeadm init",
                EndpointAnswer::Silent(problem(silent)),
                false,
                "True EndpointKnown",
                Some("False WorkloadUnreachable"),
            ),
            (
                "lost",
                EndpointAnswer::Silent(problem(silent)),
                true,
                "False WorkloadUnreachable",
                Some("False WorkloadUnreachable"),
            ),
            (
                "there",
                EndpointAnswer::Answered(None),
                true,
                "True EndpointKnown",
                Some("True EndpointReachable"),
            ),
            (
                "another server",
                EndpointAnswer::Answered(Some(Endpoint { host: "10.0.0.9".into(), port: 6443 })),
                true,
                "True EndpointKnown",
                Some("Unknown EndpointElsewhere"),
            ),
        ] {
            let observed = Observed {
                endpoint: answer,
                named_endpoint: Some(Endpoint { host: "10.0.0.5".into(), port: 6443 }),
                is_control_plane_initialized: is_initialized,
                ..Observed::default()
            };
            let shown = endpoint_conditions(&Decision::Rest, &observed);
            let text = |kind: Type| {
                let update = shown.iter().find(|update| update.kind == kind)?;
                let status: &str = update.status.into();
                Some(format!("{status} {}", update.reason.as_str()))
            };
            assert_eq!(text(Type::Ready).as_deref(), Some(ready), "{name}");
            assert_eq!(text(Type::EndpointReady).as_deref(), endpoint, "{name}");
        }
    }

    #[test]
    fn server_of_kubeconfig_is_compared_with_endpoint() {
        let endpoint = |host: &str, port| Endpoint { host: host.into(), port };
        for (named, server, is_other) in [
            (("10.0.0.5", 6443), Some(("10.0.0.5", 6443)), false),
            (("Api.Example", 6443), Some(("api.example", 6443)), false),
            (("2001:db8::1", 6443), Some(("[2001:db8::1]", 6443)), false),
            (("10.0.0.5", 6443), None, false),
            (("10.0.0.5", 6443), Some(("10.0.0.5", 443)), true),
            (("10.0.0.5", 6443), Some(("10.0.0.6", 6443)), true),
            (("10.0.0.5", 6443), Some(("api.example", 6443)), true),
        ] {
            let shown = server.map(|(host, port)| endpoint(host, port));
            let problem = judge_server(Some(&endpoint(named.0, named.1)), shown.as_ref());
            assert_eq!(problem.is_some(), is_other, "{named:?} {server:?}");
        }
        assert!(judge_server(None, Some(&endpoint("10.0.0.5", 6443))).is_none());
    }
}
