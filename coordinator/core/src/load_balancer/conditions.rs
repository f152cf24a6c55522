//! Conditions of a cluster about its load balancer.

use std::net::IpAddr;

use coordinator_api::cluster::{BaremetalCluster, BaremetalClusterSpec, LoadBalancerType};
use coordinator_api::conditions::{ConditionUpdate, Reason, Type, condition_false, condition_true};
use coordinator_api::inventory::LoadBalancerReport;

use super::{Candidate, Decision, DeviceProblem};
use crate::problem::Problem;

/// The conditions of a cluster with an internal endpoint.
pub fn project_conditions(decision: &Decision, candidates: &[Candidate<'_>]) -> Vec<ConditionUpdate> {
    vec![device_condition(decision), config_condition(decision), balancer_condition(decision, candidates)]
}

/// The condition about fields without effect: fields of the other type of load balancer, and
/// `networkType`.
pub fn ignored_condition(cluster: &BaremetalCluster) -> ConditionUpdate {
    let spec = &cluster.spec;
    let balancer = spec.control_plane_load_balancer.as_ref();
    let is_internal = is_internal(spec);
    let has_vrid = balancer.is_some_and(|balancer| balancer.vrid.is_some());
    let has_device = spec.network_device.as_ref().is_some_and(|name| !name.is_empty());
    let has_network_type = spec.network_type.as_ref().is_some_and(|name| !name.is_empty());
    let fields = [
        (
            is_other_endpoint(spec),
            "spec.controlPlaneLoadBalancer (the nodes use controlPlaneEndpoint, which differs: create the cluster with one of the two)",
        ),
        (!is_internal && has_vrid, "spec.controlPlaneLoadBalancer.vrid (only with type Internal)"),
        (!is_internal && has_device, "spec.networkDevice (only with type Internal)"),
        (has_network_type, "spec.networkType (install a network in the workload cluster)"),
    ];
    let ignored: Vec<_> =
        fields.into_iter().filter_map(|(is_ignored, field)| is_ignored.then_some(field)).collect();
    if ignored.is_empty() {
        return condition_false(Type::FieldsIgnored, Reason::FieldsSupported, "");
    }
    let message = format!("without effect: {}", ignored.join(", "));
    condition_true(Type::FieldsIgnored, Reason::FieldWithoutEffect, message)
        .with_next_action("correct or remove each of them")
}

/// The load balancer has another address or port than the endpoint. A name and an address are
/// not compared, because the name may resolve to the address.
pub fn is_other_endpoint(spec: &BaremetalClusterSpec) -> bool {
    let (Some(endpoint), Some(balancer)) = (&spec.control_plane_endpoint, &spec.control_plane_load_balancer)
    else {
        return false;
    };
    let addresses = [&endpoint.host, &balancer.host].map(|host| host.parse::<IpAddr>().ok());
    let has_other_host = match addresses.into() {
        (Some(endpoint), Some(balancer)) => endpoint != balancer,
        (None, None) => !endpoint.host.eq_ignore_ascii_case(&balancer.host),
        _ => false,
    };
    has_other_host || endpoint.port != balancer.port
}

/// The hosts hold the endpoint of the cluster.
pub fn holds_endpoint(spec: &BaremetalClusterSpec) -> bool {
    is_internal(spec) && !is_other_endpoint(spec)
}

fn is_internal(spec: &BaremetalClusterSpec) -> bool {
    let balancer = spec.control_plane_load_balancer.as_ref();
    balancer.is_some_and(|balancer| balancer.kind == LoadBalancerType::Internal)
}

/// The condition about `networkDevice` of the members.
fn device_condition(decision: &Decision) -> ConditionUpdate {
    let found = decision.problems.iter().find_map(|(host, problem)| match problem {
        DeviceProblem::Missing { device, found } => {
            let message = format!("host {host} has no interface {device}, but {found}");
            Some(Problem::new(Reason::NetworkDeviceMissing, message, "correct networkDevice"))
        }
        DeviceProblem::IsSlave { device, master } => {
            let message = format!("interface {device} of host {host} is a member of {master}");
            let action = format!("name {master} in networkDevice");
            Some(Problem::new(Reason::NetworkDeviceIsSlave, message, action))
        }
        DeviceProblem::NoReport | DeviceProblem::NoAddress { .. } | DeviceProblem::AddressShared(_) => None,
    });
    match found {
        Some(problem) => problem.condition_false(Type::NetworkDeviceReady),
        None => condition_true(Type::NetworkDeviceReady, Reason::NetworkDeviceFound, ""),
    }
}

fn config_condition(decision: &Decision) -> ConditionUpdate {
    match find_config_problem(decision) {
        Some(problem) => problem.condition_false(Type::NetworkConfigValid),
        None => condition_true(Type::NetworkConfigValid, Reason::NetworkConfigAccepted, ""),
    }
}

fn find_config_problem(decision: &Decision) -> Option<Problem> {
    if let Some(other) = &decision.address_taken {
        let message = format!(
            "BaremetalCluster {other} has the address and the port of this cluster's load balancer, so that no host of this cluster holds it"
        );
        return Some(Problem::new(Reason::AddressTaken, message, "delete one of the two clusters"));
    }
    let mut problems = decision.problems.iter();
    if let Some(problem) = problems.find_map(|(host, problem)| describe_address_problem(host, problem)) {
        return Some(problem);
    }
    if !decision.router_id_shared.is_empty() {
        let clusters = decision.router_id_shared.join(", ");
        let message = format!("BaremetalCluster {clusters} uses the same vrid in the same network");
        let action = "set spec.controlPlaneLoadBalancer.vrid of one of them to a number that nothing else in the network uses";
        return Some(Problem::new(Reason::RouterIdShared, message, action));
    }
    if let Some(wait) = &decision.router_id_waits {
        let message = format!(
            "vrid stays {} until host {} is attached, because that host would hold the address beside the others if they used another vrid",
            wait.router_id, wait.host
        );
        let action = "check that the host is powered and reaches the coordinator";
        return Some(Problem::new(Reason::DutyUnconfirmed, message, action));
    }
    let wait = decision.new_member_waits.as_ref()?;
    let message = format!(
        "host {} becomes a member when host {} is attached, because that host does not know it and would hold the address beside it",
        wait.host, wait.away
    );
    let action = format!(
        "check that host {} is powered and reaches the coordinator, or delete its Machine",
        wait.away
    );
    Some(Problem::new(Reason::DutyUnconfirmed, message, action))
}

fn describe_address_problem(host: &str, problem: &DeviceProblem) -> Option<Problem> {
    Some(match problem {
        DeviceProblem::NoReport => {
            let message = format!("host {host} has reported no network, and becomes a member when it does");
            Problem::of_cause(Reason::NetworkUnknown, message)
        }
        DeviceProblem::NoAddress { device } => {
            let place = device.as_deref().unwrap_or("the interface that routes to the endpoint");
            let message = format!("host {host} has no address of the endpoint's family on {place}");
            let action = "configure its network, or correct networkDevice";
            Problem::new(Reason::AddressMissing, message, action)
        }
        DeviceProblem::AddressShared(address) => {
            let message = format!("host {host} has the address {address} of another member");
            Problem::new(Reason::AddressTaken, message, "correct its network")
        }
        DeviceProblem::Missing { .. } | DeviceProblem::IsSlave { .. } => return None,
    })
}

/// The report of each member about its newest duty.
fn member_reports<'a>(
    decision: &'a Decision,
    candidates: &[Candidate<'a>],
) -> Vec<(&'a str, Option<&'a LoadBalancerReport>)> {
    let reports = decision.members.iter().map(|member| {
        let candidate = candidates.iter().find(|candidate| candidate.host == member.host);
        let report = candidate.and_then(|candidate| candidate.known?.state.as_ref());
        let current = report.filter(|report| report.generation == member.duty.generation);
        (member.host.as_str(), current)
    });
    reports.collect()
}

fn list_holders<'a>(reports: &[(&'a str, Option<&LoadBalancerReport>)]) -> Vec<&'a str> {
    let held = reports.iter().filter(|(_, report)| report.is_some_and(|report| report.is_holder));
    held.map(|(host, _)| *host).collect()
}

/// The host that holds the address; `None` while two hosts report it because it moves.
pub fn find_holder<'a>(decision: &'a Decision, candidates: &[Candidate<'a>]) -> Option<&'a str> {
    match list_holders(&member_reports(decision, candidates)).as_slice() {
        [holder] => Some(holder),
        _ => None,
    }
}

/// The condition about the holder of the address.
fn balancer_condition(decision: &Decision, candidates: &[Candidate<'_>]) -> ConditionUpdate {
    let reports = member_reports(decision, candidates);
    let holders = list_holders(&reports);
    let failed = reports.iter().find_map(|(host, report)| {
        let message = report.as_ref().map(|report| report.message.as_str())?;
        (!message.is_empty()).then(|| format!("host {host}: {message}"))
    });
    if holders.is_empty() {
        return explain_no_holder(&reports, failed).condition_false(Type::LoadBalancerReady);
    }
    let mut message = format!("held by host {}", holders.join(", "));
    if let Some(failed) = failed {
        message = format!("{message}; {failed}");
    }
    condition_true(Type::LoadBalancerReady, Reason::AddressHeld, message)
}

fn explain_no_holder(reports: &[(&str, Option<&LoadBalancerReport>)], failed: Option<String>) -> Problem {
    if reports.is_empty() {
        let message = "no control-plane machine has a host that can hold the address";
        let action = "wait for the first one, or see in its conditions why it has no host";
        return Problem::new(Reason::MembersMissing, message, action);
    }
    if let Some(failed) = failed {
        return Problem::of_cause(Reason::MemberFailed, failed);
    }
    if let Some((host, _)) = reports.iter().find(|(_, report)| report.is_none()) {
        let message = format!("host {host} has not confirmed its duty");
        let action = "check that it is attached and runs baremetal-agent-alive.service";
        return Problem::new(Reason::DutyUnconfirmed, message, action);
    }
    let message = "no API server of the control plane answers /readyz, so that no host holds the address";
    let action = "read the logs of kube-apiserver and etcd on the hosts";
    Problem::new(Reason::HolderMissing, message, action)
}
