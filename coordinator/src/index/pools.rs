//! Rosters of pools, and the members that no pool holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use coordinator_api::conditions::ConditionUpdate;
use coordinator_api::names::kind::BAREMETAL_MACHINE as KIND;
use coordinator_api::pool::MachineInventoryPool;
use coordinator_core::host::HostRecord;
use coordinator_core::pool::{self, Admission, Availability, Holder, Roster, Traits};

use super::{Inner, Triggers};
use crate::key::{Key, Kind};

fn list_members(pool: &Key, roster: Option<&Roster>) -> BTreeSet<Key> {
    let names = roster.into_iter().flat_map(Roster::member_names);
    names.map(|name| pool.in_namespace_of(name)).collect()
}

impl Inner {
    /// Only a change of the list of members costs as much as there are members.
    pub(super) fn update_pool(&mut self, key: &Key, pool: &Arc<MachineInventoryPool>) -> Triggers {
        let mut triggers = Triggers::default();
        triggers.add(Kind::MachineInventoryPool, [key.clone()]);
        if self.rosters.get_mut(key).is_some_and(|roster| roster.update_pool(pool)) {
            return triggers;
        }
        self.replace_roster(key, Some(Roster::new(pool.clone())), &mut triggers);
        triggers
    }

    pub(super) fn remove_pool(&mut self, key: &Key) -> Triggers {
        let mut triggers = Triggers::default();
        self.replace_roster(key, None, &mut triggers);
        triggers
    }

    fn replace_roster(&mut self, key: &Key, roster: Option<Roster>, triggers: &mut Triggers) {
        let mut roster = roster;
        if let Some(roster) = roster.as_mut().filter(|roster| roster.has_selector()) {
            self.select_members(key, roster);
        }
        let is_selecting = roster.as_ref().is_some_and(Roster::has_selector);
        self.note_pool(key, roster.as_ref().map(|roster| &**roster.pool()), is_selecting, triggers);
        let new = list_members(key, roster.as_ref());
        let old_roster = match roster {
            Some(roster) => self.rosters.insert(key.clone(), roster),
            None => self.rosters.remove(key),
        };
        let old = list_members(key, old_roster.as_ref());
        for host in old.difference(&new) {
            self.pools_by_member.remove_member(host, key);
            self.set_unheld(key, host, false);
        }
        for host in new.difference(&old) {
            self.pools_by_member.insert_member(host, key);
        }
        for host in &new {
            self.update_availability(key, host, triggers);
        }
        for host in old.union(&new) {
            self.update_holder(host, triggers);
        }
        triggers.add(Kind::BaremetalMachine, self.machines_by_pool.group_members(key).cloned());
        triggers.add(Kind::BaremetalMachineTemplate, self.templates_by_pool.group_members(key).cloned());
    }

    /// The hosts that a new roster selects.
    fn select_members(&self, pool: &Key, roster: &mut Roster) {
        for (host, record) in &self.hosts {
            if host.namespace == pool.namespace && roster.selects(&record.labels) {
                roster.set_selected(&host.name, true);
            }
        }
    }

    /// Finds the pool by its cluster, and by its namespace if the pool selects hosts.
    fn note_pool(
        &mut self,
        key: &Key,
        pool: Option<&MachineInventoryPool>,
        is_selecting: bool,
        triggers: &mut Triggers,
    ) {
        let [old, new] = [self.rosters.get(key).map(|roster| &**roster.pool()), pool]
            .map(|pool| Some(key.in_namespace_of(&pool?.spec.cluster_name)));
        self.pools_by_cluster.replace_group(old.as_ref(), new.as_ref(), key);
        for cluster in [old, new].iter().flatten() {
            self.trigger_infrastructure(cluster, triggers);
        }
        if is_selecting {
            self.selecting_pools.insert_member(&key.namespace, key);
        } else {
            self.selecting_pools.remove_member(&key.namespace, key);
        }
    }

    /// Sets the hosts that a registration admits; `None` if it admits none. If they changed, the pools of its
    /// namespace that select hosts are the answer.
    pub(super) fn set_admission(
        &mut self,
        registration: &Key,
        admission: Option<Admission>,
    ) -> BTreeSet<Key> {
        let is_same = self.admissions.get(registration) == admission.as_ref();
        match admission {
            Some(admission) => self.admissions.insert(registration.clone(), admission),
            None => self.admissions.remove(registration),
        };
        let pools = self.selecting_pools.group_members(&registration.namespace);
        pools.filter(|_| !is_same).cloned().collect()
    }

    pub(super) fn admission_condition(&self, pool: &Key) -> Option<ConditionUpdate> {
        let of_namespace = self.admissions.range(pool.in_namespace_of("")..);
        let of_namespace = of_namespace.take_while(|(key, _)| key.namespace == pool.namespace);
        let named = of_namespace.map(|(key, admission)| (key.name.as_str(), admission));
        self.rosters.get(pool)?.admission_condition(named)
    }

    /// The pools of the Clusters of a `BaremetalCluster` whose endpoint changed.
    pub(super) fn note_endpoint(
        &mut self,
        infrastructure: &Key,
        holds_endpoint: Option<bool>,
    ) -> BTreeSet<Key> {
        let former = match holds_endpoint {
            Some(holds) => self.endpoint_holders.insert(infrastructure.clone(), holds),
            None => self.endpoint_holders.remove(infrastructure),
        };
        let clusters = self.clusters_by_infrastructure.group_members(infrastructure);
        let clusters = clusters.filter(|_| former != holds_endpoint);
        clusters.flat_map(|cluster| self.pools_by_cluster.group_members(cluster)).cloned().collect()
    }

    fn trigger_infrastructure(&self, cluster: &Key, triggers: &mut Triggers) {
        let facts = self.clusters.get(cluster);
        triggers.add(Kind::BaremetalCluster, facts.and_then(|facts| facts.infrastructure.clone()));
    }

    /// Updates the pools that select a host, after a change of the host.
    fn update_selection(&mut self, host: &Key, triggers: &mut Triggers) {
        let pools: Vec<Key> = self.selecting_pools.group_members(&host.namespace).cloned().collect();
        for pool in pools {
            let Some(roster) = self.rosters.get_mut(&pool) else { continue };
            let is_selected = self.hosts.get(host).is_some_and(|record| roster.selects(&record.labels));
            if !roster.set_selected(&host.name, is_selected) {
                continue;
            }
            if is_selected {
                self.pools_by_member.insert_member(host, &pool);
            } else {
                self.pools_by_member.remove_member(host, &pool);
                self.set_unheld(&pool, host, false);
                self.end_returns(&pool, triggers);
            }
            triggers.add(Kind::MachineInventoryPool, [pool]);
        }
    }

    /// Updates a host in the pools that have it, after a change of the host.
    pub(super) fn update_member(&mut self, host: &Key, triggers: &mut Triggers) {
        self.update_selection(host, triggers);
        let pools: Vec<Key> = self.pools_by_member.group_members(host).cloned().collect();
        for pool in pools {
            let Some((former, availability)) = self.update_availability(&pool, host, triggers) else {
                continue;
            };
            if availability == Availability::Available {
                self.offer_member(&pool, host, triggers);
            } else if former == Availability::Preparing {
                self.end_returns(&pool, triggers);
            }
            triggers.add(Kind::MachineInventoryPool, [pool]);
        }
        self.update_holder(host, triggers);
    }

    /// The former and the present availability, if it or a trait changed.
    fn update_availability(
        &mut self,
        pool: &Key,
        host: &Key,
        triggers: &mut Triggers,
    ) -> Option<(Availability, Availability)> {
        self.count_touched();
        let record = self.hosts.get(host).map(Arc::as_ref);
        let holder = self.find_holder(host, record);
        let availability = pool::member_availability(&pool.name, record, holder);
        let traits = Traits::of_host(record);
        let roster = self.rosters.get_mut(pool)?;
        roster.set_holder(&host.name, holder);
        let former = roster.availability(&host.name)?;
        let has_other_traits = roster.set_traits(&host.name, traits);
        let has_changed = roster.set_availability(&host.name, availability);
        if has_other_traits {
            let cluster = pool.in_namespace_of(&roster.pool().spec.cluster_name);
            self.trigger_infrastructure(&cluster, triggers);
            triggers.add(Kind::BaremetalMachineTemplate, self.templates_by_pool.group_members(pool).cloned());
        }
        (has_changed || has_other_traits).then_some((former, availability))
    }

    /// The use that the machine of the claim makes of `host`.
    fn find_holder(&self, host: &Key, record: Option<&HostRecord>) -> Holder {
        let claim = record.and_then(|record| Some((record, record.claim.as_ref()?)));
        let Some((record, claim)) = claim.filter(|(_, claim)| claim.kind == KIND) else {
            return Holder::Keeps;
        };
        let facts = self.machines.get(&host.in_namespace_of(&claim.baremetal_machine));
        facts.map_or(Holder::Missing, |facts| facts.use_of(&record.name, claim))
    }

    /// Updates whether the pools that list `host` may take it.
    fn update_holder(&mut self, host: &Key, triggers: &mut Triggers) {
        let is_unheld = self.hosts.get(host).is_some_and(|record| self.is_unheld(host, record));
        let pools: Vec<Key> = self.pools_by_member.group_members(host).cloned().collect();
        for pool in pools {
            self.count_touched();
            if self.set_unheld(&pool, host, is_unheld) {
                triggers.add(Kind::MachineInventoryPool, [pool]);
            }
        }
    }

    /// A host may be taken if no pool holds it. If a pool holds it and does not list it any more,
    /// the host may be taken only without a claim.
    fn is_unheld(&self, host: &Key, record: &HostRecord) -> bool {
        let is_listed =
            |holder: &str| self.pools_by_member.contains_member(host, &host.in_namespace_of(holder));
        !record.is_deleting
            && match &record.pool {
                None => true,
                Some(holder) => record.claim.is_none() && !is_listed(holder),
            }
    }

    /// Tells whether the member has become one that no pool holds.
    fn set_unheld(&mut self, pool: &Key, member: &Key, is_unheld: bool) -> bool {
        if is_unheld {
            return self.unheld.insert_member(pool, &member.name);
        }
        self.unheld.remove_member(pool, &member.name);
        false
    }

    #[cfg(test)]
    fn count_touched(&mut self) {
        self.touched += 1;
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self)] // Counts in tests.
    fn count_touched(&self) {}
}
