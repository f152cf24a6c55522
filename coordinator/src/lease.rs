//! Who leads: economy, never safety.

use std::pin::pin;
use std::time::Duration;

use kube::Client;
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseManagerError};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::controllers::{self, Context};
use crate::shutdown::{Shutdown, ended};
use crate::telemetry::chain;
use crate::watch::Leading;

/// Name of the Lease.
const NAME: &str = "baremetal-coordinator";
/// Seconds until another replica may take over from a dead one.
const DURATION: u64 = 5;
/// Seconds before the end at which the leader renews.
const GRACE: u64 = 2;
/// Pause after an election that broke.
const PAUSE: Duration = Duration::from_secs(1);

/// Leads whenever the lease is ours, until `shutdown`.
pub async fn follow(
    client: &Client,
    config: &Config,
    context: Context,
    leading: Leading,
    shutdown: Shutdown,
) {
    let mut end = pin!(ended(shutdown.clone()));
    loop {
        tokio::select! {
            broken = election(client, config, &context, &leading) => {
                tracing::warn!(error = %chain(&broken), "the election broke and starts again");
            }
            () = &mut end => return,
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = &mut end => return,
        }
    }
}

async fn election(
    client: &Client,
    config: &Config,
    context: &Context,
    leading: &Leading,
) -> LeaseManagerError {
    // Two replicas of one name must not both hold the lease.
    let identity = format!("{}-{}", config.instance, uuid::Uuid::new_v4().simple());
    let built = LeaseManagerBuilder::new(client.clone(), NAME)
        .with_namespace(&config.namespace)
        .with_identity(identity)
        .with_duration(DURATION)
        .with_grace(GRACE)
        .build()
        .await;
    let manager = match built {
        Ok(manager) => manager,
        Err(error) => return error,
    };
    let mut is_leader = false;
    loop {
        let change = if is_leader { lead(&manager, context, leading).await } else { manager.changed().await };
        match change {
            Ok(state) => is_leader = state,
            Err(error) => return error,
        }
    }
}

/// Leads until the lease changes; the answer is the change.
async fn lead(
    manager: &LeaseManager,
    context: &Context,
    leading: &Leading,
) -> Result<bool, LeaseManagerError> {
    tracing::info!("leading");
    let (lost, ended) = oneshot::channel::<()>();
    // On the heap: the future of all controllers is too large for the stack.
    let controllers =
        Box::pin(controllers::lead(context.clone(), leading.clone(), async { drop(ended.await) }));
    let (change, ()) = tokio::join!(
        async {
            let change = manager.changed().await;
            drop(lost);
            change
        },
        controllers
    );
    say_lost();
    change
}

fn say_lost() {
    tracing::info!("not leading any more");
}
