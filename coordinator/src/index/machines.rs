//! Machines by host, cluster and pool, with their waits and reservations.

use coordinator_api::capi::{Cluster, ClusterStatus};
use coordinator_api::inventory::Claim;
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::kind::BAREMETAL_MACHINE as KIND;
use coordinator_api::names::{annotation, label};
use coordinator_core::demand::baremetal_machine::named_host;
use coordinator_core::holding;
use coordinator_core::ids::HostName;
use coordinator_core::pause::is_paused;
use coordinator_core::pool::{Availability, Holder, Roster, Wish};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{Inner, Triggers, Wait, Wake};
use crate::key::{Key, Kind};

/// The facts by which a machine is found, and on which its host depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MachineFacts {
    /// The host that the machine names, and its key.
    named: Option<HostName>,
    host: Option<Key>,
    cluster: Option<Key>,
    pool: Key,
    is_paused: bool,
    is_control_plane: bool,
    deleted: Option<Timestamp>,
}

impl MachineFacts {
    pub(super) fn of_object(machine: &BaremetalMachine) -> Self {
        let key = Key::of(machine);
        let named = named_host(machine);
        Self {
            host: named.as_ref().map(|host| key.in_namespace_of(host.as_str())),
            named,
            cluster: machine.labels().get(label::CLUSTER_NAME).map(|name| key.in_namespace_of(name)),
            pool: key.in_namespace_of(&machine.spec.machine_inventory_pool_ref.name),
            is_paused: is_paused(machine, None),
            is_control_plane: machine.labels().contains_key(label::CONTROL_PLANE),
            deleted: machine.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        }
    }

    /// The Cluster of a control-plane machine.
    pub(super) fn control_plane_of(&self) -> Option<&Key> {
        self.cluster.as_ref().filter(|_| self.is_control_plane)
    }

    /// The use that the machine makes of a host whose claim names it.
    pub(super) fn use_of(&self, host: &HostName, claim: &Claim) -> Holder {
        let machine =
            holding::Holder { kind: &claim.kind, name: &claim.baremetal_machine, host: self.named.as_ref() };
        let is_kept = holding::compare_names(machine, host, Some(claim)).keeps_claim();
        match self.deleted {
            _ if !is_kept => Holder::Missing,
            Some(since) => Holder::Releases(since),
            None => Holder::Keeps,
        }
    }
}

/// The facts on which the machines and hosts of a Cluster depend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterFacts {
    is_paused: bool,
    registry: Option<String>,
    is_provisioned: bool,
    /// True if the Cluster names an infrastructure object of any kind.
    has_infrastructure: bool,
    /// The `BaremetalCluster` of the Cluster.
    pub(super) infrastructure: Option<Key>,
}

impl ClusterFacts {
    pub(super) fn of_object(cluster: &Cluster) -> Self {
        Self {
            is_paused: cluster.spec.paused == Some(true),
            registry: cluster.annotations().get(annotation::REGISTRY_ADDRESS).cloned(),
            is_provisioned: cluster.status.as_ref().is_some_and(ClusterStatus::is_infrastructure_provisioned),
            has_infrastructure: cluster.spec.infrastructure_ref.is_some(),
            infrastructure: infrastructure_of(cluster),
        }
    }
}

/// The `BaremetalCluster` of a Cluster.
pub(crate) fn infrastructure_of(cluster: &Cluster) -> Option<Key> {
    let reference = cluster.spec.infrastructure_ref.as_ref();
    let own = reference.filter(|reference| reference.kind == "BaremetalCluster")?;
    Some(Key::of(cluster).in_namespace_of(&own.name))
}

/// Time of an event. A wait whose limit passed ends when its machine is decided again.
const OF_EVENT: Timestamp = Timestamp::MIN;

/// Tells whether a member is being cleaned that machines with this wish wait for.
fn is_returning(roster: Option<&Roster>, wish: &Wish, now: Timestamp) -> bool {
    roster.is_some_and(|roster| roster.find_returning(wish, now).is_some())
}

impl Inner {
    pub(super) fn update_machine(&mut self, machine: &Key, facts: Option<&MachineFacts>) -> Triggers {
        let old = match facts {
            Some(facts) => self.machines.insert(machine.clone(), facts.clone()),
            None => self.machines.remove(machine),
        };
        let (before, after) = (old.as_ref(), facts);
        let hosts = [before, after].map(|facts| facts?.host.as_ref());
        let clusters = [before, after].map(|facts| facts?.cluster.as_ref());
        let pools = [before, after].map(|facts| Some(&facts?.pool));
        let control_planes = [before, after].map(|facts| facts?.control_plane_of());
        self.machines_by_host.replace_group(hosts[0], hosts[1], machine);
        self.machines_by_cluster.replace_group(clusters[0], clusters[1], machine);
        self.machines_by_pool.replace_group(pools[0], pools[1], machine);
        self.control_planes.replace_group(control_planes[0], control_planes[1], machine);
        let mut triggers = Triggers::default();
        if facts.is_some() {
            triggers.add(Kind::BaremetalMachine, [machine.clone()]);
        }
        if old.as_ref() != facts {
            for cluster in control_planes.into_iter().flatten() {
                triggers.add(Kind::BaremetalCluster, self.infrastructure_of(cluster));
            }
            triggers.add(Kind::MachineInventory, hosts.into_iter().flatten().cloned());
            self.update_held_members(machine, &mut triggers);
            triggers.add(Kind::MachineInventory, self.hosts_held_by(machine));
        }
        if facts.is_none_or(|facts| facts.deleted.is_some() || facts.is_paused) {
            self.waiting.set_wait(machine, None);
        }
        if facts.is_none() {
            self.offer_next(machine, old.as_ref(), &mut triggers);
        }
        triggers
    }

    fn hosts_held_by(&self, machine: &Key) -> Vec<Key> {
        let claim = (KIND.to_owned(), machine.clone());
        self.hosts_by_claim.group_members(&claim).cloned().collect()
    }

    /// Updates the members that a machine holds, because its use of them changed.
    fn update_held_members(&mut self, machine: &Key, triggers: &mut Triggers) {
        for host in self.hosts_held_by(machine) {
            self.update_member(&host, triggers);
        }
    }

    /// Offers the host that a deleted machine had reserved, or for which it was woken in vain.
    fn offer_next(&mut self, machine: &Key, facts: Option<&MachineFacts>, triggers: &mut Triggers) {
        if self.reservations.host_of(machine).is_some() {
            self.release_reservation(machine, triggers);
        } else if let Some(facts) = facts.filter(|facts| facts.host.is_none()) {
            let woken = self.waiting.wake_waiters(&facts.pool, |_| true, |_| Wake::None);
            triggers.add(Kind::BaremetalMachine, woken);
        }
    }

    /// The whole Cluster is reconciled only if a fact changed that its objects depend on, because
    /// most events change the status alone.
    pub(super) fn update_cluster(&mut self, cluster: &Key, facts: Option<ClusterFacts>) -> Triggers {
        let is_changed = self.clusters.get(cluster) != facts.as_ref();
        let infrastructure = facts.as_ref().and_then(|facts| facts.infrastructure.clone());
        let former = match facts {
            Some(facts) => self.clusters.insert(cluster.clone(), facts),
            None => self.clusters.remove(cluster),
        };
        let former = former.and_then(|facts| facts.infrastructure);
        self.clusters_by_infrastructure.replace_group(former.as_ref(), infrastructure.as_ref(), cluster);
        let mut triggers = Triggers::default();
        if is_changed {
            triggers.add(Kind::BaremetalMachine, self.machines_by_cluster.group_members(cluster).cloned());
            triggers.add(Kind::MachineInventory, self.hosts_by_cluster.group_members(cluster).cloned());
            triggers.add(Kind::MachineInventoryPool, self.pools_by_cluster.group_members(cluster).cloned());
        }
        triggers
    }

    /// The `BaremetalCluster` of a Cluster.
    pub(super) fn infrastructure_of(&self, cluster: &Key) -> Option<Key> {
        self.clusters.get(cluster)?.infrastructure.clone()
    }

    pub(super) fn set_wait(&mut self, machine: &Key, wait: Option<Wait<Wish>>, now: Timestamp) {
        let pool = self.machines.get(machine).map(|facts| facts.pool.clone());
        let wait = pool.zip(wait).map(|(pool, wait)| match wait {
            Wait::Host(wish) if is_returning(self.rosters.get(&pool), &wish, now) => {
                (pool, Wait::Return(wish))
            }
            wait => (pool, wait),
        });
        self.waiting.set_wait(machine, wait);
    }

    /// Wakes the machines that wait for a member to return, if none returns any more.
    pub(super) fn end_returns(&mut self, pool: &Key, triggers: &mut Triggers) {
        let roster = self.rosters.get(pool);
        triggers.add(
            Kind::BaremetalMachine,
            self.waiting.wake_returns(pool, |wish| !is_returning(roster, wish, OF_EVENT)),
        );
    }

    /// Reserves a host; a deleted machine reserves nothing.
    pub(super) fn reserve_host(&mut self, host: &Key, machine: &Key) -> bool {
        self.machines.contains_key(machine) && self.reservations.insert_reservation(host, machine)
    }

    /// Releases the reservation of a machine and offers the host to a machine that waits.
    pub(super) fn release_reservation(&mut self, machine: &Key, triggers: &mut Triggers) {
        let Some(host) = self.reservations.release_machine(machine) else { return };
        let pools: Vec<Key> = self.pools_by_member.group_members(&host).cloned().collect();
        for pool in pools {
            let roster = self.rosters.get(&pool);
            if roster.and_then(|roster| roster.availability(&host.name)) == Some(Availability::Available) {
                self.offer_member(&pool, &host, triggers);
            }
        }
    }

    /// Wakes machines for a member that can be claimed.
    pub(super) fn offer_member(&mut self, pool: &Key, host: &Key, triggers: &mut Triggers) {
        let record = self.hosts.get(host);
        let domain = record.and_then(|record| record.failure_domain());
        let group = record.and_then(|record| record.reuse_group.as_ref());
        let roster = self.rosters.get(pool);
        // Once no member returns, the machines that waited for one may take any member.
        let woken = self.waiting.wake_waiters(
            pool,
            |wish| wish.fits(domain),
            |wish| match is_returning(roster, wish, OF_EVENT) {
                false => Wake::All,
                true if wish.reuse_group.as_ref() == group && wish.fits(domain) => Wake::One,
                true => Wake::None,
            },
        );
        triggers.add(Kind::BaremetalMachine, woken);
    }
}
