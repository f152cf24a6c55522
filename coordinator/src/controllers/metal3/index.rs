//! Which Metal3 objects concern each other.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use coordinator_api::capi;
use coordinator_api::metal3::cluster::Metal3Cluster;
use coordinator_api::metal3::data::{Metal3Data, Metal3DataClaim};
use coordinator_api::metal3::data_template::Metal3DataTemplate;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::ipam::{IPAddress, IPClaim, IPPool};
use coordinator_api::metal3::machine::Metal3Machine;
use coordinator_api::metal3::names;
use coordinator_api::names::label;
use coordinator_core::metal3::data::{group_of_data, group_of_template};
use coordinator_core::metal3::host::named_inventory;
use coordinator_core::metal3::machine;
use kube::ResourceExt as _;

use super::slots::Slots;
use crate::cache::Presence;
use crate::controllers::index::groups::Groups;
use crate::controllers::index::reservations::Reservations;
use crate::controllers::index::{Key, Triggers};

/// A kind that has a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    IpPool,
    IpClaim,
    DataTemplate,
    DataClaim,
    Data,
    Host,
    Machine,
    Cluster,
}

/// The index of the process. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Metal3Index(Arc<RwLock<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    addresses: Slots<IpAddr>,
    indexes: Slots<i64>,
    data_by_claim: HashMap<Key, Key>,
    /// Templates, by the one whose indexes they share.
    templates_by_group: Groups<Key, Key>,
    group_of_template: HashMap<Key, Key>,
    hosts_by_inventory: Groups<Key, Key>,
    inventory_of_host: HashMap<Key, Key>,
    machines_by_host: Groups<Key, Key>,
    machines_by_cluster: Groups<Key, Key>,
    machines: HashMap<Key, MachineFacts>,
    reservations: Reservations,
    /// Machines that wait for a host, or for an operator.
    waiting: BTreeSet<Key>,
}

/// What a machine is found by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MachineFacts {
    host: Option<Key>,
    cluster: Option<Key>,
}

pub(super) fn triggers(subjects: impl IntoIterator<Item = (Kind, Key)>) -> Triggers {
    Triggers { metal3: subjects.into_iter().collect(), ..Triggers::default() }
}

fn of_kind(kind: Kind, keys: impl IntoIterator<Item = Key>) -> impl Iterator<Item = (Kind, Key)> {
    keys.into_iter().map(move |key| (kind, key))
}

impl Metal3Index {
    fn read_inner(&self) -> RwLockReadGuard<'_, Inner> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_inner(&self) -> RwLockWriteGuard<'_, Inner> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pool concerns all of its claims.
    pub(crate) fn apply_ip_pool(&self, pool: &IPPool) -> Triggers {
        let key = Key::of(pool);
        let claims = self.read_inner().addresses.claims_of(&key);
        triggers(of_kind(Kind::IpClaim, claims).chain([(Kind::IpPool, key)]))
    }

    pub(crate) fn apply_ip_claim(&self, claim: &IPClaim, presence: Presence) -> Triggers {
        let key = Key::of(claim);
        let chosen = chosen_address(claim);
        let facts =
            (presence == Presence::Exists).then(|| (key.in_namespace_of(&claim.spec.pool.name), chosen));
        let woken = self.write_inner().addresses.update_claim(&key, facts);
        let data = claim.labels().get(names::DATA_NAME).map(|name| (Kind::Data, key.in_namespace_of(name)));
        triggers(of_kind(Kind::IpClaim, woken).chain([(Kind::IpClaim, key)]).chain(data))
    }

    pub(crate) fn apply_ip_address(&self, address: &IPAddress, presence: Presence) -> Triggers {
        let key = Key::of(address);
        let pool = key.in_namespace_of(&address.spec.pool.name);
        let claim = key.in_namespace_of(&address.spec.claim.name);
        let parsed = address.spec.address.parse().ok().filter(|_| presence == Presence::Exists);
        let facts = parsed.map(|ip: IpAddr| (pool.clone(), claim, ip));
        let woken = self.write_inner().addresses.update_object(&key, facts);
        triggers(of_kind(Kind::IpClaim, woken).chain([(Kind::IpPool, pool)]))
    }

    /// Addresses of a pool that are in use, with their claims.
    #[must_use]
    pub fn used_addresses(&self, pool: &Key) -> Vec<(IpAddr, Key)> {
        self.read_inner().addresses.objects_of(pool)
    }

    /// Reserves the address that `choose` finds, unless the claim has one.
    pub(super) fn choose_address<E>(
        &self,
        pool: &Key,
        claim: &Key,
        choose: impl FnOnce(&dyn Fn(&IpAddr) -> bool) -> Result<IpAddr, E>,
    ) -> Result<IpAddr, E> {
        self.write_inner().addresses.choose(pool, claim, choose)
    }
}

/// Templates, claims on their indexes, and data.
impl Metal3Index {
    /// A template concerns the claims on its indexes.
    pub(crate) fn apply_data_template(&self, template: &Metal3DataTemplate, presence: Presence) -> Triggers {
        let key = Key::of(template);
        let group = (presence == Presence::Exists).then(|| key.in_namespace_of(&group_of_template(template)));
        let mut inner = self.write_inner();
        let old = match &group {
            Some(group) => inner.group_of_template.insert(key.clone(), group.clone()),
            None => inner.group_of_template.remove(&key),
        };
        inner.templates_by_group.replace_group(old.as_ref(), group.as_ref(), &key);
        let mut claims = inner.indexes.claims_of(&key);
        claims.extend(group.map(|group| inner.indexes.claims_of(&group)).unwrap_or_default());
        triggers(of_kind(Kind::DataClaim, claims).chain([(Kind::DataTemplate, key)]))
    }

    /// A claim concerns the machine of its name.
    pub(crate) fn apply_data_claim(&self, claim: &Metal3DataClaim, presence: Presence) -> Triggers {
        let key = Key::of(claim);
        let mut inner = self.write_inner();
        let template = key.in_namespace_of(&claim.spec.template.name);
        let group = inner.group_of_template.get(&template).cloned().unwrap_or(template);
        let chosen = claim.annotations().get(names::CHOSEN_INDEX).and_then(|text| text.parse().ok());
        let facts = (presence == Presence::Exists).then_some((group, chosen));
        inner.indexes.update_claim(&key, facts);
        triggers([(Kind::DataClaim, key.clone()), (Kind::Machine, key)])
    }

    /// Data concerns its claim, the machine of that, and the templates of its
    /// indexes.
    pub(crate) fn apply_data(&self, data: &Metal3Data, presence: Presence) -> Triggers {
        let key = Key::of(data);
        let claim = key.in_namespace_of(&data.spec.claim.name);
        let group = key.in_namespace_of(&group_of_data(data));
        let mut inner = self.write_inner();
        let facts = (presence == Presence::Exists).then(|| (group.clone(), claim.clone(), data.spec.index));
        if facts.is_some() {
            inner.data_by_claim.insert(claim.clone(), key.clone());
        } else if inner.data_by_claim.get(&claim) == Some(&key) {
            inner.data_by_claim.remove(&claim);
        }
        let claims = inner.indexes.update_object(&key, facts);
        let templates: Vec<_> = inner.templates_by_group.group_members(&group).cloned().collect();
        let subjects = of_kind(Kind::DataClaim, claims).chain(of_kind(Kind::DataTemplate, templates));
        triggers(subjects.chain([(Kind::Data, key), (Kind::Machine, claim)]))
    }

    /// The data of a claim.
    #[must_use]
    pub fn data_of_claim(&self, claim: &Key) -> Option<Key> {
        self.read_inner().data_by_claim.get(claim).cloned()
    }

    /// Indexes in use, with their claims.
    #[must_use]
    pub fn used_indexes(&self, group: &Key) -> Vec<(i64, Key)> {
        self.read_inner().indexes.objects_of(group)
    }

    /// Reserves the index that `choose` finds, unless the claim has one.
    pub(super) fn choose_index(
        &self,
        group: &Key,
        claim: &Key,
        choose: impl FnOnce(&dyn Fn(&i64) -> bool) -> i64,
    ) -> i64 {
        let choose = |is_taken: &dyn Fn(&i64) -> bool| Ok::<_, Infallible>(choose(is_taken));
        let Ok(index) = self.write_inner().indexes.choose(group, claim, choose);
        index
    }
}

/// Hosts, and the machines that use them.
impl Metal3Index {
    /// A host concerns the machine that uses it; one that can be chosen concerns
    /// the machines that wait.
    pub(crate) fn apply_host(&self, host: &BareMetalHost, presence: Presence) -> Triggers {
        let key = Key::of(host);
        let exists = presence == Presence::Exists;
        let inventory =
            named_inventory(host).filter(|_| exists).map(|name| key.in_namespace_of(name.as_str()));
        let mut inner = self.write_inner();
        let old = match &inventory {
            Some(inventory) => inner.inventory_of_host.insert(key.clone(), inventory.clone()),
            None => inner.inventory_of_host.remove(&key),
        };
        inner.hosts_by_inventory.replace_group(old.as_ref(), inventory.as_ref(), &key);
        let mut machines: BTreeSet<_> = inner.machines_by_host.group_members(&key).cloned().collect();
        let consumer = host.spec.consumer_ref.as_ref().filter(|consumer| consumer.kind == machine::KIND);
        machines.extend(consumer.map(|consumer| key.in_namespace_of(&consumer.name)));
        if host.spec.consumer_ref.is_some() || !exists {
            inner.reservations.release_host(&key);
        }
        if exists && machine::is_candidate(host) {
            machines
                .extend(inner.waiting.iter().filter(|waiting| waiting.namespace == key.namespace).cloned());
        }
        // Its inventory may have other hosts that name it.
        let beside: Vec<_> = [old, inventory]
            .into_iter()
            .flatten()
            .flat_map(|inventory| {
                inner.hosts_by_inventory.group_members(&inventory).cloned().collect::<Vec<_>>()
            })
            .collect();
        let hosts = of_kind(Kind::Host, beside).chain([(Kind::Host, key)]);
        triggers(hosts.chain(of_kind(Kind::Machine, machines)))
    }

    /// The hosts that name an inventory.
    pub(crate) fn hosts_of_inventory(&self, inventory: &Key) -> Triggers {
        let hosts: Vec<_> = self.read_inner().hosts_by_inventory.group_members(inventory).cloned().collect();
        triggers(of_kind(Kind::Host, hosts))
    }

    pub(crate) fn apply_machine(&self, machine: &Metal3Machine, presence: Presence) -> Triggers {
        let key = Key::of(machine);
        let facts = (presence == Presence::Exists).then(|| MachineFacts {
            host: machine::named_host(machine).map(|name| key.in_namespace_of(name)),
            cluster: machine.labels().get(label::CLUSTER_NAME).map(|name| key.in_namespace_of(name)),
        });
        let mut inner = self.write_inner();
        let old = match &facts {
            Some(facts) => inner.machines.insert(key.clone(), facts.clone()),
            None => inner.machines.remove(&key),
        };
        let (old, new) = (old.unwrap_or_default(), facts.clone().unwrap_or_default());
        inner.machines_by_host.replace_group(old.host.as_ref(), new.host.as_ref(), &key);
        inner.machines_by_cluster.replace_group(old.cluster.as_ref(), new.cluster.as_ref(), &key);
        if facts.is_some() {
            return triggers([(Kind::Machine, key)]);
        }
        inner.waiting.remove(&key);
        inner.reservations.release_machine(&key);
        // The last machine of a cluster: its Metal3Cluster may go.
        triggers(of_kind(Kind::Cluster, old.cluster))
    }

    /// A Machine of Cluster API concerns its infrastructure machine.
    pub(crate) fn apply_owner(owner: &capi::Machine) -> Triggers {
        let reference = &owner.spec.infrastructure_ref;
        let subject = (reference.kind == machine::KIND)
            .then(|| (Kind::Machine, Key::of(owner).in_namespace_of(&reference.name)));
        triggers(subject)
    }

    /// A Cluster concerns its machines and its infrastructure.
    pub(crate) fn apply_cluster(&self, cluster: &capi::Cluster) -> Triggers {
        let key = Key::of(cluster);
        let reference = cluster.spec.infrastructure_ref.as_ref();
        let infrastructure = reference.filter(|reference| reference.kind == "Metal3Cluster");
        let infrastructure =
            infrastructure.map(|reference| (Kind::Cluster, key.in_namespace_of(&reference.name)));
        let inner = self.read_inner();
        let machines = inner.machines_by_cluster.group_members(&key);
        let hosts: Vec<_> =
            machines.clone().filter_map(|machine| inner.machines.get(machine)?.host.clone()).collect();
        let machines: Vec<_> = machines.cloned().collect();
        let subjects = of_kind(Kind::Machine, machines).chain(of_kind(Kind::Host, hosts));
        triggers(subjects.chain(infrastructure))
    }

    /// A `Metal3Cluster` concerns the machines of the Cluster that owns it.
    pub(crate) fn apply_infrastructure(&self, infrastructure: &Metal3Cluster) -> Triggers {
        let key = Key::of(infrastructure);
        let owner = infrastructure.owner_references().iter().find(|owner| owner.kind == "Cluster");
        let machines = owner.map(|owner| self.machines_of_cluster(&key.in_namespace_of(&owner.name)));
        let machines = of_kind(Kind::Machine, machines.unwrap_or_default());
        triggers(machines.chain([(Kind::Cluster, key)]))
    }

    /// An entry of the image catalog may be what machines wait for.
    pub(crate) fn apply_catalog(&self) -> Triggers {
        triggers(of_kind(Kind::Machine, self.read_inner().waiting.iter().cloned().collect::<Vec<_>>()))
    }

    /// Machines of a Cluster.
    #[must_use]
    pub fn machines_of_cluster(&self, cluster: &Key) -> Vec<Key> {
        self.read_inner().machines_by_cluster.group_members(cluster).cloned().collect()
    }

    /// Whether a machine waits for a host. To be called before the stores are read.
    pub(super) fn set_waiting(&self, machine: &Key, is_waiting: bool) {
        let mut inner = self.write_inner();
        if is_waiting && inner.machines.contains_key(machine) {
            inner.waiting.insert(machine.clone());
        } else {
            inner.waiting.remove(machine);
        }
    }

    /// Reserves the host that `choose` finds until it is claimed.
    pub(super) fn choose_host<E>(
        &self,
        machine: &Key,
        choose: impl FnOnce(&dyn Fn(&str) -> bool) -> Result<String, E>,
    ) -> Result<String, E> {
        let mut inner = self.write_inner();
        let is_reserved = |host: &str| inner.reservations.is_taken(&machine.in_namespace_of(host), machine);
        let host = choose(&is_reserved)?;
        let key = machine.in_namespace_of(&host);
        // One that names the machine already is its own, whichever machine reserved it.
        inner.reservations.release_host(&key);
        inner.reservations.insert_reservation(&key, machine);
        Ok(host)
    }

    /// Releases what is reserved for a machine.
    pub(super) fn release_host(&self, machine: &Key) {
        self.write_inner().reservations.release_machine(machine);
    }
}

/// The address that the claim has recorded as its own.
fn chosen_address(claim: &IPClaim) -> Option<IpAddr> {
    claim.annotations().get(names::CHOSEN_ADDRESS)?.parse().ok()
}
