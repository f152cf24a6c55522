//! The Metal3 objects that concern each other.

pub mod clusters;
mod host_addresses;
mod hosts;
mod seen;
mod slots;
mod stated_hosts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use coordinator_api::capi_ipam::{IPAddress as GivenAddress, IPAddressClaim};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::metal3::data::{Metal3Data, Metal3DataClaim};
use coordinator_api::metal3::data_template::Metal3DataTemplate;
use coordinator_api::metal3::ipam::{IPAddress, IPClaim, IPPool};
use coordinator_api::metal3::names;
use coordinator_core::metal3::data::{group_of_data, group_of_template};
use coordinator_core::metal3::ipam::{ClaimKind, chosen_address, is_ours};
use coordinator_core::metal3::machine::{HostRoster, HostWish, Stated};
use kube::ResourceExt;

use clusters::{Clusters, OfCluster};
use host_addresses::{HostAddresses, HostFacts};
pub(crate) use hosts::{cluster_of_infrastructure, template_of_machine};
use seen::Seen;

use crate::index::groups::{Groups, Partition};
use crate::index::reservations::Reservations;
use crate::index::{Triggers, Waiting};
use crate::key::{Key, Kind, Namespace, Presence};
use slots::Slots;
use stated_hosts::StatedHosts;

/// The prefix of the names of Cluster API's claims in maps of both kinds of claims; no object has
/// it in its name.
const ADDRESS_CLAIM: &str = "ipaddressclaim/";

/// The host that uses an address.
type HostOf<'a> = &'a dyn Fn(IpAddr) -> Option<String>;

/// The index of the process. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Metal3Index(Arc<RwLock<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    addresses: Slots<IpAddr>,
    host_addresses: HostAddresses,
    clusters: Clusters,
    indexes: Slots<i64>,
    data_by_claim: HashMap<Key, Key>,
    claims_by_data: Partition<Key, Key>,
    /// Templates, by the template whose indexes they share.
    templates_by_group: Partition<Key, Key>,
    hosts_by_inventory: Partition<Key, Key>,
    /// Hosts by the machine that their inventories state.
    stated_hosts: StatedHosts,
    /// Hosts that are kept for successors, by Cluster.
    kept_by_cluster: Partition<Key, Key>,
    /// `Metal3Cluster`s by Cluster, because their names may differ.
    infrastructures: Partition<Key, Key>,
    machines_by_host: Groups<Key, Key>,
    machines_by_cluster: Groups<Key, Key>,
    /// Machines by the `Metal3MachineTemplate` from which Cluster API cloned them.
    machines_by_template: Partition<Key, Key>,
    /// Remediations by the Machine of Cluster API that owns both.
    remediations_by_owner: Partition<Key, Key>,
    machines: HashMap<Key, MachineFacts>,
    reservations: Reservations,
    rosters: HashMap<Namespace, HostRoster>,
    waiting: Waiting<HostWish>,
    seen: SeenKinds,
}

/// Objects on which many others depend.
#[derive(Debug, Default)]
struct SeenKinds {
    clusters: Seen,
    pools: Seen,
    data_templates: Seen,
}

/// The facts by which a machine is found, and on which its data depends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MachineFacts {
    host: Option<Key>,
    cluster: Option<Key>,
    /// The Machine of Cluster API that owns the machine.
    owner: Option<Key>,
    generation: Option<i64>,
}

/// The place of a claim of Cluster API among the claims of both kinds.
pub(crate) fn slot_of_address_claim(claim: &Key) -> Key {
    claim.in_namespace_of(&format!("{ADDRESS_CLAIM}{}", claim.name))
}

fn claim_subjects(claims: impl IntoIterator<Item = Key>) -> impl Iterator<Item = (Kind, Key)> {
    claims.into_iter().map(|key| match key.name.strip_prefix(ADDRESS_CLAIM) {
        Some(name) => (Kind::IPAddressClaim, key.in_namespace_of(name)),
        None => (Kind::IPClaim, key),
    })
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

    /// A changed pool concerns all of its claims.
    pub(crate) fn apply_ip_pool(&self, pool: &IPPool, presence: Presence) -> Triggers {
        let key = Key::of(pool);
        let mut inner = self.write_inner();
        inner.clusters.apply_member(pool, presence);
        let is_changed = inner.seen.pools.note_change(pool, presence, ());
        let claims = if is_changed { inner.addresses.claims_of(&key) } else { BTreeSet::new() };
        claim_subjects(claims).chain([(Kind::IPPool, key)]).collect()
    }

    pub(crate) fn apply_ip_claim(&self, claim: &IPClaim, presence: Presence) -> Triggers {
        let key = Key::of(claim);
        let pool = key.in_namespace_of(&claim.spec.pool.name);
        self.apply_claim(claim, &key, Some(pool), presence)
    }

    /// A claim of Cluster API, which may be on one of our pools.
    pub(crate) fn apply_address_claim(&self, claim: &IPAddressClaim, presence: Presence) -> Triggers {
        let key = Key::of(claim);
        let pool = is_ours(claim).then(|| key.in_namespace_of(&claim.spec.pool_ref.name));
        self.apply_claim(claim, &slot_of_address_claim(&key), pool, presence)
    }

    /// A claim has its `slot` among the claims of both kinds. `pool` is one of ours.
    fn apply_claim<K: OfCluster + ResourceExt>(
        &self,
        claim: &K,
        slot: &Key,
        pool: Option<Key>,
        presence: Presence,
    ) -> Triggers {
        let key = Key::of(claim);
        let exists = presence == Presence::Exists;
        let facts = pool.filter(|_| exists).map(|pool| (pool, chosen_address(claim)));
        let data = claim.labels().get(names::DATA_NAME).map(|name| key.in_namespace_of(name));
        let mut inner = self.write_inner();
        inner.clusters.apply_member(claim, presence);
        inner.claims_by_data.set_group(slot, data.as_ref().filter(|_| exists));
        // An object whose holder is removed by force is an orphan until the holder is restored: this and the
        // other kinds below are woken by what holds them.
        let objects = inner.addresses.objects_of_claim(slot);
        let woken = inner.addresses.update_claim(slot, facts);
        claim_subjects(woken)
            .chain([(K::KIND, key)])
            .chain(of_kind(Kind::Metal3Data, data))
            .chain(of_kind(Kind::IPAddress, objects))
            .collect()
    }

    /// The address for a claim of Cluster API concerns this claim, and the data that made the claim.
    pub(crate) fn apply_given_address(&self, address: &GivenAddress, _: Presence) -> Triggers {
        let claim = Key::of(address).in_namespace_of(&address.spec.claim_ref.name);
        let data = self.read_inner().claims_by_data.group_of(&slot_of_address_claim(&claim)).cloned();
        of_kind(Kind::Metal3Data, data).chain([(Kind::IPAddressClaim, claim)]).collect()
    }

    pub(crate) fn apply_ip_address(&self, address: &IPAddress, presence: Presence) -> Triggers {
        let key = Key::of(address);
        let pool = key.in_namespace_of(&address.spec.pool.name);
        let claim = key.in_namespace_of(&address.spec.claim.name);
        let claim = match ClaimKind::of(address) {
            ClaimKind::Claim => claim,
            ClaimKind::AddressClaim => slot_of_address_claim(&claim),
        };
        let parsed = address.spec.address.parse().ok().filter(|_| presence == Presence::Exists);
        let facts = parsed.map(|ip: IpAddr| (pool.clone(), claim, ip));
        let mut inner = self.write_inner();
        inner.clusters.apply_member(address, presence);
        let woken = inner.addresses.update_object(&key, facts);
        claim_subjects(woken).chain([(Kind::IPPool, pool), (Kind::IPAddress, key)]).collect()
    }

    /// Addresses of a pool that are in use, with the names of their claims.
    pub fn used_addresses(&self, pool: &Key) -> Vec<(IpAddr, String)> {
        let used = self.read_inner().addresses.objects_of(pool);
        let name = |claim: &Key| claim.name.strip_prefix(ADDRESS_CLAIM).unwrap_or(&claim.name).to_owned();
        used.into_iter().map(|(address, claim)| (address, name(&claim))).collect()
    }

    /// Reserves the address that `choose` finds for a claim of `machine`, unless the claim has one.
    /// `choose` gets three functions: the first tells whether an address is taken, the second which host
    /// of another machine uses it, and the third which of these hosts runs a node with it.
    pub(crate) fn choose_address<E>(
        &self,
        (pool, claim): (&Key, &Key),
        machine: Option<&Key>,
        choose: impl FnOnce(&dyn Fn(&IpAddr) -> bool, HostOf<'_>, HostOf<'_>) -> Result<IpAddr, E>,
    ) -> Result<IpAddr, E> {
        let inner = &mut *self.write_inner();
        let host = machine.and_then(|machine| inner.machines.get(machine)?.host.as_ref());
        let own = host.and_then(|host| inner.hosts_by_inventory.group_of(host));
        let hosts = &inner.host_addresses;
        let used_by = |address| hosts.find_other(&pool.namespace, address, own);
        // An operator may give the address of a node to a claim of another author.
        let node_of = |address| machine.and_then(|_| hosts.find_node(&pool.namespace, address, own));
        inner.addresses.choose(pool, claim, |is_taken| choose(is_taken, &used_by, &node_of))
    }

    /// An inventory concerns the hosts that name it, and the machine whose node it begins or ceases to
    /// state. If it gave up an address, it also concerns the claims that wait for one.
    pub(crate) fn apply_inventory(&self, inventory: &MachineInventory, presence: Presence) -> Triggers {
        let key = Key::of(inventory);
        let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
        let host = host.filter(|_| presence == Presence::Exists);
        let addresses = host.into_iter().flat_map(|host| &host.addresses);
        let facts = HostFacts {
            addresses: addresses.filter_map(|address| address.parse().ok()).collect(),
            runs_node: host
                .and_then(|host| host.carried.as_ref())
                .is_some_and(|carried| carried.node.is_some()),
        };
        let stated = Stated::of_inventory(inventory).filter(|_| presence == Presence::Exists);
        let stated = stated.map(|stated| (key.in_namespace_of(&stated.machine), stated.host));
        // Most events change no address, so that they take no lock for which others wait.
        let is_same = self.read_inner().host_addresses.has_facts(&key, &facts);
        let has_freed = !is_same && self.write_inner().host_addresses.set_host(&key, facts);
        let is_same = self.read_inner().stated_hosts.find(&key) == stated.as_ref();
        let machines =
            if is_same { vec![] } else { self.write_inner().stated_hosts.set_inventory(&key, stated) };
        let inner = self.read_inner();
        let waiting = has_freed.then(|| inner.addresses.waiting_in(&key.namespace));
        let hosts: Vec<_> = inner.hosts_by_inventory.group_members(&key).cloned().collect();
        of_kind(Kind::BareMetalHost, hosts)
            .chain(of_kind(Kind::Metal3Machine, machines))
            .chain(claim_subjects(waiting.into_iter().flatten()))
            .collect()
    }
}

/// Templates, claims on their indexes, and data.
impl Metal3Index {
    /// A changed template concerns the claims on its indexes.
    pub(crate) fn apply_data_template(&self, template: &Metal3DataTemplate, presence: Presence) -> Triggers {
        let key = Key::of(template);
        let group = (presence == Presence::Exists).then(|| key.in_namespace_of(&group_of_template(template)));
        let mut inner = self.write_inner();
        inner.clusters.apply_member(template, presence);
        inner.templates_by_group.set_group(&key, group.as_ref());
        let is_changed = inner.seen.data_templates.note_change(template, presence, ());
        let groups = [Some(key.clone()), group].into_iter().flatten().filter(|_| is_changed);
        let claims: BTreeSet<_> = groups.flat_map(|group| inner.indexes.claims_of(&group)).collect();
        of_kind(Kind::Metal3DataClaim, claims).chain([(Kind::Metal3DataTemplate, key)]).collect()
    }

    /// A claim concerns the machine of its name.
    pub(crate) fn apply_data_claim(&self, claim: &Metal3DataClaim, presence: Presence) -> Triggers {
        let key = Key::of(claim);
        let mut inner = self.write_inner();
        inner.clusters.apply_member(claim, presence);
        let template = key.in_namespace_of(&claim.spec.template.name);
        let group = inner.templates_by_group.group_of(&template).cloned().unwrap_or(template);
        let chosen = claim.annotations().get(names::CHOSEN_INDEX).and_then(|text| text.parse().ok());
        let facts = (presence == Presence::Exists).then_some((group, chosen));
        inner.indexes.update_claim(&key, facts);
        let data = inner.data_by_claim.get(&key).cloned();
        of_kind(Kind::Metal3Data, data)
            .chain([(Kind::Metal3DataClaim, key.clone()), (Kind::Metal3Machine, key)])
            .collect()
    }

    /// Data concerns its claim, the machine of the claim, and the templates of its index.
    pub(crate) fn apply_data(&self, data: &Metal3Data, presence: Presence) -> Triggers {
        let key = Key::of(data);
        let claim = key.in_namespace_of(&data.spec.claim.name);
        let group = key.in_namespace_of(&group_of_data(data));
        let mut inner = self.write_inner();
        inner.clusters.apply_member(data, presence);
        let facts = (presence == Presence::Exists).then(|| (group.clone(), claim.clone(), data.spec.index));
        if facts.is_some() {
            inner.data_by_claim.insert(claim.clone(), key.clone());
        } else if inner.data_by_claim.get(&claim) == Some(&key) {
            inner.data_by_claim.remove(&claim);
        }
        let claims = inner.indexes.update_object(&key, facts);
        let templates: Vec<_> = inner.templates_by_group.group_members(&group).cloned().collect();
        let addresses: Vec<_> = inner.claims_by_data.group_members(&key).cloned().collect();
        let subjects =
            of_kind(Kind::Metal3DataClaim, claims).chain(of_kind(Kind::Metal3DataTemplate, templates));
        subjects
            .chain(claim_subjects(addresses))
            .chain([(Kind::Metal3Data, key), (Kind::Metal3Machine, claim)])
            .collect()
    }

    pub fn data_of_claim(&self, claim: &Key) -> Option<Key> {
        self.read_inner().data_by_claim.get(claim).cloned()
    }

    /// The indexes in use, with their claims.
    pub fn used_indexes(&self, group: &Key) -> Vec<(i64, Key)> {
        self.read_inner().indexes.objects_of(group)
    }

    /// Reserves the index that `choose` finds, unless the claim has one.
    pub(crate) fn choose_index(
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
