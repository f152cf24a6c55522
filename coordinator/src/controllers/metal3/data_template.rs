//! `Metal3DataTemplate`: has a finalizer while data of it exists, and a status that lists the
//! indexes.

use std::sync::Arc;

use coordinator_api::metal3::data_template::Metal3DataTemplate;
use coordinator_api::metal3::names;
use coordinator_core::metal3::data::{group_of_template, labels_of_template, project_template};
use kube::ResourceExt as _;
use kube::runtime::controller::Action;

use crate::controllers::context::Context;
use crate::controllers::failures::show_event;
use crate::controllers::reconciled::{Failure, Reconciled};
use crate::key::Key;
use crate::store::{StoreError, metal3, status};

impl Reconciled for Metal3DataTemplate {
    async fn reconcile(template: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        if context.is_paused(&*template) {
            return Ok(Action::await_change());
        }
        let key = Key::of(&*template);
        let used = context.metal3.used_indexes(&key.in_namespace_of(&group_of_template(&template)));
        let is_held = template.finalizers().iter().any(|name| name == names::DATA_TEMPLATE_FINALIZER);
        let is_deleted = template.metadata.deletion_timestamp.is_some();
        let labels = labels_of_template(&template);
        if metal3::hold_labelled(&context.client, &*template, names::DATA_TEMPLATE_FINALIZER, &labels).await?
        {
            return Ok(Action::await_change());
        }
        if is_deleted && is_held && used.is_empty() {
            metal3::drop_finalizer(&context.client, &*template, names::DATA_TEMPLATE_FINALIZER).await?;
            return Ok(Action::await_change());
        }
        let used = used.into_iter().map(|(index, claim)| (index, claim.name.to_string())).collect();
        let projected = project_template(&template, used, context.clock.now());
        status::write_status(&context.client, &*template, &projected).await?;
        Ok(Action::await_change())
    }

    async fn show_failure(&self, context: &Context, error: &StoreError) -> Result<(), StoreError> {
        show_event(context, self, error).await
    }
}
