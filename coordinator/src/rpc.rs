//! What hosts can call. Handlers translate and store; every decision is a pure
//! function of `coordinator-core`.

pub mod announcements;
mod complaints;
mod failure;
pub mod host;
pub mod identity;
mod plans;
pub mod presence;
pub mod registration;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use coordinator_api::registration::MachineRegistration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, ResourceExt as _};
use proto::refusal::Refusal;

use crate::ca::{Authority, Peer};
use crate::metrics::Metrics;
use crate::store::report;
use announcements::Announcements;
use complaints::Complaints;
use plans::Plans;
use presence::Presence;

pub use failure::RpcError;
pub use tally::Tally;
#[cfg(test)]
pub(crate) use tally::log;

/// An idle connection is asked for a sign of life this often.
pub const KEEPALIVE: Duration = Duration::from_secs(20);
/// One that gives none for so long is closed.
pub const KEEPALIVE_ANSWER: Duration = Duration::from_secs(10);

/// What every handler needs.
#[derive(Clone)]
pub struct Context {
    /// The Kubernetes API.
    pub client: Client,
    /// All inventories, as last seen.
    pub inventories: Store<MachineInventory>,
    /// All registrations, as last seen.
    pub registrations: Store<MachineRegistration>,
    /// News of inventories, for streams.
    pub announcements: Arc<Announcements>,
    /// Signs the hosts' certificates.
    pub authority: Arc<Authority>,
    /// Streams of this replica.
    pub presence: Arc<Presence>,
    /// What is refused is counted here, also by the port.
    pub tally: Arc<Tally>,
    plans: Arc<Plans>,
    complaints: Arc<Complaints>,
}

/// What a [`Context`] reads.
#[derive(Clone)]
pub struct Seen {
    /// All inventories, as last seen.
    pub inventories: Store<MachineInventory>,
    /// All registrations, as last seen.
    pub registrations: Store<MachineRegistration>,
    /// Fed with every event of the reflector behind `inventories`.
    pub announcements: Arc<Announcements>,
}

impl Context {
    /// A context with nobody attached.
    #[must_use]
    pub fn new(client: Client, seen: Seen, authority: Arc<Authority>, metrics: Metrics) -> Self {
        let complaints = Arc::new(Complaints::new(client.clone()));
        Self {
            client,
            inventories: seen.inventories,
            registrations: seen.registrations,
            announcements: seen.announcements,
            authority,
            presence: Arc::default(),
            tally: Arc::new(Tally::new(metrics)),
            plans: Arc::default(),
            complaints,
        }
    }

    fn inventory_api(&self, namespace: &str) -> Api<MachineInventory> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn secret_api(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The inventory of a name, as last seen; asked for when it was never seen,
    /// since a host is often faster than the watch.
    async fn named(&self, namespace: &str, name: &str) -> Result<Arc<MachineInventory>, RpcError> {
        if let Some(known) = self.inventories.get(&ObjectRef::new(name).within(namespace)) {
            return Ok(known);
        }
        Ok(Arc::new(report::read(&self.inventory_api(namespace), name, None).await?))
    }

    /// The inventory that a certificate was made for.
    async fn inventory(&self, peer: &Peer) -> Result<Arc<MachineInventory>, RpcError> {
        let known = self.named(&peer.namespace, &peer.name).await?;
        if known.uid().as_deref() == Some(&*peer.uid) {
            return not_quarantined(known);
        }
        // Seen before it was deleted and made anew, or made anew since.
        let api = self.inventory_api(&peer.namespace);
        not_quarantined(Arc::new(report::read(&api, &peer.name, Some(&peer.uid)).await?))
    }

    /// Counts what is refused on its way out.
    fn answer<T>(&self, result: Result<T, RpcError>) -> Result<T, tonic::Status> {
        result.map_err(|error| {
            if let RpcError::Refused { refusal, detail } = &error {
                self.tally.refuse(*refusal, detail);
            }
            error.into()
        })
    }
}

/// For the words of a refusal: a bare name does not say what it names.
fn inventory_of(name: &str) -> String {
    format!("the inventory is {name}")
}

fn not_quarantined(inventory: Arc<MachineInventory>) -> Result<Arc<MachineInventory>, RpcError> {
    if inventory.annotations().contains_key(annotation::QUARANTINED) {
        return Err(RpcError::refused(Refusal::Quarantined, inventory_of(&inventory.name_any())));
    }
    Ok(inventory)
}

#[cfg(test)]
mod tests;
