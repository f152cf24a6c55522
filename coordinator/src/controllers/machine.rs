//! `BaremetalMachine`: the front door of pools.

use std::sync::Arc;

use coordinator_api::conditions::{ConditionUpdate, Type, find_condition};
use coordinator_api::machine::{BaremetalMachine, BaremetalMachineStatus};
use coordinator_api::names::{kind, label};
use coordinator_core::assignment::State;
use coordinator_core::claim::ClaimingMachine;
use coordinator_core::cluster;
use coordinator_core::demand::baremetal_machine::{Inputs, named_host, project_status, read_demand};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt as _};

use super::context::Context;
use super::front_door::{self, FrontDoor, Gathered};
use crate::key::{Key, StoreKey};
use crate::store::StoreError;

impl FrontDoor for BaremetalMachine {
    type Status = BaremetalMachineStatus;

    const CHOOSES: bool = true;

    fn gather_inputs(&self, context: &Context) -> Gathered {
        let key = Key::of(self);
        let beside = |name: &str| Key::new(&*key.namespace, name);
        let owner = context.find_owner(self);
        let cluster = self.labels().get(label::CLUSTER_NAME).map(String::as_str);
        let cluster = cluster.or_else(|| owner.as_ref().map(|owner| owner.spec.cluster_name.as_str()));
        let cluster = cluster.and_then(|name| context.cache.find_cluster(&beside(name)));
        let named = named_host(self);
        let inventory =
            named.and_then(|host| context.cache.inventories.get(&beside(host.as_str()).object_ref()));
        let catalog = context.cache.image_catalog();
        let pool = &self.spec.machine_inventory_pool_ref.name;
        let demand = context.index.with_roster(&key, pool, |roster, is_reserved| {
            let inputs = Inputs {
                machine: self,
                owner: owner.as_deref(),
                cluster: cluster.as_deref(),
                roster,
                inventory: inventory.as_deref(),
                catalog: catalog.as_ref().and_then(|catalog| catalog.data.as_ref()),
            };
            read_demand(&inputs, is_reserved)
        });
        Gathered::new(demand, inventory, context.clock.now())
    }

    fn project_status(
        &self,
        state: &State,
        updates: &[ConditionUpdate],
        gathered: &Gathered,
    ) -> BaremetalMachineStatus {
        project_status(self, state, updates, gathered.inventory.as_deref(), gathered.now)
    }

    fn ready_reason(&self) -> Option<(String, String)> {
        let ready = find_condition(&self.status.as_ref()?.conditions, Type::Ready)?;
        Some((ready.reason.clone(), ready.message.clone()))
    }
}

/// Gathers, decides, applies one effect, writes the status.
pub async fn reconcile_baremetal_machine(
    machine: Arc<BaremetalMachine>,
    context: Arc<Context>,
) -> Result<Action, StoreError> {
    front_door::reconcile_machine(machine, context).await
}

/// Looks up the machine of a claim in the API server itself.
pub fn look_up(context: &Context, key: Key) -> BoxFuture<'_, Result<Option<ClaimingMachine>, StoreError>> {
    async move {
        let api: Api<BaremetalMachine> = Api::namespaced(context.client.clone(), &key.namespace);
        let found = api.get_opt(&key.name).await;
        let found = found.map_err(StoreError::request("get", kind::BAREMETAL_MACHINE, &key.name))?;
        Ok(found.map(|machine| read_claiming(context, &machine)))
    }
    .boxed()
}

/// Fields of a machine that a claim needs.
pub fn read_claiming(context: &Context, machine: &BaremetalMachine) -> ClaimingMachine {
    let cluster = machine.labels().get(label::CLUSTER_NAME);
    let namespace = machine.namespace().unwrap_or_default();
    let cluster = cluster.and_then(|name| context.cache.find_cluster(&Key::new(namespace, name.as_str())));
    ClaimingMachine { host: named_host(machine), is_paused: cluster::is_paused(machine, cluster.as_deref()) }
}
