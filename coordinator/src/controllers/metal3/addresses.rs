//! Addresses of `IPPool`s, which claims of both kinds take and release by the `IPAddress` of Metal3
//! whose name follows from the address.

use std::net::IpAddr;
use std::sync::Arc;

use coordinator_api::capi_ipam::{self, IPAddressClaim};
use coordinator_api::metal3::data::Metal3Data;
use coordinator_api::metal3::ipam::{IPAddress, IPClaim, IPPool};
use coordinator_api::metal3::names;
use coordinator_core::metal3::ipam::{
    ClaimKind, HostUse, Pool, Refusal, address_name, chosen_address, is_held_by,
};
use kube::{Api, ResourceExt as _};

use crate::controllers::context::Context;
use crate::index::metal3::slot_of_address_claim;
use crate::key::{Key, Namespace};
use crate::store::{Object, StoreError, metal3, open_api};

/// A claim of either kind.
pub(super) trait Claim: Object {
    const KIND: ClaimKind;
    const FINALIZER: &'static str;

    fn pool(&self) -> &str;

    /// The place of the claim in the index.
    fn slot(&self) -> Key;
}

impl Claim for IPClaim {
    const KIND: ClaimKind = ClaimKind::Claim;
    const FINALIZER: &'static str = names::CLAIM_FINALIZER;

    fn pool(&self) -> &str {
        &self.spec.pool.name
    }

    fn slot(&self) -> Key {
        Key::of(self)
    }
}

impl Claim for IPAddressClaim {
    const KIND: ClaimKind = ClaimKind::AddressClaim;
    const FINALIZER: &'static str = capi_ipam::CLAIM_FINALIZER;

    fn pool(&self) -> &str {
        &self.spec.pool_ref.name
    }

    fn slot(&self) -> Key {
        slot_of_address_claim(&Key::of(self))
    }
}

fn is_own<C: Claim>(address: &IPAddress, claim: &C) -> bool {
    is_held_by(address, C::KIND, &claim.name_any(), claim.pool())
}

pub(super) fn find_pool(context: &Context, claim: &impl Claim) -> Option<Arc<IPPool>> {
    context.cache.get::<IPPool>(&Key::of(claim).in_namespace_of(claim.pool()))
}

/// The `IPAddress` for the recorded choice of a claim.
pub(super) fn find_address(
    context: &Context,
    claim: &impl Claim,
    pool: Option<&IPPool>,
) -> Option<Arc<IPAddress>> {
    let name = address_name(&pool?.spec.name_prefix, chosen_address(claim)?);
    context.cache.get::<IPAddress>(&Key::of(claim).in_namespace_of(&name))
}

/// Chooses an address of the pool, and reserves it in the index.
pub(super) fn choose_address(context: &Context, claim: &impl Claim, pool: &Pool) -> Result<IpAddr, Refusal> {
    let key = Key::of(claim);
    let requested = claim.annotations().get(names::REQUESTED_ADDRESS).map(String::as_str);
    let slot = (&key.in_namespace_of(claim.pool()), &claim.slot());
    context.metal3.choose_address(slot, machine_of(context, claim).as_ref(), |is_taken, used_by, node_of| {
        let hosts = HostUse { used_by, node_of };
        pool.choose_address(&key.name, requested, |address| is_taken(&address), &hosts)
    })
}

/// The machine of the data that made the claim.
fn machine_of(context: &Context, claim: &impl Claim) -> Option<Key> {
    let key = Key::of(claim);
    let data = key.in_namespace_of(claim.labels().get(names::DATA_NAME)?);
    let data = context.cache.get::<Metal3Data>(&data)?;
    // A claim on data has the name of its machine.
    Some(key.in_namespace_of(&data.spec.claim.name))
}

/// Records the address that the claim will take.
pub(super) async fn record_address<C: Claim>(
    context: &Context,
    claim: &C,
    address: IpAddr,
) -> Result<(), StoreError> {
    let note = (names::CHOSEN_ADDRESS, address.to_string());
    metal3::record_choice(&context.client, claim, [note], C::FINALIZER).await
}

/// Takes an address, and tells whether its object was created now. If two claims chose one address,
/// the claim whose object is created has it.
pub(super) async fn take_address(
    context: &Context,
    claim: &impl Claim,
    address: &IPAddress,
) -> Result<bool, StoreError> {
    let namespace = Namespace::of(claim);
    let Some(existing) = metal3::create(&context.client, &namespace, address).await? else {
        return Ok(true);
    };
    if !is_own(&existing, claim) {
        tracing::info!(
            address = existing.name_any(),
            holder = existing.spec.claim.name,
            "address is in use, choosing another one"
        );
        metal3::drop_choice(&context.client, claim, &[names::CHOSEN_ADDRESS]).await?;
    }
    Ok(false)
}

/// Deletes the `IPAddress` of this name, if the claim holds it.
pub(super) async fn release_address(
    context: &Context,
    claim: &impl Claim,
    name: &str,
) -> Result<(), StoreError> {
    let api: Api<IPAddress> = open_api(&context.client, claim);
    let found = api.get_opt(name).await.map_err(StoreError::request("get", "IPAddress", name))?;
    if let Some(found) = found.filter(|address| is_own(address, claim)) {
        metal3::delete_held(&context.client, &found, names::ADDRESS_FINALIZER).await?;
        tracing::info!(address = found.spec.address, "address released");
    }
    Ok(())
}
