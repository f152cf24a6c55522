//! The conditions `EndpointReady` and `Ready` of a cluster.

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
    Answered,
    Silent(Problem),
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
            let answer = answer_condition(&observed.endpoint);
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

fn answer_condition(answer: &EndpointAnswer) -> Option<ConditionUpdate> {
    let kind = Type::EndpointReady;
    match answer {
        EndpointAnswer::NotAsked => None,
        EndpointAnswer::Answered => Some(condition_true(kind, Reason::EndpointReachable, "")),
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
            ("there", EndpointAnswer::Answered, true, "True EndpointKnown", Some("True EndpointReachable")),
        ] {
            let observed = Observed {
                endpoint: answer,
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
}
