//! From a claim to a running node, with the inputs of the plan that makes it and its providerID.

use std::collections::BTreeMap;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::{AllocationState, PlanState, PlanType};
use coordinator_api::machine::Phase;
use coordinator_api::names::{annotation, kind};
use proto::plan::{Checksum, PlanId, RegistryAccess, Secret};

use super::link;
use super::{
    Assignment, Effect, Host, Outcome, SecretRead, SecretRef, Situation, State, Wake, assign_plan,
    foreign_node, host_network,
};
use crate::bootstrap::{self, NodeNames, render_expressions, stated_provider_id};
use crate::cloud_init::{MetaData, meta_data_values, parse_meta_data};
use crate::demand::{BootstrapEdit, Demand, NodeDemand};
use crate::host::{AnnouncedPlan, HostRecord};
use crate::network::{self, HostNetwork};
use crate::plan::{Names, PlanInputs, Reprovision, StoredPlan};
use crate::problem::{Blocker, Problem};
use crate::provider_id::ProviderId;
use crate::registry_access::read_access;

/// For bootstrap data that names no socket: kubeadm's own default.
const CRI_SOCKET: &str = "unix:///var/run/containerd/containerd.sock";

/// The host states its node when it attaches.
fn await_host_statement() -> Problem {
    Problem::of_cause(Reason::HostStatementMissing, "waiting for the host to attach and report its node")
}

/// The machine holds `host`.
pub(super) fn provision_host(situation: &Situation<'_>, node: &NodeDemand, host: Host<'_>) -> Outcome {
    if let Some(owner) = foreign_node(situation, host.record) {
        return hold_foreign_node(situation, host.record, &owner);
    }
    if let Some(provider_id) = &situation.demand.provider_id {
        return run_host(situation, node, host.record, provider_id);
    }
    match host.record.claimed_plan() {
        Some(plan) => follow_plan(situation, node, host.record, plan),
        // It was announced for a node that runs.
        None if host.record.ran_custom_plan_in_claim() => name_node(node, host.record),
        None => begin_plan(situation, node, host),
    }
}

/// The claim is older than the node.
fn hold_foreign_node(situation: &Situation<'_>, host: &HostRecord, owner: &str) -> Outcome {
    let problem = Problem::new(
        Reason::HostCarriesNode,
        format!(
            "the host runs the node of {owner}, which claimed it after the backup of this object was taken"
        ),
        format!("restore {owner}, then delete the Machine of this object (the host is not touched)"),
    );
    let blocker = Blocker::needs_operator(Type::InventoryAllocated, problem);
    let is_provided = situation.demand.provider_id.is_some();
    let phase = if is_provided { Phase::Running } else { Phase::Allocated };
    Outcome::from_blocker(State::new(phase, Some(host)), blocker)
}

/// The plan of the node is not the newest one any more: the host's own statement
/// says whether it carries the node.
fn name_node(node: &NodeDemand, host: &HostRecord) -> Outcome {
    let provider_id = provider_id(node, host);
    if host.carries_node_of(&provider_id) {
        return Outcome::from_effect(Effect::SetProviderId(provider_id));
    }
    let problem = Problem::new(
        Reason::HostCarriesNoNode,
        "an operator's plan ran on this host, and the host does not report the node of this machine",
        "delete the Machine to have another one created",
    );
    let blocker = Blocker::needs_operator(Type::PlanApplied, problem);
    Outcome::from_blocker(State::new(Phase::Reprovisioning, Some(host)), blocker)
}

/// A machine with a providerID never gets a second reprovision.
fn run_host(
    situation: &Situation<'_>,
    node: &NodeDemand,
    host: &HostRecord,
    provider_id: &ProviderId,
) -> Outcome {
    let state = State::new(Phase::Running, Some(host)).with_allocation(AllocationState::Allocated);
    let state = State { has_inputs: true, is_applied: true, ..state };
    let blocker = match (host.find_problem(situation.now), &host.carried) {
        (Some(problem), _) => Some(Blocker::waiting_for(Type::Ready, problem)),
        (None, None) => Some(Blocker::waiting_for(Type::Ready, await_host_statement())),
        (None, Some(_)) if host.carries_node_of(provider_id) => None,
        (None, Some(_)) => {
            let problem = Problem::new(
                Reason::HostCarriesNoNode,
                "the host reports that it does not run the node of this machine",
                "delete the Machine to have another one created",
            );
            Some(Blocker::needs_operator(Type::Ready, problem))
        }
    };
    let wake = grace_wake(situation, host);
    match blocker {
        Some(blocker) => Outcome::from_blocker(state, blocker).with_wake(wake),
        None => link::link_node(situation, node, host, state).or_wake(wake),
    }
}

fn follow_plan(
    situation: &Situation<'_>,
    node: &NodeDemand,
    host: &HostRecord,
    plan: &AnnouncedPlan,
) -> Outcome {
    let wait = |state, reason| {
        let problem = in_flight(situation, host, plan, reason);
        let blocker = Blocker::waiting_for(Type::PlanApplied, problem);
        Outcome::from_blocker(state, blocker).with_wake(grace_wake(situation, host))
    };
    let reprovisioning = State::new(Phase::Reprovisioning, Some(host));
    match (plan.kind, plan.state) {
        // The view of the machine is behind: it is in deletion.
        (PlanType::Clean, _) => wait(State::new(Phase::Preparing, Some(host)), Reason::Cleaning),
        (_, None) => {
            wait(reprovisioning.with_allocation(AllocationState::Reprovisioning), Reason::PlanRunning)
        }
        (_, Some(PlanState::Failed)) => Outcome::from_blocker(
            reprovisioning.with_allocation(AllocationState::Unavailable),
            plan_failed(plan),
        ),
        (_, Some(PlanState::Applied)) => Outcome::from_effect(Effect::SetProviderId(provider_id(node, host))),
    }
}

/// The problem that is shown while the plan is in flight.
pub(super) fn in_flight(
    situation: &Situation<'_>,
    host: &HostRecord,
    plan: &AnnouncedPlan,
    reason: Reason,
) -> Problem {
    match host.find_problem(situation.now) {
        Some(problem) => {
            let message = format!("plan {} is blocked: {}", plan.id, problem.message);
            Problem { message, ..problem }
        }
        None => executing(&plan.id, reason),
    }
}

/// The plan is assigned and has no result yet.
pub(super) fn executing(plan: &PlanId, reason: Reason) -> Problem {
    Problem::of_cause(reason, format!("the host executes plan {plan}"))
}

/// A failed plan stays failed.
pub(super) fn plan_failed(plan: &AnnouncedPlan) -> Blocker {
    let problem = plan.failure().then_do("delete the Machine");
    Blocker::failed_with(Type::PlanApplied, problem)
}

/// The Machine is in deletion already.
pub(super) fn clean_failed(plan: &AnnouncedPlan) -> Blocker {
    let retry = format!(
        "set the annotation {} on this object to have the host cleaned again",
        annotation::RETRY_PLAN
    );
    Blocker::failed_with(Type::PlanApplied, plan.failure().then_do(&retry))
}

/// Decide again when the host becomes unreachable.
pub(super) fn grace_wake(situation: &Situation<'_>, host: &HostRecord) -> Wake {
    host.grace_ends(situation.now).map_or(Wake::OnChange, Wake::At)
}

/// Claimed, no plan yet.
fn begin_plan(situation: &Situation<'_>, node: &NodeDemand, host: Host<'_>) -> Outcome {
    let state = State::new(Phase::Allocated, Some(host.record));
    match gather_inputs(situation, node, host) {
        Err(Next::Read(secret)) => Outcome::from_effect(Effect::ReadSecret(secret)),
        Err(Next::Blocked(blocker, wake)) => Outcome::from_blocker(state, blocker).with_wake(wake),
        Ok(inputs) => match assign_reprovision(node, host, &inputs) {
            Ok(assignment) => assigned_outcome(host.record, assignment),
            Err(blocker) => Outcome::from_blocker(state, blocker).with_wake(Wake::Backoff),
        },
    }
}

/// Shown with the effect, as the next reconcile would show it: an assignment
/// costs no further write.
fn assigned_outcome(host: &HostRecord, assignment: Assignment) -> Outcome {
    let plan = &assignment.plan;
    let blocker = Blocker::waiting_for(Type::PlanApplied, executing(&plan.id, Reason::PlanRunning));
    let state = State {
        has_inputs: true,
        plan_checksum: Some(plan.checksum.to_string()),
        bootstrap_hash: assignment.bootstrap_hash.as_ref().map(ToString::to_string),
        not_kept: assignment.not_kept.clone(),
        ..State::new(Phase::Reprovisioning, Some(host))
    };
    Outcome::from_blocker(state, blocker).with_effect(Some(Effect::Assign(assignment)))
}

enum Next {
    Read(SecretRef),
    Blocked(Blocker, Wake),
}

struct Inputs<'a> {
    data: &'a Secret,
    meta_data: Option<&'a Secret>,
    network_data: Option<&'a Secret>,
    registry: Option<Box<RegistryAccess>>,
    stored: &'a StoredPlan,
}

fn bootstrap_unnamed(demand: &Demand) -> Problem {
    let (message, next_action) = if demand.machine.kind == kind::BARE_METAL_HOST {
        ("spec.userData names no Secret", "name the Secret with the user data of the host")
    } else {
        ("the Machine has no spec.bootstrap.dataSecretName yet", "wait for its bootstrap provider, or set it")
    };
    Problem::new(Reason::BootstrapWaiting, message, next_action)
}

/// The Secrets, once all inputs of the plan are there.
fn gather_inputs<'a>(
    situation: &Situation<'a>,
    node: &NodeDemand,
    host: Host<'_>,
) -> Result<Inputs<'a>, Next> {
    if host.record.carried.is_none() {
        let blocker = Blocker::waiting_for(Type::PlanApplied, await_host_statement());
        return Err(Next::Blocked(blocker, Wake::OnChange));
    }
    let Some(name) = &node.bootstrap_secret else {
        let blocker = Blocker::waiting_for(Type::BootstrapReady, bootstrap_unnamed(situation.demand));
        return Err(Next::Blocked(blocker, Wake::OnChange));
    };
    if let Err(blocker) = &node.image {
        return Err(Next::Blocked(blocker.clone(), Wake::OnChange));
    }
    let secrets = situation.secrets;
    let data = find_secret(&secrets.bootstrap, name, "bootstrap data", SecretRef::Bootstrap)?;
    let optional = |name: &Option<String>, read: &'a SecretRead, what, reference: fn(String) -> SecretRef| {
        name.as_ref().map(|name| find_secret(read, name, what, reference)).transpose()
    };
    let meta_data = optional(&node.meta_data_secret, &secrets.meta_data, "meta-data", SecretRef::MetaData)?;
    let network_data =
        optional(&node.network_data_secret, &secrets.network_data, "network data", SecretRef::NetworkData)?;
    let registry = read_registry(situation, node)?;
    let stored = secrets.plan.as_ref().ok_or(Next::Read(SecretRef::Plan))?;
    Ok(Inputs { data, meta_data, network_data, registry, stored })
}

/// Nothing announces a change of that Secret.
fn read_registry(situation: &Situation<'_>, node: &NodeDemand) -> Result<Option<Box<RegistryAccess>>, Next> {
    let (Some(name), Ok(image)) = (&node.registry_secret, &node.image) else { return Ok(None) };
    let (fault, action) = match &situation.secrets.registry {
        SecretRead::NotRead => return Err(Next::Read(SecretRef::Registry(name.clone()))),
        SecretRead::Missing => ("does not exist in this namespace".to_owned(), "create it"),
        SecretRead::Read(secret) => match read_access(secret, image.as_str()) {
            Ok(access) => return Ok(Some(Box::new(access))),
            Err(error) => (error.to_string(), "correct it"),
        },
    };
    let message = format!(
        "Secret {name}, which the annotation {} of the machine or its Cluster names, {fault}",
        annotation::REGISTRY_SECRET
    );
    let problem = Problem::new(Reason::RegistrySecretInvalid, message, action);
    Err(Next::Blocked(Blocker::needs_operator(Type::ImageResolved, problem), Wake::Backoff))
}

fn find_secret<'a>(
    read: &'a SecretRead,
    name: &str,
    what: &str,
    reference: fn(String) -> SecretRef,
) -> Result<&'a Secret, Next> {
    match read {
        SecretRead::NotRead => Err(Next::Read(reference(name.to_owned()))),
        SecretRead::Missing => {
            let message = format!("Secret {name} with the {what} is missing or has no key value");
            let problem = Problem::new(Reason::BootstrapWaiting, message, "create it");
            Err(Next::Blocked(Blocker::waiting_for(Type::BootstrapReady, problem), Wake::Backoff))
        }
        SecretRead::Read(data) => Ok(data),
    }
}

fn assign_reprovision(node: &NodeDemand, host: Host<'_>, inputs: &Inputs<'_>) -> Result<Assignment, Blocker> {
    let image = node.image.clone()?;
    let Some(names) = &node.names else {
        return Err(refuse_bootstrap("the node has no name".to_owned()));
    };
    let user_data = edit_bootstrap(node.bootstrap_edit, inputs.data, names).map_err(refuse_bootstrap)?;
    let network = match inputs.network_data {
        Some(data) => given_network(data, host)?,
        None => host_network(host.spec)?,
    };
    let mut meta_data = match inputs.meta_data {
        Some(data) => read_meta_data(data)?,
        None => BTreeMap::new(),
    };
    let mut names = names.clone();
    if let Some(stated) = stated_id(node, inputs.data, &names, &meta_data)? {
        // Templates find the newer form under its key, whichever the kubelet has.
        let newer = ProviderId::without_scheme(&names.provider_id).to_owned();
        meta_data.entry("providerid".to_owned()).or_insert(newer);
        names.provider_id = stated;
    }
    let registry = inputs.registry.clone();
    let resolved = (node.bootstrap_edit != BootstrapEdit::Unchanged).then(|| user_data.clone());
    let plan = Reprovision { image, registry, user_data, network, names, meta_data };
    let assignment = assign_plan(host.record, &PlanInputs::Reprovision(plan), inputs.stored)?;
    let bootstrap_hash = Some(Checksum::of(inputs.data.expose()));
    let text = bootstrap::read_user_data(inputs.data.expose()).unwrap_or_default();
    let not_kept = bootstrap::list_lost(&text, &host.record.kept_paths);
    Ok(Assignment { resolved, bootstrap_hash, not_kept, ..assignment })
}

fn refuse_bootstrap(message: String) -> Blocker {
    Blocker::failed_with(Type::BootstrapReady, Problem::of_cause(Reason::BootstrapInvalid, message))
}

fn read_meta_data(data: &Secret) -> Result<BTreeMap<String, String>, Blocker> {
    let text = std::str::from_utf8(data.expose()).ok();
    text.and_then(parse_meta_data).ok_or_else(|| {
        let message = "the meta-data is not a map of texts in YAML or JSON";
        let problem = Problem::new(Reason::BootstrapInvalid, message, "correct the Secret");
        Blocker::failed_with(Type::BootstrapReady, problem)
    })
}

/// The network of a Secret, instead of the host's own.
fn given_network(data: &Secret, host: Host<'_>) -> Result<HostNetwork, Blocker> {
    let text = String::from_utf8_lossy(data.expose());
    network::network_data(&text, host.spec.observed_network.as_ref())
        .map_err(|error| Blocker::failed_with(Type::BootstrapReady, error.problem()))
}

fn edit_bootstrap(edit: BootstrapEdit, data: &Secret, names: &Names) -> Result<Secret, String> {
    if edit == BootstrapEdit::Unchanged {
        return match bootstrap::read_user_data(data.expose()) {
            Ok(_) => Ok(data.clone()),
            Err(error) => Err(error.to_string()),
        };
    }
    let text = std::str::from_utf8(data.expose())
        .map_err(|_| "the bootstrap data is not UTF-8: only cloud-config is supported".to_owned())?;
    let node =
        NodeNames { hostname: &names.hostname, provider_id: &names.provider_id, cri_socket: CRI_SOCKET };
    let edited = bootstrap::normalise_data(text, &node).map_err(|error| error.to_string())?;
    Ok(Secret::new(edited.into_bytes()))
}

/// The providerID of the kubelet: the one that the host carries if the bootstrap data had a say in it.
fn provider_id(node: &NodeDemand, host: &HostRecord) -> ProviderId {
    let carried = host.carried_node().map(|node| &node.provider_id);
    let stated = carried.filter(|id| node.other_ids.contains(id)).and_then(|id| ProviderId::parse(id));
    if let Some(stated) = stated {
        return stated;
    }
    let named = node.names.as_ref().and_then(|names| ProviderId::parse(&names.provider_id));
    named.unwrap_or_else(|| ProviderId::of_host(&host.name))
}

/// The providerID that bootstrap data gives the kubelet instead of the one that the
/// host would. The kubelet takes one alone, so that both have to be the same.
fn stated_id(
    node: &NodeDemand,
    data: &Secret,
    names: &Names,
    meta_data: &BTreeMap<String, String>,
) -> Result<Option<String>, Blocker> {
    if node.bootstrap_edit != BootstrapEdit::Unchanged {
        return Ok(None);
    }
    let text = bootstrap::read_user_data(data.expose()).ok();
    let Some(stated) = text.and_then(|text| stated_provider_id(&text)) else { return Ok(None) };
    let values = meta_data_values(&MetaData {
        hostname: names.hostname.clone(),
        uuid: names.uuid.clone(),
        provider_id: names.provider_id.clone(),
        machine: names.machine.clone(),
        namespace: names.namespace.clone(),
        replaced: meta_data.clone(),
        ..MetaData::default()
    });
    let rendered = render_expressions(&stated, &values);
    if let Some(id) = rendered.filter(|id| *id == names.provider_id || node.other_ids.contains(id)) {
        return Ok((id != names.provider_id).then_some(id));
    }
    let problem = Problem::new(
        Reason::NodeProviderIDUnsupported,
        format!(
            "the bootstrap data gives the kubelet the provider-id {stated}, which is not {} or {} here",
            names.provider_id,
            node.other_ids.join(" or ")
        ),
        "write metal3://{{ ds.meta_data.providerid }} or metal3://{{ ds.meta_data.uuid }}, or leave it out",
    );
    Err(Blocker::failed_with(Type::BootstrapReady, problem))
}
