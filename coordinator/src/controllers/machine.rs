//! `BaremetalMachine`: the front door of pools.

use std::sync::Arc;

use coordinator_api::capi::Cluster;
use coordinator_api::conditions::{ConditionUpdate, Type, find_condition};
use coordinator_api::inventory::MachineInventory;
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
use super::front_door::{self, FrontDoor, Gathered, Guard, VALUE};
use super::reconciled::{Failure, Reconciled};
use crate::key::Key;
use crate::store::StoreError;

impl FrontDoor for BaremetalMachine {
    type Status = BaremetalMachineStatus;

    const BOOTSTRAP_KEYS: &[&str] = &[VALUE];

    fn open_guard<'a>(&self, context: &'a Context) -> Option<Guard<'a>> {
        Some(Guard::begin(context, Key::of(self)))
    }

    fn gather_inputs(&self, context: &Context) -> Gathered {
        let key = Key::of(self);
        let beside = |name: &str| Key::new(&*key.namespace, name);
        let owner = context.find_owner(self);
        let cluster = self.labels().get(label::CLUSTER_NAME).map(String::as_str);
        let cluster = cluster.or_else(|| owner.as_ref().map(|owner| owner.spec.cluster_name.as_str()));
        let cluster = cluster.and_then(|name| context.cache.get::<Cluster>(&beside(name)));
        let named = named_host(self);
        let inventory = named.and_then(|host| context.cache.get::<MachineInventory>(&beside(host.as_str())));
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
        let gathered = Gathered::new(demand, inventory, context.clock.now());
        context.router.send_keys(context.index.set_stuck(&key, gathered.is_stuck()));
        gathered
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

impl Reconciled for BaremetalMachine {
    async fn reconcile(machine: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        if context.serves(&*machine) {
            return front_door::reconcile_machine(machine, context).await;
        }
        Guard::begin(&context, Key::of(&*machine)).abandon();
        Ok(Action::await_change())
    }
}

/// Looks up the machine of a claim in the API server itself.
pub(super) fn look_up(
    context: &Context,
    key: Key,
) -> BoxFuture<'_, Result<Option<ClaimingMachine>, StoreError>> {
    async move {
        let api: Api<BaremetalMachine> = Api::namespaced(context.client.clone(), &key.namespace);
        let found = api.get_opt(&key.name).await;
        let found = found.map_err(StoreError::request("get", kind::BAREMETAL_MACHINE, &key.name))?;
        Ok(found.map(|machine| read_claiming(context, &machine)))
    }
    .boxed()
}

/// Fields of a machine that a claim needs.
pub(super) fn read_claiming(context: &Context, machine: &BaremetalMachine) -> ClaimingMachine {
    let cluster = machine.labels().get(label::CLUSTER_NAME);
    let namespace = machine.namespace().unwrap_or_default();
    let cluster = cluster.and_then(|name| context.cache.get::<Cluster>(&Key::new(namespace, name.as_str())));
    ClaimingMachine { host: named_host(machine), is_paused: cluster::is_paused(machine, cluster.as_deref()) }
}
