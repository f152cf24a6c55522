//! What one object says about itself: its state, and what that asks of an operator.

mod host;

use std::cmp::Reverse;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::explain::Attention;
use coordinator_core::pool::{Exclusion, Standing, host_standing};
use jiff::Timestamp;
use serde::Serialize;

use crate::finding::host::find_host;
use crate::fleet::{Condition, Fleet, Object};
use crate::kind::Kind;
use crate::metal3::find_reported;

/// The one statement of an object that matters most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    #[serde(serialize_with = "serialize_attention")]
    pub(crate) attention: Attention,
    /// Type and status of the condition, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) condition: Option<String>,
    pub(crate) reason: String,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
}

/// How serious an exclusion from a pool is: waiting for a machine to end is not.
const HELD: [Exclusion; 2] = [Exclusion::OtherPool, Exclusion::BareMetalHost];

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
pub(crate) fn serialize_attention<S: serde::Serializer>(
    attention: &Attention,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let text: &str = attention.into();
    serializer.serialize_str(text)
}

impl Finding {
    pub(crate) fn fine(message: &str) -> Self {
        Self {
            attention: Attention::None,
            condition: None,
            reason: String::new(),
            message: message.to_owned(),
            since: None,
        }
    }

    /// Of an object that nothing has reconciled.
    pub(crate) fn without_status() -> Self {
        Self {
            attention: Attention::Wait,
            reason: "NoStatus".to_owned(),
            ..Self::fine("it has no status yet: nothing has reconciled it")
        }
    }

    fn of_condition(condition: &Condition) -> Self {
        let known = condition.reason.parse::<Reason>().ok().and_then(Reason::explanation);
        // What Cluster API waits for mostly goes on by itself.
        let attention = known.map_or(Attention::Wait, |known| known.attention);
        Self {
            attention,
            condition: Some(format!("{}={}", condition.kind, condition.status)),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            since: condition.since,
        }
    }

    /// The same with the reason, and the message where there is one, of a closer look.
    fn refined(mut self, reason: &str, message: Option<&str>) -> Self {
        if let Ok(known) = reason.parse::<Reason>() {
            self.attention = known.explanation().map_or(self.attention, |known| known.attention);
        }
        reason.clone_into(&mut self.reason);
        if let Some(message) = message.filter(|message| !message.is_empty()) {
            message.clone_into(&mut self.message);
        }
        self
    }

    /// What an operator does: what the host or the coordinator said, else what the
    /// entry of the reason says.
    pub(crate) fn action(&self, object: &Object) -> String {
        if self.attention == Attention::None {
            return "none".to_owned();
        }
        if let Some((_, action)) = self.message.split_once("; next: ") {
            return action.to_owned();
        }
        let known = self.reason.parse::<Reason>().ok().and_then(Reason::explanation);
        match known {
            Some(known) => fill_names(known.action, object),
            None if self.attention == Attention::Act => "as the message says".to_owned(),
            None => format!(
                "none: {} goes on when Cluster API does; the message says what it waits for",
                object.id.short()
            ),
        }
    }

    /// Why it is so: what the host or the coordinator said, without what to do about it;
    /// else what the entry of the reason says.
    pub(crate) fn told_cause(&self) -> String {
        let told = self.message.split_once("; next: ").map_or(self.message.as_str(), |(cause, _)| cause);
        // A command of a message is an action, and there is one already.
        let told = told.split_once(": kubectl ").map_or(told, |(cause, _)| cause);
        if told.is_empty() { self.cause().unwrap_or_default().to_owned() } else { told.to_owned() }
    }

    /// Cause of the reason, where it is one of ours.
    pub(crate) fn cause(&self) -> Option<&'static str> {
        self.reason.parse::<Reason>().ok().and_then(Reason::explanation).map(|known| known.cause)
    }

    /// Meaning of the reason, where it is one of ours.
    pub(crate) fn meaning(&self) -> Option<String> {
        self.reason.parse::<Reason>().ok().map(Reason::meaning)
    }
}

/// Puts the names of the object into an action.
fn fill_names(action: &str, object: &Object) -> String {
    let fill = |word: &str| match word.trim_end_matches([',', '.', '`', ':', ';']) {
        "NAME" => word.replace("NAME", &object.id.name),
        "NAMESPACE" => word.replace("NAMESPACE", &object.id.namespace),
        "HOST" if object.id.kind == Kind::MachineInventory => word.replace("HOST", &object.id.name),
        _ => word.to_owned(),
    };
    action.split(' ').map(fill).collect::<Vec<_>>().join(" ")
}

/// What an object says of itself. `is_asked_for` looks also at conditions that keep
/// nothing from going on.
pub(crate) fn find(fleet: &Fleet, object: &Object, is_asked_for: bool, now: Timestamp) -> Finding {
    match object.id.kind {
        Kind::MachineInventory => find_host(object, is_asked_for, now),
        Kind::MachineInventoryPool => find_pool(fleet, object),
        Kind::BareMetalHost => find_bare_metal_host(object),
        Kind::Cluster => find_cluster(object, is_asked_for),
        Kind::Metal3DataClaim | Kind::Metal3Data | Kind::IPClaim => find_reported(object),
        _ => find_any(object, is_asked_for),
    }
}

/// What the conditions of an object say, without a look at others.
pub(crate) fn find_stated(object: &Object) -> Finding {
    find_any(object, true)
}

/// Of a kind whose `Ready` sums up the others.
fn find_any(object: &Object, is_asked_for: bool) -> Finding {
    let conditions = object.conditions();
    let is_paused =
        |condition: &&Condition| condition.kind == Type::Paused.as_str() && condition.status == "True";
    if let Some(paused) = conditions.iter().find(is_paused) {
        return Finding::of_condition(paused);
    }
    // Cluster API sums up some of its kinds in `Available` alone.
    let mut sums =
        ["Ready", "Available"].into_iter().take(1 + usize::from(object.id.kind.is_of_cluster_api()));
    let ready = sums.find_map(|sum| conditions.iter().find(|condition| condition.kind == sum));
    if let Some(ready) = ready.filter(|ready| ready.status != "True") {
        let same = |other: &&Condition| {
            other.kind != ready.kind && other.status == "False" && other.reason == ready.reason
        };
        return Finding::of_condition(conditions.iter().find(same).unwrap_or(ready));
    }
    let is_told = is_asked_for || object.id.kind == Kind::BaremetalCluster;
    let problems = conditions.iter().filter(|condition| is_told && is_problem(object.id.kind, condition));
    let other = problems.min_by_key(|condition| rank_problem(condition));
    match (other, ready) {
        (Some(other), _) => Finding::of_condition(other),
        (None, Some(_)) => Finding::fine(""),
        (None, None) => Finding::without_status(),
    }
}

/// Whether a condition beside `Ready` tells of a problem. Of Cluster API's two dozen
/// only those that say what is missing.
fn is_problem(kind: Kind, condition: &Condition) -> bool {
    if kind.is_of_cluster_api() {
        let telling =
            ["Available", "InfrastructureReady", "ControlPlaneInitialized", "ControlPlaneAvailable"];
        return telling.contains(&condition.kind.as_str()) && condition.status != "True";
    }
    let Ok(kind) = condition.kind.parse::<Type>() else { return false };
    let reason = condition.reason.parse::<Reason>().ok().and_then(Reason::explanation);
    // What an operator has to do counts, whatever the status says.
    match reason.map_or(Attention::None, |reason| reason.attention) {
        Attention::None => false,
        Attention::Wait => (condition.status == "True") == kind.is_bad_when_true(),
        Attention::Act => true,
    }
}

/// The first is told: what asks for an action, advice on what works last, and what could
/// not be looked at after what is known.
fn rank_problem(condition: &Condition) -> (bool, Reverse<Attention>, bool) {
    let advice = [Type::AdmissionOpen, Type::FieldsIgnored, Type::BaseImageInCatalog];
    let is_advice = advice.iter().any(|one| one.as_str() == condition.kind);
    (is_advice, Reverse(Finding::of_condition(condition).attention), condition.status == "Unknown")
}

fn find_cluster(cluster: &Object, is_asked_for: bool) -> Finding {
    if cluster.is_paused() {
        let message = "spec.paused is true: nothing of the cluster is reconciled";
        return Finding::fine(message).refined(Reason::Paused.as_str(), None);
    }
    find_any(cluster, is_asked_for)
}

fn find_pool(fleet: &Fleet, object: &Object) -> Finding {
    let finding = find_any(object, true);
    let Some(pool) = object.pool() else { return finding };
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    let mut available = 0;
    let names = fleet.members_of(&pool);
    for name in &names {
        let standing = standing_of(fleet, object, name);
        available += usize::from(standing == Standing::Available);
        *counts.entry(describe_standing(standing)).or_default() += 1;
    }
    if available > 0 || finding.attention == Attention::Act {
        return finding;
    }
    let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    let members = if names.is_empty() { "no members".to_owned() } else { counts.join(", ") };
    let message = format!("no member is available: {members}");
    finding.refined(Reason::PoolExhausted.as_str(), Some(&message))
}

/// State of a member of a pool.
pub(crate) fn standing_of(fleet: &Fleet, pool: &Object, host: &str) -> Standing {
    let id = crate::fleet::Id::new(Kind::MachineInventory, &pool.id.namespace, host);
    let record = fleet.get(&id).and_then(Object::host);
    host_standing(&pool.id.name, record.as_ref())
}

/// Whether an operator may make the member available.
pub(crate) fn is_recoverable(standing: Standing) -> bool {
    matches!(standing, Standing::Unavailable(exclusion) if !HELD.contains(&exclusion))
}

fn describe_standing(standing: Standing) -> String {
    match standing {
        Standing::Available => "available".to_owned(),
        Standing::Allocated => "held by machines".to_owned(),
        Standing::Preparing => "being cleaned".to_owned(),
        Standing::Reprovisioning => "being provisioned".to_owned(),
        Standing::Unavailable(exclusion) => {
            let text: &str = exclusion.into();
            text.to_owned()
        }
    }
}

fn find_bare_metal_host(object: &Object) -> Finding {
    let finding = find_any(object, true);
    let message = object.status()["errorMessage"].as_str().unwrap_or_default();
    if finding.attention == Attention::Act || message.is_empty() {
        return finding;
    }
    Finding { attention: Attention::Act, message: message.to_owned(), ..finding }
}
