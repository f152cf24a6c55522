//! Condition types and reasons: enums, so that a name exists once.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use strum::{EnumIter, EnumMessage, EnumString, IntoStaticStr};

/// Types of conditions, over all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, EnumMessage, EnumString)]
pub enum Type {
    /// Every kind: the sum of the others.
    Ready,
    /// Cluster API: reconciliation is switched off by annotation or on the Cluster.
    Paused,
    /// `BaremetalMachine`: a host is claimed.
    InventoryAllocated,
    /// `BaremetalMachine`: the bootstrap data exists and is valid.
    BootstrapReady,
    /// `BaremetalMachine`: the version has an OS image.
    ImageResolved,
    /// `BaremetalMachine`: the host reported the plan as succeeded and verified.
    PlanApplied,
    /// Machines: the Node of the workload cluster is found and has the providerID.
    NodeLinked,
    /// `BaremetalCluster`: an API server answers at the control-plane endpoint.
    EndpointReady,
    /// `MachineInventoryPool`: every member exists and is in this pool alone.
    MembersValid,
    /// `MachineInventory`: the installed system has attached.
    Installed,
    /// `MachineInventory`: the identity key is in a TPM whose vendor's certificate
    /// was verified.
    IdentityVerified,
    /// `MachineInventory`: the network differs from the intended one.
    NetworkDrift,
    /// `SeedImage`: the ISO can be downloaded.
    SeedImageReady,
    /// `MachineInventory`: a token or an operator admitted the host.
    Approved,
    /// `MachineInventory`: the plan that an operator wrote can be run; present while
    /// it is asked for.
    CustomPlanAccepted,
    /// `MachineInventory`, `BareMetalHost`: the reboot that was asked for has happened;
    /// present while it is asked for.
    Rebooted,
    /// `MachineInventory`: the host attached by the newest URL, token and authorities.
    CoordinatorKnown,
    /// `MachineInventory`: the host runs the agent that an operator asks for; present
    /// while it is asked for.
    AgentUpdated,
    /// `MachineRegistration`, `BaremetalCluster`, `BareMetalHost`: fields are set that
    /// have no effect.
    FieldsIgnored,
    /// `MachineRegistration`: the token alone gets a host admitted.
    AdmissionOpen,
    /// `MachineRegistration`: hosts with its token were refused lately.
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
    /// `Metal3Machine`: a `BareMetalHost` is its own.
    AssociateBareMetalHost,
    /// `Metal3Machine`: as `AssociateBareMetalHost`, by CAPM3's older name.
    AssociateBMH,
    /// `Metal3Machine`: the data for its host is there.
    AssociateMetal3MachineMetaData,
    /// `Metal3Machine`: as `NodeLinked`, by CAPM3's older name.
    KubernetesNodeReady,
    /// `Metal3Machine`: the data of its template is rendered.
    Metal3DataReady,
    /// `Metal3Machine`: its host is provisioned.
    HostProvisioned,
    /// `Metal3Machine`: labels of the host are on its Node; present while the `Metal3Cluster`
    /// asks for it.
    LabelsSynced,
    /// `Metal3Cluster`: the control-plane endpoint is known.
    BaremetalInfrastructureReady,
}

/// Reasons of conditions, over all kinds.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EnumIter, EnumMessage, EnumString, IntoStaticStr,
)]
pub enum Reason {
    // Of the systems whose manifests apply unchanged.
    /// No pool of that name in the namespace.
    PoolMissing,
    /// No member of the pool can be claimed; of an `IPPool`: no address is free.
    PoolExhausted,
    /// `IPAddressClaim`: the pool gives no address.
    AllocationFailed,
    /// Ours, `IPPool`: a field has a value that no address can be taken from.
    PoolInvalid,
    /// The pool belongs to another Cluster.
    PoolOfOtherCluster,
    /// No bootstrap data yet.
    BootstrapWaiting,
    /// The image catalog has no key for the version.
    ImageCatalogMiss,
    /// Neither the image nor the Cluster names a registry.
    ImageRegistryMissing,
    /// The Secret for the registry of the image is missing or has another form.
    RegistrySecretInvalid,
    /// The plan failed on the host.
    PlanFailed,
    /// Inventory: the host is not free for the plan of an operator yet.
    CustomPlanWaiting,
    /// Inventory: the plan of an operator is none that hosts execute.
    CustomPlanInvalid,
    /// The host cannot be asked to reboot yet.
    RebootWaiting,
    /// The host was asked to reboot, and is not back yet.
    RebootInProgress,
    /// The host has rebooted; the request stays until who wrote it removes it.
    RebootDone,
    /// `Metal3Remediation`: the host is about to be asked to reboot.
    RemediationRunning,
    /// `Metal3Remediation`: the host has rebooted, and the node is to become healthy.
    RemediationWaiting,
    /// `Metal3Remediation`: the host is meant to be off.
    RemediationRefused,
    /// `Metal3Remediation`: no try made the node healthy.
    RemediationExhausted,
    /// `Metal3Remediation`: the Machine is in deletion.
    RemediationEnded,
    /// `Metal3Remediation`: the Machine has no host.
    RemediationHostMissing,
    /// Inventory: the host attached by the newest settings of the coordinator.
    SettingsCurrent,
    /// Inventory: newer settings were sent to the host.
    SettingsAnnounced,
    /// Inventory: the host does not attach by the newer settings.
    SettingsRefused,
    /// Inventory: the host runs the agent that is asked for.
    AgentAsWanted,
    /// Inventory: the agent is announced later.
    AgentUpdateWaiting,
    /// Inventory: the agent was announced to the host.
    AgentUpdateSent,
    /// Inventory: the host runs its former agent again.
    AgentUpdateFailed,
    /// Inventory: the agent that is asked for cannot be announced.
    AgentUpdateUnavailable,
    /// Inventory: no plan has succeeded yet.
    WaitingForPlan,
    /// Inventory: the last plan succeeded.
    PlanSuccessfullyApplied,
    /// Inventory: the last plan failed.
    PlanFailure,
    /// Registration: it can be used.
    SuccessfullyCreated,
    /// Registration, cluster: a field asks for something that is not supported.
    FieldUnsupported,
    /// Registration: fields are set that have no effect.
    FieldWithoutEffect,
    /// Registration: every field that is set has an effect.
    FieldsSupported,
    /// Registration: another one has the same token.
    DuplicateToken,
    /// Registration: `spec.tokenExpiresAt` is over.
    TokenExpired,
    /// Registration: hosts prove a key in a file and wait for no operator.
    SoftwareKeysApproved,
    /// Registration: new hosts wait for an operator, or prove a TPM.
    AdmissionGuarded,
    /// Registration: a host was refused.
    HostRefused,
    /// Registration: no host was refused lately.
    NoHostRefused,
    /// Inventory: waits for an operator.
    ApprovalPending,
    /// Inventory: admitted by an operator.
    ApprovedByPerson,
    /// Inventory: admitted by its token.
    ApprovedAutomatically,
    /// Inventory: shut out by an operator.
    Revoked,
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
    /// `BareMetalHost`: something else owns the inventory that it names.
    InventoryTaken,
    /// `BareMetalHost`: it has an inventory and does not name it any more.
    InventoryUnnamed,
    /// `Metal3Machine`: no Machine owns it yet.
    WaitingForMetal3MachineOwnerRef,
    /// `Metal3Machine`: the `Metal3Cluster` does not exist.
    WaitingforMetal3Cluster,
    /// `Metal3Machine`: the `Metal3Cluster` is not ready.
    WaitingForClusterInfrastructureReady,
    /// `Metal3Machine`: no bootstrap data yet.
    WaitingForBootstrapData,
    /// `Metal3Machine`: a host is its own.
    AssociateBareMetalHostSuccess,
    /// `Metal3Machine`: no host can be chosen.
    NoHostAvailable,
    /// A selector of hosts cannot be read: `spec.hostSelector` of a `Metal3Machine`,
    /// `spec.selector` of a pool.
    SelectorInvalid,
    /// `Metal3Machine`: the data of its template is not rendered yet.
    WaitingForMetal3Data,
    /// `Metal3Machine`: the data of its template is rendered.
    Metal3DataSecretsReady,
    /// `Metal3Machine`: it has no template, and runs with the Secrets that it names, or none.
    SecretsSetExternally,
    /// `Metal3Machine`: the data for its host is there.
    AssociateMetal3MachineMetaDataSuccess,
    /// `Metal3Machine`: the annotation of its `Metal3Cluster` names what is no prefix of labels.
    LabelPrefixInvalid,
    /// `Metal3Machine`: the Node has the labels of the host.
    LabelsCurrent,
    /// `Metal3Cluster`: in deletion, and machines of its Cluster exist.
    MachinesLeft,
    /// `Metal3Machine`: its host is not provisioned yet.
    HostNotProvisioned,
    /// `SeedImage`: the base cannot be used as it is written.
    BaseImageInvalid,
    /// `SeedImage`: the host of the base has no address.
    BaseImageHostUnknown,
    /// `SeedImage`: the server of the base does not answer as it should.
    BaseImageUnreachable,
    /// `SeedImage`: the certificate of the base's server is signed by an unknown
    /// authority, or is for another name.
    BaseImageUntrusted,
    /// `SeedImage`: the registry demands other credentials.
    BaseImageUnauthorized,
    /// `SeedImage`: a Secret that the base needs is not there or has another form.
    BaseImageSecretInvalid,
    /// `SeedImage`: the registry has no such image, or the directory no such file.
    BaseImageNotFound,
    /// `SeedImage`: the base is not what its digest says.
    BaseImageDigestMismatch,
    /// `SeedImage`: the image has no ISO in its layers.
    BaseImageWithoutISO,
    /// `SeedImage`: the image has several ISOs in its layers.
    BaseImageWithSeveralISOs,
    /// `SeedImage`: the image is for another platform.
    BaseImagePlatformMismatch,
    /// `SeedImage`: the base is larger than allowed.
    BaseImageTooLarge,
    /// `SeedImage`: the base did not arrive in time.
    BaseImageTimedOut,
    /// Decided once the steps before it are done.
    NotDecided,
    /// No blocker.
    Available,
    /// A host is claimed.
    Allocated,
    /// cloud-init or kubeadm would not accept the bootstrap data.
    BootstrapInvalid,
    /// The plan is in flight.
    PlanRunning,
    /// The plan succeeded and was verified.
    PlanApplied,
    /// The plan Secret does not exist.
    PlanSecretMissing,
    /// The plan Secret does not hold a plan record.
    PlanSecretInvalid,
    /// The plan Secret differs from the announced checksum.
    PlanSecretAltered,
    /// The host has no session and the grace period ended.
    HostUnreachable,
    /// The host has not reported its node yet.
    HostStatementMissing,
    /// The host reports a node, but no machine claims the host.
    HostCarriesNode,
    /// The machine is provisioned, but its host reports no node of it.
    HostCarriesNoNode,
    /// The Node of the machine has its providerID.
    NodeFound,
    /// No Node of the machine has joined yet.
    NodeWaiting,
    /// No Node of the machine has joined in time.
    NodeOverdue,
    /// Several Nodes could be that of the machine.
    NodeAmbiguous,
    /// The Node of the machine has the providerID of something else.
    NodeProviderIDUnsupported,
    /// The Secret with the kubeconfig of the workload cluster does not exist.
    KubeconfigMissing,
    /// The kubeconfig of the workload cluster cannot be used.
    KubeconfigInvalid,
    /// The API server of the workload cluster does not answer or refuses.
    WorkloadUnreachable,
    /// The machine that holds the claim does not exist.
    OwnerMissing,
    /// The machine is in deletion, its owning Machine is not.
    OwnerMismatch,
    /// The claim was abandoned without a clean.
    Abandoned,
    /// The API server rejected the request.
    ApiRequestFailed,
    // Failures of a plan, as the host classifies them.
    /// A command ended with an error.
    CommandFailed,
    /// A step took longer than its deadline.
    StepTimedOut,
    /// A file system of the host is full.
    NoSpace,
    /// The boot loader fell back to the former system.
    BootFallback,
    /// The early boot did not clean up the former node.
    CleanupMissing,
    /// The network of the plan did not reach the coordinator: the host has its former one again.
    NetworkReverted,
    /// cloud-init ended with errors.
    CloudInitFailed,
    /// The host refused the plan.
    PlanRefused,
    /// A disk of the host failed.
    InputOutputFailed,
    /// The host registered and is being installed.
    Installing,
    /// The install waits for an operator.
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
    /// A member cannot be used: not attached, failed, quarantined, marked, deleted, or with a node that no machine holds.
    MemberNotReady,
    /// Another pool holds a member.
    MemberInAnotherPool,
    /// Every member exists and belongs to this pool alone.
    MembersFound,
    /// The infrastructure of the Cluster is not provisioned yet.
    ClusterInfrastructureWaiting,
    /// The owner reference to the Machine or Cluster is not set yet.
    OwnerWaiting,
    /// The network of the inventory cannot be rendered.
    NetworkInvalid,
    /// The claimed inventory does not exist; no other host is changed.
    InventoryMissing,
    /// The host is being cleaned.
    Cleaning,
    /// `spec.controlPlaneEndpoint` is not set.
    EndpointMissing,
    /// `spec.controlPlaneEndpoint` is set.
    EndpointKnown,
    /// An API server answers at the endpoint.
    EndpointReachable,
    /// A host holds the address of the internal endpoint.
    AddressHeld,
    /// No API server of the control plane is ready, so no host holds the address.
    HolderMissing,
    /// No control-plane machine has a host that can hold the address.
    MembersMissing,
    /// A host has not confirmed its duty for the load balancer.
    DutyUnconfirmed,
    /// A host does not take part in the load balancer.
    MemberFailed,
    /// The interfaces that `networkDevice` names are there.
    NetworkDeviceFound,
    /// A host has no interface of that name.
    NetworkDeviceMissing,
    /// The interface is a member of a bond or bridge.
    NetworkDeviceIsSlave,
    /// The load balancer's configuration fits the network.
    NetworkConfigAccepted,
    /// A host has reported no network.
    NetworkUnknown,
    /// A host has no address of the endpoint's family.
    AddressMissing,
    /// The address is that of another cluster or host.
    AddressTaken,
    /// Another cluster of the network has the same VRRP id.
    RouterIdShared,
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
    /// Inventory: the identity key is in a TPM with a verified certificate.
    Hardware,
    /// Inventory: the identity key is in a TPM whose certificate was not verified.
    Unverified,
    /// Inventory: the identity key is a file.
    Emulated,
}

impl Type {
    /// The text on the object.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Reason {
    /// The text on the object.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
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
    /// Cause and next action.
    pub message: String,
}

/// A condition that is true.
#[must_use]
pub fn condition_true(kind: Type, reason: Reason, message: impl Into<String>) -> ConditionUpdate {
    ConditionUpdate { kind, status: ConditionStatus::True, reason, message: message.into() }
}

/// A condition that is false.
#[must_use]
pub fn condition_false(kind: Type, reason: Reason, message: impl Into<String>) -> ConditionUpdate {
    ConditionUpdate { kind, status: ConditionStatus::False, reason, message: message.into() }
}

/// A condition whose status cannot be known now.
#[must_use]
pub fn condition_unknown(kind: Type, reason: Reason, message: impl Into<String>) -> ConditionUpdate {
    ConditionUpdate { kind, status: ConditionStatus::Unknown, reason, message: message.into() }
}

/// Writes `updates` over `conditions`. The transition time moves only where
/// the status changes; conditions without an update stay.
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
            message: update.message.clone(),
            observed_generation: generation,
            last_transition_time: since,
        };
        match old {
            Some(index) => conditions[index] = new,
            None => conditions.push(new),
        }
    }
}

/// Shows those of `kinds` that nothing was decided about as unknown.
pub fn set_undecided(
    conditions: &mut Vec<Condition>,
    kinds: &[Type],
    generation: Option<i64>,
    now: Timestamp,
) {
    let missing = kinds.iter().filter(|kind| find_condition(conditions, **kind).is_none());
    let message = "decided once the steps before it are done: see Ready";
    let updates: Vec<_> = missing.map(|kind| condition_unknown(*kind, Reason::NotDecided, message)).collect();
    set_conditions(conditions, &updates, generation, now);
}

/// The condition of that type. For status lines and tests: no decision reads
/// a condition.
#[must_use]
pub fn find_condition(conditions: &[Condition], kind: Type) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == kind.as_str())
}

/// Whether the condition exists with status True.
#[must_use]
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
