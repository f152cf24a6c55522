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
}

impl Problem {
    pub fn new(reason: Reason, message: impl Into<String>, next_action: impl Into<String>) -> Self {
        Self { reason, message: message.into(), next_action: next_action.into() }
    }

    /// A problem that ends by itself, or whose message names the next action.
    pub fn of_cause(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(reason, message, "")
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

    /// Cause and next action, for an Event, a log line or an error.
    pub fn text(&self) -> String {
        join_text(&self.message, &self.next_action)
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
