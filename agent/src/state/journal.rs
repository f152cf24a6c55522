//! Record of the newest plan, across crashes, reboots and a
//! change of the OS: one small file, replaced as a whole at every transition.
//!
//! The plan itself is not in it (it holds secrets); the coordinator streams it
//! again at each attach. The file stays when the plan is over: it is what lets
//! the host refuse an older generation.

use std::fs;
use std::io;
use std::path::Path;

use proto::plan::{Checksum, Generation, Plan, PlanId};
use proto::v1alpha1::{CarriedPlan, PlanKind, PlanOutcome, StepReport};
use serde::{Deserialize, Serialize};

pub use proto::v1alpha1::step_report::Outcome;

use crate::ground::durable::{self, DurableError};
use crate::ground::error::NextAction;

/// First word of the file: another layout gets another word.
const LAYOUT: &str = "baremetal-journal-2";

/// The newest accepted plan and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
// A field that is not known may be an outcome that would never be reported.
#[serde(deny_unknown_fields)]
pub struct Journal {
    plan_id: String,
    generation: u64,
    checksum: String,
    kind: PlanKind,
    steps: Vec<Entry>,
    /// Kept when the coordinator has it: one that lost its own record, as by a
    /// restored backup, waits for the end of a plan that is over here.
    last: Option<LastOutcome>,
}

/// The outcome of the step that ended last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastOutcome {
    /// Counted from zero.
    pub step: u32,
    /// As it is reported.
    pub outcome: Outcome,
    /// Whether the coordinator has it.
    pub acknowledged: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// [`proto::plan::Step::name`]: tells a plan with the same name and other
    /// steps.
    pub name: String,
    /// How far it is.
    pub state: State,
}

/// How far a step is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Nothing of it has happened.
    Pending,
    /// Any part of it may have happened.
    Started {
        /// The boot in which it was started last.
        boot_id: String,
        /// How often it was started.
        attempts: u32,
        /// The snapshot that was to boot next when this boot first started it;
        /// known for an upgrade only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        active_snapshot: Option<u32>,
    },
    /// It has taken effect.
    Done {
        /// The boot in which it was started last.
        boot_id: String,
    },
    /// It was given up, and the plan with it.
    Failed,
}

/// Why the journal is of no use.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The kernel does not give it.
    #[error("cannot read the journal")]
    Read(#[source] io::Error),
    /// It is torn, garbled, or of an agent with another layout.
    #[error("the journal is damaged ({0})")]
    Damaged(&'static str),
    /// It cannot be replaced.
    #[error("cannot write the journal")]
    Write(#[from] DurableError),
}

impl NextAction for JournalError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Read(error) => Some(durable::next_action(error.kind())),
            Self::Damaged(_) => None,
            Self::Write(error) => error.next_action(),
        }
    }
}

impl LastOutcome {
    /// The report of this outcome, for `journal`'s plan.
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
    /// The journal of a plan of which nothing has been done.
    pub fn begin_plan(plan: &Plan) -> Self {
        let entry = |step: &proto::plan::Step| Entry { name: step.name().to_owned(), state: State::Pending };
        Self {
            plan_id: plan.id.to_string(),
            generation: plan.generation.0,
            checksum: plan.checksum.to_string(),
            kind: plan.kind.into(),
            steps: plan.steps.iter().map(entry).collect(),
            last: None,
        }
    }

    pub fn plan_id(&self) -> &str {
        &self.plan_id
    }

    pub fn generation(&self) -> Generation {
        Generation(self.generation)
    }

    /// What the plan is for.
    pub fn kind(&self) -> PlanKind {
        self.kind
    }

    /// How far the plan is.
    pub fn outcome(&self) -> PlanOutcome {
        if self.steps.iter().any(|entry| entry.state == State::Failed) {
            PlanOutcome::Failed
        } else if self.steps.iter().all(|entry| matches!(entry.state, State::Done { .. })) {
            PlanOutcome::Applied
        } else {
            PlanOutcome::InProgress
        }
    }

    /// What Hello states of the plan.
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

    /// Whether this is the journal of `plan`, step by step.
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

    /// The step begins, or begins again.
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

    /// The snapshot that is to boot next, unless this boot noted it before.
    pub fn with_active_snapshot(mut self, index: usize, number: Option<u32>) -> Self {
        if let Some(Entry { state: State::Started { active_snapshot, .. }, .. }) = self.steps.get_mut(index) {
            *active_snapshot = active_snapshot.or(number);
        }
        self
    }

    /// The step is over.
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

    /// The coordinator has the last outcome.
    pub fn with_acknowledged(self) -> Self {
        self.with_last_acknowledged(true)
    }

    /// The coordinator asks as if it did not have the last outcome.
    pub fn with_unacknowledged(self) -> Self {
        self.with_last_acknowledged(false)
    }

    fn with_last_acknowledged(mut self, acknowledged: bool) -> Self {
        self.last = self.last.map(|last| LastOutcome { acknowledged, ..last });
        self
    }
}

/// The file's bytes: layout, SHA-256 of the rest, the rest.
fn render_json(journal: &Journal) -> Vec<u8> {
    // Strings, numbers and lists only: there is nothing that cannot be written.
    let body = serde_json::to_string_pretty(journal).unwrap_or_default();
    format!("{LAYOUT} {}\n{body}\n", Checksum::of(body.as_bytes())).into_bytes()
}

/// The reverse of what [`write_journal`] leaves.
pub fn parse(bytes: &[u8]) -> Result<Journal, JournalError> {
    let text = std::str::from_utf8(bytes).map_err(|_| JournalError::Damaged("not text"))?;
    let (head, rest) = text.split_once('\n').ok_or(JournalError::Damaged("cut off"))?;
    let body = rest.strip_suffix('\n').ok_or(JournalError::Damaged("cut off"))?;
    let (layout, sum) = head.split_once(' ').ok_or(JournalError::Damaged("no header"))?;
    if layout != LAYOUT {
        return Err(JournalError::Damaged("written by another version of the agent"));
    }
    if sum != Checksum::of(body.as_bytes()).as_str() {
        return Err(JournalError::Damaged("its checksum does not match"));
    }
    let journal: Journal =
        serde_json::from_str(body).map_err(|_| JournalError::Damaged("unknown content"))?;
    PlanId::parse(&journal.plan_id).map_err(|_| JournalError::Damaged("unknown content"))?;
    Ok(journal)
}

/// The journal at `path`, `None` on a host that never had a plan.
pub fn read(path: &Path) -> Result<Option<Journal>, JournalError> {
    match fs::read(path) {
        Ok(bytes) => parse(&bytes).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(JournalError::Read(error)),
    }
}

/// Makes `journal` the one at `path`, durably.
pub fn write_journal(path: &Path, journal: &Journal) -> Result<(), JournalError> {
    durable::write(path, &render_json(journal)).map_err(JournalError::Write)
}

#[cfg(test)]
mod tests;
