//! The addresses of rendered data: claims on pools of Metal3 and of other providers.

use std::sync::Arc;

use coordinator_api::capi_ipam::{IPAddress as GivenAddress, IPAddressClaim};
use coordinator_api::metal3::data::Metal3Data;
use coordinator_api::metal3::ipam::{IPAddress, IPAddressSpec, IPClaim, IPClaimSpec};
use coordinator_api::metal3::{ObjectRef, names};
use coordinator_core::metal3::data::{PoolId, claim_labels, claim_name, foreign_claim, read_foreign_address};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use crate::controllers::context::Context;
use crate::key::{Key, Kind};
use crate::store::{Object, StoreError, kind_name, metal3, open_api};

/// The address of a pool for this data, once its claim has an address.
pub(super) async fn claim_address(
    context: &Context,
    data: &Metal3Data,
    pool: &PoolId,
) -> Result<Result<IPAddressSpec, String>, StoreError> {
    if pool.is_metal3() {
        claim_own(context, data, &pool.name).await
    } else {
        claim_foreign(context, data, pool).await
    }
}

/// The address of a pool of another provider, which fulfils the claim.
async fn claim_foreign(
    context: &Context,
    data: &Metal3Data,
    pool: &PoolId,
) -> Result<Result<IPAddressSpec, String>, StoreError> {
    if !context.cache.watches(Kind::IPAddressClaim) {
        return Ok(Err(format!(
            "{pool}: Cluster API serves no IPAddressClaims of v1beta2: upgrade it, or name an IPPool of Metal3"
        )));
    }
    let (key, wanted) = (Key::of(data), foreign_claim(data, pool));
    let cached = context.cache.get::<IPAddressClaim>(&key.in_namespace_of(&wanted.name_any()));
    let claim = match cached {
        Some(claim) => claim,
        None => match metal3::create(&context.client, &key.namespace, &wanted).await? {
            Some(existing) => Arc::new(existing),
            None => Arc::new(wanted),
        },
    };
    let reference = claim.status.as_ref().and_then(|status| status.address_ref.as_ref());
    let address = reference.map(|reference| key.in_namespace_of(&reference.name));
    let address = address.and_then(|address| context.cache.get::<GivenAddress>(&address));
    Ok(read_foreign_address(data, pool, &claim, address.as_deref()))
}

async fn claim_own(
    context: &Context,
    data: &Metal3Data,
    pool: &str,
) -> Result<Result<IPAddressSpec, String>, StoreError> {
    let key = Key::of(data);
    let name = claim_name(data, pool);
    let Some(claim) = context.cache.get::<IPClaim>(&key.in_namespace_of(&name)) else {
        let claim = new_claim(data, &name, pool);
        if let Some(existing) = metal3::create(&context.client, &key.namespace, &claim).await?
            && existing.labels().get(names::DATA_NAME).map(String::as_str) != Some(&*key.name)
        {
            return Ok(Err(format!("IPClaim {name} exists and is not of this data: delete it")));
        }
        return Ok(Err(format!("IPClaim {name} has no address yet: wait")));
    };
    let status = claim.status.clone().unwrap_or_default();
    if let Some(error) = status.error_message {
        return Ok(Err(format!("IP Allocation for {pool} failed : {error}")));
    }
    let address = status.address.map(|address| key.in_namespace_of(&address.name));
    let address = address.and_then(|address| context.cache.get::<IPAddress>(&address));
    Ok(address
        .map(|address| address.spec.clone())
        .ok_or_else(|| format!("IPClaim {name} has no address yet: wait")))
}

fn new_claim(data: &Metal3Data, name: &str, pool: &str) -> IPClaim {
    let pool_ref = ObjectRef { name: pool.to_owned(), ..ObjectRef::default() };
    let mut claim = IPClaim::new(name, IPClaimSpec { pool: pool_ref });
    claim.metadata.labels = Some(claim_labels(data, pool));
    claim
}

/// Deletes the claims; the data stays until they are deleted. The claims are listed in the API
/// server, because the cache may not have seen the last one.
pub(super) async fn release_addresses(context: &Context, data: &Metal3Data) -> Result<(), StoreError> {
    if !data.finalizers().iter().any(|held| held == names::DATA_FINALIZER) {
        return Ok(());
    }
    let mut has_claims = delete_claims::<IPClaim>(context, data).await?;
    if context.cache.watches(Kind::IPAddressClaim) {
        has_claims |= delete_claims::<IPAddressClaim>(context, data).await?;
    }
    if has_claims {
        return Ok(());
    }
    metal3::drop_finalizer(&context.client, data, names::DATA_FINALIZER).await
}

/// Deletes the claims of a kind, and tells whether there were any.
async fn delete_claims<K: Object>(context: &Context, data: &Metal3Data) -> Result<bool, StoreError> {
    let name = data.name_any();
    let api: Api<K> = open_api(&context.client, data);
    let of_data = ListParams::default().labels(&format!("{}={name}", names::DATA_NAME));
    let claims = api.list(&of_data).await.map_err(StoreError::request("list", kind_name::<K>(), &name))?;
    for claim in claims.items.iter().filter(|claim| claim.meta().deletion_timestamp.is_none()) {
        metal3::delete(&context.client, claim).await?;
    }
    Ok(!claims.items.is_empty())
}
