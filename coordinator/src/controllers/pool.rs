//! `MachineInventoryPool`: counted, never polled.

use std::collections::HashSet;
use std::sync::Arc;

use coordinator_api::inventory::MachineInventory;
use coordinator_api::pool::MachineInventoryPool;
use coordinator_core::pool::{self, Member};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;

use super::{Context, Error};
use crate::store::status;
use crate::watch::Caches;

/// The members of a pool, as the caches have them.
pub(super) struct Roster {
    pool: Arc<MachineInventoryPool>,
    found: Vec<Found>,
    promised: HashSet<String>,
}

/// One member: its inventory, and the older pool that lists it too.
struct Found {
    inventory: Option<Arc<MachineInventory>>,
    older_pool: Option<String>,
}

impl Roster {
    /// `None` when there is no such pool.
    pub(super) fn of(caches: &Caches, name: &str, namespace: &str) -> Option<Self> {
        let pool = caches.pools.get(&ObjectRef::new(name).within(namespace))?;
        let older: Vec<_> = caches
            .pools
            .state()
            .into_iter()
            .filter(|rival| rival.namespace() == pool.namespace() && pool::is_older(rival, &pool))
            .collect();
        let listed = |rival: &MachineInventoryPool, name: &str| {
            rival.spec.machine_inventories.iter().any(|member| member.name == name)
        };
        let find = |name: &str| {
            let inventory = caches.inventories.get(&ObjectRef::new(name).within(namespace));
            let older_pool = older.iter().find(|rival| listed(rival, name)).map(|rival| rival.name_any());
            Found { inventory, older_pool }
        };
        let found = pool.spec.machine_inventories.iter().map(|member| find(&member.name)).collect();
        Some(Self { pool, found, promised: HashSet::new() })
    }

    /// Leaves out what other machines have chosen.
    pub(super) fn beside(mut self, taken: impl Fn(&str) -> bool) -> Self {
        let names = self.pool.spec.machine_inventories.iter().map(|member| &member.name);
        self.promised = names.filter(|name| taken(name)).cloned().collect();
        self
    }

    /// Whether a member is left out that may become free again.
    pub(super) fn holds_promises(&self) -> bool {
        !self.promised.is_empty()
    }

    /// The pool itself.
    pub(super) fn pool(&self) -> &MachineInventoryPool {
        &self.pool
    }

    /// In the pool's order.
    pub(super) fn members(&self) -> Vec<Member<'_>> {
        let listed = self.pool.spec.machine_inventories.iter();
        listed
            .zip(&self.found)
            .map(|(listed, found)| Member {
                listed,
                inventory: found.inventory.as_deref(),
                older_pool: found.older_pool.as_deref(),
                is_promised: self.promised.contains(&listed.name),
            })
            .collect()
    }
}

/// Counts the members.
///
/// # Errors
/// When the status cannot be written.
pub async fn reconcile(pool: Arc<MachineInventoryPool>, context: Arc<Context>) -> Result<Action, Error> {
    let namespace = pool.namespace().unwrap_or_default();
    if let Some(roster) = Roster::of(&context.caches, &pool.name_any(), &namespace) {
        let new = pool::status(&pool, &roster.members(), Timestamp::now());
        status::apply(&context.client, &*pool, new).await?;
    }
    Ok(Action::await_change())
}
