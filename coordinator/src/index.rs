//! The objects that concern each other, kept up to date by the events of the watches, so that no
//! look-up depends on the number of objects.
//!
//! ```text
//! watch event ─► store ─► Index::apply_* ─► Triggers ─► queues of the controllers
//! ```
//!
//! Every `apply_*` compares the new facts of an object with the known ones, so that the objects
//! that depended on a removed fact are reconciled.

mod endpoints;
pub(crate) mod groups;
mod hosts;
mod machines;
pub mod metal3;
mod pools;
pub mod replicas;
pub(crate) mod reservations;
#[cfg(test)]
mod tests;
mod tokens;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::cluster::BaremetalCluster;
use coordinator_api::conditions::ConditionUpdate;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::kind::BAREMETAL_MACHINE as KIND;
use coordinator_api::names::label;
use coordinator_api::pool::MachineInventoryPool;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use coordinator_api::template::BaremetalMachineTemplate;
use coordinator_core::host::HostRecord;
use coordinator_core::ids::HostName;
use coordinator_core::load_balancer::{self, Internal};
use coordinator_core::pool::{Admission, Roster, Wish};
use jiff::Timestamp;
use kube::ResourceExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::key::{Key, Kind, Namespace, ObjectName, Presence};
use endpoints::Endpoints;
use groups::{Groups, Partition};
use ipnet::IpNet;
pub(crate) use machines::infrastructure_of;
use reservations::Reservations;
use tokens::Tokens;
pub use waiting::Wait;
pub(crate) use waiting::{Waiting, Wake};

/// The pool of the machines of a template.
pub(crate) fn pool_key(template: &BaremetalMachineTemplate) -> Key {
    Key::of(template).in_namespace_of(&template.spec.template.spec.machine_inventory_pool_ref.name)
}

/// The objects that are to be reconciled after an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Triggers(BTreeSet<(Kind, Key)>);

impl Triggers {
    pub fn of(kind: Kind, keys: impl IntoIterator<Item = Key>) -> Self {
        keys.into_iter().map(|key| (kind, key)).collect()
    }

    pub(crate) fn add(&mut self, kind: Kind, keys: impl IntoIterator<Item = Key>) {
        self.0.extend(keys.into_iter().map(|key| (kind, key)));
    }

    pub fn keys_of(&self, kind: Kind) -> BTreeSet<Key> {
        self.0.iter().filter(|(other, _)| *other == kind).map(|(_, key)| key.clone()).collect()
    }
}

impl<const N: usize> From<[(Kind, Key); N]> for Triggers {
    fn from(subjects: [(Kind, Key); N]) -> Self {
        Self(subjects.into())
    }
}

impl FromIterator<(Kind, Key)> for Triggers {
    fn from_iter<T: IntoIterator<Item = (Kind, Key)>>(subjects: T) -> Self {
        Self(subjects.into_iter().collect())
    }
}

impl Extend<(Kind, Key)> for Triggers {
    fn extend<T: IntoIterator<Item = (Kind, Key)>>(&mut self, subjects: T) {
        self.0.extend(subjects);
    }
}

impl IntoIterator for Triggers {
    type Item = (Kind, Key);
    type IntoIter = std::collections::btree_set::IntoIter<(Kind, Key)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The queues of the controllers while this replica leads. Without a queue keys are dropped,
/// because a new leader reconciles every object. The controllers take every key at once and drop
/// repeats, so that no queue grows beyond a burst.
#[derive(Clone, Debug, Default)]
pub struct Router(Arc<RwLock<HashMap<Kind, UnboundedSender<Key>>>>);

impl Router {
    pub(crate) fn open_queue(&self, kind: Kind) -> UnboundedReceiver<Key> {
        let (queue, keys) = unbounded_channel();
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(kind, queue);
        keys
    }

    pub(crate) fn close_queues(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub fn send_keys(&self, triggers: Triggers) {
        let queues = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for (kind, key) in triggers {
            if let Some(queue) = queues.get(&kind) {
                // A closed queue is a leadership that has just ended.
                let _ = queue.send(key);
            }
        }
    }
}

/// The index of the process. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Index(Arc<RwLock<Inner>>);

/// Facts by object, and objects by fact.
#[derive(Debug, Default)]
struct Inner {
    hosts: HashMap<Key, Arc<HostRecord>>,
    hosts_by_claim: Groups<(String, Key), Key>,
    /// Hosts by the `BaremetalMachine` that their node or plan names.
    hosts_by_stated_owner: Groups<Key, Key>,
    hosts_by_cluster: Groups<Key, Key>,
    hosts_by_replica: Groups<String, Key>,
    machines: HashMap<Key, machines::MachineFacts>,
    machines_by_host: Groups<Key, Key>,
    machines_by_cluster: Groups<Key, Key>,
    /// Control-plane machines by Cluster.
    control_planes: Groups<Key, Key>,
    machines_by_pool: Groups<Key, Key>,
    waiting: Waiting<Wish>,
    reservations: Reservations,
    clusters: HashMap<Key, machines::ClusterFacts>,
    /// Clusters by their `BaremetalCluster`.
    clusters_by_infrastructure: Groups<Key, Key>,
    /// `BaremetalCluster`s, with true if hosts are to hold the endpoint.
    endpoint_holders: HashMap<Key, bool>,
    rosters: HashMap<Key, Roster>,
    pools_by_member: Groups<Key, Key>,
    pools_by_cluster: Groups<Key, Key>,
    /// Pools with a selector, by namespace.
    selecting_pools: Groups<Namespace, Key>,
    admissions: BTreeMap<Key, Admission>,
    /// Members that a pool lists and no pool holds.
    unheld: Groups<Key, ObjectName>,
    endpoints: Endpoints,
    tokens: Tokens,
    seed_images_by_registration: Partition<Key, Key>,
    templates_by_pool: Partition<Key, Key>,
    #[cfg(test)]
    touched: usize,
}

impl Index {
    fn read_inner(&self) -> RwLockReadGuard<'_, Inner> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_inner(&self) -> RwLockWriteGuard<'_, Inner> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// This function and `apply_pool` are public for the benchmark of the index.
    pub fn apply_host(&self, inventory: &MachineInventory, presence: Presence) -> Triggers {
        let record = HostRecord::parse(inventory).filter(|_| presence == Presence::Exists);
        self.write_inner().update_host(&Key::of(inventory), record.map(Arc::new).as_ref())
    }

    pub fn apply_pool(&self, pool: &Arc<MachineInventoryPool>, presence: Presence) -> Triggers {
        let pool_key = Key::of(&**pool);
        match presence {
            Presence::Exists => self.write_inner().update_pool(&pool_key, pool),
            Presence::Deleted => self.write_inner().remove_pool(&pool_key),
        }
    }

    pub(crate) fn apply_machine(&self, machine: &BaremetalMachine, presence: Presence) -> Triggers {
        let facts = (presence == Presence::Exists).then(|| machines::MachineFacts::of_object(machine));
        self.write_inner().update_machine(&Key::of(machine), facts.as_ref())
    }

    /// A Machine of Cluster API concerns its infrastructure machine.
    pub(crate) fn apply_owner(machine: &Machine) -> Triggers {
        let reference = Some(&machine.spec.infrastructure_ref).filter(|reference| reference.kind == KIND);
        let key = reference.map(|reference| Key::of(machine).in_namespace_of(&reference.name));
        Triggers::of(Kind::BaremetalMachine, key)
    }

    pub(crate) fn apply_cluster(&self, cluster: &Cluster, presence: Presence) -> Triggers {
        let facts = (presence == Presence::Exists).then(|| machines::ClusterFacts::of_object(cluster));
        let mut triggers = self.write_inner().update_cluster(&Key::of(cluster), facts);
        triggers.add(Kind::BaremetalCluster, infrastructure_of(cluster));
        triggers
    }

    pub(crate) fn apply_seed_image(&self, image: &SeedImage, presence: Presence) -> Triggers {
        let key = Key::of(image);
        let registration = (presence == Presence::Exists).then(|| image.registration_key());
        self.write_inner().seed_images_by_registration.set_group(&key, registration.as_ref());
        Triggers::of(Kind::SeedImage, [key])
    }

    pub(crate) fn apply_template(&self, template: &BaremetalMachineTemplate, presence: Presence) -> Triggers {
        let key = Key::of(template);
        let pool = (presence == Presence::Exists).then(|| pool_key(template));
        self.write_inner().templates_by_pool.set_group(&key, pool.as_ref());
        Triggers::of(Kind::BaremetalMachineTemplate, [key])
    }

    /// Another cluster may wait for an address that this cluster gave up. The pools of the cluster
    /// show which fields have no effect without an internal endpoint.
    pub(crate) fn apply_baremetal_cluster(&self, cluster: &BaremetalCluster, presence: Presence) -> Triggers {
        let key = Key::of(cluster);
        let endpoint = Internal::of_cluster(cluster).filter(|_| presence == Presence::Exists);
        let holds_endpoint =
            (presence == Presence::Exists).then(|| load_balancer::holds_endpoint(&cluster.spec));
        let mut inner = self.write_inner();
        let mut triggers =
            Triggers::of(Kind::MachineInventoryPool, inner.note_endpoint(&key, holds_endpoint));
        triggers.add(Kind::BaremetalCluster, inner.endpoints.set_endpoint(&key, endpoint));
        triggers.add(Kind::BaremetalCluster, [key]);
        triggers
    }

    /// Another registration may wait for the token of this one, seed images contain this one, and pools show
    /// whom it admits.
    pub(crate) fn apply_registration(
        &self,
        registration: &MachineRegistration,
        presence: Presence,
    ) -> Triggers {
        let key = Key::of(registration);
        let mut triggers = Triggers::of(Kind::SeedImage, self.seed_images_of(&key));
        let present = Some(registration).filter(|_| presence == Presence::Exists);
        let admission = present.and_then(Admission::of_registration);
        let mut inner = self.write_inner();
        triggers.add(Kind::MachineInventoryPool, inner.set_admission(&key, admission));
        triggers.add(Kind::MachineRegistration, inner.tokens.set_tokens(&key, present));
        triggers.add(Kind::MachineRegistration, [key]);
        triggers
    }

    /// The seed images that contain a registration.
    pub(crate) fn seed_images_of(&self, registration: &Key) -> BTreeSet<Key> {
        self.read_inner().seed_images_by_registration.group_members(registration).cloned().collect()
    }

    /// The registrations whose spec or status has a token.
    pub(crate) fn registrations_with_token(&self, token: &str) -> Vec<Key> {
        self.read_inner().tokens.find_registrations(token)
    }

    /// Sets the network of a cluster. Endpoints that come into the network concern the cluster from
    /// now on.
    pub(crate) fn set_network(&self, cluster: &Key, network: Option<IpNet>) {
        self.write_inner().endpoints.set_network(cluster, network);
    }

    /// The clusters with the address and port of an endpoint, and the clusters in its network with
    /// its router id.
    pub(crate) fn find_neighbours(&self, endpoint: Internal, network: Option<IpNet>) -> BTreeSet<Key> {
        self.read_inner().endpoints.find_neighbours(endpoint, network)
    }

    pub(crate) fn apply_catalog(&self) -> Triggers {
        let inner = self.read_inner();
        let mut triggers = Triggers::of(Kind::BaremetalMachine, inner.waiting.find_catalog_waiters());
        triggers.add(Kind::SeedImage, inner.seed_images_by_registration.members().cloned());
        triggers
    }

    /// The hosts whose session is served by a replica.
    pub fn hosts_by_replica(&self, replica: &str) -> BTreeSet<Key> {
        self.read_inner().hosts_by_replica.group_members(&replica.to_owned()).cloned().collect()
    }

    /// Names of the hosts whose claim, node or plan names a `BaremetalMachine`.
    pub fn owned_hosts(&self, machine: &Key) -> Vec<HostName> {
        self.read_inner().owned_hosts(machine)
    }

    /// The hosts that name a machine as their owner.
    #[cfg(test)]
    fn hosts_by_claim(&self, kind: &str, machine: &Key) -> BTreeSet<Key> {
        self.read_inner().hosts_by_claim.group_members(&(kind.to_owned(), machine.clone())).cloned().collect()
    }

    /// Reads the roster of the pool that `machine` names, and the hosts that are reserved for other
    /// machines.
    pub fn with_roster<T>(
        &self,
        machine: &Key,
        pool: &str,
        read: impl FnOnce(Option<&Roster>, &dyn Fn(&str) -> bool) -> T,
    ) -> T {
        let inner = self.read_inner();
        let is_reserved = |host: &str| inner.reservations.is_taken(&machine.in_namespace_of(host), machine);
        read(inner.rosters.get(&machine.in_namespace_of(pool)), &is_reserved)
    }

    /// The control-plane machines of a Cluster.
    pub fn control_plane_machines(&self, cluster: &Key) -> BTreeSet<Key> {
        self.read_inner().control_planes.group_members(cluster).cloned().collect()
    }

    pub fn read_roster<T>(&self, pool: &Key, read: impl FnOnce(&Roster) -> T) -> Option<T> {
        self.read_inner().rosters.get(pool).map(read)
    }

    /// The condition of a pool about the registrations of its namespace.
    pub(crate) fn admission_condition(&self, pool: &Key) -> Option<ConditionUpdate> {
        self.read_inner().admission_condition(pool)
    }

    /// Failure domains of the hosts of a Cluster, with true for those of its control plane. If no
    /// pool is labelled as one of control planes, all domains are for control planes too.
    pub fn failure_domains(&self, cluster: &Key) -> BTreeMap<String, bool> {
        let inner = self.read_inner();
        let rosters: Vec<_> = inner
            .pools_by_cluster
            .group_members(cluster)
            .filter_map(|pool| inner.rosters.get(pool))
            .collect();
        let is_labelled = |roster: &Roster| roster.pool().labels().contains_key(label::CONTROL_PLANE);
        let is_any_labelled = rosters.iter().any(|roster| is_labelled(roster));
        let mut domains = BTreeMap::new();
        for roster in rosters {
            let is_control_plane = !is_any_labelled || is_labelled(roster);
            for domain in roster.failure_domains() {
                *domains.entry(domain.to_owned()).or_default() |= is_control_plane;
            }
        }
        domains
    }

    /// The members of a pool that no pool holds, so that this pool may take them.
    pub fn unheld_members(&self, pool: &Key) -> Vec<ObjectName> {
        let mut members: Vec<_> = self.read_inner().unheld.group_members(pool).cloned().collect();
        members.sort_unstable();
        members
    }

    /// Sets the wait of a machine. A host that was held by the group of the machine and is being
    /// cleaned is preferred to a free host. The wait is [`Wait::Decision`] before the objects of
    /// the decision are read, so that no event is missed between the two.
    pub fn set_wait(&self, machine: &Key, wait: Option<Wait<Wish>>, now: Timestamp) {
        self.write_inner().set_wait(machine, wait, now);
    }

    /// Reserves `host` for `machine` until it is claimed; `false` when it is
    /// reserved for another machine. A machine has one reservation.
    pub fn reserve_host(&self, host: &str, machine: &Key) -> bool {
        self.write_inner().reserve_host(&machine.in_namespace_of(host), machine)
    }

    pub(crate) fn release_reservation(&self, machine: &Key) -> Triggers {
        let mut triggers = Triggers::default();
        self.write_inner().release_reservation(machine, &mut triggers);
        triggers
    }

    /// Releases every reservation, because another replica led meanwhile.
    pub fn release_all(&self) {
        self.write_inner().reservations = Reservations::default();
    }
}
