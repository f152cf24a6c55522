//! Reasons of conditions.

use strum::{EnumIter, EnumMessage, EnumString, IntoStaticStr};

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
    /// Fields are set that have no effect.
    FieldWithoutEffect,
    /// Every field that is set has an effect.
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
    ApprovedByOperator,
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
    /// `SeedImage`: the image catalog has the image that the base belongs to.
    BaseImageListed,
    /// `SeedImage`: the image catalog has no image that the base belongs to.
    BaseImageUnlisted,
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
    /// The image does not keep what a node needs after a reboot.
    PathsNotKept,
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
    /// A member cannot be used: not attached, not approved, failed, quarantined, marked, deleted, with managed disks, or with a node that no machine holds.
    MemberNotReady,
    /// Ours: the nodes of several members would have one name.
    HostnameShared,
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

impl Reason {
    /// The text on the object.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
