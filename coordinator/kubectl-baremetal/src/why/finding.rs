//! The statement of an object that matters most, from its conditions.

use std::cmp::Reverse;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::explain::{Attention, Explanation};
use jiff::Timestamp;
use serde::Serialize;

use crate::fleet::{Condition, Kind, Object};

/// Conditions with advice on a system that works.
const ADVICE: [Type; 4] =
    [Type::AdmissionOpen, Type::FieldsIgnored, Type::LabelsStale, Type::BaseImageInCatalog];

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    pub(crate) attention: Attention,
    /// Type and status of the condition, if the statement is a condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) condition: Option<String>,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The next action for this object; `None` if the action of the reason counts.
    #[serde(skip)]
    pub(super) next_action: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
}

impl Finding {
    pub(crate) fn fine(message: &str) -> Self {
        Self {
            attention: Attention::None,
            condition: None,
            reason: String::new(),
            message: message.to_owned(),
            next_action: None,
            since: None,
        }
    }

    /// A finding for which an operator has to act.
    pub(super) fn act(reason: &str, message: &str) -> Self {
        Self { attention: Attention::Act, reason: reason.to_owned(), ..Self::fine(message) }
    }

    /// The finding of an object that nothing has reconciled.
    pub(super) fn without_status() -> Self {
        Self {
            attention: Attention::Wait,
            reason: "NoStatus".to_owned(),
            ..Self::fine("it has no status yet: nothing has reconciled it")
        }
    }

    pub(super) fn of_condition(condition: &Condition) -> Self {
        // Most conditions of Cluster API end without an operator.
        let attention = explain(&condition.reason).map_or(Attention::Wait, |known| known.attention);
        Self {
            attention,
            condition: Some(format!("{}={}", condition.kind, condition.status)),
            reason: condition.reason.clone(),
            since: condition.since,
            ..Self::fine(&condition.message)
        }
    }

    /// The finding is no cause of a wait.
    pub(super) fn is_advice(&self) -> bool {
        let kind = self.condition.as_deref().and_then(|condition| condition.split('=').next());
        ADVICE.iter().any(|advice| Some(advice.as_str()) == kind)
    }

    /// The same finding with a more exact reason, and with a message if there is one.
    pub(super) fn refined(mut self, reason: &str, message: Option<&str>) -> Self {
        self.attention = explain(reason).map_or(self.attention, |known| known.attention);
        reason.clone_into(&mut self.reason);
        if let Some(message) = message.filter(|message| !message.is_empty()) {
            message.clone_into(&mut self.message);
        }
        self
    }

    /// The same finding with the next action for this object.
    pub(super) fn with_next_action(self, next_action: impl Into<String>) -> Self {
        Self { next_action: Some(next_action.into()).filter(|action| !action.is_empty()), ..self }
    }

    /// The next action of an operator.
    pub(crate) fn action(&self, object: &Object) -> String {
        if self.attention == Attention::None {
            return "none".to_owned();
        }
        if let Some(action) = &self.next_action {
            return action.clone();
        }
        match explain(&self.reason) {
            Some(known) => fill_names(known.action, object),
            None if self.attention == Attention::Act => "as the message says".to_owned(),
            None => format!(
                "none: {} continues when Cluster API does; the message says what it waits for",
                object.id.short()
            ),
        }
    }

    /// The message, or the cause of the reason if the message is empty.
    pub(crate) fn told_cause(&self) -> String {
        let cause = if self.message.is_empty() { self.cause() } else { None };
        cause.unwrap_or(&self.message).to_owned()
    }

    /// The cause of the reason; `None` for a reason of Cluster API.
    pub(crate) fn cause(&self) -> Option<&'static str> {
        explain(&self.reason).map(|known| known.cause)
    }
}

fn explain(reason: &str) -> Option<Explanation> {
    reason.parse().ok().map(Reason::explanation)
}

/// Puts the names of the object into an action.
fn fill_names(action: &str, object: &Object) -> String {
    let words = action.split(' ').map(|word| match word.trim_end_matches([',', '.', '`', ':', ';']) {
        "NAME" => word.replace("NAME", &object.id.name),
        "NAMESPACE" => word.replace("NAMESPACE", &object.id.namespace),
        "HOST" if object.id.kind == Kind::MachineInventory => word.replace("HOST", &object.id.name),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The finding of an object whose `Ready` summarizes its other conditions.
pub(super) fn find_in_conditions(object: &Object, is_asked_for: bool) -> Finding {
    let conditions = object.conditions();
    let is_paused =
        |condition: &&Condition| condition.kind == Type::Paused.as_str() && condition.status == "True";
    if let Some(paused) = conditions.iter().find(is_paused) {
        return Finding::of_condition(paused);
    }
    // Some kinds of Cluster API have no `Ready` and summarize in `Available`.
    let summaries: &[&str] =
        if object.id.kind.is_of_cluster_api() { &["Ready", "Available"] } else { &["Ready"] };
    let ready =
        summaries.iter().find_map(|summary| conditions.iter().find(|condition| condition.kind == *summary));
    if let Some(ready) = ready.filter(|ready| ready.status != "True") {
        // The condition of the step that waits has the next action of the machine. `HostReachable` has only
        // the next action of the host.
        let same = conditions.iter().find(|other| {
            ![ready.kind.as_str(), Type::HostReachable.as_str()].contains(&other.kind.as_str())
                && other.status == "False"
                && other.reason == ready.reason
        });
        return Finding::of_condition(same.unwrap_or(ready));
    }
    let includes_others = is_asked_for || object.id.kind == Kind::BaremetalCluster;
    let problems =
        conditions.iter().filter(|condition| includes_others && is_problem(object.id.kind, condition));
    let other = problems.min_by_key(|condition| rank_problem(condition));
    match (other, ready) {
        (Some(other), _) => Finding::of_condition(other),
        (None, Some(_)) => Finding::fine(""),
        (None, None) => Finding::without_status(),
    }
}

/// `true` for a condition beside `Ready` that tells of a problem. Cluster API has two dozen, of
/// which only these say that something is missing.
fn is_problem(kind: Kind, condition: &Condition) -> bool {
    if kind.is_of_cluster_api() {
        let telling =
            ["Available", "InfrastructureReady", "ControlPlaneInitialized", "ControlPlaneAvailable"];
        return telling.contains(&condition.kind.as_str()) && condition.status != "True";
    }
    let Ok(kind) = condition.kind.parse::<Type>() else { return false };
    // A reason for which an operator has to act counts with any status.
    match explain(&condition.reason).map_or(Attention::None, |reason| reason.attention) {
        Attention::None => false,
        Attention::Wait => (condition.status == "True") == kind.is_bad_when_true(),
        Attention::Act => true,
    }
}

/// The order in which problems are shown: first those that need an operator. Unknown states come
/// after known ones, and advice on a system that works comes last.
fn rank_problem(condition: &Condition) -> (bool, Reverse<Attention>, bool) {
    let finding = Finding::of_condition(condition);
    (finding.is_advice(), Reverse(finding.attention), condition.status == "Unknown")
}
