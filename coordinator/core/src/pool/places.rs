//! Members by standing in the order of the pool, as a whole and of each failure
//! domain: neither a choice nor its refusal asks every member.

use std::collections::{BTreeMap, BTreeSet};

use super::{Member, Place, Standing};

type ByStanding = BTreeMap<Standing, BTreeSet<Place>>;

#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    all: ByStanding,
    domains: BTreeMap<String, ByStanding>,
}

impl Places {
    pub(super) fn add_member(&mut self, member: &Member) {
        insert_place(&mut self.all, member);
        if let Some(domain) = &member.traits.failure_domain {
            insert_place(self.domains.entry(domain.clone()).or_default(), member);
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
        self.in_domain(domain).and_then(|places| places.get(&standing)).into_iter().flatten()
    }

    /// How many members have each standing; of one failure domain where it is named.
    pub(super) fn counts(&self, domain: Option<&str>) -> impl Iterator<Item = (Standing, usize)> {
        let places = self.in_domain(domain).into_iter().flatten();
        places.map(|(standing, places)| (*standing, places.len()))
    }

    fn in_domain(&self, domain: Option<&str>) -> Option<&ByStanding> {
        domain.map_or(Some(&self.all), |domain| self.domains.get(domain))
    }
}

fn insert_place(places: &mut ByStanding, member: &Member) {
    places.entry(member.standing).or_default().insert(member.place.clone());
}

fn remove_place(places: &mut ByStanding, member: &Member) {
    if let Some(of_standing) = places.get_mut(&member.standing) {
        of_standing.remove(&member.place);
        if of_standing.is_empty() {
            places.remove(&member.standing);
        }
    }
}
