//! `BaremetalMachineTemplate`: shows the capacity of a node on a host of its pool.

use std::sync::Arc;

use coordinator_api::template::BaremetalMachineTemplate;
use coordinator_core::pause;
use coordinator_core::pool::{self, Roster};
use kube::runtime::controller::Action;

use super::context::Context;
use super::reconciled::{Failure, Reconciled};
use crate::index::pool_key;
use crate::store::status;

impl Reconciled for BaremetalMachineTemplate {
    async fn reconcile(template: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        if context.serves(&*template) && !pause::is_paused(&*template, None) {
            let capacity = context.index.read_roster(&pool_key(&template), Roster::least_capacity);
            let projected = pool::template_status(&capacity.unwrap_or_default());
            status::write_status(&context.client, &*template, &projected).await?;
        }
        Ok(Action::await_change())
    }
}
