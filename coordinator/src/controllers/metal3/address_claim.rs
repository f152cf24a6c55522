//! `IPAddressClaim` of Cluster API: chooses an address of an `IPPool`, takes it, allocates it, and
//! releases it.

use std::sync::Arc;

use coordinator_api::capi_ipam::{ADDRESS_FINALIZER, CLAIM_FINALIZER, IPAddress, IPAddressClaim};
use coordinator_api::conditions::Reason;
use coordinator_api::explain::EventReason;
use coordinator_api::metal3::data::Metal3Data;
use coordinator_api::metal3::names;
use coordinator_core::metal3::ipam::{
    AddressClaimSituation as Situation, AddressClaimStep as Step, Refusal, decide_address_claim, is_ours,
    refuse_address_claim,
};
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt as _};

use super::addresses;
use super::orphans::{self, Care};
use crate::controllers::context::Context;
use crate::controllers::failures::show_condition;
use crate::controllers::reconciled::{Failure, Reconciled};
use crate::key::{Key, Namespace};
use crate::store::{StoreError, metal3, open_api, status};

impl Reconciled for IPAddressClaim {
    async fn reconcile(claim: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        let key = Key::of(&*claim);
        // Data claims addresses of other providers, which release them.
        if let Some(data) = claim.labels().get(names::DATA_NAME).filter(|_| !is_ours(&claim)) {
            if context.is_paused(&*claim) {
                return Ok(Action::await_change());
            }
            return Ok(match orphans::look_after::<Metal3Data, _>(&context, &*claim, data, None).await? {
                Care::Held | Care::Changed => Action::await_change(),
                Care::Orphaned { recheck, .. } => recheck,
            });
        }
        let pool = addresses::find_pool(&context, &*claim);
        let reserved = addresses::find_address(&context, &*claim, pool.as_deref());
        let allocated = context.cache.get::<IPAddress>(&key);
        let situation = Situation {
            claim: &claim,
            is_paused: context.is_paused(&*claim),
            pool: pool.as_deref(),
            reserved: reserved.as_deref(),
            allocated: allocated.as_deref(),
            now: context.clock.now(),
        };
        let step = decide_address_claim(&situation);
        apply_step(&context, &situation, step).await?;
        Ok(Action::await_change())
    }

    async fn show_failure(&self, context: &Context, error: &StoreError) -> Result<(), StoreError> {
        show_condition(context, self, error, |status| &mut status.conditions).await
    }
}

async fn apply_step(context: &Context, situation: &Situation<'_>, step: Step) -> Result<(), StoreError> {
    let (client, claim) = (&context.client, situation.claim);
    let namespace = Namespace::of(claim);
    match step {
        Step::Rest => Ok(()),
        Step::Choose(pool) => match addresses::choose_address(context, claim, &pool) {
            Ok(address) => addresses::record_address(context, claim, address).await,
            Err(refusal) => refuse_claim(context, situation, &refusal).await,
        },
        Step::Reserve(address) => addresses::take_address(context, claim, &address).await.map(drop),
        Step::Allocate(address) => {
            metal3::create(client, &namespace, &*address).await?;
            tracing::info!(
                address = address.spec.address,
                pool = claim.spec.pool_ref.name,
                "address allocated"
            );
            Ok(())
        }
        Step::Reallocate => match situation.allocated {
            Some(allocated) => metal3::drop_finalizer(client, allocated, ADDRESS_FINALIZER).await,
            None => Ok(()),
        },
        Step::Report(projected) => status::write_status(client, claim, &projected).await.map(drop),
        Step::Release(reserved) => release_address(context, claim, reserved.as_deref()).await,
    }
}

async fn refuse_claim(
    context: &Context,
    situation: &Situation<'_>,
    refusal: &Refusal,
) -> Result<(), StoreError> {
    let is_exhausted = matches!(refusal, Refusal::Exhausted | Refusal::UsedByHost { .. });
    let reason = if is_exhausted { Reason::PoolExhausted } else { Reason::AllocationFailed };
    let message = refusal.to_string();
    let Step::Report(projected) = refuse_address_claim(situation, reason, message.clone()) else {
        return Ok(());
    };
    context.events.publish(situation.claim, EventReason::AddressRefused, &message);
    status::write_status(&context.client, situation.claim, &projected).await.map(drop)
}

/// The `IPAddress` of the claim is deleted before the address is free.
async fn release_address(
    context: &Context,
    claim: &IPAddressClaim,
    reserved: Option<&str>,
) -> Result<(), StoreError> {
    let (client, name) = (&context.client, claim.name_any());
    let given: Api<IPAddress> = open_api(client, claim);
    let found = given.get_opt(&name).await.map_err(StoreError::request("get", "IPAddress", &name))?;
    if let Some(found) = found.filter(|address| address.spec.pool_ref == claim.spec.pool_ref) {
        metal3::delete_held(client, &found, ADDRESS_FINALIZER).await?;
    }
    if let Some(reserved) = reserved {
        addresses::release_address(context, claim, reserved).await?;
    }
    metal3::drop_finalizer(client, claim, CLAIM_FINALIZER).await
}
