//! The `check-api` verb, which keepalived runs: may this host hold the address?
//!
//! It may while its own API server answers `/readyz`, which includes etcd's
//! quorum; in time, where another member does. A host that has the address keeps it a while where that
//! is busy and no other member would do better ([`overload`]). Until it answered for the first time,
//! the first node holds the address all the same, since kubeadm init needs it.
//!
//! The request goes to this host's own address, over TLS that the cluster's
//! authority vouches for: another process on the port counts as no answer. It
//! shows the kubelet's certificate where there is one, for clusters that answer
//! no anonymous request.

use std::pin::pin;

use proto::balancer::Duty;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::overload::{self, Answer};
use super::probe::{CheckError, IN_TIME, LATE, ask_ready, connect_api, open_connector};
use crate::ground::error::describe_error;
use crate::ground::paths::Root;
use crate::state::duty;

/// Why this host may hold the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitness {
    /// Its API server is ready.
    Serves,
    /// Its API server has never answered, and the address is needed for that.
    HoldsFirst,
    /// Its API server answers late, and no other member answers in time.
    Late,
    /// Its API server is busy, and no other member would do better.
    Overloaded,
}

/// Checks once.
///
/// # Errors
/// [`CheckError`]: the host takes no part until the next check.
pub async fn check_api(root: &Root) -> Result<Fitness, CheckError> {
    let duty = match duty::carried_duty(root) {
        Some(carried) => carried,
        None => duty::read_duty(root)?.ok_or(CheckError::NoDuty)?,
    };
    let checked = check_own(root, &duty).await;
    match &checked {
        Ok(Fitness::Serves | Fitness::Late) => {
            if !duty::has_served(root) {
                duty::note_served(root)?;
            }
            overload::note_ready(root);
        }
        Err(error) if duty.holds_first && !duty::has_served(root) => {
            tracing::debug!(error = describe_error(error), "the API server has never answered");
            return Ok(Fitness::HoldsFirst);
        }
        Ok(_) | Err(_) => {}
    }
    checked
}

/// Asks the own API server, and the other members where it is not ready in time.
async fn check_own(root: &Root, duty: &Duty) -> Result<Fitness, CheckError> {
    let connector = open_connector(root)?;
    let mut asked = pin!(ask_own(&connector, duty));
    let (error, others) = match timeout(IN_TIME, &mut asked).await {
        Ok(Ok(())) => return Ok(Fitness::Serves),
        Ok(Err(error)) => (error, None),
        Err(_) => {
            let own = async {
                match timeout(LATE, asked).await.unwrap_or(Err(CheckError::TimedOut)) {
                    Err(error) if !error.is_overload() => Err(error),
                    answered => Ok(answered),
                }
            };
            let others = async {
                let answers = overload::ask_others(&connector, duty).await;
                if answers.contains(&Answer::InTime) { Err(CheckError::TimedOut) } else { Ok(answers) }
            };
            match tokio::try_join!(own, others)? {
                (Ok(()), _) => {
                    tracing::warn!("the API server is late, and no other member answers in time");
                    return Ok(Fitness::Late);
                }
                (Err(error), others) => (error, Some(others)),
            }
        }
    };
    let Some(since) = overload::since_ready(root, duty, &error) else { return Err(error) };
    let others = match others {
        Some(answers) => answers,
        None => overload::ask_others(&connector, duty).await,
    };
    if !overload::is_kept(since, &others) {
        return Err(error);
    }
    tracing::warn!(error = describe_error(&error), "no other member would do better");
    Ok(Fitness::Overloaded)
}

async fn ask_own(connector: &TlsConnector, duty: &Duty) -> Result<(), CheckError> {
    ask_ready(connect_api(connector, duty.own_address(), duty.port.get()).await?).await
}
