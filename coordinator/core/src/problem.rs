//! Why something waits or fails: the ground of every decision.

use coordinator_api::conditions::{
    ConditionUpdate, Reason, Type, condition_false, condition_unknown, join_text,
};

/// A cause and the next action of an operator. They stay two texts until a condition
/// or an Event is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub reason: Reason,
    /// A single plain statement.
    pub message: String,
    /// Empty if the problem ends by itself.
    pub next_action: String,
    /// Facts that change all the time, such as counts. An Event has them; a condition does not, because
    /// each change would be a write of every object that waits.
    pub detail: String,
}

impl Problem {
    pub fn new(reason: Reason, message: impl Into<String>, next_action: impl Into<String>) -> Self {
        let (message, next_action) = (message.into(), next_action.into());
        Self { reason, message, next_action, detail: String::new() }
    }

    /// A problem that ends by itself, or whose message names the next action.
    pub fn of_cause(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(reason, message, "")
    }

    /// The same problem with facts that only its Event has.
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    /// The same problem with a further action after its own.
    pub fn then_do(self, action: &str) -> Self {
        self.add_action(", then ", action)
    }

    /// The same problem with another action beside its own.
    pub fn or_do(self, action: &str) -> Self {
        self.add_action("; ", action)
    }

    fn add_action(self, separator: &str, action: &str) -> Self {
        let separator = if self.next_action.is_empty() { "" } else { separator };
        Self { next_action: format!("{}{separator}{action}", self.next_action), ..self }
    }

    /// Cause and next action, for a log line or an error.
    pub fn text(&self) -> String {
        join_text(&self.message, &self.next_action)
    }

    /// Cause, detail and next action, for an Event.
    pub fn event_text(&self) -> String {
        let separator = if self.detail.is_empty() { "" } else { ": " };
        join_text(&format!("{}{separator}{}", self.message, self.detail), &self.next_action)
    }

    pub fn condition_false(&self, kind: Type) -> ConditionUpdate {
        condition_false(kind, self.reason, &*self.message).with_next_action(&*self.next_action)
    }

    pub fn condition_unknown(&self, kind: Type) -> ConditionUpdate {
        condition_unknown(kind, self.reason, &*self.message).with_next_action(&*self.next_action)
    }
}

/// A problem that keeps a machine from going on, and the condition that shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    pub condition: Type,
    pub problem: Problem,
    pub severity: Severity,
}

/// How a blocker is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It ends by itself.
    Waiting,
    /// It ends when an operator acts; an Event is published.
    NeedsOperator,
    /// An operator has to act, as with `NeedsOperator`, and the phase is Failed.
    Failed,
}

impl Blocker {
    pub fn waiting_for(condition: Type, problem: Problem) -> Self {
        Self { condition, problem, severity: Severity::Waiting }
    }

    pub fn needs_operator(condition: Type, problem: Problem) -> Self {
        Self { condition, problem, severity: Severity::NeedsOperator }
    }

    pub fn failed_with(condition: Type, problem: Problem) -> Self {
        Self { condition, problem, severity: Severity::Failed }
    }
}
