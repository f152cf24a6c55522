//! Validity of the members of a pool.

use coordinator_api::conditions::{ConditionUpdate, Reason, Type, condition_true, fields_ignored};
use coordinator_api::pool::MachineInventoryPool;

use super::{Availability, Exclusion, Roster};
use crate::problem::Problem;

/// Bound of the members in one message.
const NAMED: usize = 8;

/// Exclusions that make a pool invalid, in the order of their precedence.
const RULES: [(Exclusion, Reason, &str, &str); 13] = [
    (Exclusion::Missing, Reason::MemberMissing, "does not exist", "register the host or remove the entry"),
    (
        Exclusion::OtherPool,
        Reason::MemberInAnotherPool,
        "is held by another pool",
        "remove the entry from one of the two pools",
    ),
    (
        Exclusion::NoPlanSecret,
        Reason::PlanSecretMissing,
        "has no plan Secret",
        "boot the seed ISO on the host to have it created",
    ),
    (
        Exclusion::BareMetalHost,
        Reason::InventoryTaken,
        "is named by a BareMetalHost",
        "remove the entry, or the annotation of the BareMetalHost",
    ),
    (Exclusion::Deleting, Reason::MemberNotReady, "is being deleted", "remove the entry"),
    (
        Exclusion::Quarantined,
        Reason::MemberNotReady,
        "has an identity that two systems claim",
        "see its condition Ready",
    ),
    (
        Exclusion::PlanFailed,
        Reason::MemberNotReady,
        "has a failed plan",
        "see the machine that holds it, or its condition Ready",
    ),
    (Exclusion::Abandoned, Reason::MemberNotReady, "was released without a clean", "see its condition Ready"),
    (
        Exclusion::OwnerMissing,
        Reason::MemberNotReady,
        "is held by a machine that does not exist or names another host",
        "see its condition Ready",
    ),
    (Exclusion::NotAttached, Reason::MemberNotReady, "is not attached", "check the host"),
    (
        Exclusion::CarriesNode,
        Reason::MemberNotReady,
        "carries a node that no machine holds",
        "see its condition Ready",
    ),
    (Exclusion::NotApproved, Reason::MemberNotReady, "is not approved", "see its condition Approved"),
    (
        Exclusion::ManagedDisks,
        Reason::MemberNotReady,
        "has spec.storage, which is not supported",
        "remove that field or the entry",
    ),
];

/// The condition about fields without effect in this Cluster. `holds_endpoint` is true if the hosts of
/// the Cluster hold the address of its endpoint; while it is unknown, nothing is shown.
pub fn ignored_condition(
    pool: &MachineInventoryPool,
    holds_endpoint: Option<bool>,
) -> Option<ConditionUpdate> {
    let members = pool.spec.machine_inventories.iter();
    let named = members.filter(|member| member.network_device.as_ref().is_some_and(|name| !name.is_empty()));
    let named: Vec<_> = named.take(NAMED).map(|member| member.name.as_str()).collect();
    if named.is_empty() || holds_endpoint == Some(true) {
        return Some(fields_ignored(&[]));
    }
    holds_endpoint?;
    let field = format!(
        "networkDevice of MachineInventory {} (only in a Cluster whose endpoint is a load balancer of type Internal)",
        named.join(", ")
    );
    Some(fields_ignored(&[&field]))
}

impl Roster {
    /// Names of the first members with this exclusion.
    fn name_members(&self, exclusion: Exclusion) -> Vec<&str> {
        let ranks = self.ranked.with_availability(Availability::Unavailable(exclusion), None);
        ranks
            .take(NAMED)
            .filter_map(|rank| self.find_entry(rank))
            .map(|member| member.name.as_str())
            .collect()
    }

    pub(super) fn check_members(&self) -> ConditionUpdate {
        match self.find_problem() {
            Some(problem) => problem.condition_false(Type::MembersValid),
            None => condition_true(Type::MembersValid, Reason::MembersFound, ""),
        }
    }

    fn find_problem(&self) -> Option<Problem> {
        if self.pool.spec.selector.is_some() && self.selector.is_none() {
            let message = "spec.selector has an operator or values that no label can match";
            return Some(Problem::new(Reason::SelectorInvalid, message, "correct matchExpressions"));
        }
        if let Some((hostname, members)) = self.hostnames.first_shared() {
            let named: Vec<_> = members.take(NAMED).collect();
            let message = format!(
                "the nodes of MachineInventory {} would all have the name {hostname}",
                named.join(", ")
            );
            return Some(Problem::new(Reason::HostnameShared, message, "give each entry its own hostname"));
        }
        RULES.into_iter().find_map(|(exclusion, reason, cause, action)| {
            let named = self.name_members(exclusion);
            let message = format!("MachineInventory {} {cause}", named.join(", "));
            (!named.is_empty()).then(|| Problem::new(reason, message, action))
        })
    }
}
