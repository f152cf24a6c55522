//! The statement of a host that attaches. It is parsed before anything is
//! derived from it: a plan that cannot be read must not pass for none.

use coordinator_api::conditions::join_text;
use coordinator_api::inventory::{CarriedNode, CarriedPlan, CarriedStatus, LostJournal, PlanState};
use proto::plan::{Checksum, Generation, Kind, PlanError, PlanId};
use proto::v1alpha1::{self as wire, InstallDone, PlanOutcome, SystemState};

use crate::plan::plan_type;
use crate::text::truncate_text;

/// Longest boot id, bytes.
const BOOT_ID_BYTES: usize = 64;

/// True for a possible boot id: a UUID from a kernel, one word in any case.
pub fn is_boot_id(text: &str) -> bool {
    (1..=BOOT_ID_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The first message of a stream, parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct HostStatement {
    pub system: SystemState,
    pub agent_version: String,
    pub carried: CarriedStatus,
    pub installed: Option<InstallDone>,
    /// Checksum of the settings by which it attached; empty where its agent is older.
    pub settings: String,
    /// The statement of its agent about updates; `None` where it takes none.
    pub agent_update: Option<StatedUpdate>,
}

/// How far a host is with another agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatedUpdate {
    /// The agent that it gave up.
    pub failed: Option<FailedUpdate>,
    /// The agent that attached was not kept yet.
    pub is_on_trial: bool,
}

/// An agent that a host gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedUpdate {
    pub version: String,
    /// Cause and next action.
    pub message: String,
}

impl StatedUpdate {
    pub fn parse(state: wire::AgentUpdateState) -> Self {
        let wire::AgentUpdateState { failed_version, failure, on_trial } = state;
        let failure = failure.unwrap_or_default();
        let message = truncate_text(&join_text(&failure.message, &failure.next_action));
        let failed = FailedUpdate { version: truncate_text(&failed_version), message };
        Self { failed: (!failed_version.is_empty()).then_some(failed), is_on_trial: on_trial }
    }
}

/// Why a Hello states nothing that can be relied on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    #[error("Hello has no boot id of 1 to {BOOT_ID_BYTES} bytes")]
    BootId,
    #[error("Hello does not state what the host carries")]
    NoStatement,
    #[error("Hello states a plan that cannot be read: {0}")]
    Plan(#[from] PlanError),
    #[error("Hello states a plan of generation {0}, which no coordinator numbers so")]
    Generation(u64),
}

impl HostStatement {
    pub fn parse(hello: wire::Hello) -> Result<Self, StatementError> {
        let wire::Hello { system, agent_version, carried, facts: _, network: _, settings, agent_update } =
            hello;
        let system = system.filter(|system| is_boot_id(&system.boot_id)).ok_or(StatementError::BootId)?;
        let wire::Carried { plan, node, installed, load_balancer_generation, lost_journal } =
            carried.ok_or(StatementError::NoStatement)?;
        let carried = CarriedStatus {
            plan: plan.as_ref().map(parse_plan).transpose()?,
            node: node.map(|node| CarriedNode {
                provider_id: truncate_text(&node.provider_id),
                uuid: truncate_text(&node.uuid),
                owner: truncate_text(&node.owner),
            }),
            load_balancer_generation: parse_duty(load_balancer_generation),
            lost_journal: lost_journal.map(|lost| LostJournal {
                message: truncate_text(&lost.message),
                checksum: truncate_text(&lost.checksum),
            }),
        };
        let (settings, agent_update) = (truncate_text(&settings), agent_update.map(StatedUpdate::parse));
        Ok(Self { system, agent_version, carried, installed, settings, agent_update })
    }
}

/// A number that no coordinator gives is none: the next duty has to be higher.
fn parse_duty(generation: u64) -> i64 {
    Generation::parse(generation).map_or(0, Generation::to_status)
}

/// An outcome that is not known here counts as a plan in flight: the host is
/// not taken for empty.
fn parse_plan(plan: &wire::CarriedPlan) -> Result<CarriedPlan, StatementError> {
    let state = match plan.outcome() {
        PlanOutcome::Applied => Some(PlanState::Applied),
        PlanOutcome::Failed => Some(PlanState::Failed),
        PlanOutcome::InProgress | PlanOutcome::Unspecified => None,
    };
    let generation = Generation::parse(plan.generation).ok_or(StatementError::Generation(plan.generation))?;
    Ok(CarriedPlan {
        id: PlanId::parse(&plan.id)?.to_string(),
        generation: generation.to_status(),
        checksum: Checksum::parse(&plan.checksum)?.to_string(),
        kind: plan_type(Kind::from_wire(plan.kind).ok_or(PlanError::Kind(plan.kind))?),
        state,
    })
}
