//! The certificate authority at the start: a lost one is not replaced while
//! hosts trust it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::Setup;
use crate::ca::{self, Authority, CaError, SECRET_NAME};
use crate::cache::Cache;

const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Reads the authority, or creates one where no host trusts another. Waits
/// for the Secret otherwise.
pub(super) async fn obtain(setup: &Setup, cache: &Cache) -> Result<Authority, CaError> {
    let secrets: Api<Secret> = Api::namespaced(setup.client.clone(), &setup.config.own_namespace);
    while !setup.config.create_authority && is_lost(&secrets, cache).await? {
        let reason = format!(
            "the Secret {SECRET_NAME} is missing, and registered hosts trust the authority in it: restore it, or start once with --create-authority and boot a new seed ISO on every host"
        );
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

async fn is_lost(secrets: &Api<Secret>, cache: &Cache) -> Result<bool, CaError> {
    if cache.inventories.find(|inventory| inventory.spec.tpm_hash.is_some()).is_none() {
        return Ok(false);
    }
    let found = secrets.get_metadata_opt(SECRET_NAME).await;
    Ok(found.map_err(|source| CaError::Api { attempt: "read", source })?.is_none())
}

#[cfg(test)]
mod tests;
