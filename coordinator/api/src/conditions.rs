//! Condition types and reasons: enums, so that a name exists once.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use strum::IntoStaticStr;

/// Types of conditions, over all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
pub enum Type {
    /// Every kind: the sum of the others.
    Ready,
    /// Cluster API: reconciliation is switched off by a person.
    Paused,
    /// `BaremetalMachine`: a host is claimed.
    InventoryAllocated,
    /// `BaremetalMachine`: the bootstrap data is there and usable.
    BootstrapReady,
    /// `BaremetalMachine`: the version has an OS image.
    ImageResolved,
    /// `BaremetalMachine`: the host proved the plan done.
    PlanApplied,
    /// `BaremetalCluster`: the control-plane endpoint is known.
    EndpointReady,
    /// `MachineInventoryPool`: every member exists and is in this pool alone.
    MembersValid,
    /// `MachineInventory`: the installed system has attached.
    Installed,
    /// `MachineInventory`: the network differs from the intended one.
    NetworkDrift,
    /// `SeedImage`: the ISO can be downloaded.
    SeedImageReady,
}

/// Reasons of conditions, over all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
pub enum Reason {
    // Of the systems before us.
    /// No pool of that name in the namespace.
    PoolMissing,
    /// No member of the pool can be claimed.
    PoolExhausted,
    /// The pool belongs to another Cluster.
    PoolOfOtherCluster,
    /// No bootstrap data yet.
    BootstrapWaiting,
    /// The version is no key of the catalog.
    ImageCatalogMiss,
    /// The image names no registry, and nothing else does.
    ImageRegistryMissing,
    /// The host could not do the plan.
    PlanFailed,
    /// Inventory: no plan has succeeded yet.
    WaitingForPlan,
    /// Inventory: the last plan succeeded.
    PlanSuccessfullyApplied,
    /// Inventory: the last plan failed.
    PlanFailure,
    /// Registration: it can be used.
    SuccessfullyCreated,
    /// `SeedImage`: no such registration, or it is not ready.
    RegistrationNotFound,
    /// `SeedImage`: served.
    ResourcesSuccessfullyCreated,
    /// `SeedImage`: being made.
    SeedImageBuildOngoing,
    /// `SeedImage`: cannot be made.
    SeedImageBuildFailure,
    /// `SeedImage`: made and served.
    SeedImageBuildSuccess,
    /// `SeedImage`: `cleanupAfterMinutes` is over.
    SeedImageBuildDeadline,
    // Ours.
    /// Nothing is in the way.
    Available,
    /// Claimed.
    Allocated,
    /// The bootstrap data is not what cloud-init and kubeadm take.
    BootstrapInvalid,
    /// The host works on a plan.
    PlanRunning,
    /// The plan was proven done.
    PlanApplied,
    /// The plan Secret is gone.
    PlanSecretMissing,
    /// The plan Secret holds what is no plan.
    PlanSecretInvalid,
    /// The host has not answered since a while.
    HostUnreachable,
    /// The host registered and is being installed.
    Installing,
    /// The install waits for a person.
    InstallWaiting,
    /// The install failed.
    InstallFailed,
    /// The installed system attached.
    InstallDone,
    /// A live system was booted on an installed host.
    LiveBootAfterInstall,
    /// Two live hosts claim one identity.
    DuplicateIdentity,
    /// A member of the pool does not exist.
    MemberMissing,
    /// A member is listed in an older pool too.
    MemberInAnotherPool,
    /// The members are what the pool says.
    MembersFound,
    /// The owning Machine or Cluster is not there yet.
    OwnerWaiting,
    /// The network of the inventory cannot be rendered.
    NetworkInvalid,
    /// The claimed inventory is gone; nothing is done to any other host.
    InventoryMissing,
    /// The host is being cleaned.
    Cleaning,
    /// No endpoint is named.
    EndpointMissing,
    /// The endpoint is named.
    EndpointKnown,
    /// Paused by annotation or Cluster.
    Paused,
    /// Not paused.
    NotPaused,
    /// The node can join, or has joined.
    Running,
    /// The version of the Machine is not set.
    VersionMissing,
    /// The host's network is the intended one.
    NetworkAsIntended,
    /// The host's network changed.
    NetworkChanged,
}

impl Type {
    /// The name on the object.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Reason {
    /// The name on the object.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The value of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub enum Truth {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody can tell.
    Unknown,
}

/// A condition as it is decided, before it has a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is judged.
    pub kind: Type,
    /// The judgement.
    pub truth: Truth,
    /// Why, for machines.
    pub reason: Reason,
    /// Why and what next, for people.
    pub message: String,
}

impl Finding {
    /// A condition that holds.
    #[must_use]
    pub fn holds(kind: Type, reason: Reason, message: impl Into<String>) -> Self {
        Self { kind, truth: Truth::True, reason, message: message.into() }
    }

    /// A condition that does not hold.
    #[must_use]
    pub fn fails(kind: Type, reason: Reason, message: impl Into<String>) -> Self {
        Self { kind, truth: Truth::False, reason, message: message.into() }
    }
}

/// Writes `findings` over `conditions`. The transition time moves only where
/// the truth changes; conditions nobody judged stay.
pub fn apply(conditions: &mut Vec<Condition>, findings: &[Finding], generation: Option<i64>, now: Timestamp) {
    for finding in findings {
        let status: &'static str = finding.truth.into();
        let old = conditions.iter().position(|condition| condition.type_ == finding.kind.as_str());
        let since = old
            .map(|index| &conditions[index])
            .filter(|condition| condition.status == status)
            .map_or_else(|| Time(now), |condition| condition.last_transition_time.clone());
        let new = Condition {
            type_: finding.kind.as_str().to_owned(),
            status: status.to_owned(),
            reason: finding.reason.as_str().to_owned(),
            message: finding.message.clone(),
            observed_generation: generation,
            last_transition_time: since,
        };
        match old {
            Some(index) => conditions[index] = new,
            None => conditions.push(new),
        }
    }
}

/// The condition of that type.
#[must_use]
pub fn find(conditions: &[Condition], kind: Type) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == kind.as_str())
}

/// Whether the condition is there and holds.
#[must_use]
pub fn is_true(conditions: &[Condition], kind: Type) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_only_where_the_truth_changes() {
        let (first, second) = (Timestamp::from_second(1).unwrap(), Timestamp::from_second(2).unwrap());
        let mut conditions = vec![];
        let waiting = Finding::fails(Type::Ready, Reason::PoolMissing, "a");
        apply(&mut conditions, &[waiting], Some(1), first);
        let still = Finding::fails(Type::Ready, Reason::PoolExhausted, "b");
        apply(&mut conditions, &[still], Some(1), second);
        assert_eq!(conditions[0].last_transition_time.0, first);
        assert_eq!(conditions[0].reason, "PoolExhausted");
        apply(&mut conditions, &[Finding::holds(Type::Ready, Reason::Running, "")], Some(1), second);
        assert_eq!((conditions.len(), conditions[0].last_transition_time.0), (1, second));
        assert!(is_true(&conditions, Type::Ready));
    }
}
