//! The verb `check-api`, which keepalived runs to decide whether this host may hold the endpoint.
//!
//! The host may hold it while its own API server answers `/readyz`, which includes the quorum of
//! etcd, and answers in time if another member does. A holder whose API server is busy keeps the
//! endpoint for a while if no other member would do better ([`overload`]). The first node holds the
//! endpoint before its API server has ever answered, because kubeadm init needs it.
//!
//! The request goes to this host's own address, over TLS that the cluster's authority vouches for,
//! so that another process on the port counts as no answer. It shows the kubelet's certificate if
//! there is one, for clusters that answer no anonymous request.

use std::pin::pin;

use proto::balancer::Duty;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::overload::{self, Answer};
use super::probe::{IN_TIME, LATE, ProbeError, ServerState, ask_ready, connect_api, open_connector};
use crate::ground::failure::Failure;
use crate::ground::paths::Root;
use crate::state::duty;

/// The reason for which this host may hold the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitness {
    /// The API server is ready.
    Serves,
    /// The API server has never answered, and needs the endpoint for its start.
    HoldsFirst,
    /// The API server answers late, and no other member answers in time.
    Late,
    /// The API server is busy, and no other member would do better.
    Overloaded,
}

/// Checks once. After a failure the host takes no part until the next check.
pub async fn check_api(root: &Root) -> Result<Fitness, Failure> {
    let duty = match duty::carried_duty(root) {
        Some(carried) => carried,
        None => duty::read_duty(root)?.ok_or_else(no_duty)?,
    };
    let checked = check_own(root, &duty).await;
    match &checked {
        Ok(Fitness::Serves | Fitness::Late) => {
            if !duty::has_served(root) {
                duty::record_served(root)?;
            }
            overload::record_ready(root);
        }
        Err(error) if duty.holds_first && !duty::has_served(root) => {
            tracing::debug!(%error, "API server has never answered, holding the endpoint first");
            return Ok(Fitness::HoldsFirst);
        }
        Ok(_) | Err(_) => {}
    }
    checked
}

/// Asks the own API server, and asks the other members if it is not ready in time.
async fn check_own(root: &Root, duty: &Duty) -> Result<Fitness, Failure> {
    let connector = open_connector(root)?;
    let mut asked = pin!(ask_own(&connector, duty));
    let (error, others) = match timeout(IN_TIME, &mut asked).await {
        Ok(Ok(())) => return Ok(Fitness::Serves),
        Ok(Err(error)) => (error, None),
        Err(_) => match wait_for_late(&connector, duty, asked).await? {
            (Ok(()), _) => {
                tracing::warn!("API server is late, and no other member answers in time");
                return Ok(Fitness::Late);
            }
            (Err(error), others) => (error, Some(others)),
        },
    };
    let Some(since) = overload::since_ready(root, duty, &error) else { return Err(error.failure) };
    let others = match others {
        Some(answers) => answers,
        None => overload::ask_others(&connector, duty).await,
    };
    if !overload::is_kept(since, &others) {
        return Err(error.failure);
    }
    tracing::warn!(error = %error.failure, "API server is not ready, and no other member would do better");
    Ok(Fitness::Overloaded)
}

/// Waits for the answer of the own API server, and asks the other members meanwhile. Ends early if
/// the own API server has stopped, or if another member answers in time.
async fn wait_for_late(
    connector: &TlsConnector,
    duty: &Duty,
    asked: impl Future<Output = Result<(), ProbeError>>,
) -> Result<(Result<(), ProbeError>, Vec<Answer>), Failure> {
    let own = async {
        match timeout(LATE, asked).await.unwrap_or_else(|_| Err(ProbeError::timed_out())) {
            Err(error) if error.server != ServerState::Overloaded => Err(error.failure),
            answered => Ok(answered),
        }
    };
    let others = async {
        let answers = overload::ask_others(connector, duty).await;
        if answers.contains(&Answer::InTime) { Err(ProbeError::timed_out().failure) } else { Ok(answers) }
    };
    tokio::try_join!(own, others)
}

fn no_duty() -> Failure {
    Failure::refused(
        "this host has no duty for a load balancer",
        "none: only control-plane hosts of a cluster with an internal endpoint have one",
    )
}

async fn ask_own(connector: &TlsConnector, duty: &Duty) -> Result<(), ProbeError> {
    ask_ready(connect_api(connector, duty.own_address(), duty.port.get()).await?).await
}
