//! The record of the newest plan, across crashes, reboots and a change of the OS: one small file,
//! replaced as a whole at every transition.
//!
//! The plan itself is not stored, because it holds secrets; the coordinator streams it again at
//! each attach. The file stays after the end of the plan, so that the host can refuse an older
//! generation.

use std::path::Path;

use proto::plan::{Checksum, Generation, Plan, PlanId};
use proto::v1alpha1::{CarriedPlan, PlanKind, PlanOutcome, StepReport};
use serde::{Deserialize, Serialize};

pub use proto::v1alpha1::step_report::Outcome;

use crate::ground::durable;
use crate::ground::failure::{Context as _, Failure};
use crate::ground::paths::StateDir;

/// The first word of the file. Another layout gets another word.
pub const LAYOUT: &str = "baremetal-journal-2";

/// The newest accepted plan and its progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
// An unknown field may hold an outcome that would never be reported.
#[serde(deny_unknown_fields)]
pub struct Journal {
    plan_id: String,
    generation: u64,
    checksum: String,
    kind: PlanKind,
    steps: Vec<Entry>,
    /// The outcome is kept after the coordinator has acknowledged it, because a coordinator
    /// restored from a backup waits for the end of a plan that has ended here.
    last: Option<LastOutcome>,
}

/// The outcome of the step that ended last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastOutcome {
    /// Counted from zero.
    pub step: u32,
    pub outcome: Outcome,
    /// The coordinator has received the outcome.
    pub acknowledged: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// [`proto::plan::Step::name`]; it distinguishes plans with the same name and other steps.
    pub name: String,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// The step has not begun.
    Pending,
    /// Any part of the step may have happened.
    Started {
        /// The boot that started the step last.
        boot_id: String,
        /// Number of starts.
        attempts: u32,
        /// The snapshot that was to boot next when this boot first started the step; known for an
        /// upgrade only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        active_snapshot: Option<u32>,
    },
    /// The step has taken effect.
    Done {
        /// The boot that started the step last.
        boot_id: String,
    },
    /// The step failed, and the plan with it.
    Failed,
}

impl LastOutcome {
    pub fn report(&self, journal: &Journal) -> StepReport {
        StepReport {
            plan_id: journal.plan_id.clone(),
            generation: journal.generation,
            step: self.step,
            outcome: Some(self.outcome.clone()),
        }
    }
}

impl Journal {
    /// The journal of a plan that has not begun.
    pub fn begin_plan(plan: &Plan) -> Self {
        let names = plan.steps.iter().map(|step| step.name().to_owned());
        Self {
            plan_id: plan.id.to_string(),
            generation: plan.generation.0,
            checksum: plan.checksum.to_string(),
            kind: plan.kind.into(),
            steps: names.map(|name| Entry { name, state: State::Pending }).collect(),
            last: None,
        }
    }

    pub fn plan_id(&self) -> &str {
        &self.plan_id
    }

    pub fn generation(&self) -> Generation {
        Generation(self.generation)
    }

    pub fn kind(&self) -> PlanKind {
        self.kind
    }

    pub fn outcome(&self) -> PlanOutcome {
        if self.steps.iter().any(|entry| entry.state == State::Failed) {
            PlanOutcome::Failed
        } else if self.steps.iter().all(|entry| matches!(entry.state, State::Done { .. })) {
            PlanOutcome::Applied
        } else {
            PlanOutcome::InProgress
        }
    }

    /// True if early boot starts no node: the plan that makes the node has failed, or the node is
    /// being cleaned.
    pub fn holds_node(&self) -> bool {
        match self.kind() {
            PlanKind::Reprovision => self.outcome() == PlanOutcome::Failed,
            PlanKind::Clean => self.outcome() != PlanOutcome::Applied,
            _ => false,
        }
    }

    /// The plan as Hello states it.
    pub fn carried(&self) -> CarriedPlan {
        CarriedPlan {
            id: self.plan_id.clone(),
            generation: self.generation,
            checksum: self.checksum.clone(),
            kind: self.kind.into(),
            outcome: self.outcome().into(),
        }
    }

    /// Every step, in the plan's order.
    pub fn steps(&self) -> &[Entry] {
        &self.steps
    }

    /// True if this is the journal of `plan`, step by step.
    pub fn is_of(&self, plan: &Plan) -> bool {
        self.plan_id == plan.id.as_str()
            && self.generation == plan.generation.0
            && self.checksum == plan.checksum.as_str()
            && self.steps.len() == plan.steps.len()
            && self.steps.iter().zip(&plan.steps).all(|(entry, step)| entry.name == step.name())
    }

    /// The outcome that the coordinator has not acknowledged.
    pub fn unreported(&self) -> Option<&LastOutcome> {
        self.last.as_ref().filter(|last| !last.acknowledged)
    }

    /// Records a start of the step.
    pub fn with_started(mut self, index: usize, boot_id: &str) -> Self {
        if let Some(entry) = self.steps.get_mut(index) {
            let (attempts, active_snapshot) = match &entry.state {
                State::Started { attempts, boot_id: earlier, active_snapshot } => {
                    (attempts.saturating_add(1), active_snapshot.filter(|_| earlier == boot_id))
                }
                State::Pending | State::Done { .. } | State::Failed => (1, None),
            };
            entry.state = State::Started { boot_id: boot_id.to_owned(), attempts, active_snapshot };
        }
        self
    }

    /// Records the snapshot that is to boot next, unless this boot has recorded one before.
    pub fn with_active_snapshot(mut self, index: usize, number: Option<u32>) -> Self {
        if let Some(Entry { state: State::Started { active_snapshot, .. }, .. }) = self.steps.get_mut(index) {
            *active_snapshot = active_snapshot.or(number);
        }
        self
    }

    /// Records the end of the step.
    pub fn with_ended(mut self, index: usize, outcome: Outcome) -> Self {
        let Some(entry) = self.steps.get_mut(index) else {
            return self;
        };
        entry.state = match (&outcome, &entry.state) {
            (Outcome::Failed(_), _) => State::Failed,
            (Outcome::Done(_), State::Started { boot_id, .. } | State::Done { boot_id }) => {
                State::Done { boot_id: boot_id.clone() }
            }
            (Outcome::Done(_), State::Pending | State::Failed) => State::Done { boot_id: String::new() },
        };
        self.last = u32::try_from(index).ok().map(|step| LastOutcome { step, outcome, acknowledged: false });
        self
    }

    /// Records that the coordinator has the last outcome.
    pub fn with_acknowledged(self) -> Self {
        self.with_last_acknowledged(true)
    }

    /// Has the last outcome reported again, because the coordinator has lost it.
    pub fn with_unacknowledged(self) -> Self {
        self.with_last_acknowledged(false)
    }

    fn with_last_acknowledged(mut self, acknowledged: bool) -> Self {
        self.last = self.last.map(|last| LastOutcome { acknowledged, ..last });
        self
    }
}

/// The bytes of the file: layout and SHA-256 of the body in the first line, then the body.
fn render_json(journal: &Journal) -> Vec<u8> {
    let body = format!("{:#}", serde_json::json!(journal));
    format!("{LAYOUT} {}\n{body}\n", Checksum::of(body.as_bytes())).into_bytes()
}

fn damaged(how: &str) -> Failure {
    Failure::input_output(format!("the journal is damaged ({how})"), "")
}

/// Parses the file that [`write_journal`] writes.
pub fn parse(bytes: &[u8]) -> Result<Journal, Failure> {
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("not text"))?;
    let (head, rest) = text.split_once('\n').ok_or_else(|| damaged("cut off"))?;
    let body = rest.strip_suffix('\n').ok_or_else(|| damaged("cut off"))?;
    let (layout, sum) = head.split_once(' ').ok_or_else(|| damaged("no header"))?;
    if layout != LAYOUT {
        return Err(damaged("written by another version of the agent"));
    }
    if sum != Checksum::of(body.as_bytes()).as_str() {
        return Err(damaged("its checksum does not match"));
    }
    let journal: Journal = serde_json::from_str(body).map_err(|_| damaged("unknown content"))?;
    PlanId::parse(&journal.plan_id).map_err(|_| damaged("unknown content"))?;
    Ok(journal)
}

/// The journal at `path`; `None` on a host that never had a plan.
pub fn read(path: &Path) -> Result<Option<Journal>, Failure> {
    durable::read(path).context("cannot read the journal")?.map(|bytes| parse(&bytes)).transpose()
}

/// Replaces the journal durably, on a full partition in the place of the ballast.
///
/// A file of its own says that no node may start, so that early boot starts none if the journal is
/// damaged later. It is there before such a journal, and goes after it.
pub fn write_journal(state: &StateDir, journal: &Journal) -> Result<(), Failure> {
    let (mark, holds) = (state.node_hold(), journal.holds_node());
    if holds && !mark.exists() {
        keep_mark(durable::write(&mark, b""));
    }
    durable::write_with_ballast(&state.journal(), &render_json(journal), &state.ballast())
        .context("cannot write the journal")?;
    if !holds && mark.exists() {
        keep_mark(durable::remove(&mark));
    }
    Ok(())
}

/// The journal counts more than its mark.
fn keep_mark(kept: Result<(), Failure>) {
    if let Err(error) = kept {
        tracing::warn!(%error, "cannot keep the mark that no node may start");
    }
}

#[cfg(test)]
mod tests;
