//! The status of a `Metal3Machine`, a projection of its host.

use coordinator_api::conditions::{self, ConditionUpdate, Reason, Type, condition_false, condition_true};
use coordinator_api::machine::{Initialization, MachineAddress};
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::Metal3MachineStatus;
use coordinator_api::metal3::{ObjectRef, names};
use coordinator_api::object::Namespace;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::labels::asked_prefixes;
use super::node::is_found;
use super::provision::find_given;
use super::{Situation, is_consumer};
use crate::assignment::NodesRead;
use crate::pause;
use crate::problem::{Blocker, Severity};

/// The status. `failure` is an effect that the API server rejected.
pub fn project_status(
    situation: &Situation<'_>,
    blocker: Option<&Blocker>,
    failure: Option<ConditionUpdate>,
    now: Timestamp,
) -> Metal3MachineStatus {
    let machine = situation.machine;
    let before = machine.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let is_paused = blocker.is_some_and(|blocker| blocker.condition == Type::Paused);
    let mut shown = vec![pause::paused_condition(is_paused)];
    let cause = blocker.filter(|_| is_paused).map(|blocker| blocker.problem.condition_false(Type::Ready));
    shown.extend(pause::first_ready(&before.conditions, cause));
    if !is_paused {
        project_machine(&mut status, situation);
        if asked_prefixes(situation.infrastructure).is_none() {
            status.conditions.retain(|condition| condition.type_ != Type::LabelsSynced.as_str());
        }
        shown.extend(project_conditions(situation, blocker, failure));
        if status.addresses != before.addresses {
            status.last_updated = Some(Time(now));
        }
    }
    conditions::set_conditions(&mut status.conditions, &shown, machine.metadata.generation, now);
    status
}

fn project_machine(status: &mut Metal3MachineStatus, situation: &Situation<'_>) {
    let machine = situation.machine;
    // `ready` is never set to false again, because Cluster API has acted on it.
    status.ready |= machine.spec.provider_id.is_some();
    if status.ready {
        status.initialization = Some(Initialization { provisioned: Some(true) });
    }
    let Some(host) = situation.host.filter(|host| is_consumer(host, machine)) else {
        (status.phase, status.failure_domain) = (None, None);
        return;
    };
    status.failure_domain =
        host.labels().get(names::FAILURE_DOMAIN).filter(|domain| !domain.is_empty()).cloned();
    let state = host.status.as_ref().map(|status| status.provisioning.state.clone());
    status.phase = state.filter(|state| !state.is_empty());
    if host.spec.image.is_some() {
        status.user_data = host.spec.user_data.clone().filter(|reference| reference.name.is_some());
        let given = find_given(situation, host);
        status.meta_data = given.meta_data.cloned();
        status.network_data = given.network_data.cloned();
    }
    let rendered = situation.data.filter(|_| machine.spec.data_template.is_some());
    status.rendered_data = rendered.map(|data| ObjectRef::within(&Namespace::of(machine), &data.name_any()));
    let addresses = list_addresses(host);
    if !addresses.is_empty() {
        status.addresses = addresses;
    }
}

fn list_addresses(host: &BareMetalHost) -> Vec<MachineAddress> {
    let Some(hardware) = host.status.as_ref().and_then(|status| status.hardware.as_ref()) else {
        return vec![];
    };
    let ips = hardware.nics.iter().filter_map(|nic| nic.ip.as_ref()).map(|ip| ("InternalIP", ip));
    let names = ["Hostname", "InternalDNS"].map(|kind| (kind, &hardware.hostname));
    let addresses = ips.chain(names).filter(|(_, address)| !address.is_empty());
    addresses
        .map(|(kind, address)| MachineAddress { kind: kind.to_owned(), address: address.clone() })
        .collect()
}

/// The condition of the blocker is false; the conditions of the steps before it are true.
fn project_conditions(
    situation: &Situation<'_>,
    blocker: Option<&Blocker>,
    failure: Option<ConditionUpdate>,
) -> Vec<ConditionUpdate> {
    let machine = situation.machine;
    let mut updates = vec![];
    if let Some(host) = situation.host.filter(|host| is_consumer(host, machine)) {
        let message = format!("BareMetalHost {}", host.name_any());
        updates.push(condition_true(
            Type::AssociateBareMetalHost,
            Reason::AssociateBareMetalHostSuccess,
            message,
        ));
    }
    updates.extend(project_data(situation));
    if machine.spec.provider_id.is_some() {
        updates.push(condition_true(Type::HostProvisioned, Reason::Running, ""));
    }
    if let Some(node) = situation.owner.and_then(|owner| owner.status.as_ref()?.node_ref.as_ref()) {
        updates.push(condition_true(Type::NodeLinked, Reason::NodeFound, format!("Node {}", node.name)));
    }
    if let (Some(_), NodesRead::Read(_)) = (asked_prefixes(situation.infrastructure), situation.nodes)
        && situation.owner.is_some_and(is_found)
    {
        updates.push(condition_true(Type::LabelsSynced, Reason::LabelsCurrent, ""));
    }
    // A running host whose Node is not found yet is ready.
    let is_running = machine.spec.provider_id.is_some()
        && blocker.is_some_and(|blocker| {
            matches!(blocker.condition, Type::NodeLinked | Type::LabelsSynced)
                && blocker.severity == Severity::Waiting
        });
    let mut ready = match blocker.filter(|_| !is_running) {
        Some(blocker) => blocker.problem.condition_false(Type::Ready),
        None if machine.spec.provider_id.is_some() => condition_true(Type::Ready, Reason::Running, ""),
        None => condition_false(Type::Ready, Reason::HostNotProvisioned, "the host is provisioned next"),
    };
    if let Some(blocker) = blocker.filter(|blocker| blocker.condition != Type::Ready) {
        updates.retain(|update| update.kind != blocker.condition);
        updates.push(blocker.problem.condition_false(blocker.condition));
    }
    let is_associated = updates.iter().any(|update| update.kind == Type::AssociateBareMetalHost);
    if !is_associated && machine.spec.provider_id.is_none() && machine.metadata.deletion_timestamp.is_none() {
        updates.push(ConditionUpdate { kind: Type::AssociateBareMetalHost, ..ready.clone() });
    }
    updates.extend(repeat_older(&updates));
    if let Some(failure) = failure {
        ready = failure;
    }
    updates.push(ready);
    updates
}

/// The conditions about the data for the host.
fn project_data(situation: &Situation<'_>) -> Vec<ConditionUpdate> {
    let machine = situation.machine;
    let spec = &machine.spec;
    let is_asked_for =
        spec.data_template.is_some() && (spec.meta_data.is_none() || spec.network_data.is_none());
    let is_rendered = situation.data.and_then(|data| data.status.as_ref()).is_some_and(|status| status.ready);
    let reason = match (is_asked_for, is_rendered) {
        (true, true) => Reason::Metal3DataSecretsReady,
        (false, _) if machine.spec.provider_id.is_some() => Reason::SecretsSetExternally,
        _ => return vec![],
    };
    vec![
        condition_true(
            Type::AssociateMetal3MachineMetaData,
            Reason::AssociateMetal3MachineMetaDataSuccess,
            "",
        ),
        condition_true(Type::Metal3DataReady, reason, ""),
    ]
}

/// The same conditions by their names in CAPM3 before v1.13.
fn repeat_older(updates: &[ConditionUpdate]) -> Vec<ConditionUpdate> {
    let older = updates.iter().filter_map(|update| {
        let kind = match update.kind {
            Type::AssociateBareMetalHost => Type::AssociateBMH,
            Type::NodeLinked => Type::KubernetesNodeReady,
            _ => return None,
        };
        Some(ConditionUpdate { kind, ..update.clone() })
    });
    older.collect()
}
