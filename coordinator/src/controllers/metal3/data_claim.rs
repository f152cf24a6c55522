//! `Metal3DataClaim`: chooses an index of a template, creates its data, and releases it.

use std::sync::Arc;

use coordinator_api::metal3::data::{Metal3Data, Metal3DataClaim, Metal3DataClaimStatus};
use coordinator_api::metal3::data_template::Metal3DataTemplate;
use coordinator_api::metal3::machine::Metal3Machine;
use coordinator_api::metal3::names;
use coordinator_core::metal3::data::{ClaimStep, data_name, decide_claim, group_of_template};
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt as _};

use super::orphans::{self, Care};
use crate::controllers::context::Context;
use crate::controllers::failures::show_event;
use crate::controllers::reconciled::{Failure, Reconciled};
use crate::key::{Key, Namespace};
use crate::store::{StoreError, metal3, open_api, status};

impl Reconciled for Metal3DataClaim {
    async fn reconcile(claim: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        if context.is_paused(&*claim) {
            return Ok(Action::await_change());
        }
        let key = Key::of(&*claim);
        // A claim has the name of its machine.
        let finalizer = names::DATA_CLAIM_FINALIZER;
        match orphans::look_after::<Metal3Machine, _>(&context, &*claim, &key.name, Some(finalizer)).await? {
            Care::Held => {}
            Care::Changed => return Ok(Action::await_change()),
            Care::Orphaned { message, recheck } => {
                let rendered_data = claim.status.as_ref().and_then(|status| status.rendered_data.clone());
                let shown = Metal3DataClaimStatus { rendered_data, error_message: Some(message) };
                status::write_status(&context.client, &*claim, &shown).await?;
                return Ok(recheck);
            }
        }
        let template =
            context.cache.get::<Metal3DataTemplate>(&key.in_namespace_of(&claim.spec.template.name));
        let own = context.metal3.data_of_claim(&key).and_then(|data| context.cache.get::<Metal3Data>(&data));
        let chosen = claim.annotations().get(names::CHOSEN_INDEX).and_then(|text| text.parse().ok());
        let chosen_data = chosen.zip(template.as_ref()).map(|(index, template)| data_name(template, index));
        let known =
            chosen_data.as_ref().and_then(|name| context.cache.get::<Metal3Data>(&key.in_namespace_of(name)));
        let step = decide_claim(&claim, template.as_deref(), own.as_deref(), |name| {
            known.as_deref().filter(|data| data.name_any() == name)
        });
        match step {
            ClaimStep::Rest => {}
            ClaimStep::Choose => {
                let Some(template) = template else { return Ok(Action::await_change()) };
                let group = key.in_namespace_of(&group_of_template(&template));
                let index = context.metal3.choose_index(&group, &key, lowest_free);
                let note = (names::CHOSEN_INDEX, index.to_string());
                metal3::record_choice(&context.client, &*claim, [note], names::DATA_CLAIM_FINALIZER).await?;
            }
            ClaimStep::Create(data) => create_data(&context, &claim, &data).await?,
            ClaimStep::Report(projected) => {
                status::write_status(&context.client, &*claim, &projected).await?;
            }
            ClaimStep::Release(name) => release_data(&context, &claim, &name).await?,
            ClaimStep::RemoveFinalizer => {
                let rendered = claim.status.as_ref().and_then(|status| status.rendered_data.as_ref());
                // The cache may not have seen the data yet.
                for name in chosen_data.iter().chain(rendered.map(|rendered| &rendered.name)) {
                    if find_data(&context, &claim, name).await?.is_some() {
                        return Err(StoreError::Changed { kind: "Metal3Data", name: name.clone() }.into());
                    }
                }
                metal3::drop_finalizer(&context.client, &*claim, names::DATA_CLAIM_FINALIZER).await?;
            }
        }
        Ok(Action::await_change())
    }

    async fn show_failure(&self, context: &Context, error: &StoreError) -> Result<(), StoreError> {
        show_event(context, self, error).await
    }
}

fn lowest_free(is_taken: &dyn Fn(&i64) -> bool) -> i64 {
    (0..=i64::MAX).find(|index| !is_taken(index)).unwrap_or(0)
}

/// Creates the data of an index. If two claims chose one index, the claim whose data is created has
/// it.
async fn create_data(
    context: &Context,
    claim: &Metal3DataClaim,
    data: &Metal3Data,
) -> Result<(), StoreError> {
    let namespace = Namespace::of(claim);
    let Some(existing) = metal3::create(&context.client, &namespace, data).await? else {
        tracing::info!(data = data.name_any(), "index allocated");
        return Ok(());
    };
    if existing.spec.claim.name == claim.name_any() {
        return Ok(());
    }
    metal3::drop_choice(&context.client, claim, &[names::CHOSEN_INDEX]).await
}

/// The data of this claim in the API server.
async fn find_data(
    context: &Context,
    claim: &Metal3DataClaim,
    name: &str,
) -> Result<Option<Metal3Data>, StoreError> {
    let api: Api<Metal3Data> = open_api(&context.client, claim);
    let found = api.get_opt(name).await.map_err(StoreError::request("get", "Metal3Data", name))?;
    Ok(found.filter(|data| data.spec.claim.name == claim.name_any()))
}

/// Deletes the data, which its own finalizer holds until its addresses are free.
async fn release_data(context: &Context, claim: &Metal3DataClaim, name: &str) -> Result<(), StoreError> {
    let found = find_data(context, claim, name).await?;
    match found.filter(|data| data.metadata.deletion_timestamp.is_none()) {
        Some(data) => metal3::delete(&context.client, &data).await.map(drop),
        None => Ok(()),
    }
}
