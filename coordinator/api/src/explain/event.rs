//! Reasons of Events, each with its objects, its meaning and its next action: one table, so that
//! the call sites, the type of the Event and `docs/reference/events.md` agree.

#![allow(clippy::doc_markdown, reason = "the texts are printed on terminals as they stand here")]

use strum::{EnumIter, IntoEnumIterator as _, IntoStaticStr};

/// How Kubernetes classes an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
pub enum EventType {
    /// Something went as intended.
    Normal,
    /// Something may need an operator.
    Warning,
}

/// The documentation of an [`EventReason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventEntry {
    /// Kinds of the objects that have the Event.
    pub objects: &'static str,
    /// Normal or Warning.
    pub kind: EventType,
    /// The change that the Event reports, and its cause.
    pub meaning: &'static str,
    /// Next action of an operator.
    pub action: &'static str,
}

const fn normal(objects: &'static str, meaning: &'static str) -> EventEntry {
    EventEntry { objects, kind: EventType::Normal, meaning, action: "none" }
}

const fn warning(objects: &'static str, meaning: &'static str, action: &'static str) -> EventEntry {
    EventEntry { objects, kind: EventType::Warning, meaning, action }
}

/// Declares the enum from rows `type Name "objects" "meaning" "next action";`. A normal Event has
/// no next action.
macro_rules! events {
    ($($kind:ident $name:ident $objects:literal $meaning:literal $($action:literal)?;)+) => {
        /// Reasons of Events that are not the reason of a condition or the code of a refusal.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumIter, IntoStaticStr)]
        pub enum EventReason {
            $(#[doc = $meaning] $name,)+
        }

        impl EventReason {
            /// Objects, type, meaning and next action.
            pub const fn entry(self) -> EventEntry {
                match self {
                    $(Self::$name => $kind($objects, $meaning $(, $action)?),)+
                }
            }
        }
    };
}

impl EventReason {
    /// The text on the Event.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Every reason, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }
}

events! {
    normal InventoryAllocated "BaremetalMachine, BareMetalHost"
        "the machine claimed an available host";
    warning DeletedDuringPlan "BaremetalMachine, BareMetalHost"
        "machines of this Cluster are deleted again and again while their hosts are installed; said once a day"
        "if a MachineHealthCheck deletes them, give its nodeStartupTimeoutSeconds more time than a reprovision takes";
    normal ClaimAdopted "BaremetalMachine, BareMetalHost"
        "the UID in the claim of the host was updated, because a restore or a move changed the UID of the machine and the names of both sides agree";
    normal PlanAssigned "BaremetalMachine, BareMetalHost"
        "a plan was stored and announced to the host, after a claim or a deletion";
    normal Provisioned "BaremetalMachine, BareMetalHost, Metal3Machine"
        "the machine has its providerID, because the host proved its plan done";
    normal NodeLinked "BaremetalMachine, BareMetalHost, Metal3Machine"
        "spec.providerID of the Node was written, because the Node joined without one";
    normal NodeRemoved "BaremetalMachine, BareMetalHost"
        "the Node was deleted from the workload cluster, because the host was cleaned or given up and Cluster API does not delete Nodes of a Cluster without control plane";
    normal InventoryTaken "BareMetalHost"
        "the host owns the inventory that it names, because nothing else owned it";
    normal HostAssociated "Metal3Machine"
        "the machine chose a BareMetalHost";
    normal ImageSet "Metal3Machine"
        "the image was written to the BareMetalHost, because all data of the machine exists";
    normal ImageRemoved "Metal3Machine"
        "the image was removed from the BareMetalHost, because the machine is in deletion";
    normal CleaningModeSet "Metal3Machine"
        "automatedCleaningMode was written to the BareMetalHost, because it was changed on the machine";
    normal HostReleased "Metal3Machine, BareMetalHost"
        "the BareMetalHost is free, because its node was removed or no successor of its machine came in time";
    normal Remediating "Metal3Remediation"
        "the host is rebooted, because the MachineHealthCheck found the node unhealthy or the reboot before did not help";
    warning RemediationGivenUp "Metal3Remediation"
        "the owner of the Machine replaces it and no machine chooses its host, because the node did not become healthy within the timeout of the last try"
        "repair the host, then remove the annotation capi.metal3.io/unhealthy of the BareMetalHost";
    warning AddressRefused "IPClaim, IPAddressClaim"
        "the pool allocates no address to the claim, because the pool is exhausted or the address that is asked for is used or outside of the pool"
        "add a range to the IPPool, or delete claims that are not needed";
    warning Orphaned "Metal3DataClaim, Metal3Data, IPClaim, IPAddress, IPAddressClaim"
        "the object that would release this object was removed by force; this object is deleted 30 minutes later, with all that it holds"
        "restore the object that the message names, or nothing";
    warning OrphanDeleted "Metal3DataClaim, Metal3Data, IPClaim, IPAddress, IPAddressClaim"
        "the object was deleted and its index or address is free, because the object that would release it was removed by force and did not come back"
        "none; a host that still runs the node keeps its address";
    normal CustomPlanAssigned "MachineInventory"
        "the plan of an operator (annotation custom-plan) was stored and announced, because the host was free for it";
    normal RebootRequested "MachineInventory, BareMetalHost"
        "the agent is asked to reboot the host once, because of the annotation reboot of the MachineInventory or reboot.metal3.io of the BareMetalHost";
    normal Rebooted "MachineInventory, BareMetalHost"
        "the host runs another boot, because it was asked to reboot or was switched off and on";
    normal Released "MachineInventory"
        "the claim was removed and the host is available, because the host proved that it carries nothing";
    normal ObservedNetworkAccepted "MachineInventory"
        "the network that was reported last is the intended one, because of the annotation accept-observed-network";
    warning AgentUpdateFailed "MachineInventory"
        "the host runs its former agent, because it did not take the agent that was sent or that agent did not attach; the message names the cause"
        "correct the cause, then remove the annotation agent-version and set it again";
    warning ApprovalPending "MachineInventory"
        "the host waits for an operator, because its MachineRegistration has spec.approval: Manual"
        "`kubectl baremetal approve NAME`; or, if the host is not yours, change the token and delete the MachineInventory";
    warning IdentityReplaced "MachineInventory"
        "spec.tpmHash is the new key of the host, because a host that was never installed registered again with another key and the same hardware (SMBIOS UUID, permanent MACs)"
        "none, unless another host pretends to be this one: then delete the MachineInventory";
    warning TemplateUnresolved "MachineInventory"
        "the name is random or a label or annotation is left out, because the host does not report a value that machineName, a label or an annotation of the MachineRegistration uses"
        "correct the template, or nothing";
    warning ReleasedWithoutClean "MachineInventory"
        "the machine was removed and its host was not cleaned, because of the annotation release-without-clean or spec.abandonUnreachableAfter of the pool"
        "power the host off for good, or reconnect it: it is cleaned when it attaches";
    normal TokenRotated "MachineRegistration"
        "a new token was created, because of the annotation rotate-token";
    warning EmulatedTpmSeedIgnored "MachineRegistration"
        "emulated-tpm-seed is set and has no effect"
        "remove the field";
    normal SeedImageReady "SeedImage"
        "the ISO can be downloaded";
    warning TokenFixed "MachineRegistration"
        "the annotation rotate-token created no new token, because spec.token names the token"
        "change spec.token";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_explained() {
        for reason in EventReason::all() {
            let entry = reason.entry();
            let texts = [entry.objects, entry.meaning, entry.action];
            assert!(texts.iter().all(|text| !text.is_empty()), "{reason:?}");
        }
    }
}
