//! Conditions: their types as an enum, so that a name exists once, and how they are written.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use strum::{EnumString, IntoStaticStr};

pub use crate::explain::Reason;

/// Types of conditions, over all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, EnumString)]
pub enum Type {
    /// Every kind: the sum of the other conditions.
    Ready,
    /// Every kind: reconciliation is paused by annotation or by `spec.paused` of the Cluster.
    Paused,
    /// `BaremetalMachine`: the machine has claimed a host.
    InventoryAllocated,
    /// `BaremetalMachine`: the bootstrap data exists and is valid.
    BootstrapReady,
    /// `BaremetalMachine`: the system keeps what the bootstrap data writes; present while it
    /// does not.
    BootstrapFilesKept,
    /// `BaremetalMachine`: the version has an OS image.
    ImageResolved,
    /// `BaremetalMachine`: the host reported the plan as succeeded and verified.
    PlanApplied,
    /// Machines: the Node of the workload cluster is found and has the providerID.
    NodeLinked,
    /// `BaremetalMachine`: the host has a connection to the coordinator, or had one within five
    /// minutes. Cluster API does not look at this condition.
    HostReachable,
    /// `BaremetalCluster`: an API server answers at the control-plane endpoint.
    EndpointReady,
    /// `MachineInventoryPool`: every member exists, is in this pool alone, can be used,
    /// and its node has a name of its own.
    MembersValid,
    /// `MachineInventory`: the installed system has attached.
    Installed,
    /// `MachineInventory`: the firmware boots the installed disk first; present while the firmware
    /// did not take that order.
    BootOrderSet,
    /// `MachineInventory`: the identity key is in a TPM whose vendor's certificate
    /// was verified.
    IdentityVerified,
    /// `MachineInventory`: the network differs from the intended one.
    NetworkDrift,
    /// `MachineInventory`: the host reported a network with parts that no plan replays; present
    /// while there are such parts.
    NetworkIncomplete,
    /// `MachineInventory`: the registration would give the host other labels than it keeps from the
    /// time of its first plan on; present while there are such labels.
    LabelsStale,
    /// `MachineInventory`: kernel, control groups, systemd and `SELinux` of the host are as the agent
    /// and Kubernetes need them; present while one is not.
    PlatformSupported,
    /// `SeedImage`: the ISO can be downloaded.
    SeedImageReady,
    /// `MachineInventory`: a token or an operator admitted the host.
    Approved,
    /// `MachineInventory`: the plan that an operator wrote can be run; present while
    /// the annotation asks for the plan.
    CustomPlanAccepted,
    /// `MachineInventory`, `BareMetalHost`: the requested reboot has happened; present while
    /// the annotation asks for the reboot.
    Rebooted,
    /// `MachineInventory`: the host attached by the newest URL and authorities.
    CoordinatorKnown,
    /// `MachineInventory`: the agent can write its state; present while it cannot.
    StateWritable,
    /// `MachineInventory`: the agent can read its journal; present while it cannot.
    JournalReadable,
    /// `MachineInventory`: the host runs the agent version that the annotation names; present
    /// while the annotation exists.
    AgentUpdated,
    /// `MachineRegistration`, `SeedImage`, `MachineInventory`, `MachineInventoryPool`,
    /// `BaremetalCluster`, `BareMetalHost`: fields are set that have no effect.
    FieldsIgnored,
    /// `SeedImage`: the base belongs to an image of the image catalog; present if the two
    /// can be compared.
    BaseImageInCatalog,
    /// `MachineRegistration`, `MachineInventoryPool`: the token alone admits a host; of a pool, if
    /// the pool selects by labels.
    AdmissionOpen,
    /// `MachineRegistration`: hosts with its token were refused within half an hour.
    HostsRefused,
    /// `BaremetalCluster`: a control-plane host holds the address of the internal
    /// endpoint.
    LoadBalancerReady,
    /// `BaremetalCluster`: the control-plane hosts have the interface that
    /// `networkDevice` names.
    NetworkDeviceReady,
    /// `BaremetalCluster`: address, router id and the hosts' addresses fit
    /// together.
    NetworkConfigValid,
    /// `Metal3Machine`: the machine has chosen a `BareMetalHost`.
    AssociateBareMetalHost,
    /// `Metal3Machine`: `AssociateBareMetalHost` under CAPM3's older name.
    AssociateBMH,
    /// `Metal3Machine`: the data for its host exists.
    AssociateMetal3MachineMetaData,
    /// `Metal3Machine`: `NodeLinked` under CAPM3's older name.
    KubernetesNodeReady,
    /// `Metal3Machine`: the data of its template is rendered.
    Metal3DataReady,
    /// `Metal3Machine`: its host is provisioned.
    HostProvisioned,
    /// `Metal3Machine`: labels of the host are on its Node; present while the `Metal3Cluster`
    /// asks for the labels.
    LabelsSynced,
    /// `Metal3Cluster`: the control-plane endpoint is known.
    BaremetalInfrastructureReady,
}

impl Type {
    /// The text on the object.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The status `True` tells of a problem.
    pub fn is_bad_when_true(self) -> bool {
        matches!(
            self,
            Self::Paused
                | Self::NetworkDrift
                | Self::NetworkIncomplete
                | Self::LabelsStale
                | Self::FieldsIgnored
                | Self::AdmissionOpen
                | Self::HostsRefused
        )
    }
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The condition cannot be determined now.
    Unknown,
}

/// A decided condition, without its transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate {
    /// Type of the condition.
    pub kind: Type,
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// Machine-readable cause.
    pub reason: Reason,
    /// The cause, as one plain statement.
    pub message: String,
    /// The next action of an operator; empty if none is due.
    pub next_action: String,
}

impl ConditionUpdate {
    /// The same condition with a next action.
    pub fn with_next_action(self, next_action: impl Into<String>) -> Self {
        Self { next_action: next_action.into(), ..self }
    }

    /// The message of the condition on the object.
    pub fn text(&self) -> String {
        bound_message(&join_text(&self.message, &self.next_action))
    }
}

/// Joins a cause and the next action to the text of a condition, an Event or a status.
/// No program splits such a text again, because a cause may contain the separator.
pub fn join_text(message: &str, next_action: &str) -> String {
    if next_action.is_empty() { message.to_owned() } else { format!("{message}; next: {next_action}") }
}

/// A condition that is true.
pub fn condition_true(kind: Type, reason: Reason, message: impl Into<String>) -> ConditionUpdate {
    new_update(kind, ConditionStatus::True, reason, message.into())
}

/// A condition that is false.
pub fn condition_false(kind: Type, reason: Reason, message: impl Into<String>) -> ConditionUpdate {
    new_update(kind, ConditionStatus::False, reason, message.into())
}

/// A condition whose status cannot be known now.
pub fn condition_unknown(kind: Type, reason: Reason, message: impl Into<String>) -> ConditionUpdate {
    new_update(kind, ConditionStatus::Unknown, reason, message.into())
}

fn new_update(kind: Type, status: ConditionStatus, reason: Reason, message: String) -> ConditionUpdate {
    ConditionUpdate { kind, status, reason, message, next_action: String::new() }
}

/// Names the fields that are set and have no effect: a warning beside `Ready`.
pub fn fields_ignored(fields: &[&str]) -> ConditionUpdate {
    match fields {
        [] => condition_false(Type::FieldsIgnored, Reason::FieldsSupported, ""),
        [field] => {
            let message = format!("{field} has no effect");
            condition_true(Type::FieldsIgnored, Reason::FieldWithoutEffect, message)
                .with_next_action("remove it")
        }
        fields => {
            let message = format!("{} have no effect", fields.join(", "));
            condition_true(Type::FieldsIgnored, Reason::FieldWithoutEffect, message)
                .with_next_action("remove them")
        }
    }
}

/// Longest message of a condition in bytes. Cluster API copies several messages into one condition
/// of its own, which may have 32 KiB.
const MESSAGE_BYTES: usize = 8192;

/// Cuts the message, because some messages quote another system's answer of any length.
fn bound_message(message: &str) -> String {
    message[..message.floor_char_boundary(MESSAGE_BYTES)].to_owned()
}

/// Writes `updates` over `conditions`. The transition time moves only if the status changes;
/// conditions without an update stay.
pub fn set_conditions(
    conditions: &mut Vec<Condition>,
    updates: &[ConditionUpdate],
    generation: Option<i64>,
    now: Timestamp,
) {
    for update in updates {
        let status: &'static str = update.status.into();
        let old = conditions.iter().position(|condition| condition.type_ == update.kind.as_str());
        let since = old
            .map(|index| &conditions[index])
            .filter(|condition| condition.status == status)
            .map_or_else(|| Time(now), |condition| condition.last_transition_time.clone());
        let new = Condition {
            type_: update.kind.as_str().to_owned(),
            status: status.to_owned(),
            reason: update.reason.as_str().to_owned(),
            message: update.text(),
            observed_generation: generation,
            last_transition_time: since,
        };
        match old {
            Some(index) => conditions[index] = new,
            None => conditions.push(new),
        }
    }
}

/// Writes `failed` over `conditions`. The transition time of `stored` stays if `stored` shows the
/// failure already.
pub fn set_failure(
    conditions: &mut Vec<Condition>,
    stored: &[Condition],
    failed: &ConditionUpdate,
    generation: Option<i64>,
    now: Timestamp,
) {
    let shown = conditions.iter_mut().find(|condition| condition.type_ == failed.kind.as_str());
    if let (Some(shown), Some(stored)) = (shown, find_condition(stored, failed.kind)) {
        shown.clone_from(stored);
    }
    set_conditions(conditions, std::slice::from_ref(failed), generation, now);
}

/// Shows the conditions of `kinds` that nothing was decided about as unknown.
pub fn set_undecided(
    conditions: &mut Vec<Condition>,
    kinds: &[Type],
    generation: Option<i64>,
    now: Timestamp,
) {
    let missing = kinds.iter().filter(|kind| find_condition(conditions, **kind).is_none());
    let message = "decided once the steps before it are done";
    let updates: Vec<_> = missing.map(|kind| condition_unknown(*kind, Reason::NotDecided, message)).collect();
    set_conditions(conditions, &updates, generation, now);
}

/// Finds the condition of a type, for status lines and tests, because no decision reads a
/// condition.
pub fn find_condition(conditions: &[Condition], kind: Type) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == kind.as_str())
}

/// The condition exists with status True.
pub fn is_true(conditions: &[Condition], kind: Type) -> bool {
    find_condition(conditions, kind).is_some_and(|condition| condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transition_time_moves_with_the_status() {
        let (first, second) = (Timestamp::from_second(1).unwrap(), Timestamp::from_second(2).unwrap());
        let mut conditions = vec![];
        let missing = condition_false(Type::Ready, Reason::PoolMissing, "a");
        set_conditions(&mut conditions, &[missing], Some(1), first);
        let exhausted = condition_false(Type::Ready, Reason::PoolExhausted, "b");
        set_conditions(&mut conditions, &[exhausted], Some(1), second);
        assert_eq!(conditions[0].last_transition_time.0, first);
        assert_eq!(conditions[0].reason, "PoolExhausted");
        set_conditions(&mut conditions, &[condition_true(Type::Ready, Reason::Running, "")], Some(1), second);
        assert_eq!((conditions.len(), conditions[0].last_transition_time.0), (1, second));
        assert!(is_true(&conditions, Type::Ready));
    }
}
