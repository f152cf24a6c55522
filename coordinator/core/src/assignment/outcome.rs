//! The result of a decision: one effect, the state that is shown, and when to
//! decide again.

use coordinator_api::conditions::{ConditionUpdate, Reason, Type, condition_false, condition_true};
use coordinator_api::inventory::{AllocationState, Claim};
use coordinator_api::machine::Phase;
use coordinator_api::names::kind;
use jiff::Timestamp;
use proto::plan::{Checksum, Plan, Secret};

use crate::demand::Demand;
use crate::host::HostRecord;
use crate::ids::{HostName, Uid};
use crate::node_link::NodeSearch;
use crate::problem::{Blocker, Problem, Severity};
use crate::provider_id::ProviderId;

#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub effect: Option<Effect>,
    /// `None` where the effect changes an object and the next reconcile shows
    /// more.
    pub state: Option<State>,
    pub wake: Wake,
}

/// The one change that is due.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Read a Secret and decide again.
    ReadSecret(SecretRef),
    /// Ask the workload cluster for Nodes and decide again.
    FindNodes(NodeSearch),
    /// Write `spec.providerID` of a Node that has none.
    LinkNode {
        node: NodeRef,
        provider_id: String,
    },
    /// Delete the Node of a machine whose host was cleaned.
    RemoveNode(NodeRef),
    /// Record on the machine which host it will claim, with the machine's
    /// resourceVersion as precondition.
    Choose {
        host: HostName,
    },
    /// Write the owner annotations: one compare-and-swap.
    Claim {
        claim: Claim,
        /// Recorded with the claim, so that later machines of the group prefer the host.
        reuse_group: Option<String>,
    },
    /// Names agree and the UID does not: update it.
    Adopt {
        uid: Uid,
    },
    /// Add the finalizer to the inventory that the machine holds.
    ProtectHost,
    /// Add the finalizer to the machine that holds a host.
    ProtectMachine,
    /// Write the plan record, then announce it.
    Assign(Assignment),
    /// The clean that an operator asked for is announced: remove the request.
    ForgetRetry,
    /// Give Cluster API the providerID.
    SetProviderId(ProviderId),
    /// Give the host back to its pool.
    Release,
    /// Remove the machine without a clean; the host keeps its owner and is
    /// cleaned when it attaches. Its Node is deleted where Cluster API leaves it.
    Abandon {
        node: Option<NodeRef>,
    },
    RemoveFinalizer,
}

impl Effect {
    /// Tells whether the machine is read again before the effect, because the view of the machine may be older
    /// than that of its host. The image and the consumer of a `BareMetalHost` come and go. Another machine
    /// wants a node until its deletion, which is final for its UID: such a machine can only claim, or adopt,
    /// in the name of one that is gone, and only a host that was claimed before.
    pub fn needs_fresh_demand(&self, demand: &Demand, host: Option<&HostRecord>) -> bool {
        let is_changeable = demand.machine.kind == kind::BARE_METAL_HOST;
        match self {
            Self::Claim { .. } => is_changeable || host.is_none_or(|host| host.was_claimed),
            Self::Adopt { .. } => true,
            Self::Assign(_) | Self::Release | Self::Abandon { .. } => is_changeable,
            _ => false,
        }
    }
}

/// A plan that is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    pub plan: Box<Plan>,
    /// The record to write. `None` if the Secret holds the record of this plan already, so that only
    /// the announcement is missing.
    pub bytes: Option<Secret>,
    /// The reason that another record is replaced, for an Event.
    pub lost: Option<Problem>,
    /// The bootstrap data as the plan has it, where it was edited.
    pub resolved: Option<Secret>,
    /// SHA-256 of the bootstrap data before it was edited.
    pub bootstrap_hash: Option<Checksum>,
    /// Parts of the bootstrap data that a reboot takes away.
    pub not_kept: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRef {
    pub cluster: String,
    pub name: String,
    pub uid: Option<String>,
}

/// Which Secret is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretRef {
    /// By name; key `value`, of other kinds than `BaremetalMachine` also `userData`.
    Bootstrap(String),
    /// By name: for the registry of the image.
    Registry(String),
    /// By name; key `metaData` or `value`.
    MetaData(String),
    /// By name; key `networkData` or `value`.
    NetworkData(String),
    Plan,
}

/// When to decide again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// When an object that was looked at changes.
    OnChange,
    At(Timestamp),
    /// With growing intervals: nothing announces the cause's end.
    Backoff,
}

/// The state of a machine that is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// `None` where it stays as it is.
    pub phase: Option<Phase>,
    /// Name of the claimed host.
    pub host: Option<HostName>,
    /// Bootstrap data and image were usable.
    pub has_inputs: bool,
    /// The host proved the plan done.
    pub is_applied: bool,
    /// Checksum of the assigned plan.
    pub plan_checksum: Option<String>,
    /// SHA-256 of the bootstrap data that was assigned.
    pub bootstrap_hash: Option<String>,
    /// Parts of the bootstrap data that a reboot takes away.
    pub not_kept: Vec<String>,
    pub blocker: Option<Blocker>,
    /// Allocation state of the host; none if the effect writes it.
    pub allocation: Option<AllocationState>,
    /// The condition of its Node.
    pub node: Option<ConditionUpdate>,
    /// The connection of its host.
    pub reachable: Option<ConditionUpdate>,
}

impl Outcome {
    pub(super) fn from_effect(effect: Effect) -> Self {
        Self { effect: Some(effect), state: None, wake: Wake::OnChange }
    }

    pub(super) fn without_effect() -> Self {
        Self { effect: None, state: None, wake: Wake::OnChange }
    }

    pub(super) fn from_state(state: State) -> Self {
        Self { effect: None, state: Some(state), wake: Wake::OnChange }
    }

    pub(super) fn from_blocker(state: State, blocker: Blocker) -> Self {
        let phase = if blocker.severity == Severity::Failed { Some(Phase::Failed) } else { state.phase };
        Self::from_state(State { phase, blocker: Some(blocker), ..state })
    }

    pub(super) fn with_effect(self, effect: Option<Effect>) -> Self {
        Self { effect, ..self }
    }

    /// A wake at a time goes before one by events alone.
    pub(super) fn or_wake(self, wake: Wake) -> Self {
        if self.wake == Wake::OnChange { self.with_wake(wake) } else { self }
    }

    pub(super) fn with_wake(self, wake: Wake) -> Self {
        Self { wake, ..self }
    }
}

impl State {
    pub(super) fn new(phase: Phase, host: Option<&HostRecord>) -> Self {
        let plan = host.and_then(HostRecord::claimed_plan);
        Self {
            phase: Some(phase),
            host: host.map(|host| host.name.clone()),
            has_inputs: plan.is_some(),
            is_applied: plan
                .is_some_and(|plan| plan.state == Some(coordinator_api::inventory::PlanState::Applied)),
            plan_checksum: plan.map(|plan| plan.checksum.to_string()),
            bootstrap_hash: plan.and_then(|plan| plan.bootstrap_hash.clone()),
            not_kept: plan.map(|plan| plan.not_kept.clone()).unwrap_or_default(),
            ..Self::default()
        }
    }

    pub(super) fn with_allocation(self, allocation: AllocationState) -> Self {
        Self { allocation: Some(allocation), ..self }
    }

    /// State of a machine whose phase stays, with the host that it holds.
    pub fn of_host(host: Option<&HostRecord>, demand: &Demand) -> Self {
        Self::hold_host(host.filter(|host| super::is_claimed_by(host, demand)))
    }

    /// State of a machine for which nothing may be done: its phase stays.
    pub(super) fn hold_host(host: Option<&HostRecord>) -> Self {
        Self { phase: None, ..Self::new(Phase::Pending, host) }
    }
}

/// The conditions of a machine except `Paused`. The conditions before a blocker are true, its own is
/// false, and the later ones are not written.
pub fn project_conditions(state: &State) -> Vec<ConditionUpdate> {
    let mut updates = vec![];
    if let Some(host) = &state.host {
        let message = format!("MachineInventory {host}");
        updates.push(condition_true(Type::InventoryAllocated, Reason::Allocated, message));
    }
    if state.has_inputs {
        updates.push(condition_true(Type::BootstrapReady, Reason::Available, ""));
        updates.push(condition_true(Type::ImageResolved, Reason::Available, ""));
    }
    if !state.not_kept.is_empty() {
        updates.push(not_kept_condition(&state.not_kept));
    }
    if state.is_applied {
        updates.push(condition_true(Type::PlanApplied, Reason::PlanApplied, ""));
    }
    updates.extend(state.node.clone());
    updates.extend(state.reachable.clone());
    let Some(blocker) = &state.blocker else {
        updates.push(condition_true(Type::Ready, Reason::Running, ""));
        return updates;
    };
    if blocker.condition != Type::Ready {
        updates.retain(|update| update.kind != blocker.condition);
        updates.push(blocker.problem.condition_false(blocker.condition));
    }
    updates.push(ready_condition(state, blocker));
    updates
}

fn not_kept_condition(not_kept: &[String]) -> ConditionUpdate {
    let message = format!("gone after the next reboot of the host: {}", not_kept.join(", "));
    condition_false(Type::BootstrapFilesKept, Reason::BootstrapFilesNotKept, message).with_next_action(
        "add the paths to the persistent paths of the OS image, or put the files into the image",
    )
}

/// Cluster API mirrors `Ready`, and health checks delete the machine of a healthy node after it was
/// false for a while. The node of a host that does not answer may be healthy.
fn ready_condition(state: &State, blocker: &Blocker) -> ConditionUpdate {
    let is_silent = matches!(blocker.problem.reason, Reason::HostUnreachable | Reason::HostStatementMissing);
    if state.phase == Some(Phase::Running) && is_silent {
        return blocker.problem.condition_unknown(Type::Ready);
    }
    blocker.problem.condition_false(Type::Ready)
}

/// The condition of the connection of a host.
pub(super) fn reachable_condition(host: &HostRecord, now: Timestamp) -> ConditionUpdate {
    let problem = host.find_problem(now).filter(|problem| problem.reason == Reason::HostUnreachable);
    match problem {
        Some(problem) => problem.condition_false(Type::HostReachable),
        None => condition_true(Type::HostReachable, Reason::Available, ""),
    }
}

/// The effect of a decision was not accepted by the API server.
pub fn effect_failed(error: &str) -> ConditionUpdate {
    condition_false(Type::Ready, Reason::ApiRequestFailed, format!("{error}; it is retried"))
        .with_next_action("correct the cause or the coordinator's permissions")
}
