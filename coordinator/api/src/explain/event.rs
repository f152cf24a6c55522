//! Events of the coordinator.

use strum::IntoStaticStr;

/// How Kubernetes classes an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub enum EventType {
    /// Something went as intended.
    Normal,
    /// Something may need an operator.
    Warning,
}

/// An Event with a reason of its own. Warnings have besides the reasons of the condition
/// `Ready`, and on a `MachineRegistration` the codes of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventEntry {
    /// Kind of the object that it is about.
    pub object: &'static str,
    /// Normal or Warning.
    pub kind: EventType,
    /// The reason.
    pub reason: &'static str,
    /// What it says.
    pub meaning: &'static str,
    /// What it follows from.
    pub cause: &'static str,
    /// What an operator does.
    pub action: &'static str,
}

const fn normal(
    object: &'static str,
    reason: &'static str,
    meaning: &'static str,
    cause: &'static str,
) -> EventEntry {
    EventEntry { object, kind: EventType::Normal, reason, meaning, cause, action: "none" }
}

const fn warning(
    object: &'static str,
    reason: &'static str,
    meaning: &'static str,
    cause: &'static str,
    action: &'static str,
) -> EventEntry {
    EventEntry { object, kind: EventType::Warning, reason, meaning, cause, action }
}

const MACHINE: &str = "BaremetalMachine, BareMetalHost";
const METAL3_MACHINE: &str = "Metal3Machine";
const INVENTORY: &str = "MachineInventory";
const REGISTRATION: &str = "MachineRegistration";

/// Every Event with a reason of its own.
pub const EVENTS: &[EventEntry] = &[
    normal(MACHINE, "InventoryAllocated", "the machine claimed a host", "a member of its pool was available"),
    normal(
        MACHINE,
        "ClaimAdopted",
        "the UID in the claim of the host was updated",
        "a restore or a move changed the UID of the machine, while the names of both sides agree",
    ),
    normal(MACHINE, "PlanAssigned", "a plan was stored and announced to the host", "a claim, or a deletion"),
    normal(
        "BaremetalMachine, BareMetalHost, Metal3Machine",
        "Provisioned",
        "the machine has its providerID",
        "the host proved its plan done",
    ),
    normal(MACHINE, "NodeLinked", "spec.providerID of the Node was written", "the Node joined without one"),
    normal(
        MACHINE,
        "NodeRemoved",
        "the Node was deleted from the workload cluster",
        "the host was cleaned or given up, and Cluster API leaves the Nodes of a Cluster without control plane",
    ),
    normal(
        "BareMetalHost",
        "InventoryTaken",
        "the inventory that the host names is its own",
        "nothing else owned the inventory",
    ),
    normal(METAL3_MACHINE, "HostAssociated", "the machine chose a BareMetalHost", "the host could be chosen"),
    normal(
        METAL3_MACHINE,
        "ImageSet",
        "the image was written to the BareMetalHost",
        "all data of the machine is there",
    ),
    normal(
        METAL3_MACHINE,
        "ImageRemoved",
        "the image was removed from the BareMetalHost",
        "the machine is in deletion",
    ),
    normal(
        METAL3_MACHINE,
        "CleaningModeSet",
        "automatedCleaningMode was written to the BareMetalHost",
        "it was changed on the machine",
    ),
    normal(METAL3_MACHINE, "HostReleased", "the BareMetalHost is free", "its node was removed"),
    normal(
        "Metal3Remediation",
        "Remediating",
        "a try began: the host is rebooted",
        "the MachineHealthCheck found the node unhealthy, or the try before did not help",
    ),
    warning(
        "Metal3Remediation",
        "RemediationGivenUp",
        "the owner of the Machine replaces it, and no machine chooses its host",
        "the node did not become healthy within the timeout of the last try",
        "repair the host, then remove the annotation capi.metal3.io/unhealthy of the BareMetalHost",
    ),
    warning(
        "IPClaim",
        "AddressRefused",
        "the pool gives the claim no address",
        "the pool is exhausted, or the address that is asked for is used or outside of it",
        "add a range to the IPPool, or delete claims that are not needed",
    ),
    normal(
        INVENTORY,
        "CustomPlanAssigned",
        "the plan of an operator was stored and announced",
        "the annotation custom-plan, and the host was free for it",
    ),
    normal(
        "MachineInventory, BareMetalHost",
        "RebootRequested",
        "the agent of the host is asked to reboot it, once",
        "the annotation reboot of the MachineInventory, or reboot.metal3.io of the BareMetalHost",
    ),
    normal(
        "MachineInventory, BareMetalHost",
        "Rebooted",
        "the host runs another boot",
        "it was asked to reboot, or was switched off and on",
    ),
    normal(
        INVENTORY,
        "Released",
        "the claim was removed; the host is available",
        "the host proved that it carries nothing",
    ),
    normal(
        INVENTORY,
        "ObservedNetworkAccepted",
        "the network that was reported last is the intended one",
        "the annotation accept-observed-network",
    ),
    warning(
        INVENTORY,
        "AgentUpdateFailed",
        "the host runs its former agent",
        "it did not take the agent that it was sent, or that did not attach; the message says why",
        "correct the cause, then remove the annotation agent-version and set it again",
    ),
    warning(
        INVENTORY,
        "ApprovalPending",
        "the host waits for an operator",
        "its MachineRegistration has spec.approval: Manual",
        "`kubectl baremetal approve NAME`; or, if it is not yours, change the token and delete the MachineInventory",
    ),
    warning(
        INVENTORY,
        "IdentityReplaced",
        "spec.tpmHash is the new key of the host",
        "a host that was never installed registered again with another key and the same hardware (SMBIOS UUID, permanent MACs)",
        "none, unless another host pretends to be this one: then delete the MachineInventory",
    ),
    warning(
        INVENTORY,
        "TemplateUnresolved",
        "the name is random, or a label or annotation is left out",
        "the host does not report what machineName, a label or an annotation of the MachineRegistration is made of",
        "correct the template, or nothing",
    ),
    warning(
        INVENTORY,
        "ReleasedWithoutClean",
        "the machine was removed, and its host was not cleaned",
        "the annotation release-without-clean, or spec.abandonUnreachableAfter of the pool",
        "power the host off for good, or reconnect it: it is cleaned when it attaches",
    ),
    warning(
        INVENTORY,
        "OwnerMissing",
        "the machine of the claim does not exist or names another host; the host was not cleaned",
        "the machine was deleted without its finalizer",
        "restore the machine, or install the host as a new one (\"Wipe a disk\" in docs/operations.md)",
    ),
    warning(
        INVENTORY,
        "PlanSecretMissing",
        "the plan was written again with a higher generation",
        "the plan Secret was deleted",
        "find out what deleted the Secret",
    ),
    warning(
        INVENTORY,
        "PlanSecretInvalid",
        "the plan was written again with a higher generation",
        "the plan Secret held something else",
        "find out what writes the Secret",
    ),
    warning(
        INVENTORY,
        "PlanSecretAltered",
        "the plan was written again with a higher generation",
        "the plan in the Secret was not the one that was announced",
        "find out what writes the Secret",
    ),
    normal(REGISTRATION, "TokenRotated", "a new token was created", "the annotation rotate-token"),
    warning(
        REGISTRATION,
        "EmulatedTpmSeedIgnored",
        "emulated-tpm-seed has no effect",
        "the field is set",
        "remove the field",
    ),
    warning(
        REGISTRATION,
        "TokenFixed",
        "no new token was created",
        "the annotation rotate-token was set where spec.token names the token",
        "change spec.token",
    ),
];
