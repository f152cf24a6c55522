//! Workload clusters, reached by their kubeconfig Secrets.
//!
//! The Secret is read each time, so that a new kubeconfig is used at once. A client is kept as long
//! as the content of its Secret does not change.

mod endpoint;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod holder;
mod kubeconfig;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coordinator_api::conditions::Reason;
use coordinator_core::assignment::{NodeRef, NodesRead};
use coordinator_core::node_link::{NodeFacts, NodeSearch};
use coordinator_core::problem::Problem;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt as _};
use proto::plan::{Checksum, Secret};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::key::Key;
use crate::store::{StoreError, is_not_found, secret};
use crate::telemetry::chain;
use endpoint::Asked;
pub use holder::LEASE as HOLDER_LEASE;
pub use kubeconfig::KubeconfigError;

/// Suffix and key of Cluster API; the name begins with that of the Cluster.
const SECRET_SUFFIX: &str = "-kubeconfig";
const SECRET_KEY: &str = "value";
/// Number of kept clients; the least recently used client is removed first.
const CLIENTS: usize = 64;
/// Questions to workload clusters at a time, so that clusters that do not answer do not take every
/// reconcile.
const QUESTIONS: usize = 8;
/// The time for which a cluster that did not answer is not asked again.
const SILENCE: Duration = Duration::from_secs(30);
/// The deadline of all pages of a list together.
const LIST_DEADLINE: Duration = Duration::from_secs(20);
const PAGE: u32 = 100;

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
    questions: Semaphore,
}

struct Known {
    kubeconfig: Checksum,
    client: Client,
    used: Instant,
    failure: Option<(Instant, Problem)>,
}

impl Default for WorkloadClients {
    fn default() -> Self {
        Self::new(Arc::new(|kubeconfig| kubeconfig::connect_workload(kubeconfig).boxed()))
    }
}

impl WorkloadClients {
    pub fn new(connect: Connector) -> Self {
        Self(Arc::new(Inner {
            connect,
            known: Mutex::default(),
            endpoints: Mutex::default(),
            holders: Mutex::default(),
            questions: Semaphore::new(QUESTIONS),
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
        // `acquire` only fails on a closed semaphore; this one is never closed.
        let _question = self.0.questions.acquire().await.ok();
        if let Some(problem) = self.recent_failure(&cluster) {
            return Ok(NodesRead::Unavailable(problem));
        }
        let error = match timeout(LIST_DEADLINE, find_nodes(&client, search)).await {
            Ok(Ok(nodes)) => return Ok(NodesRead::Read(nodes)),
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
        let nodes = self.open_nodes(management, namespace, node).await?;
        let written = nodes.patch(&node.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        written.map(drop).map_err(StoreError::request(verb, "Node", &node.name))
    }

    /// Deletes a Node; a missing Node counts as deleted.
    pub async fn delete_node(
        &self,
        management: &Client,
        namespace: &str,
        node: &NodeRef,
    ) -> Result<(), StoreError> {
        let nodes = self.open_nodes(management, namespace, node).await?;
        let preconditions = Preconditions { uid: node.uid.clone(), resource_version: None };
        let deletion = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match nodes.delete(&node.name, &deletion).await {
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

    async fn open_nodes(
        &self,
        management: &Client,
        namespace: &str,
        node: &NodeRef,
    ) -> Result<Api<Node>, StoreError> {
        let opened = self.open_client(management, &Key::new(namespace, &*node.cluster)).await?;
        let unusable = |problem: Problem| StoreError::Unusable {
            kind: "Cluster",
            name: node.cluster.clone(),
            why: problem.text(),
        };
        opened.map(Api::all).map_err(unusable)
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
        let connected = (self.0.connect)(kubeconfig).await;
        if let Ok(client) = &connected {
            self.keep_client(cluster, checksum, client);
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

    fn keep_client(&self, cluster: &Key, kubeconfig: Checksum, client: &Client) {
        let mut known = self.lock_known();
        let now = Instant::now();
        known.insert(cluster.clone(), Known { kubeconfig, client: client.clone(), used: now, failure: None });
        while known.len() > CLIENTS {
            let oldest = known.iter().min_by_key(|(_, known)| known.used).map(|(cluster, _)| cluster.clone());
            oldest.map(|oldest| known.remove(&oldest));
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
        }
    }
}

fn unreachable_problem(cluster: &Key, error: &str) -> Problem {
    Problem::new(
        Reason::WorkloadUnreachable,
        format!("the API server of Cluster {} did not answer as it should: {error}", cluster.name),
        format!("check the endpoint and the credentials in Secret {}{SECRET_SUFFIX}", cluster.name),
    )
}

/// The Node of the name; or the Node of the selector, if that leaves one; or all Nodes.
async fn find_nodes(client: &Client, search: &NodeSearch) -> Result<Vec<NodeFacts>, kube::Error> {
    if let Some(node) = &search.node {
        return list_nodes(client, ListParams::default().fields(&format!("metadata.name={node}"))).await;
    }
    if let Some(selector) = &search.selector {
        let found = list_nodes(client, ListParams::default().labels(selector)).await?;
        if found.len() == 1 {
            return Ok(found);
        }
    }
    list_nodes(client, ListParams::default()).await
}

async fn list_nodes(client: &Client, params: ListParams) -> Result<Vec<NodeFacts>, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut params = params.limit(PAGE);
    let mut found = vec![];
    loop {
        let page = nodes.list(&params).await?;
        found.extend(page.items.into_iter().map(read_facts));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

fn read_facts(node: Node) -> NodeFacts {
    NodeFacts {
        name: node.name_any(),
        uid: node.uid(),
        provider_id: node.spec.and_then(|spec| spec.provider_id).filter(|id| !id.is_empty()),
        is_deleting: node.metadata.deletion_timestamp.is_some(),
        labels: node.metadata.labels.unwrap_or_default(),
    }
}
