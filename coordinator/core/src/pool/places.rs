//! Members by standing in the order of the pool, as a whole, of each failure domain, and
//! where hosts are used again of each group that held them: neither a choice nor its
//! refusal asks every member.

use std::collections::{BTreeMap, BTreeSet};

use super::{Member, Place, Standing};

type ByStanding = BTreeMap<Standing, Ordered>;

#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    has_groups: bool,
    all: ByStanding,
    domains: BTreeMap<String, ByStanding>,
}

/// Places of one standing.
#[derive(Clone, Debug, Default)]
struct Ordered {
    places: BTreeSet<Place>,
    /// By the group that held the host last, or by none.
    groups: BTreeMap<Option<String>, BTreeSet<Place>>,
}

impl Places {
    /// Without groups, [`Places::of_group`] finds none.
    pub(super) fn new(has_groups: bool) -> Self {
        Self { has_groups, ..Self::default() }
    }

    pub(super) fn add_member(&mut self, member: &Member) {
        insert_place(&mut self.all, member, self.has_groups);
        if let Some(domain) = &member.traits.failure_domain {
            insert_place(self.domains.entry(domain.clone()).or_default(), member, self.has_groups);
        }
    }

    pub(super) fn remove_member(&mut self, member: &Member) {
        remove_place(&mut self.all, member);
        let Some(domain) = &member.traits.failure_domain else { return };
        if let Some(places) = self.domains.get_mut(domain) {
            remove_place(places, member);
            if places.is_empty() {
                self.domains.remove(domain);
            }
        }
    }

    /// Failure domains of the members.
    pub(super) fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(String::as_str)
    }

    /// In the order of the pool; of one failure domain where it is named.
    pub(super) fn with_standing(
        &self,
        standing: Standing,
        domain: Option<&str>,
    ) -> impl Iterator<Item = &Place> {
        self.find_ordered(standing, domain).into_iter().flat_map(|ordered| &ordered.places)
    }

    /// Those whose host `group` held last, or whose host none did.
    pub(super) fn of_group(
        &self,
        standing: Standing,
        domain: Option<&str>,
        group: Option<&str>,
    ) -> impl Iterator<Item = &Place> {
        let group = group.map(str::to_owned);
        self.find_ordered(standing, domain)
            .and_then(|ordered| ordered.groups.get(&group))
            .into_iter()
            .flatten()
    }

    fn find_ordered(&self, standing: Standing, domain: Option<&str>) -> Option<&Ordered> {
        self.in_domain(domain)?.get(&standing)
    }

    /// How many members have each standing; of one failure domain where it is named.
    pub(super) fn counts(&self, domain: Option<&str>) -> impl Iterator<Item = (Standing, usize)> {
        let places = self.in_domain(domain).into_iter().flatten();
        places.map(|(standing, ordered)| (*standing, ordered.places.len()))
    }

    fn in_domain(&self, domain: Option<&str>) -> Option<&ByStanding> {
        domain.map_or(Some(&self.all), |domain| self.domains.get(domain))
    }
}

fn insert_place(by_standing: &mut ByStanding, member: &Member, has_groups: bool) {
    let ordered = by_standing.entry(member.standing).or_default();
    ordered.places.insert(member.place.clone());
    if has_groups {
        let group = ordered.groups.entry(member.traits.reuse_group.clone()).or_default();
        group.insert(member.place.clone());
    }
}

fn remove_place(by_standing: &mut ByStanding, member: &Member) {
    let Some(ordered) = by_standing.get_mut(&member.standing) else { return };
    ordered.places.remove(&member.place);
    if let Some(group) = ordered.groups.get_mut(&member.traits.reuse_group) {
        group.remove(&member.place);
        if group.is_empty() {
            ordered.groups.remove(&member.traits.reuse_group);
        }
    }
    if ordered.places.is_empty() {
        by_standing.remove(&member.standing);
    }
}
