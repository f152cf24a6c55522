//! Reasons of hosts: `MachineInventory`, and the failures that hosts report.

use super::{Entry, act, fine, wait};
use crate::conditions::Reason::*;

pub(super) const REASONS: &[Entry] = &[
    (
        WaitingForPlan,
        wait(
            "the host is being installed, or executes its first plan",
            "none: `kubectl baremetal logs NAME` shows the steps",
        ),
    ),
    (PlanSuccessfullyApplied, fine("the host is attached and its newest plan is done, or it never had one")),
    (
        PlanFailure,
        act(
            "a step of the newest plan failed; PlanApplied of the machine has the failure",
            "`kubectl baremetal logs NAME` shows the output; correct the cause, then delete the Machine",
        ),
    ),
    (
        PlanFailed,
        act(
            "a step failed, and the host did not say of which kind the failure is",
            "`kubectl baremetal logs HOST` shows the output; correct the cause, then delete the Machine",
        ),
    ),
    (
        CustomPlanWaiting,
        wait(
            "the host executes another plan, is not attached, or is neither free nor a running node",
            "none: the plan runs when the host is free for it",
        ),
    ),
    (
        CustomPlanInvalid,
        act(
            "the Secret that the annotation custom-plan names is missing, or holds what hosts do not execute",
            "correct the Secret as the message says, or remove the annotation",
        ),
    ),
    (
        RebootWaiting,
        wait(
            "the host executes a plan, is not admitted, or has never attached",
            "none: the host is asked to reboot when it can be; to withdraw the request, remove its annotation",
        ),
    ),
    (
        RebootInProgress,
        wait(
            "the agent of the host was asked to reboot it",
            "none: an orderly shutdown is forced after three minutes; if the host stays away, look at its console",
        ),
    ),
    (
        RebootDone,
        fine("the host has attached from another boot; the request is done until it is written again"),
    ),
    (SettingsCurrent, fine("URL, token and authorities of the coordinator are known to the host")),
    (
        SettingsAnnounced,
        wait(
            "newer URL, token or authorities were sent",
            "none: the host confirms them when it attaches again",
        ),
    ),
    (
        SettingsRefused,
        act(
            "the host could not attach by the newer URL, token or authorities and kept its former ones",
            "make the new URL reachable from the host with a certificate that the new authorities sign",
        ),
    ),
    (AgentAsWanted, fine("the host attached by the version that the annotation agent-version names")),
    (
        AgentUpdateWaiting,
        wait(
            "the host is away, executes a plan, or other hosts are updated first",
            "none: the agent is announced when the host is attached and idle",
        ),
    ),
    (
        AgentUpdateSent,
        wait(
            "the host reads the agent, starts it, and keeps it once it has attached",
            "none: after five minutes without the new agent the former one is back, and says why",
        ),
    ),
    (
        AgentUpdateFailed,
        act(
            "the host did not take the agent, or the agent did not attach; the former one runs",
            "correct the cause that the message names, then ask again: `kubectl annotate machineinventory NAME baremetal.cluster.io/agent-version-`, then set it again",
        ),
    ),
    (
        AgentUpdateUnavailable,
        act(
            "the coordinator serves another version, or the host runs a newer agent or one that takes no updates",
            "as the message says: upgrade the coordinator, the OS image, or correct the annotation baremetal.cluster.io/agent-version",
        ),
    ),
    (
        ApprovalPending,
        act(
            "the MachineRegistration of the host has spec.approval: Manual",
            "compare spec.tpmHash with the identity on the host's console, then `kubectl baremetal approve NAME`",
        ),
    ),
    (ApprovedByOperator, fine("an operator set the annotation baremetal.cluster.io/approval")),
    (ApprovedAutomatically, fine("the MachineRegistration admits hosts by their token")),
    (
        Revoked,
        act(
            "an operator set the annotation baremetal.cluster.io/approval to Revoked",
            "to admit the host again: `kubectl baremetal approve NAME`; else delete the MachineInventory",
        ),
    ),
    (
        PlanSecretMissing,
        act(
            "the Secret with the plan of the host was deleted",
            "restore the Secret, or delete the Machine; find out what deleted it",
        ),
    ),
    (
        PlanSecretInvalid,
        act(
            "the Secret with the plan of the host was overwritten with something else",
            "restore the Secret, or delete the Machine; find out what writes it",
        ),
    ),
    (
        PlanSecretAltered,
        act(
            "the plan in the Secret is not the one that was announced to the host",
            "restore the Secret, or delete the Machine; find out what writes it",
        ),
    ),
    (
        HostUnreachable,
        act(
            "the host has had no connection to the coordinator for five minutes: power, network or agent",
            "check power, network and console of the host; nothing is done to it, and it goes on when it attaches",
        ),
    ),
    (
        HostStatementMissing,
        wait(
            "the host has not attached since it was registered, restored or moved",
            "none: it goes on when the host attaches; if it stays away, check its power and console",
        ),
    ),
    (
        HostCarriesNode,
        act(
            "the host carries a node that no claim is of: the owner annotations were lost, or a restored claim is older than the node",
            "restore the machine of the node, and the claim is restored by its providerID; otherwise install the host as a new one (\"Wipe a disk\" in docs/operations.md)",
        ),
    ),
    (
        OwnerMissing,
        act(
            "the machine of the claim was deleted without its finalizer, or names another host",
            "restore the machine; or install the host as a new one (\"Wipe a disk\" in docs/operations.md)",
        ),
    ),
    (
        Abandoned,
        act(
            "the machine of the host was removed while the host was unreachable",
            "repair the host: it is cleaned and released when it attaches; or power it off for good and delete the MachineInventory",
        ),
    ),
    (Installing, wait("the live system writes the system to the disk", "none: it takes some minutes")),
    (
        InstallWaiting,
        act(
            "no disk can be chosen without doubt, or the install failed three times since the host booted",
            "as the message says; to name the disk: `kubectl annotate machineinventory NAME baremetal.cluster.io/install-device=/dev/disk/by-id/…`",
        ),
    ),
    (
        InstallFailed,
        wait(
            "a command of the install failed; it is repeated, three times at most",
            "none: after the third attempt the reason is InstallWaiting",
        ),
    ),
    (InstallDone, fine("the system is on the disk")),
    (
        LiveBootAfterInstall,
        act(
            "a seed ISO was booted on an installed host; its disk was left alone",
            "remove the medium and boot the disk; to install again: `kubectl baremetal reinstall NAME`",
        ),
    ),
    (
        DuplicateIdentity,
        act(
            "a disk was cloned or a virtual machine copied: two running systems have one key",
            "switch one of the two off, install it again, then remove the annotation baremetal.cluster.io/quarantined",
        ),
    ),
    (
        NetworkInvalid,
        act(
            "spec.network or spec.observedNetwork of the host cannot work; the message names interface or keyfile",
            "correct it, or give another network in spec.network, which wins",
        ),
    ),
    (NetworkAsIntended, fine("the host has the network that every plan replays")),
    (
        NetworkChanged,
        act(
            "the network that the host reports differs from the one that every plan replays",
            "correct the host, or take its network: `kubectl annotate machineinventory NAME baremetal.cluster.io/accept-observed-network=`",
        ),
    ),
    (Hardware, fine("a CA in the Secret tpm-ca vouches for the TPM")),
    (
        Unverified,
        fine("the namespace has no Secret tpm-ca, so that the certificate of the TPM was not verified"),
    ),
    (Emulated, fine("the host proves a key in a file: a copy of its disk is this host")),
    (
        CommandFailed,
        act(
            "a command of the step ended with an error",
            "`kubectl baremetal logs HOST` shows its output; correct the cause, then delete the Machine",
        ),
    ),
    (
        StepTimedOut,
        act(
            "the step did not end before its deadline; the message says what it waited for",
            "correct the cause on the host, then delete the Machine",
        ),
    ),
    (
        NoSpace,
        act("a file system of the host has no space left", "free space on the host, then delete the Machine"),
    ),
    (
        BootFallback,
        act(
            "the new image did not boot, or its agent did not run, and the boot loader started the former system",
            "correct the image in the catalog, then delete the Machine",
        ),
    ),
    (
        CleanupMissing,
        act(
            "early boot did not wipe the former node, or left what is a mount point",
            "look at `journalctl -u baremetal-agent-boot` on the host, unmount what is listed, then delete the Machine",
        ),
    ),
    (
        NetworkReverted,
        act(
            "with the network of the plan the host did not reach the coordinator, and went back to its former one",
            "correct spec.network of the MachineInventory or the cabling, then delete the Machine",
        ),
    ),
    (
        PathsNotKept,
        act(
            "the persistent paths of the image lack directories of a node, which would be gone at the next reboot; no node was started",
            "add the listed paths to the persistent paths of the image, push it, then delete the Machine",
        ),
    ),
    (
        CloudInitFailed,
        act(
            "cloud-init ended with errors: mostly kubeadm",
            "look at /var/log/cloud-init-output.log on the host, correct the bootstrap data, then delete the Machine",
        ),
    ),
    (
        PlanRefused,
        act(
            "the agent does not know a step of the plan, or the plan is not for this host",
            "bring the agent in the image to the version of the coordinator, then delete the Machine",
        ),
    ),
    (
        InputOutputFailed,
        act(
            "a disk of the host reported errors",
            "replace the disk, install the host again, then delete the Machine",
        ),
    ),
];
