//! A second front door on the host engine: a kind of the tests alone, whose
//! objects name their host, image and user-data themselves. It shows what a
//! front door costs: a demand, a status, and a controller.

use std::sync::Arc;

use coordinator::controllers::Context;
use coordinator::controllers::front_door::{self, FrontDoor, Gathered};
use coordinator::controllers::index::Key;
use coordinator_api::conditions::{self, ConditionUpdate, Type, find_condition};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::Phase;
use coordinator_api::names::finalizer;
use coordinator_core::assignment::State;
use coordinator_core::demand::{BootstrapEdit, Demand, MachineKey, NodeDemand, Want};
use coordinator_core::ids::{HostName, Uid};
use coordinator_core::plan::Names;
use coordinator_core::provider_id::ProviderId;
use futures::StreamExt as _;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, CustomResource, ResourceExt as _};
use proto::plan::Image;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const KIND: &str = "NamedHostMachine";

/// A machine that names its host.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "test.baremetal.cluster.io",
    version = "v1",
    kind = "NamedHostMachine",
    namespaced,
    status = "NamedHostMachineStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct NamedHostMachineSpec {
    /// Name of the inventory.
    pub host: String,
    /// The OS image.
    pub image: String,
    /// Secret with the key `value`.
    pub user_data_secret: String,
    /// Written by the engine.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
}

/// Phase and conditions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NamedHostMachineStatus {
    /// Where the machine stands.
    pub phase: Option<Phase>,
    /// As of every machine.
    pub conditions: Vec<Condition>,
}

impl FrontDoor for NamedHostMachine {
    type Status = NamedHostMachineStatus;

    /// Its objects name their hosts.
    const CHOOSES: bool = false;

    fn gather_inputs(&self, context: &Context) -> Gathered {
        let key = Key::of(self);
        let host = HostName::parse(&self.spec.host);
        let inventory =
            context.cache.inventories.get(&Key::new(&*key.namespace, &*self.spec.host).object_ref());
        Gathered::new(read_demand(self, host, inventory.as_deref()), inventory, context.clock.now())
    }

    fn project_status(
        &self,
        state: &State,
        updates: &[ConditionUpdate],
        gathered: &Gathered,
    ) -> Self::Status {
        let mut status = self.status.clone().unwrap_or_default();
        status.phase = state.phase.or(status.phase);
        conditions::set_conditions(&mut status.conditions, updates, self.metadata.generation, gathered.now);
        status
    }

    fn ready_reason(&self) -> Option<(String, String)> {
        let ready = find_condition(&self.status.as_ref()?.conditions, Type::Ready)?;
        Some((ready.reason.clone(), ready.message.clone()))
    }
}

fn read_demand(
    machine: &NamedHostMachine,
    host: Option<HostName>,
    inventory: Option<&MachineInventory>,
) -> Demand {
    let names = host.as_ref().zip(inventory).map(|(host, inventory)| Names {
        hostname: host.to_string(),
        machine: machine.name_any(),
        namespace: machine.namespace().unwrap_or_default(),
        uuid: inventory.uid().unwrap_or_default(),
        provider_id: ProviderId::of_host(host).to_string(),
    });
    let node = host.clone().zip(Image::parse(&machine.spec.image).ok()).map(|(host, image)| NodeDemand {
        machine: machine.name_any(),
        cluster: String::new(),
        pool: String::new(),
        reuse_group: None,
        candidate: Ok(host),
        bootstrap_secret: Some(machine.spec.user_data_secret.clone()),
        bootstrap_edit: BootstrapEdit::Unchanged,
        meta_data_secret: None,
        network_data_secret: None,
        image: Ok(image),
        registry_secret: None,
        names,
        link: None,
    });
    let is_deleted = machine.metadata.deletion_timestamp.is_some();
    let has_finalizer = machine.finalizers().iter().any(|name| name == finalizer::BAREMETAL_MACHINE);
    Demand {
        machine: MachineKey {
            kind: KIND,
            namespace: machine.namespace().unwrap_or_default(),
            name: machine.name_any(),
            uid: machine.uid().as_deref().and_then(Uid::parse),
        },
        // Chosen once the finalizer holds the machine.
        host: host.filter(|_| has_finalizer),
        provider_id: machine.spec.provider_id.as_deref().and_then(ProviderId::parse),
        has_finalizer,
        retry_clean: false,
        release_without_clean: false,
        abandon_after: None,
        leftover_cluster: None,
        hold: None,
        want: match node.filter(|_| !is_deleted) {
            Some(node) => Want::Node(Box::new(node)),
            None => Want::Release,
        },
    }
}

/// What a coordinator needs on the kind.
pub(crate) fn rights() -> ClusterRole {
    let text = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let rule = PolicyRule {
        api_groups: Some(text(&["test.baremetal.cluster.io"])),
        resources: Some(text(&["namedhostmachines", "namedhostmachines/status"])),
        verbs: text(&["list", "watch", "patch"]),
        ..PolicyRule::default()
    };
    ClusterRole { rules: Some(vec![rule]), ..ClusterRole::default() }
}

/// Runs the controller of the kind for ever.
pub(crate) async fn run(context: Context) {
    let machines: Api<NamedHostMachine> = Api::all(context.client.clone());
    let inventories: Api<MachineInventory> = Api::all(context.client.clone());
    let retry = std::time::Duration::from_secs(1);
    let controller = Controller::new(machines, watcher::Config::default());
    let known = controller.store();
    let naming = move |inventory: MachineInventory| {
        let host = inventory.name_any();
        let named = known.state().into_iter().filter(move |machine| machine.spec.host == host);
        named.map(|machine| ObjectRef::from_obj(&*machine)).collect::<Vec<_>>()
    };
    controller
        .watches(inventories, watcher::Config::default(), naming)
        .run(front_door::reconcile_machine, move |_, _, _| Action::requeue(retry), Arc::new(context))
        .for_each(|_| std::future::ready(()))
        .await;
}
