//! An in-memory Kubernetes API server behind a real `kube::Client`, for tests in virtual time.
//!
//! It is generic over kinds, deterministic (uids, generated names, resource versions), records
//! every request in a [`Journal`] and injects [`Faults`]. The suite in `tests/suite` runs on any client
//! and compares it with the real kube-apiserver. Not served: server-side apply and strategic merge
//! patches (415), conversion between versions, admission webhooks, parameters
//! and selectors of admission policies, reads from a stale cache, and the
//! life cycle of namespaces, which need not exist; one can be in deletion.
//!
//! ```
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # async fn doc() -> kube::Result<()> {
//! let fake = fake_apiserver::FakeApi::new();
//! let client = fake.client("coordinator");
//! let maps: kube::Api<ConfigMap> = kube::Api::namespaced(client, "default");
//! maps.list(&Default::default()).await?;
//! assert_eq!(fake.journal().counts_of("coordinator").requests, 1);
//! # Ok(())
//! # }
//! ```

mod access;
mod admission;
mod beneath;
mod clock;
mod create;
mod delete;
mod discovery;
mod failure;
mod faults;
mod garbage;
mod journal;
mod kinds;
mod list;
mod managed;
mod matching;
mod metadata;
mod object;
mod patch;
mod read;
mod request;
mod rules;
mod schema;
mod selector;
mod server;
mod store;
mod update;
mod watch;

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;

pub use access::{Rules, read_policies};
pub use beneath::OwnerReferences;
pub use clock::Clock;
pub use faults::{End, Fault, Faults, Outage, Refusal, Side, Stopped};
pub use garbage::GarbageCollection;
pub use journal::{Counts, Entry, Journal, Outcome};
pub use kinds::{Kind, Scope};
pub use matching::Matching;
pub use request::{Request, Verb};

use server::{Connection, Server};

/// The server. Clones are the same server.
#[derive(Clone)]
pub struct FakeApi {
    server: Arc<Server>,
}

impl Default for FakeApi {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeApi {
    /// A server with the built-in kinds, whose clock starts at 2026-01-01T00:00:00Z and runs with
    /// tokio's.
    pub fn new() -> Self {
        let start = Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH);
        Self::with_clock(Clock::starting_at(start))
    }

    /// A server with a clock of the caller's own.
    pub fn with_clock(clock: Clock) -> Self {
        Self { server: Arc::new(Server::new(clock)) }
    }

    /// Serves one more kind.
    pub fn register(&self, kind: Kind) {
        self.server.store().kinds.register(kind);
    }

    /// Serves the kinds of a CRD, whose schemas are enforced: unknown fields are pruned, defaults
    /// set, and violations answered with 422, those of rules in CEL included.
    pub fn register_crd(&self, crd: &CustomResourceDefinition) {
        for kind in Kind::from_crd(crd) {
            self.register(kind);
        }
    }

    /// Serves the kinds of a group at this version no longer: requests are answered with 404. Objects
    /// stay, for the versions that are left, and so do open watches.
    pub fn stop_serving(&self, group: &str, version: &str) {
        self.server.store().kinds.remove_version(group, version);
    }

    /// A client of its own for this user, in the namespace `default`. Needs a tokio runtime.
    pub fn client(&self, user: &str) -> kube::Client {
        self.client_in(user, "default")
    }

    /// As [`FakeApi::client`], with another default namespace.
    pub fn client_in(&self, user: &str, namespace: &str) -> kube::Client {
        let connection = Connection {
            server: self.server.clone(),
            user: user.into(),
            session: self.server.faults.new_session(),
        };
        kube::Client::new(connection, namespace)
    }

    /// Lets a user do what these rules allow, and answers everything else with 403. Users without
    /// rules may do everything.
    pub fn authorize(&self, user: &str, rules: Rules) {
        self.server.lock_access().restrict(user, rules);
    }

    /// Every request so far.
    pub fn journal(&self) -> Journal {
        self.server.journal.clone()
    }

    pub fn faults(&self) -> Faults {
        self.server.faults.clone()
    }

    /// Switches the garbage collector.
    pub fn garbage_collection(&self, collection: GarbageCollection) {
        let mut store = self.server.store();
        self.server.set_garbage_collection(collection);
        self.server.publish(&mut store);
    }
}

impl std::fmt::Debug for FakeApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let store = self.server.store();
        f.debug_struct("FakeApi").field("revision", &store.revision()).finish_non_exhaustive()
    }
}
