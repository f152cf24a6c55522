//! Workload clusters, reached by their kubeconfig Secrets.
//!
//! The Secret is read each time, so that a new kubeconfig is used at once. A client is kept as long
//! as the content of its Secret does not change.

mod answer;
mod endpoint;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod holder;
mod kubeconfig;
mod nodes;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coordinator_api::cluster::Endpoint;
use coordinator_api::conditions::Reason;
use coordinator_core::assignment::{NodeRef, NodesRead};
use coordinator_core::node_link::NodeSearch;
use coordinator_core::problem::Problem;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::Request;
use kube::{Client, Resource as _};
use proto::plan::{Checksum, Secret};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout};

use crate::egress::{Targets, WorkloadTargets};
use crate::key::{Key, Namespace};
use crate::permits::{Permit, Permits};
use crate::store::{StoreError, is_not_found, secret};
use crate::telemetry::chain;
use answer::send_request;
use endpoint::Asked;
pub use holder::LEASE as HOLDER_LEASE;
pub use kubeconfig::KubeconfigError;
use nodes::find_nodes;

/// Suffix and key of Cluster API; the name begins with that of the Cluster.
const SECRET_SUFFIX: &str = "-kubeconfig";
const SECRET_KEY: &str = "value";
/// Number of kept clients; the least recently used client is removed first.
const CLIENTS: usize = 64;
/// Questions to workload clusters at a time, one of a cluster, and those of a namespace. A question above a
/// limit is asked later, so that clusters that do not answer take at most this many reconciles, and those of
/// one namespace leave places to others.
const QUESTIONS: usize = 8;
const NAMESPACE_QUESTIONS: usize = 3;
/// The time for which a question waits for other questions to a cluster that answered the last one, because
/// its machines join at the same time. It is short, because the reconcile that waits takes a place too.
const TURN: Duration = Duration::from_millis(500);
/// The time for which a cluster that did not answer is not asked again.
const SILENCE: Duration = Duration::from_secs(30);
/// The deadline of the first page of a list, so that a silent cluster gives its place back soon.
const PAGE_DEADLINE: Duration = Duration::from_secs(5);
/// The deadline of all pages of a list together.
const LIST_DEADLINE: Duration = Duration::from_secs(20);

/// Makes a client of a kubeconfig.
pub type Connector = Arc<dyn Fn(Secret) -> BoxFuture<'static, Result<Client, KubeconfigError>> + Send + Sync>;

/// Clients of workload clusters. Clones share them.
#[derive(Clone)]
pub struct WorkloadClients(Arc<Inner>);

struct Inner {
    connect: Connector,
    known: Mutex<HashMap<Key, Known>>,
    endpoints: Mutex<HashMap<Key, Asked>>,
    /// The host that the Lease of each workload cluster names.
    holders: Mutex<HashMap<Key, String>>,
    /// A question of each cluster.
    questions: Permits<Key>,
    places: Permits<Namespace>,
}

struct Known {
    kubeconfig: Checksum,
    client: Client,
    /// The server that the kubeconfig names.
    server: Option<Endpoint>,
    used: Instant,
    failure: Option<(Instant, Problem)>,
    /// The last list was read.
    has_answered: bool,
}

impl Default for WorkloadClients {
    fn default() -> Self {
        Self::within(WorkloadTargets::default().into_targets(&[]))
    }
}

impl WorkloadClients {
    /// Clients that ask only these servers.
    pub fn within(targets: Targets) -> Self {
        Self::new(Arc::new(move |kubeconfig| {
            kubeconfig::connect_workload(kubeconfig, targets.clone()).boxed()
        }))
    }

    pub fn new(connect: Connector) -> Self {
        Self(Arc::new(Inner {
            connect,
            known: Mutex::default(),
            endpoints: Mutex::default(),
            holders: Mutex::default(),
            questions: Permits::new(usize::MAX, 1),
            places: Permits::new(QUESTIONS, NAMESPACE_QUESTIONS),
        }))
    }

    /// Asks the cluster for Nodes.
    ///
    /// # Errors
    /// When the Secret cannot be read. A silent workload cluster is an answer.
    pub async fn read_nodes(
        &self,
        management: &Client,
        namespace: &str,
        search: &NodeSearch,
    ) -> Result<NodesRead, StoreError> {
        let cluster = Key::new(namespace, &*search.cluster);
        let client = match self.open_client(management, &cluster).await? {
            Ok(client) => client,
            Err(problem) => return Ok(NodesRead::Unavailable(problem)),
        };
        if let Some(problem) = self.recent_failure(&cluster) {
            return Ok(NodesRead::Unavailable(problem));
        }
        let Some(_question) = self.take_turn(&cluster).await else {
            return Ok(NodesRead::Unavailable(busy_problem(&cluster)));
        };
        // The question before this one may have failed.
        if let Some(problem) = self.recent_failure(&cluster) {
            return Ok(NodesRead::Unavailable(problem));
        }
        let error = match timeout(LIST_DEADLINE, find_nodes(&client, search)).await {
            Ok(Ok(nodes)) => {
                self.note_answer(&cluster);
                return Ok(NodesRead::Read(nodes));
            }
            Ok(Err(error)) => chain(&error),
            Err(_) => format!("its Nodes were not listed within {} s", LIST_DEADLINE.as_secs()),
        };
        let problem = unreachable_problem(&cluster, &error);
        self.note_failure(&cluster, &problem);
        Ok(NodesRead::Unavailable(problem))
    }

    /// Writes `spec.providerID` of a Node, and nothing else.
    pub async fn set_provider_id(
        &self,
        management: &Client,
        namespace: &str,
        node: &NodeRef,
        provider_id: &str,
    ) -> Result<(), StoreError> {
        let patch = json!({ "metadata": { "uid": node.uid }, "spec": { "providerID": provider_id } });
        self.patch_node(management, namespace, node, "write spec.providerID of", &patch).await
    }

    /// Writes labels of a Node, and nothing else; null removes one.
    pub async fn set_labels(
        &self,
        management: &Client,
        namespace: &str,
        node: &NodeRef,
        labels: &Map<String, Value>,
    ) -> Result<(), StoreError> {
        let patch = json!({ "metadata": { "uid": node.uid, "labels": labels } });
        self.patch_node(management, namespace, node, "write labels of", &patch).await
    }

    async fn patch_node(
        &self,
        management: &Client,
        namespace: &str,
        node: &NodeRef,
        verb: &'static str,
        patch: &Value,
    ) -> Result<(), StoreError> {
        let (client, _turn) = self.open_node_client(management, namespace, node).await?;
        let request = node_request().patch(&node.name, &PatchParams::default(), &Patch::Merge(patch));
        let written = send_request(&client, request).await;
        written.map(drop).map_err(StoreError::request(verb, "Node", &node.name))
    }

    /// Deletes a Node; a missing Node counts as deleted.
    pub async fn delete_node(
        &self,
        management: &Client,
        namespace: &str,
        node: &NodeRef,
    ) -> Result<(), StoreError> {
        let (client, _turn) = self.open_node_client(management, namespace, node).await?;
        let preconditions = Preconditions { uid: node.uid.clone(), resource_version: None };
        let deletion = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match send_request(&client, node_request().delete(&node.name, &deletion)).await {
            Err(error) if !is_not_found(&error) => {
                Err(StoreError::request("delete", "Node", &node.name)(error))
            }
            _ => Ok(()),
        }
    }

    /// Forgets a deleted Cluster.
    pub fn forget_cluster(&self, cluster: &Key) {
        self.lock_known().remove(cluster);
        self.lock_endpoints().remove(cluster);
        self.lock_holders().remove(cluster);
    }

    /// The client for a write, with a place among all requests to workload clusters.
    async fn open_node_client(
        &self,
        management: &Client,
        namespace: &str,
        node: &NodeRef,
    ) -> Result<(Client, Turn), StoreError> {
        let cluster = Key::new(namespace, &*node.cluster);
        let opened = self.open_client(management, &cluster).await?;
        let client = opened.map_err(|problem| unusable(&cluster, &problem))?;
        Ok((client, self.take_turn_to_write(&cluster).await?))
    }

    /// The client of the present kubeconfig.
    async fn open_client(
        &self,
        management: &Client,
        cluster: &Key,
    ) -> Result<Result<Client, Problem>, StoreError> {
        let name = format!("{}{SECRET_SUFFIX}", cluster.name);
        let read = secret::read_key(management, &cluster.namespace, &name, &[SECRET_KEY]).await?;
        let Some(kubeconfig) = read else {
            self.lock_known().remove(cluster);
            return Ok(Err(Problem::new(
                Reason::KubeconfigMissing,
                format!(
                    "Secret {name} with the kubeconfig of the workload cluster is missing or has no key {SECRET_KEY}"
                ),
                "wait for the control plane provider, which creates it; without one, create it",
            )));
        };
        let checksum = Checksum::of(kubeconfig.expose());
        if let Some(client) = self.take_known(cluster, &checksum) {
            return Ok(Ok(client));
        }
        let server = kubeconfig::find_server(kubeconfig.expose());
        let connected = (self.0.connect)(kubeconfig).await;
        if let Ok(client) = &connected {
            self.keep_client(cluster, checksum, client, server);
        }
        Ok(connected.map_err(|error| {
            Problem::new(
                Reason::KubeconfigInvalid,
                format!("the kubeconfig in Secret {name} is not usable: {error}"),
                "correct the Secret",
            )
        }))
    }

    fn lock_known(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_holders(&self) -> MutexGuard<'_, HashMap<Key, String>> {
        self.0.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_endpoints(&self) -> MutexGuard<'_, HashMap<Key, Asked>> {
        self.0.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_known(&self, cluster: &Key, kubeconfig: &Checksum) -> Option<Client> {
        let mut known = self.lock_known();
        let known = known.get_mut(cluster).filter(|known| known.kubeconfig == *kubeconfig)?;
        known.used = Instant::now();
        Some(known.client.clone())
    }

    fn keep_client(&self, cluster: &Key, kubeconfig: Checksum, client: &Client, server: Option<Endpoint>) {
        let mut known = self.lock_known();
        let now = Instant::now();
        let client = client.clone();
        let new = Known { kubeconfig, client, server, used: now, failure: None, has_answered: false };
        known.insert(cluster.clone(), new);
        while known.len() > CLIENTS {
            let oldest = known.iter().min_by_key(|(_, known)| known.used).map(|(cluster, _)| cluster.clone());
            oldest.map(|oldest| known.remove(&oldest));
        }
    }

    /// Waits for the turn of a question to this cluster, and for a place among the questions to all; `None` if
    /// it does not come soon.
    async fn take_turn(&self, cluster: &Key) -> Option<Turn> {
        let has_answered = self.lock_known().get(cluster).is_some_and(|known| known.has_answered);
        let wait = if has_answered { TURN } else { Duration::ZERO };
        let turn = timeout(wait, self.0.questions.acquire(cluster)).await.ok().flatten()?;
        let place = timeout(TURN, self.0.places.acquire(&cluster.namespace)).await.ok().flatten()?;
        Some((turn, place))
    }

    /// As [`Self::take_turn`], for a write, which is tried again later.
    async fn take_turn_to_write(&self, cluster: &Key) -> Result<Turn, StoreError> {
        self.take_turn(cluster).await.ok_or_else(|| unusable(cluster, &busy_problem(cluster)))
    }

    fn note_answer(&self, cluster: &Key) {
        if let Some(known) = self.lock_known().get_mut(cluster) {
            known.has_answered = true;
        }
    }

    fn recent_failure(&self, cluster: &Key) -> Option<Problem> {
        let known = self.lock_known();
        let (until, problem) = known.get(cluster)?.failure.as_ref()?;
        (Instant::now() < *until).then(|| problem.clone())
    }

    fn note_failure(&self, cluster: &Key, problem: &Problem) {
        tracing::warn!(
            namespace = &*cluster.namespace,
            cluster = &*cluster.name,
            problem = problem.text(),
            retry_in = ?SILENCE,
            "workload cluster did not answer"
        );
        if let Some(known) = self.lock_known().get_mut(cluster) {
            known.failure = Some((Instant::now() + SILENCE, problem.clone()));
            known.has_answered = false;
        }
    }
}

/// The turn of a request to a cluster, and its place among those to all.
type Turn = (Permit<Key>, Permit<Namespace>);

fn unusable(cluster: &Key, problem: &Problem) -> StoreError {
    StoreError::Unusable { kind: "Cluster", name: cluster.name.to_string(), why: problem.text() }
}

fn node_request() -> Request {
    Request::new(Node::url_path(&(), None))
}

fn unreachable_problem(cluster: &Key, error: &str) -> Problem {
    Problem::new(
        Reason::WorkloadUnreachable,
        format!("the API server of Cluster {} did not answer as it should: {error}", cluster.name),
        format!("check the endpoint and the credentials in Secret {}{SECRET_SUFFIX}", cluster.name),
    )
}

/// Other questions take every place, or that of the cluster.
fn busy_problem(cluster: &Key) -> Problem {
    Problem::of_cause(
        Reason::WorkloadUnreachable,
        format!(
            "the API server of Cluster {} is asked later, because it or as many others as are allowed are asked now",
            cluster.name
        ),
    )
}
