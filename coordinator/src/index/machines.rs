//! Machines by host, cluster and pool; what they wait for and what is reserved
//! for them.

use coordinator_api::capi::{Cluster, ClusterStatus};
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::kind::BAREMETAL_MACHINE as KIND;
use coordinator_api::names::{annotation, label};
use coordinator_core::cluster::is_paused;
use coordinator_core::demand::baremetal_machine::named_host;
use coordinator_core::pool::{Availability, Roster};
use kube::ResourceExt as _;

use super::{Called, Inner, MemberWish, Triggers, Wait};
use crate::key::{Key, Kind};

/// What a machine is found by, and what its host depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MachineFacts {
    host: Option<Key>,
    cluster: Option<Key>,
    pool: Key,
    is_paused: bool,
    is_control_plane: bool,
    is_deleting: bool,
}

impl MachineFacts {
    pub(super) fn of_object(machine: &BaremetalMachine) -> Self {
        let key = Key::of(machine);
        Self {
            host: named_host(machine).map(|host| key.in_namespace_of(host.as_str())),
            cluster: machine.labels().get(label::CLUSTER_NAME).map(|name| key.in_namespace_of(name)),
            pool: key.in_namespace_of(&machine.spec.machine_inventory_pool_ref.name),
            is_paused: is_paused(machine, None),
            is_control_plane: machine.labels().contains_key(label::CONTROL_PLANE),
            is_deleting: machine.metadata.deletion_timestamp.is_some(),
        }
    }

    /// The Cluster whose control plane it is of.
    pub(super) fn control_plane_of(&self) -> Option<&Key> {
        self.cluster.as_ref().filter(|_| self.is_control_plane)
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.is_deleting
    }
}

/// What the machines and hosts of a Cluster depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterFacts {
    is_paused: bool,
    registry: Option<String>,
    is_provisioned: bool,
    /// It names an infrastructure object, of whatever kind.
    has_infrastructure: bool,
    /// Its `BaremetalCluster`.
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

/// Whether a member is being cleaned that the machines of a wish wait for.
fn is_returning(roster: Option<&Roster>, wish: &MemberWish) -> bool {
    roster.is_some_and(|roster| roster.find_returning(&wish.as_wish()).is_some())
}

impl Inner {
    pub(super) fn update_machine(&mut self, machine: &Key, facts: Option<&MachineFacts>) -> Triggers {
        let old = match facts {
            Some(facts) => self.machines.insert(machine.clone(), facts.clone()),
            None => self.machines.remove(machine),
        };
        let (before, after) = (old.as_ref(), facts);
        let host = |facts: Option<&MachineFacts>| facts.and_then(|facts| facts.host.clone());
        let cluster = |facts: Option<&MachineFacts>| facts.and_then(|facts| facts.cluster.clone());
        let pool = |facts: Option<&MachineFacts>| facts.map(|facts| facts.pool.clone());
        self.machines_by_host.replace_group(host(before).as_ref(), host(after).as_ref(), machine);
        self.machines_by_cluster.replace_group(cluster(before).as_ref(), cluster(after).as_ref(), machine);
        self.machines_by_pool.replace_group(pool(before).as_ref(), pool(after).as_ref(), machine);
        let control_plane =
            |facts: Option<&MachineFacts>| facts.and_then(MachineFacts::control_plane_of).cloned();
        let (former, latter) = (control_plane(before), control_plane(after));
        self.control_planes.replace_group(former.as_ref(), latter.as_ref(), machine);
        let mut triggers = Triggers::default();
        if facts.is_some() {
            triggers.add(Kind::BaremetalMachine, [machine.clone()]);
        }
        if old.as_ref() != facts {
            for cluster in [&former, &latter].into_iter().flatten() {
                triggers.add(Kind::BaremetalCluster, self.infrastructure_of(cluster));
            }
            triggers.add(Kind::MachineInventory, host(before));
            triggers.add(Kind::MachineInventory, host(after));
            let is_deleting = |facts: Option<&MachineFacts>| facts.is_some_and(MachineFacts::is_deleting);
            if is_deleting(before) != is_deleting(after) {
                self.update_held_members(machine, &mut triggers);
            }
            triggers.add(Kind::MachineInventory, self.hosts_held_by(machine));
        }
        if facts.is_none_or(|facts| facts.is_deleting || facts.is_paused) {
            self.waiting.set_wait(machine, None);
        }
        if facts.is_none() {
            self.stuck_machines.remove(machine);
            self.offer_next(machine, old.as_ref(), &mut triggers);
        }
        triggers
    }

    fn hosts_held_by(&self, machine: &Key) -> Vec<Key> {
        let claim = (KIND.to_owned(), machine.clone());
        self.hosts_by_claim.group_members(&claim).cloned().collect()
    }

    /// What a machine does with its host has changed.
    fn update_held_members(&mut self, machine: &Key, triggers: &mut Triggers) {
        for host in self.hosts_held_by(machine) {
            self.update_member(&host, triggers);
        }
    }

    /// Whether something holds the deletion of a machine.
    pub(super) fn set_stuck(&mut self, machine: &Key, is_stuck: bool) -> Triggers {
        let mut triggers = Triggers::default();
        let is_changed = if is_stuck {
            self.machines.contains_key(machine) && self.stuck_machines.insert(machine.clone())
        } else {
            self.stuck_machines.remove(machine)
        };
        if is_changed {
            self.update_held_members(machine, &mut triggers);
        }
        triggers
    }

    /// A machine is gone that had reserved a host, or may have been called for one that is still free.
    fn offer_next(&mut self, machine: &Key, facts: Option<&MachineFacts>, triggers: &mut Triggers) {
        if self.reservations.host_of(machine).is_some() {
            self.release_reservation(machine, triggers);
        } else if let Some(facts) = facts.filter(|facts| facts.host.is_none()) {
            let called = self.waiting.take_for_host(&facts.pool, |_| true, |_| Called::None);
            triggers.add(Kind::BaremetalMachine, called);
        }
    }

    /// The whole cluster is reconciled when a fact changes that it depends on,
    /// not with every status.
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

    pub(super) fn set_wait(&mut self, machine: &Key, wait: Option<Wait<MemberWish>>) {
        let pool = self.machines.get(machine).map(|facts| facts.pool.clone());
        let wait = pool.zip(wait).map(|(pool, wait)| match wait {
            Wait::Host(wish) if is_returning(self.rosters.get(&pool), &wish) => (pool, Wait::Return(wish)),
            wait => (pool, wait),
        });
        self.waiting.set_wait(machine, wait);
    }

    /// Machines that wait for a member to come back, where none does any more.
    pub(super) fn end_returns(&mut self, pool: &Key, triggers: &mut Triggers) {
        let roster = self.rosters.get(pool);
        triggers.add(
            Kind::BaremetalMachine,
            self.waiting.take_for_return(pool, |wish| !is_returning(roster, wish)),
        );
    }

    /// A deleted machine reserves nothing.
    pub(super) fn reserve_host(&mut self, host: &Key, machine: &Key) -> bool {
        self.machines.contains_key(machine) && self.reservations.insert_reservation(host, machine)
    }

    /// A machine that waits for a member may have the host now.
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

    /// A member can be claimed.
    pub(super) fn offer_member(&mut self, pool: &Key, host: &Key, triggers: &mut Triggers) {
        let record = self.hosts.get(host);
        let domain = record.and_then(|record| record.failure_domain());
        let group = record.and_then(|record| record.reuse_group.as_ref());
        let roster = self.rosters.get(pool);
        // Once none comes back, those that do not get it may take any.
        let returns = |wish: &MemberWish| match is_returning(roster, wish) {
            false => Called::All,
            true if wish.reuse_group.as_ref() == group && wish.fits(domain) => Called::First,
            true => Called::None,
        };
        let called = self.waiting.take_for_host(pool, |wish| wish.fits(domain), returns);
        triggers.add(Kind::BaremetalMachine, called);
    }
}
