//! `IPAddressClaim` of Cluster API: an address of an `IPPool` is chosen, taken, given,
//! and given back.

use std::net::IpAddr;
use std::sync::Arc;

use coordinator_api::capi_ipam::{ADDRESS_FINALIZER, CLAIM_FINALIZER, IPAddress, IPAddressClaim};
use coordinator_api::conditions::Reason;
use coordinator_api::metal3::ipam::{IPAddress as Reservation, IPPool};
use coordinator_api::metal3::names;
use coordinator_core::cluster;
use coordinator_core::metal3::ipam::{
    AddressClaimSituation as Situation, AddressClaimStep as Step, ClaimKind, Pool, Refusal, address_name,
    chosen_address, decide_address_claim, is_held_by, refuse_address_claim,
};
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt as _};

use super::index::{cluster_of, slot_of_address_claim};
use crate::cache::metal3::Metal3Cache;
use crate::controllers::Context;
use crate::controllers::index::Key;
use crate::store::{StoreError, metal3, status};

/// Decides, applies one step.
///
/// # Errors
/// [`StoreError`].
pub(super) async fn reconcile(
    claim: Arc<IPAddressClaim>,
    context: Arc<Context>,
) -> Result<Action, StoreError> {
    let Some(cache) = &context.cache.metal3 else { return Ok(Action::await_change()) };
    let key = Key::of(&*claim);
    let beside = |name: &str| key.in_namespace_of(name);
    let pool = cache.ip_pools.get(&beside(&claim.spec.pool_ref.name).object_ref());
    let reserved = find_reservation(&claim, pool.as_deref(), cache, &key);
    let given = cache.given_addresses.get(&key.object_ref());
    let cluster = cluster_of(&claim).and_then(|name| context.cache.find_cluster(&beside(name)));
    let situation = Situation {
        claim: &claim,
        is_paused: cluster::is_paused(&*claim, cluster.as_deref()),
        pool: pool.as_deref(),
        reserved: reserved.as_deref(),
        given: given.as_deref(),
        now: context.clock.now(),
    };
    let step = decide_address_claim(&situation);
    apply_step(&context, cache, &situation, step).await?;
    Ok(Action::await_change())
}

/// The `IPAddress` of Metal3 for the recorded choice.
fn find_reservation(
    claim: &IPAddressClaim,
    pool: Option<&IPPool>,
    cache: &Metal3Cache,
    key: &Key,
) -> Option<Arc<Reservation>> {
    let name = address_name(&pool?.spec.name_prefix, chosen_address(claim)?);
    cache.ip_addresses.get(&key.in_namespace_of(&name).object_ref())
}

async fn apply_step(
    context: &Context,
    cache: &Metal3Cache,
    situation: &Situation<'_>,
    step: Step,
) -> Result<(), StoreError> {
    let (client, claim) = (&context.client, situation.claim);
    let namespace = claim.namespace().unwrap_or_default();
    match step {
        Step::Rest => Ok(()),
        Step::Choose(pool) => match choose_address(cache, claim, &pool) {
            Ok(address) => {
                let note = (names::CHOSEN_ADDRESS, address.to_string());
                metal3::record_choice(client, claim, note, CLAIM_FINALIZER).await
            }
            Err(refusal) => refuse_claim(context, situation, &refusal).await,
        },
        Step::Reserve(address) => reserve_address(context, claim, &address).await,
        Step::Give(address) => {
            metal3::create(client, &namespace, &*address).await?;
            tracing::info!(address = address.spec.address, pool = claim.spec.pool_ref.name, "address given");
            Ok(())
        }
        Step::Renew => match situation.given {
            Some(given) => metal3::drop_finalizer(client, given, ADDRESS_FINALIZER).await,
            None => Ok(()),
        },
        Step::Report(projected) => status::write_status(client, claim, &projected).await.map(drop),
        Step::Release(reserved) => release_address(context, claim, reserved.as_deref()).await,
    }
}

fn choose_address(cache: &Metal3Cache, claim: &IPAddressClaim, pool: &Pool) -> Result<IpAddr, Refusal> {
    let key = Key::of(claim);
    let requested = claim.annotations().get(names::REQUESTED_ADDRESS).map(String::as_str);
    let pool_key = key.in_namespace_of(&claim.spec.pool_ref.name);
    cache.index.choose_address(&pool_key, &slot_of_address_claim(&key), |is_taken| {
        pool.choose_address(&key.name, requested, |address| is_taken(&address))
    })
}

async fn refuse_claim(
    context: &Context,
    situation: &Situation<'_>,
    refusal: &Refusal,
) -> Result<(), StoreError> {
    let is_exhausted = *refusal == Refusal::Exhausted;
    let reason = if is_exhausted { Reason::PoolExhausted } else { Reason::AllocationFailed };
    let message = refusal.to_string();
    let Step::Report(projected) = refuse_address_claim(situation, reason, message.clone()) else {
        return Ok(());
    };
    context.events.warning(situation.claim, "AddressRefused", &message).await;
    status::write_status(&context.client, situation.claim, &projected).await.map(drop)
}

/// Of two claims that chose one address, the one whose object is created has it.
async fn reserve_address(
    context: &Context,
    claim: &IPAddressClaim,
    address: &Reservation,
) -> Result<(), StoreError> {
    let namespace = claim.namespace().unwrap_or_default();
    let Some(existing) = metal3::create(&context.client, &namespace, address).await? else {
        return Ok(());
    };
    if is_own(&existing, claim) {
        return Ok(());
    }
    tracing::info!(
        address = existing.name_any(),
        holder = existing.spec.claim.name,
        "the address is in use; another is chosen"
    );
    metal3::drop_choice(&context.client, claim, names::CHOSEN_ADDRESS).await
}

fn is_own(address: &Reservation, claim: &IPAddressClaim) -> bool {
    is_held_by(address, ClaimKind::AddressClaim, &claim.name_any(), &claim.spec.pool_ref.name)
}

/// What the claim was given goes before the address is free.
async fn release_address(
    context: &Context,
    claim: &IPAddressClaim,
    reserved: Option<&str>,
) -> Result<(), StoreError> {
    const KIND: &str = "IPAddress";
    let (client, name) = (&context.client, claim.name_any());
    let namespace = claim.namespace().unwrap_or_default();
    let given: Api<IPAddress> = Api::namespaced(client.clone(), &namespace);
    let found = given.get_opt(&name).await.map_err(StoreError::request("get", KIND, &name))?;
    if let Some(found) = found.filter(|address| address.spec.pool_ref == claim.spec.pool_ref) {
        metal3::delete_held(client, &found, ADDRESS_FINALIZER).await?;
    }
    if let Some(reserved) = reserved {
        let api: Api<Reservation> = Api::namespaced(client.clone(), &namespace);
        let found = api.get_opt(reserved).await.map_err(StoreError::request("get", KIND, reserved))?;
        if let Some(found) = found.filter(|address| is_own(address, claim)) {
            metal3::delete_held(client, &found, names::ADDRESS_FINALIZER).await?;
            tracing::info!(address = found.spec.address, "address given back");
        }
    }
    metal3::drop_finalizer(client, claim, CLAIM_FINALIZER).await
}
