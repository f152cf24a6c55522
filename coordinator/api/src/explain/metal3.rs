//! Reasons of the Metal3 kinds.

use super::{Entry, act, fine, wait};
use crate::conditions::Reason::*;

pub(super) const REASONS: &[Entry] = &[
    (
        PoolInvalid,
        act(
            "start, end, subnet or prefix of the IPPool give no address, its ranges share addresses, or one in use is in none",
            "correct the field that the message names",
        ),
    ),
    (
        InventoryTaken,
        act(
            "a pool, a machine or another BareMetalHost has the inventory",
            "take the inventory out of the pool, or name another one in the annotation of the BareMetalHost",
        ),
    ),
    (
        InventoryUnnamed,
        act(
            "the annotation baremetal.cluster.io/machine-inventory was removed or changed",
            "write the annotation again with the name in the message; to part the two, delete the BareMetalHost",
        ),
    ),
    (
        WaitingForMetal3MachineOwnerRef,
        wait(
            "Cluster API has not set the owner reference yet",
            "none: create a MachineDeployment or a control plane and not this object",
        ),
    ),
    (
        WaitingforMetal3Cluster,
        wait(
            "the Cluster names no Metal3Cluster, or that does not exist",
            "none: it goes on when the Metal3Cluster is there",
        ),
    ),
    (
        WaitingForClusterInfrastructureReady,
        wait(
            "the Metal3Cluster is not ready yet",
            "none: the conditions of the Metal3Cluster say what is missing",
        ),
    ),
    (
        WaitingForBootstrapData,
        wait(
            "the Machine has no bootstrap data Secret yet",
            "none: it goes on when the bootstrap provider has written it",
        ),
    ),
    (AssociateBareMetalHostSuccess, fine("the machine has a BareMetalHost")),
    (
        NoHostAvailable,
        act(
            "every BareMetalHost of the namespace is used, excluded by the selector, or cannot be used; the message counts them by cause",
            "free a BareMetalHost, or create one that names an inventory",
        ),
    ),
    (
        WaitingForMetal3Data,
        act(
            "the Metal3DataTemplate is missing, a pool has no address, or a value does not exist",
            "as the message says; see also status.errorMessage of Metal3Data and IPClaim",
        ),
    ),
    (Metal3DataSecretsReady, fine("meta-data and network data are rendered")),
    (SecretsSetExternally, fine("no Metal3DataTemplate is named, and the host runs")),
    (AssociateMetal3MachineMetaDataSuccess, fine("the data for the host is there, or none is asked for")),
    (
        LabelPrefixInvalid,
        act(
            "metal3.io/metal3-label-sync-prefixes of the Metal3Cluster names what is no DNS subdomain",
            "correct the annotation; the message names the prefix",
        ),
    ),
    (LabelsCurrent, fine("the labels of the host with the prefixes asked for are on its Node")),
    (
        MachinesLeft,
        wait(
            "the Metal3Cluster was deleted before the machines of its Cluster",
            "none where the Cluster is deleted too: it goes on when the Machines are gone; else delete them",
        ),
    ),
    (
        AllocationFailed,
        act(
            "the IPPool is missing, in deletion or invalid, or the annotation ipAddress asks for what it cannot give",
            "as the message says",
        ),
    ),
    (
        RemediationRunning,
        wait(
            "a MachineHealthCheck found the node unhealthy",
            "none: the condition Rebooted of the BareMetalHost says how far it is",
        ),
    ),
    (
        RemediationWaiting,
        wait(
            "the host has rebooted, and its node is not healthy yet",
            "none: after spec.strategy.timeout it is rebooted again, or the Machine is given up",
        ),
    ),
    (
        RemediationRefused,
        act(
            "spec.online of the BareMetalHost is false",
            "set spec.online of the BareMetalHost to true, then delete the Metal3Remediation",
        ),
    ),
    (
        RemediationExhausted,
        act(
            "the node did not become healthy within spec.strategy.timeout, spec.strategy.retryLimit times",
            "repair the host, then remove the annotation capi.metal3.io/unhealthy of its BareMetalHost",
        ),
    ),
    (RemediationEnded, fine("the Machine is in deletion, and its host is given back")),
    (
        RemediationHostMissing,
        act(
            "the MachineHealthCheck counts a Machine as unhealthy that has no host yet",
            "see the conditions of the Metal3Machine; a longer nodeStartupTimeoutSeconds gives it more time",
        ),
    ),
    (
        HostNotProvisioned,
        wait("the host executes its plan", "none: the conditions of the BareMetalHost say how far it is"),
    ),
];
