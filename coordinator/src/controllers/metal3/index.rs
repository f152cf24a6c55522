//! Which Metal3 objects concern each other.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use coordinator_api::metal3::ipam::{IPAddress, IPClaim, IPPool};
use coordinator_api::metal3::names;
use kube::ResourceExt as _;

use super::slots::Slots;
use crate::cache::Presence;
use crate::controllers::index::{Key, Triggers};

/// A kind that has a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    IpPool,
    IpClaim,
}

/// The index of the process. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Metal3Index(Arc<RwLock<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    addresses: Slots<IpAddr>,
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
        triggers(of_kind(Kind::IpClaim, woken).chain([(Kind::IpClaim, key)]))
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

/// The address that the claim has recorded as its own.
fn chosen_address(claim: &IPClaim) -> Option<IpAddr> {
    claim.annotations().get(names::CHOSEN_ADDRESS)?.parse().ok()
}
