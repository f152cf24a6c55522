//! The certificate authority at the start. A lost one is not replaced while hosts trust it, and
//! neither is one from outside.

use std::time::Duration;

use coordinator_api::inventory::MachineInventory;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::Setup;
use crate::ca::{self, Authority, CaError, SECRET_NAME};
use crate::watch::Cache;

const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Reads the authority, or creates one if no host trusts another one and none comes from outside.
/// Otherwise waits for the Secret.
pub(super) async fn obtain(setup: &Setup, cache: &Cache) -> Result<Authority, CaError> {
    let secrets: Api<Secret> = Api::namespaced(setup.client.clone(), &setup.config.own_namespace);
    while let Some(reason) = find_obstacle(setup, &secrets, cache).await? {
        tracing::error!(
            namespace = setup.config.own_namespace,
            reason,
            "waiting for the certificate authority"
        );
        setup.readiness.set_unready(reason);
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    let authority = ca::read_or_create(&secrets, setup.clock.now()).await?;
    setup.metrics.set_authority_expiry(authority.expiry()?);
    Ok(authority)
}

/// The cause for which no authority may be created, while there is none.
async fn find_obstacle(
    setup: &Setup,
    secrets: &Api<Secret>,
    cache: &Cache,
) -> Result<Option<String>, CaError> {
    let config = &setup.config;
    let is_trusted =
        || cache.store::<MachineInventory>().find(|inventory| inventory.spec.tpm_hash.is_some()).is_some();
    let action = if config.provided_authority {
        "--provided-authority is set: create it with tls.crt and tls.key, or see why the Certificate of cert-manager is not ready"
    } else if !config.create_authority && is_trusted() {
        "registered hosts trust the authority in it: restore it, or start once with --create-authority and boot a new seed ISO on every host"
    } else {
        return Ok(None);
    };
    let found = secrets.get_metadata_opt(SECRET_NAME).await;
    let found = found.map_err(|source| CaError::Api { attempt: "read", source })?;
    Ok(found.is_none().then(|| format!("the Secret {SECRET_NAME} is missing, and {action}")))
}

#[cfg(test)]
mod tests;
