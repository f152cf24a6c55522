//! `BaremetalMachine`: the front door of pools.

use std::sync::Arc;

use coordinator_api::capi::Cluster;
use coordinator_api::conditions::{ConditionUpdate, Type, find_condition};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::{BaremetalMachine, BaremetalMachineStatus};
use coordinator_api::names::label;
use coordinator_core::assignment::State;
use coordinator_core::demand::baremetal_machine::{Inputs, named_host, read_demand};
use coordinator_core::host_decision::ClaimingMachine;
use coordinator_core::machine_status::project_status;
use coordinator_core::pause;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;

use super::context::Context;
use super::front_door::{self, FrontDoor, Gathered, Guard, VALUE};
use super::reconciled::{Failure, Reconciled};
use crate::key::Key;

impl FrontDoor for BaremetalMachine {
    type Status = BaremetalMachineStatus;

    const BOOTSTRAP_KEYS: &[&str] = &[VALUE];

    fn open_guard<'a>(&self, context: &'a Context) -> Option<Guard<'a>> {
        Some(Guard::begin(context, Key::of(self)))
    }

    fn gather_inputs(&self, context: &Context) -> Gathered {
        let key = Key::of(self);
        let owner = context.find_owner(self);
        let cluster = self.labels().get(label::CLUSTER_NAME).map(String::as_str);
        let cluster = cluster.or_else(|| owner.as_ref().map(|owner| owner.spec.cluster_name.as_str()));
        let cluster = cluster.and_then(|name| context.cache.get::<Cluster>(&key.in_namespace_of(name)));
        let named = named_host(self);
        let inventory =
            named.and_then(|host| context.cache.get::<MachineInventory>(&key.in_namespace_of(host.as_str())));
        let catalog = context.cache.image_catalog();
        let pool = &self.spec.machine_inventory_pool_ref.name;
        let (owned_hosts, now) = (context.index.owned_hosts(&key), context.clock.now());
        let demand = context.index.with_roster(&key, pool, |roster, is_reserved| {
            let inputs = Inputs {
                machine: self,
                owner: owner.as_deref(),
                cluster: cluster.as_deref(),
                roster,
                inventory: inventory.as_deref(),
                owned_hosts: &owned_hosts,
                catalog: catalog.as_ref().and_then(|catalog| catalog.data.as_ref()),
                now,
            };
            read_demand(&inputs, is_reserved)
        });
        Gathered::new(demand, inventory, now)
    }

    fn read_claiming(&self, context: &Context) -> ClaimingMachine {
        let cluster = self.labels().get(label::CLUSTER_NAME).map(|name| Key::of(self).in_namespace_of(name));
        let cluster = cluster.and_then(|key| context.cache.get::<Cluster>(&key));
        ClaimingMachine { host: named_host(self), is_paused: pause::is_paused(self, cluster.as_deref()) }
    }

    fn project_status(
        &self,
        state: &State,
        updates: &[ConditionUpdate],
        gathered: &Gathered,
    ) -> BaremetalMachineStatus {
        project_status(self, state, updates, gathered.inventory.as_deref(), gathered.now)
    }

    fn ready_reason(&self) -> Option<&str> {
        let ready = find_condition(&self.status.as_ref()?.conditions, Type::Ready)?;
        Some(ready.reason.as_str())
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
