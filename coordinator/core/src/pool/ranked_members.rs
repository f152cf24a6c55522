//! Members by availability in the order of the pool: all members, the members of each failure
//! domain, and with `spec.nodeReuse` the members that each group held last. With these sets neither
//! a choice nor its refusal reads every member.

use std::collections::{BTreeMap, BTreeSet};

use super::{Availability, Member, MemberRank};

type ByAvailability = BTreeMap<Availability, Ordered>;

#[derive(Clone, Debug, Default)]
pub(super) struct RankedMembers {
    has_groups: bool,
    all: ByAvailability,
    domains: BTreeMap<String, ByAvailability>,
}

/// Members of one availability.
#[derive(Clone, Debug, Default)]
struct Ordered {
    ranks: BTreeSet<MemberRank>,
    /// Members by the group that held the host last; `None` if no group did.
    groups: BTreeMap<Option<String>, BTreeSet<MemberRank>>,
}

impl RankedMembers {
    /// Groups are recorded only if `has_groups` is true.
    pub(super) fn new(has_groups: bool) -> Self {
        Self { has_groups, ..Self::default() }
    }

    pub(super) fn add_member(&mut self, member: &Member) {
        insert_rank(&mut self.all, member, self.has_groups);
        if let Some(domain) = &member.traits.failure_domain {
            insert_rank(self.domains.entry(domain.clone()).or_default(), member, self.has_groups);
        }
    }

    pub(super) fn remove_member(&mut self, member: &Member) {
        remove_rank(&mut self.all, member);
        let Some(domain) = &member.traits.failure_domain else { return };
        if let Some(members) = self.domains.get_mut(domain) {
            remove_rank(members, member);
            if members.is_empty() {
                self.domains.remove(domain);
            }
        }
    }

    /// Failure domains of the members.
    pub(super) fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(String::as_str)
    }

    /// Members in the order of the pool, if named of one failure domain.
    pub(super) fn with_availability(
        &self,
        availability: Availability,
        domain: Option<&str>,
    ) -> impl Iterator<Item = &MemberRank> {
        self.find_ordered(availability, domain).into_iter().flat_map(|ordered| &ordered.ranks)
    }

    /// Members that `group` held last; for `None` members without a former group.
    pub(super) fn of_group(
        &self,
        availability: Availability,
        domain: Option<&str>,
        group: Option<&str>,
    ) -> impl Iterator<Item = &MemberRank> {
        let group = group.map(str::to_owned);
        self.find_ordered(availability, domain)
            .and_then(|ordered| ordered.groups.get(&group))
            .into_iter()
            .flatten()
    }

    fn find_ordered(&self, availability: Availability, domain: Option<&str>) -> Option<&Ordered> {
        self.in_domain(domain)?.get(&availability)
    }

    /// Number of members with each availability, if named of one failure domain.
    pub(super) fn counts(&self, domain: Option<&str>) -> impl Iterator<Item = (Availability, usize)> {
        let members = self.in_domain(domain).into_iter().flatten();
        members.map(|(availability, ordered)| (*availability, ordered.ranks.len()))
    }

    fn in_domain(&self, domain: Option<&str>) -> Option<&ByAvailability> {
        domain.map_or(Some(&self.all), |domain| self.domains.get(domain))
    }
}

fn insert_rank(by_availability: &mut ByAvailability, member: &Member, has_groups: bool) {
    let ordered = by_availability.entry(member.availability).or_default();
    ordered.ranks.insert(member.rank.clone());
    if has_groups {
        let group = ordered.groups.entry(member.traits.reuse_group.clone()).or_default();
        group.insert(member.rank.clone());
    }
}

fn remove_rank(by_availability: &mut ByAvailability, member: &Member) {
    let Some(ordered) = by_availability.get_mut(&member.availability) else { return };
    ordered.ranks.remove(&member.rank);
    if let Some(group) = ordered.groups.get_mut(&member.traits.reuse_group) {
        group.remove(&member.rank);
        if group.is_empty() {
            ordered.groups.remove(&member.traits.reuse_group);
        }
    }
    if ordered.ranks.is_empty() {
        by_availability.remove(&member.availability);
    }
}
