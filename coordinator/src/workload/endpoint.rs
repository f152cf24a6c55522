//! Asks whether an API server answers at the endpoint of a workload cluster.

use std::mem::discriminant;
use std::time::Duration;

use coordinator_core::cluster::EndpointAnswer;
use coordinator_core::retry::{RETRY_MAX, probe_backoff};
use kube::Client;
use tokio::time::{Instant, timeout};

use super::answer::send_request;
use super::{WorkloadClients, unreachable_problem};
use crate::key::Key;
use crate::store::StoreError;
use crate::telemetry::chain;

/// The interval between two questions to an endpoint that answers.
const INTERVAL: Duration = Duration::from_mins(2);
const DEADLINE: Duration = Duration::from_secs(5);
/// The time until the next try where questions to other clusters took every place.
const BUSY: Duration = Duration::from_secs(1);
/// The path whose answer includes the quorum of etcd.
const PATH: &str = "/readyz";

/// The last question.
#[derive(Clone)]
pub(super) struct Asked {
    answer: EndpointAnswer,
    /// Equal failures in a row.
    failures: u32,
    next: Instant,
    is_initialized: bool,
}

impl WorkloadClients {
    /// Asks the API server at the endpoint, unless it was asked a short time ago, and gives the
    /// time until the next question. Once the control plane is initialized it is asked at once.
    ///
    /// # Errors
    /// When the Secret with the kubeconfig cannot be read.
    pub async fn ask_endpoint(
        &self,
        management: &Client,
        cluster: &Key,
        is_initialized: bool,
    ) -> Result<(EndpointAnswer, Option<Duration>), StoreError> {
        let former = self.lock_endpoints().get(cluster).cloned();
        let known = former.as_ref().filter(|asked| asked.is_initialized == is_initialized);
        let remaining = known.map(|asked| asked.next.saturating_duration_since(Instant::now()));
        if let (Some(asked), Some(remaining)) = (known, remaining.filter(|remaining| !remaining.is_zero())) {
            return Ok((asked.answer.clone(), asked.repeats().then_some(remaining)));
        }
        let failures = known.map_or(0, |asked| asked.failures);
        let Some(answer) = self.ask_now(management, cluster, failures).await? else {
            // The clusters that are asked now hold up no other reconcile.
            let answer = former.map_or(EndpointAnswer::NotAsked, |asked| asked.answer);
            return Ok((answer, Some(BUSY)));
        };
        let is_repeated = known.is_some_and(|asked| discriminant(&asked.answer) == discriminant(&answer));
        let again = if is_repeated { failures.saturating_add(1) } else { 1 };
        let (failures, pause) = match answer {
            EndpointAnswer::Answered(_) => (0, INTERVAL),
            EndpointAnswer::NotAsked => (0, RETRY_MAX),
            EndpointAnswer::Unasked(_) | EndpointAnswer::Silent(_) => (again, probe_backoff(again)),
        };
        let asked = Asked { answer: answer.clone(), failures, next: Instant::now() + pause, is_initialized };
        let repeats = asked.repeats();
        self.lock_endpoints().insert(cluster.clone(), asked);
        Ok((answer, repeats.then_some(pause)))
    }

    /// An endpoint that answers costs the management cluster nothing: the Secret is read if there
    /// is no client, and again if the kept client had no answer. `None` if no place is free for the
    /// question.
    async fn ask_now(
        &self,
        management: &Client,
        cluster: &Key,
        failures: u32,
    ) -> Result<Option<EndpointAnswer>, StoreError> {
        let kept = self.lock_known().get(cluster).filter(|_| failures == 0).map(|known| known.client.clone());
        let client = match kept {
            Some(client) => client,
            None => match self.open_client(management, cluster).await? {
                Ok(client) => client,
                Err(problem) => return Ok(Some(EndpointAnswer::Unasked(problem))),
            },
        };
        let Some(_question) = self.take_turn(cluster).await else { return Ok(None) };
        let error = match timeout(DEADLINE, ask_ready(&client)).await {
            Ok(Ok(())) => {
                let server = self.lock_known().get(cluster).and_then(|known| known.server.clone());
                return Ok(Some(EndpointAnswer::Answered(server)));
            }
            Ok(Err(error)) => chain(&error),
            Err(_) => format!("{PATH} was not answered within {} s", DEADLINE.as_secs()),
        };
        Ok(Some(EndpointAnswer::Silent(unreachable_problem(cluster, &error))))
    }
}

impl Asked {
    /// Tells whether the question is repeated. The Secret of a control plane that does not exist
    /// yet is not asked for again, because the progress of the Cluster announces it.
    fn repeats(&self) -> bool {
        self.is_initialized || !matches!(self.answer, EndpointAnswer::Unasked(_))
    }
}

/// A refusal is an answer. An error of a server is none, because a load balancer without an API
/// server behind it may have sent it.
async fn ask_ready(client: &Client) -> Result<(), kube::Error> {
    let request = http::Request::get(PATH).body(Vec::new()).map_err(kube::Error::HttpError)?;
    match send_request(client, Ok(request)).await {
        Err(kube::Error::Api(status)) if status.code < 500 => Ok(()),
        answer => answer.map(drop),
    }
}
