//! `IPClaim`: chooses an address, creates it, reports it, and releases it.

use std::sync::Arc;

use coordinator_api::explain::EventReason;
use coordinator_api::metal3::data::Metal3Data;
use coordinator_api::metal3::ipam::{IPAddress, IPClaim, IPClaimStatus};
use coordinator_api::metal3::names;
use coordinator_core::metal3::ipam::{ClaimStep, Pool, decide_claim};
use kube::ResourceExt as _;
use kube::runtime::controller::Action;

use super::addresses;
use super::orphans::{self, Care};
use crate::controllers::context::Context;
use crate::controllers::failures::show_event;
use crate::controllers::reconciled::{Failure, Reconciled};
use crate::store::{StoreError, metal3, status};

impl Reconciled for IPClaim {
    async fn reconcile(claim: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        if context.is_paused(&*claim) {
            return Ok(Action::await_change());
        }
        // Claims of other authors are not of data.
        if let Some(data) = claim.labels().get(names::DATA_NAME) {
            let finalizer = names::CLAIM_FINALIZER;
            match orphans::look_after::<Metal3Data, _>(&context, &*claim, data, Some(finalizer)).await? {
                Care::Held => {}
                Care::Changed => return Ok(Action::await_change()),
                Care::Orphaned { message, recheck } => {
                    let address = claim.status.as_ref().and_then(|status| status.address.clone());
                    let shown = IPClaimStatus { address, error_message: Some(message) };
                    status::write_status(&context.client, &*claim, &shown).await?;
                    return Ok(recheck);
                }
            }
        }
        let pool = addresses::find_pool(&context, &*claim);
        // The decision reads only the address of the recorded choice.
        let known = addresses::find_address(&context, &*claim, pool.as_deref());
        let step = decide_claim(&claim, pool.as_deref(), |name| {
            known.as_deref().filter(|address| address.name_any() == name)
        });
        match step {
            ClaimStep::Rest => {}
            ClaimStep::Choose(pool) => choose_address(&context, &claim, &pool).await?,
            ClaimStep::Create(address) => create_address(&context, &claim, &address).await?,
            ClaimStep::Report(projected) => {
                status::write_status(&context.client, &*claim, &projected).await?;
            }
            ClaimStep::Release(address) => {
                if let Some(name) = address {
                    addresses::release_address(&context, &*claim, &name).await?;
                }
                metal3::drop_finalizer(&context.client, &*claim, names::CLAIM_FINALIZER).await?;
            }
        }
        Ok(Action::await_change())
    }

    async fn show_failure(&self, context: &Context, error: &StoreError) -> Result<(), StoreError> {
        show_event(context, self, error).await
    }
}

async fn choose_address(context: &Context, claim: &IPClaim, pool: &Pool) -> Result<(), StoreError> {
    let refusal = match addresses::choose_address(context, claim, pool) {
        Ok(address) => return addresses::record_address(context, claim, address).await,
        Err(refusal) => refusal,
    };
    let message = refusal.to_string();
    let before = claim.status.as_ref().and_then(|status| status.error_message.as_ref());
    if before != Some(&message) {
        context.events.publish(claim, EventReason::AddressRefused, &message);
    }
    let refused = IPClaimStatus { address: None, error_message: Some(message) };
    status::write_status(&context.client, claim, &refused).await.map(drop)
}

async fn create_address(context: &Context, claim: &IPClaim, address: &IPAddress) -> Result<(), StoreError> {
    if addresses::take_address(context, claim, address).await? {
        tracing::info!(address = address.spec.address, pool = claim.spec.pool.name, "address allocated");
    }
    Ok(())
}
