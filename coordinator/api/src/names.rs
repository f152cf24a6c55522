//! Kinds, annotations, labels, finalizers and Secret keys.

/// Names of the kinds, as the API server serves them.
#[allow(missing_docs)]
pub mod kind {
    // Kinds of this provider.
    pub const BAREMETAL_CLUSTER: &str = "BaremetalCluster";
    pub const BAREMETAL_CLUSTER_TEMPLATE: &str = "BaremetalClusterTemplate";
    pub const BAREMETAL_MACHINE: &str = "BaremetalMachine";
    pub const BAREMETAL_MACHINE_TEMPLATE: &str = "BaremetalMachineTemplate";
    pub const MACHINE_INVENTORY: &str = "MachineInventory";
    pub const MACHINE_INVENTORY_POOL: &str = "MachineInventoryPool";
    pub const MACHINE_REGISTRATION: &str = "MachineRegistration";
    pub const SEED_IMAGE: &str = "SeedImage";
    // Kinds of Metal3.
    pub const BARE_METAL_HOST: &str = "BareMetalHost";
    pub const IP_ADDRESS: &str = "IPAddress";
    pub const IP_CLAIM: &str = "IPClaim";
    pub const IP_POOL: &str = "IPPool";
    pub const METAL3_CLUSTER: &str = "Metal3Cluster";
    pub const METAL3_CLUSTER_TEMPLATE: &str = "Metal3ClusterTemplate";
    pub const METAL3_DATA: &str = "Metal3Data";
    pub const METAL3_DATA_CLAIM: &str = "Metal3DataClaim";
    pub const METAL3_DATA_TEMPLATE: &str = "Metal3DataTemplate";
    pub const METAL3_MACHINE: &str = "Metal3Machine";
    pub const METAL3_MACHINE_TEMPLATE: &str = "Metal3MachineTemplate";
    pub const METAL3_REMEDIATION: &str = "Metal3Remediation";
    pub const METAL3_REMEDIATION_TEMPLATE: &str = "Metal3RemediationTemplate";
    // Kinds of Cluster API. Its `IPAddress` has the name of Metal3's.
    pub const CLUSTER: &str = "Cluster";
    pub const IP_ADDRESS_CLAIM: &str = "IPAddressClaim";
    pub const MACHINE: &str = "Machine";
    // Kinds of Kubernetes.
    pub const CONFIG_MAP: &str = "ConfigMap";
    pub const LEASE: &str = "Lease";
    pub const NODE: &str = "Node";
    pub const SECRET: &str = "Secret";
}

/// Annotations of a `MachineInventory` that hold the claim, and related ones.
pub mod annotation {
    /// Pool from which the inventory was allocated last. The annotation stays on release.
    pub const POOL: &str = "baremetal.alauda.io/pool";
    /// A value of [`crate::inventory::AllocationState`].
    pub const ALLOCATION_STATE: &str = "baremetal.alauda.io/allocation-state";
    /// Name of the Cluster API Cluster that holds the claim.
    pub const OWNER_CLUSTER: &str = "baremetal.alauda.io/owner-cluster";
    /// Name of the Cluster API Machine that holds the claim.
    pub const OWNER_MACHINE: &str = "baremetal.alauda.io/owner-machine";
    /// Name of the `BaremetalMachine` that holds the claim.
    pub const OWNER_BAREMETAL_MACHINE: &str = "baremetal.alauda.io/owner-baremetalmachine";
    /// Ours: kind of the machine that holds the claim. Absent: `BaremetalMachine`.
    pub const OWNER_KIND: &str = "baremetal.cluster.io/owner-kind";
    /// Ours: name of the `BareMetalHost` that names the inventory. Such an inventory is
    /// available to no pool.
    pub const OWNER_BARE_METAL_HOST: &str = "baremetal.cluster.io/owner-baremetalhost";
    /// Ours: UID of the machine that holds the claim. Only names decide a claim; a UID that
    /// differs after a restore or a move is updated.
    pub const OWNER_UID: &str = "baremetal.cluster.io/owner-uid";
    /// Ours: generation of the host's newest plan at the time of the claim. Plans of a
    /// higher generation belong to the claim.
    pub const CLAIM_GENERATION: &str = "baremetal.cluster.io/claim-generation";
    /// Ours: the machine of the claim does not exist, and the host was not cleaned. The host
    /// is cleaned and released when it attaches.
    pub const ABANDONED: &str = "baremetal.cluster.io/abandoned";
    /// Cluster API: `clusterctl move` waits while an object has this annotation.
    pub const BLOCK_MOVE: &str = "clusterctl.cluster.x-k8s.io/block-move";
    /// Cluster API, on definitions: `clusterctl` takes a plural that does not follow its rule.
    pub const SKIP_NAME_CHECK: &str = "clusterctl.cluster.x-k8s.io/skip-crd-name-preflight-check";
    /// Cluster API: `clusterctl move` replaces all annotations by this one before it
    /// deletes an object that was moved.
    pub const DELETE_FOR_MOVE: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";
    /// Ours: set by an operator on a `MachineRegistration` to request a new token, which
    /// invalidates all earlier ISOs.
    pub const ROTATE_TOKEN: &str = "baremetal.cluster.io/rotate-token";
    /// Ours: set on a `MachineRegistration`: the namespaces, separated by commas, whose
    /// `SeedImages` may use the registration.
    pub const SEED_IMAGE_NAMESPACES: &str = "baremetal.cluster.io/seed-image-namespaces";
    /// Ours: on the Lease of a replica of the coordinator: digests of its base ISOs,
    /// separated by commas.
    pub const BASE_ISOS: &str = "baremetal.cluster.io/base-isos";
    /// Ours: set by an operator on a `MachineInventory`: the Secret in its namespace with a
    /// plan in the upstream format, which runs once. The annotation is removed when the plan
    /// was announced.
    pub const CUSTOM_PLAN: &str = "baremetal.cluster.io/custom-plan";
    /// Ours: set by an operator on a `MachineInventory` to request one reboot of its host, and
    /// removed after the reboot.
    pub const REBOOT: &str = "baremetal.cluster.io/reboot";
    /// Ours: on a `MachineInventory`: the boot that a reboot request ends. In every other boot
    /// of the host the request is done.
    pub const REBOOTING_FROM: &str = "baremetal.cluster.io/rebooting-from";
    /// Ours: set by an operator on a `MachineInventory`: the requested version of the agent,
    /// which is used if the coordinator serves it and it is newer.
    pub const AGENT_VERSION: &str = "baremetal.cluster.io/agent-version";
    /// On plan Secrets: `clean`, `reprovision` or `custom`.
    pub const PLAN_TYPE: &str = "baremetal.alauda.io/plan.type";
    /// Ours: the inventory that a machine has chosen. It is written before the claim, so that
    /// a stale cache cannot make the machine claim a second inventory.
    pub const MACHINE_INVENTORY: &str = "baremetal.cluster.io/machine-inventory";
    /// Ours: set by an operator on a machine in deletion whose clean failed, or on the
    /// `MachineInventory` of an abandoned host, to request another clean. It is removed when
    /// the clean is assigned.
    pub const RETRY_PLAN: &str = "baremetal.cluster.io/retry-plan";
    /// Ours: set by an operator on a machine in deletion whose host is dead, to abandon the
    /// host without a clean. The inventory stays `Unavailable` until the host attaches and is
    /// cleaned.
    pub const RELEASE_WITHOUT_CLEAN: &str = "baremetal.cluster.io/release-without-clean";
    /// Ours: set by an operator on a `MachineInventory`: the disk to install to, whatever is on
    /// it. Further paths after commas name disks that are erased as well.
    pub const INSTALL_DEVICE: &str = "baremetal.cluster.io/install-device";
    /// Ours: set by an operator on a `MachineInventory` whose host has not registered yet: its
    /// SMBIOS UUID, by which the live system finds its network.
    pub const SYSTEM_UUID: &str = "baremetal.cluster.io/system-uuid";
    /// Ours: set by an operator on a `MachineInventory` that no machine holds: the system disk,
    /// which the next boot of a seed ISO installs again. It is removed after the install.
    pub const REINSTALL: &str = "baremetal.cluster.io/reinstall";
    /// Ours: set by an operator on a `MachineInventory`: checksum of the journal that its host cannot
    /// read and removes. It is removed when the host states another journal or none.
    pub const FORGET_JOURNAL: &str = "baremetal.cluster.io/forget-journal";
    /// Ours: set by an operator to accept the newest reported network as the intended one.
    pub const ACCEPT_OBSERVED_NETWORK: &str = "baremetal.cluster.io/accept-observed-network";
    /// Ours: a value of [`crate::inventory::Approval`]. If the registration requires an
    /// approval, the value is `Pending` until an operator sets `Approved`. `Revoked` shuts a
    /// host out, even if it holds a valid certificate.
    pub const APPROVAL: &str = "baremetal.cluster.io/approval";
    /// Ours: set while two live hosts claim the same identity, and removed by an operator.
    pub const QUARANTINED: &str = "baremetal.cluster.io/quarantined";
    /// Ours: set by an operator on a `MachineInventory`: lower-case hexadecimal SHA-256 of the key
    /// of the host that is refused from now on, because it may have been stolen.
    pub const REPLACED_KEY: &str = "baremetal.cluster.io/replaced-key";
    /// Ours: set by an operator on a `MachineInventory` of a host without TPM: lower-case
    /// hexadecimal SHA-256 of the key on the host's console, which replaces the known one.
    pub const ACCEPTED_KEY: &str = "baremetal.cluster.io/accepted-key";
    /// On a Cluster: registry of its images, which replaces the registry of the catalog.
    pub const REGISTRY_ADDRESS: &str = "cpaas.io/registry-address";
    /// Ours: on a machine, its Cluster or a `MachineRegistration`: the Secret in its namespace
    /// by which hosts access the registry of their image.
    pub const REGISTRY_SECRET: &str = "baremetal.cluster.io/registry-secret";
    /// Ours: on a `MachineInventory`: the `MachineRegistration` that created it. The host may
    /// register again by its key, even if the token is no longer valid.
    pub const REGISTRATION: &str = "baremetal.cluster.io/registration";
    /// Ours: on plan Secrets: `spec.tpmHash` of their host.
    pub const TPM_HASH: &str = "baremetal.cluster.io/tpm-hash";
    /// Ours: on a `MachineInventory`: the control plane or deployment whose machine held it
    /// last, if the pool has `spec.nodeReuse`.
    pub const NODE_REUSE_GROUP: &str = "baremetal.cluster.io/node-reuse-group";
    /// Ours: on a `MachineInventory`: a plan was written for its host, so that its labels stay as
    /// they are. The annotation survives a restore without status, and is never removed.
    pub const HAD_PLAN: &str = "baremetal.cluster.io/had-plan";
    /// Ours: on a `MachineInventory` that a machine or a plan used: the key and the TPM of its host,
    /// as in the status, in JSON. The annotation survives a restore without status.
    pub const HOST_IDENTITY: &str = "baremetal.cluster.io/host-identity";
    /// Ours: on an object of Metal3 that was converted: JSON of the differences that its version
    /// cannot express. Without the annotation the object lacks them at the other version.
    pub const CONVERSION_DIFFERENCES: &str = "baremetal.cluster.io/conversion-differences";
    /// Cluster API: another system manages the infrastructure cluster.
    pub const MANAGED_BY: &str = "cluster.x-k8s.io/managed-by";
    /// Cluster API: the object is paused.
    pub const PAUSED: &str = "cluster.x-k8s.io/paused";
}

/// Labels.
pub mod label {
    /// Set on objects that the registration side creates.
    pub const MANAGED: &str = "elemental.cattle.io/managed";
    /// Cluster API's label with the name of the Cluster.
    pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
    /// Cluster API: the instance of its managers and providers that reconciles the object.
    pub const WATCH_FILTER: &str = "cluster.x-k8s.io/watch-filter";
    /// Cluster API's label of control plane machines, and ours on a pool of hosts for the
    /// control plane.
    pub const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
    /// Cluster API's label with the name of the control plane of a machine.
    pub const CONTROL_PLANE_NAME: &str = "cluster.x-k8s.io/control-plane-name";
    /// Cluster API's label with the name of the `MachineDeployment` of a machine.
    pub const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";
    /// Cluster API's label with the name of the `MachineSet` of a machine.
    pub const SET_NAME: &str = "cluster.x-k8s.io/set-name";
    /// Ours: on a `MachineInventory`: the failure domain of the host.
    pub const FAILURE_DOMAIN: &str = "infrastructure.cluster.x-k8s.io/failure-domain";
    /// Cluster API, on definitions: objects of the kind are part of a move.
    pub const CLUSTERCTL: &str = "clusterctl.cluster.x-k8s.io";
    /// Cluster API, on definitions: every object of the kind is moved.
    pub const CLUSTERCTL_MOVE: &str = "clusterctl.cluster.x-k8s.io/move";
    /// Ours: class of the identity key: `Hardware`, `Unverified` or `Emulated`.
    pub const IDENTITY_CLASS: &str = "baremetal.cluster.io/identity-class";
    /// Ours: on the Lease of a coordinator replica.
    pub const REPLICA: &str = "baremetal.cluster.io/replica";
}

/// Finalizers.
pub mod finalizer {
    /// Held until the host was cleaned and released.
    pub const BAREMETAL_MACHINE: &str = "baremetalmachine.infrastructure.cluster.x-k8s.io";
    /// Held while a machine owns the inventory, so that a deletion by an operator does not
    /// lose the record of the owner.
    pub const MACHINE_INVENTORY: &str = "machineinventory.elemental.cattle.io";
}

/// Plan Secrets, as rancher's system-agent and elemental-operator have them.
pub mod plan_secret {
    /// Type of the Secret.
    pub const TYPE: &str = "elemental.cattle.io/plan";
    /// The plan, JSON.
    pub const PLAN: &str = "plan";
    /// SHA-256 of the plan that succeeded last.
    pub const APPLIED_CHECKSUM: &str = "applied-checksum";
    /// gzip of a JSON map from instruction to output.
    pub const APPLIED_OUTPUT: &str = "applied-output";
    /// SHA-256 of the plan that failed last.
    pub const FAILED_CHECKSUM: &str = "failed-checksum";
    /// gzip of a JSON map from instruction to output.
    pub const FAILED_OUTPUT: &str = "failed-output";
    /// Number of failures of the plan.
    pub const FAILURE_COUNT: &str = "failure-count";
    /// The plan of a host that never had one.
    pub const EMPTY: &str = "{}";
}

/// Secrets with the token of a registration.
pub mod registration_secret {
    /// Type of the Secret.
    pub const TYPE: &str = "baremetal.cluster.io/registration-token";
    /// The token.
    pub const TOKEN: &str = "token";
    /// Suffix after the name of the `MachineRegistration`.
    pub const SUFFIX: &str = "-registration-token";
}

/// Default name of the `ConfigMap` from versions to OS images.
pub const IMAGE_CATALOG: &str = "elemental-image-catalog";
/// Group of the infrastructure side.
pub const INFRASTRUCTURE_GROUP: &str = "infrastructure.cluster.x-k8s.io";
/// The version of both groups that the coordinator reads and writes.
pub const VERSION: &str = "v1beta1";
