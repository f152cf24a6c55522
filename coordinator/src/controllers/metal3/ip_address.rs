//! `IPAddress` of Metal3: is released when its claim was removed by force.

use std::sync::Arc;

use coordinator_api::capi_ipam::IPAddressClaim;
use coordinator_api::metal3::ipam::{IPAddress, IPClaim};
use coordinator_api::metal3::names;
use coordinator_core::metal3::ipam::ClaimKind;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;

use super::orphans::{self, Care};
use crate::controllers::context::Context;
use crate::controllers::failures::show_event;
use crate::controllers::reconciled::{Failure, Reconciled};
use crate::key::{Key, Kind};
use crate::store::{Object, StoreError, metal3};
use crate::watch::Watched;

impl Reconciled for IPAddress {
    async fn reconcile(address: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        if context.is_paused(&*address) {
            return Ok(Action::await_change());
        }
        let action = match ClaimKind::of(&address) {
            ClaimKind::Claim => care_for::<IPClaim>(&context, &address).await?,
            ClaimKind::AddressClaim if !context.cache.watches(Kind::IPAddressClaim) => Action::await_change(),
            ClaimKind::AddressClaim => care_for::<IPAddressClaim>(&context, &address).await?,
        };
        Ok(action)
    }

    async fn show_failure(&self, context: &Context, error: &StoreError) -> Result<(), StoreError> {
        show_event(context, self, error).await
    }
}

async fn care_for<H: Object + Watched>(context: &Context, address: &IPAddress) -> Result<Action, StoreError> {
    let (claim, finalizer) = (&address.spec.claim.name, names::ADDRESS_FINALIZER);
    let is_deleted = address.metadata.deletion_timestamp.is_some();
    let is_held = address.finalizers().iter().any(|held| held == finalizer);
    let named = Key::of(address).in_namespace_of(claim);
    // Its claim would remove the finalizer.
    if is_deleted && is_held && context.cache.get::<H>(&named).is_none() {
        if !orphans::is_there::<H>(context, &named).await? {
            metal3::drop_finalizer(&context.client, address, finalizer).await?;
            tracing::info!(address = address.spec.address, "address released");
        }
        return Ok(Action::await_change());
    }
    match orphans::look_after::<H, _>(context, address, claim, Some(finalizer)).await? {
        Care::Held | Care::Changed => Ok(Action::await_change()),
        Care::Orphaned { recheck, .. } => Ok(recheck),
    }
}
