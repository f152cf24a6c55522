//! Hosts by claim, by cluster and by replica.

use std::collections::BTreeSet;
use std::sync::Arc;

use coordinator_api::names::kind::BAREMETAL_MACHINE as KIND;
use coordinator_core::host::HostRecord;
use coordinator_core::ids::HostName;

use super::machines::MachineFacts;
use super::{Inner, Triggers};
use crate::key::{Key, Kind};

/// The facts by which a host is found.
struct Facts {
    claim: Option<(String, Key)>,
    /// The `BaremetalMachine` that its node or plan names.
    stated_owner: Option<Key>,
    cluster: Option<Key>,
    replica: Option<String>,
}

impl Facts {
    fn of_record(host: &Key, record: Option<&Arc<HostRecord>>) -> Self {
        let claim = record.and_then(|record| record.claim.as_ref());
        let cluster = claim.map(|claim| claim.cluster.as_str()).filter(|name| !name.is_empty());
        let session = record.and_then(|record| record.session.as_ref());
        Self {
            claim: claim.map(|claim| (claim.kind.clone(), host.in_namespace_of(&claim.baremetal_machine))),
            stated_owner: record.and_then(|record| {
                let (kind, name) = record.stated_owner()?.split_once('/')?;
                (kind == KIND).then(|| host.in_namespace_of(name))
            }),
            cluster: cluster.map(|name| host.in_namespace_of(name)),
            replica: session.filter(|session| session.ended.is_none()).map(|session| session.replica.clone()),
        }
    }
}

impl Inner {
    pub(super) fn update_host(&mut self, host: &Key, record: Option<&Arc<HostRecord>>) -> Triggers {
        // All maps share the strings of the first event, because keys are many.
        let host = &self.hosts.get_key_value(host).map_or(host, |(known, _)| known).clone();
        let old_record = match record {
            Some(record) => self.hosts.insert(host.clone(), record.clone()),
            None => self.hosts.remove(host),
        };
        let (old, new) = (Facts::of_record(host, old_record.as_ref()), Facts::of_record(host, record));
        self.hosts_by_claim.replace_group(old.claim.as_ref(), new.claim.as_ref(), host);
        self.hosts_by_stated_owner.replace_group(old.stated_owner.as_ref(), new.stated_owner.as_ref(), host);
        self.hosts_by_cluster.replace_group(old.cluster.as_ref(), new.cluster.as_ref(), host);
        self.hosts_by_replica.replace_group(old.replica.as_ref(), new.replica.as_ref(), host);
        let mut triggers = Triggers::default();
        triggers.add(Kind::MachineInventory, [host.clone()]);
        for (kind, machine) in [&old.claim, &new.claim].into_iter().flatten() {
            if kind == KIND {
                triggers.add(Kind::BaremetalMachine, [machine.clone()]);
                let owner = self.machines.get(machine).and_then(MachineFacts::control_plane_of);
                triggers.add(Kind::BaremetalCluster, owner.and_then(|owner| self.infrastructure_of(owner)));
            }
        }
        triggers.add(Kind::BaremetalMachine, self.machines_by_host.group_members(host).cloned());
        triggers.add(Kind::BaremetalMachine, [old.stated_owner, new.stated_owner].into_iter().flatten());
        if new.claim.is_some() || record.is_none() {
            self.reservations.release_host(host);
        }
        if is_pool_fact_changed(old_record.as_ref(), record) {
            triggers.add(Kind::MachineInventoryPool, self.pools_by_member.group_members(host).cloned());
        }
        self.update_member(host, &mut triggers);
        triggers
    }
}

impl Inner {
    /// Names of the hosts whose claim, node or plan names a `BaremetalMachine`, sorted. An abandoned
    /// host was given up by its machine.
    pub(super) fn owned_hosts(&self, machine: &Key) -> Vec<HostName> {
        let claim = (KIND.to_owned(), machine.clone());
        let claiming = self.hosts_by_claim.group_members(&claim);
        let hosts = claiming.chain(self.hosts_by_stated_owner.group_members(machine));
        let records = hosts.filter_map(|host| self.hosts.get(host)).filter(|record| !record.is_abandoned);
        let names: BTreeSet<_> = records.map(|record| record.name.clone()).collect();
        names.into_iter().collect()
    }
}

/// Tells whether a fact changed that decides which pool holds the host.
fn is_pool_fact_changed(old: Option<&Arc<HostRecord>>, new: Option<&Arc<HostRecord>>) -> bool {
    let [old, new] = [old, new]
        .map(|record| record.map(|record| (&record.pool, record.claim.is_some(), record.is_deleting)));
    old != new
}
