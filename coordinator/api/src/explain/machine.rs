//! Reasons of machines and pools.

use super::{Entry, act, fine, wait};
use crate::conditions::Reason::*;

pub(super) const REASONS: &[Entry] = &[
    (
        PoolMissing,
        act(
            "machineInventoryPoolRef of the machine names a pool that its namespace does not have",
            "create the MachineInventoryPool, or correct the name in the BaremetalMachineTemplate",
        ),
    ),
    (
        PoolExhausted,
        act(
            "every host or address of the pool is in use or cannot be used; the message says what of it",
            "add a host to the pool, or a range to the IPPool; or free one, or correct what keeps a host from being used",
        ),
    ),
    (
        PoolOfOtherCluster,
        act(
            "spec.clusterName of the pool names another Cluster than that of the machine",
            "name another pool in the BaremetalMachineTemplate, or correct spec.clusterName of the pool",
        ),
    ),
    (
        BootstrapWaiting,
        wait(
            "the Machine has no bootstrap data Secret yet: the bootstrap provider has not written it",
            "none: it goes on when the Secret is there; where it stays away, look at the bootstrap configuration of the Machine and at the control plane of the Cluster",
        ),
    ),
    (
        BootstrapInvalid,
        act(
            "the bootstrap data is no cloud-config, is too large, or names another host or providerID",
            "correct the bootstrap configuration (KubeadmConfigTemplate or the Secret), then delete the Machine",
        ),
    ),
    (
        ImageCatalogMiss,
        act(
            "the image catalog has no usable entry for spec.version of the Machine",
            "add the version to the ConfigMap elemental-image-catalog in the namespace of the coordinator, or correct spec.version",
        ),
    ),
    (
        ImageRegistryMissing,
        act(
            "the image in the catalog names no registry, and the Cluster names none either",
            "name a registry in the catalog, or annotate the Cluster with cpaas.io/registry-address",
        ),
    ),
    (
        RegistrySecretInvalid,
        act(
            "the Secret that the annotation baremetal.cluster.io/registry-secret names does not exist or has another form",
            "create or correct the Secret, or correct the annotation",
        ),
    ),
    (
        VersionMissing,
        act(
            "spec.version of the Machine is empty, so that no image can be chosen",
            "set spec.version on the MachineDeployment or the control plane",
        ),
    ),
    (
        ClusterInfrastructureWaiting,
        wait(
            "Cluster API does not take the infrastructure of the Cluster as provisioned yet",
            "none: it goes on with the BaremetalCluster; where that is not ready, its conditions say why",
        ),
    ),
    (
        OwnerWaiting,
        wait(
            "Cluster API has not set the owner reference yet, or the Cluster is not found",
            "none: Cluster API sets it; create a MachineDeployment or a control plane and not this object, and restore a Cluster that is missing",
        ),
    ),
    (
        OwnerMismatch,
        act(
            "the object was deleted by the garbage collector or by hand, while its Machine was not",
            "delete the Machine to have the host cleaned; where a restore changed UIDs, correct the owner reference first",
        ),
    ),
    (
        InventoryMissing,
        act(
            "the MachineInventory that the machine names was deleted",
            "restore the MachineInventory, or remove the annotation baremetal.cluster.io/machine-inventory of the machine",
        ),
    ),
    (Allocated, fine("the machine holds a host")),
    (Available, fine("nothing is in the way")),
    (
        NotDecided,
        wait("a step before this one is not done yet", "none: the condition Ready says what is waited for"),
    ),
    (Running, fine("the plan was applied, and the node can join or has joined")),
    (
        PlanRunning,
        wait("the host executes its plan", "none: `kubectl baremetal logs HOST --follow` shows the steps"),
    ),
    (PlanApplied, fine("the host proved its plan done")),
    (
        Cleaning,
        wait(
            "the machine is in deletion, and the host removes the node",
            "none: the host is available again when it is done",
        ),
    ),
    (
        HostCarriesNoNode,
        act(
            "the host of a running machine was cleaned or installed again by hand",
            "delete the Machine: a machine with a providerID never gets a second plan",
        ),
    ),
    (NodeFound, fine("Cluster API knows the Node of the machine")),
    (
        NodeWaiting,
        wait(
            "kubeadm or the kubelet has not registered the Node yet",
            "none: after fifteen minutes the reason is NodeOverdue",
        ),
    ),
    (
        NodeOverdue,
        act(
            "kubeadm or the kubelet failed on the host, or the Node lacks the label that the message names",
            "look at cloud-init and the kubelet on the host's console; delete the Machine to try again",
        ),
    ),
    (
        NodeAmbiguous,
        act(
            "several Nodes have the label or the providerID of the machine, as one that a former installation left",
            "delete the Node that is not of this machine from the workload cluster",
        ),
    ),
    (
        NodeProviderIDUnsupported,
        act(
            "the bootstrap data sets another provider-id on the kubelet",
            "remove the kubelet argument from the bootstrap configuration, then delete the Machine",
        ),
    ),
    (
        KubeconfigMissing,
        act(
            "no Secret CLUSTER-kubeconfig with the key `value` is in the namespace of the Cluster",
            "create it (type cluster.x-k8s.io/secret) where no control plane provider does",
        ),
    ),
    (
        KubeconfigInvalid,
        act(
            "the Secret CLUSTER-kubeconfig holds no kubeconfig, or one that names files, programs or a proxy",
            "put certificates, keys and tokens themselves into it",
        ),
    ),
    (
        WorkloadUnreachable,
        act(
            "the API server of the workload cluster does not answer, or refuses the credentials",
            "check the control-plane endpoint and the Secret CLUSTER-kubeconfig; it is tried again",
        ),
    ),
    (
        Paused,
        act(
            "the object has the annotation cluster.x-k8s.io/paused, or its Cluster has spec.paused",
            "remove the annotation, or set spec.paused of the Cluster to false",
        ),
    ),
    (NotPaused, fine("the object is reconciled")),
    (
        ApiRequestFailed,
        act(
            "the API server rejected a request of the coordinator: roles or admission policy of another version, a quota, a webhook",
            "correct what the message names; the request is repeated",
        ),
    ),
    (
        MemberMissing,
        act(
            "the pool lists a MachineInventory that does not exist",
            "boot the seed ISO on that host, or remove the entry from the pool",
        ),
    ),
    (
        MemberNotReady,
        act(
            "a member is not attached, failed, quarantined, not approved, in deletion, has managed disks, or carries a node that no machine holds",
            "look at the member that the message names: `kubectl baremetal why machineinventory/HOST`",
        ),
    ),
    (
        HostnameShared,
        act(
            "two members have one `hostname`, or one has the name of the other: the second node cannot join, or takes the place of the first",
            "give each entry of the pool a `hostname` of its own",
        ),
    ),
    (
        MemberInAnotherPool,
        act("another pool of the namespace holds a member", "remove the host from one of the two pools"),
    ),
    (MembersFound, fine("every member exists and belongs to this pool alone")),
    (
        SelectorInvalid,
        act(
            "an expression of the selector has an unknown operator or value",
            "correct the selector as the message says",
        ),
    ),
];
