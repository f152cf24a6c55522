//! Rosters, and which members no pool holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use coordinator_api::pool::MachineInventoryPool;
use coordinator_core::host::HostRecord;
use coordinator_core::pool::{self, Roster, Standing};

use super::{Inner, Key, Triggers};

impl Inner {
    /// Only a change of the members costs as much as there are members.
    pub(super) fn update_pool(&mut self, key: &Key, pool: &Arc<MachineInventoryPool>) -> Triggers {
        let mut triggers = Triggers::default();
        triggers.pools.insert(key.clone());
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
        let listed = |roster: &Roster| -> BTreeSet<Key> {
            roster
                .pool()
                .spec
                .machine_inventories
                .iter()
                .map(|member| key.in_namespace_of(&member.name))
                .collect()
        };
        let new = roster.as_ref().map(listed).unwrap_or_default();
        let old_roster = match roster {
            Some(roster) => self.rosters.insert(key.clone(), roster),
            None => self.rosters.remove(key),
        };
        let old = old_roster.as_ref().map(listed).unwrap_or_default();
        for host in old.difference(&new) {
            self.pools_by_member.remove_member(host, key);
            self.set_unheld(key, host, false);
        }
        for host in new.difference(&old) {
            self.pools_by_member.insert_member(host, key);
        }
        for host in &new {
            self.update_standing(key, host);
        }
        for host in old.union(&new) {
            self.update_holder(host, triggers);
        }
        triggers.machines.extend(self.machines_by_pool.group_members(key).cloned());
    }

    /// After a change of a host: its state in the pools that list it.
    pub(super) fn update_member(&mut self, host: &Key, triggers: &mut Triggers) {
        let pools: Vec<Key> = self.pools_by_member.group_members(host).cloned().collect();
        for pool in pools {
            let Some(standing) = self.update_standing(&pool, host) else { continue };
            if standing == Standing::Available {
                triggers.machines.extend(self.waiting.for_pool(&pool));
            }
            triggers.pools.insert(pool);
        }
        self.update_holder(host, triggers);
    }

    /// The new standing, when it changed.
    fn update_standing(&mut self, pool: &Key, host: &Key) -> Option<Standing> {
        self.count_touched();
        let standing = pool::host_standing(&pool.name, self.hosts.get(host).map(Arc::as_ref));
        let roster = self.rosters.get_mut(pool)?;
        roster.set_standing(&host.name, standing).then_some(standing)
    }

    /// Whether the pools that list `host` may take it.
    fn update_holder(&mut self, host: &Key, triggers: &mut Triggers) {
        let is_unheld = self.hosts.get(host).is_some_and(|record| self.is_unheld(host, record));
        let pools: Vec<Key> = self.pools_by_member.group_members(host).cloned().collect();
        for pool in pools {
            self.count_touched();
            if self.set_unheld(&pool, host, is_unheld) {
                triggers.pools.insert(pool);
            }
        }
    }

    /// No pool holds it, or one that does not list it any more; then only a
    /// host without a claim is taken over.
    fn is_unheld(&self, host: &Key, record: &HostRecord) -> bool {
        let is_listed =
            |holder: &str| self.pools_by_member.contains_member(host, &host.in_namespace_of(holder));
        !record.is_deleting
            && match &record.pool {
                None => true,
                Some(holder) => record.claim.is_none() && !is_listed(holder),
            }
    }

    /// Whether the member was not unheld before and is now.
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
