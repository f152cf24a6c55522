//! `IPClaim`: an address is chosen, created, reported, and given back.

use std::sync::Arc;

use coordinator_api::metal3::ipam::{IPAddress, IPClaim, IPClaimStatus};
use coordinator_api::metal3::names;
use coordinator_core::metal3::ipam::{ClaimKind, ClaimStep, Pool, decide_claim, is_held_by};
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt as _};

use crate::cache::metal3::Metal3Cache;
use crate::controllers::Context;
use crate::controllers::index::Key;
use crate::store::{StoreError, metal3, status};

/// Decides, applies one step.
///
/// # Errors
/// [`StoreError`].
pub(super) async fn reconcile(claim: Arc<IPClaim>, context: Arc<Context>) -> Result<Action, StoreError> {
    let Some(cache) = &context.cache.metal3 else { return Ok(Action::await_change()) };
    let key = Key::of(&*claim);
    let pool = cache.ip_pools.get(&key.in_namespace_of(&claim.spec.pool.name).object_ref());
    let addresses = |name: &str| cache.ip_addresses.get(&key.in_namespace_of(name).object_ref());
    // The decision looks at one address alone: that of the recorded choice.
    let chosen = claim.annotations().get(names::CHOSEN_ADDRESS).and_then(|text| text.parse().ok());
    let known = chosen.zip(pool.as_ref()).and_then(|(chosen, pool)| {
        addresses(&coordinator_core::metal3::ipam::address_name(&pool.spec.name_prefix, chosen))
    });
    let find = |name: &str| known.as_deref().filter(|address| address.name_any() == name);
    match decide_claim(&claim, pool.as_deref(), find) {
        ClaimStep::Rest => {}
        ClaimStep::Choose(pool) => choose_address(&context, cache, &claim, &pool).await?,
        ClaimStep::Create(address) => create_address(&context, &claim, &address).await?,
        ClaimStep::Report(projected) => {
            status::write_status(&context.client, &*claim, &projected).await?;
        }
        ClaimStep::Release(address) => release_address(&context, &claim, address.as_deref()).await?,
    }
    Ok(Action::await_change())
}

async fn choose_address(
    context: &Context,
    cache: &Metal3Cache,
    claim: &IPClaim,
    pool: &Pool,
) -> Result<(), StoreError> {
    let key = Key::of(claim);
    let requested = claim.annotations().get(names::REQUESTED_ADDRESS).map(String::as_str);
    let pool_key = key.in_namespace_of(&claim.spec.pool.name);
    let chosen = cache.index.choose_address(&pool_key, &key, |is_taken| {
        pool.choose_address(&key.name, requested, |address| is_taken(&address))
    });
    match chosen {
        Ok(address) => {
            let note = (names::CHOSEN_ADDRESS, address.to_string());
            metal3::record_choice(&context.client, claim, note, names::CLAIM_FINALIZER).await
        }
        Err(refusal) => {
            let message = refusal.to_string();
            let before = claim.status.as_ref().and_then(|status| status.error_message.as_ref());
            if before != Some(&message) {
                context.events.warning(claim, "AddressRefused", &message).await;
            }
            let refused = IPClaimStatus { address: None, error_message: Some(message) };
            status::write_status(&context.client, claim, &refused).await.map(drop)
        }
    }
}

/// Of two claims that chose one address, the one whose object is created has it.
async fn create_address(context: &Context, claim: &IPClaim, address: &IPAddress) -> Result<(), StoreError> {
    let name = address.name_any();
    let namespace = claim.namespace().unwrap_or_default();
    let Some(existing) = metal3::create(&context.client, &namespace, address).await? else {
        tracing::info!(address = address.spec.address, pool = claim.spec.pool.name, "address given");
        return Ok(());
    };
    if is_held_by(&existing, ClaimKind::Claim, &claim.name_any(), &claim.spec.pool.name) {
        return Ok(());
    }
    tracing::info!(
        address = name,
        holder = existing.spec.claim.name,
        "the address is in use; another is chosen"
    );
    metal3::drop_choice(&context.client, claim, names::CHOSEN_ADDRESS).await
}

async fn release_address(
    context: &Context,
    claim: &IPClaim,
    address: Option<&str>,
) -> Result<(), StoreError> {
    if let Some(name) = address {
        let api: Api<IPAddress> =
            Api::namespaced(context.client.clone(), &claim.namespace().unwrap_or_default());
        let found = api.get_opt(name).await.map_err(StoreError::request("get", "IPAddress", name))?;
        let pool = &claim.spec.pool.name;
        let is_own = |address: &IPAddress| is_held_by(address, ClaimKind::Claim, &claim.name_any(), pool);
        if let Some(found) = found.filter(is_own) {
            metal3::delete_held(&context.client, &found, names::ADDRESS_FINALIZER).await?;
            tracing::info!(address = found.spec.address, "address given back");
        }
    }
    metal3::drop_finalizer(&context.client, claim, names::CLAIM_FINALIZER).await
}
