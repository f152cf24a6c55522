//! Actions of an operator, and the objects that an operator reads.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator_api::conditions::{self, Reason, Type};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::{BaremetalMachine, Phase};
use coordinator_api::names::annotation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster_api::NAMESPACE;
use crate::coordinator::OWN_NAMESPACE;
use crate::dump::text;
use crate::world::World;

impl World {
    /// A registration whose hosts are named by their serial numbers.
    pub async fn apply_registration(&self) {
        self.apply_registration_of("hosts", "${System Information/Serial Number}", "/dev/vda").await;
    }

    /// A registration with this name template and install device.
    pub async fn apply_registration_of(&self, name: &str, template: &str, device: &str) {
        let registration = json!({ "emulate-tpm": true });
        let elemental = json!({ "registration": registration, "install": { "device": device } });
        let spec = json!({ "machineName": template, "config": { "elemental": elemental } });
        self.create("MachineRegistration", name, json!({ "spec": spec })).await;
        self.wait_until("the registration has a token", |world| {
            let object =
                world.get_object("machineregistrations.elemental.cattle.io", name).unwrap_or_default();
            !text(&object, "/status/registrationToken").is_empty()
        })
        .await;
    }

    /// The catalog: `v1` and `v2`.
    pub async fn apply_catalog(&self) {
        let data = json!({ "v1": "os:v1", "v2": "registry.example/os:v2" });
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "elemental-image-catalog" }, "data": data,
        });
        let map = serde_json::from_value(map).unwrap();
        self.api("ConfigMap", OWN_NAMESPACE).create(&kube::api::PostParams::default(), &map).await.unwrap();
    }

    pub async fn patch_catalog(&self, data: Value) {
        let patch = kube::api::Patch::Merge(json!({ "data": data }));
        let api = self.api("ConfigMap", OWN_NAMESPACE);
        api.patch("elemental-image-catalog", &kube::api::PatchParams::default(), &patch).await.unwrap();
    }

    /// What the seed ISO of a registration says, as the coordinator writes it.
    pub fn seed_config(&self, registration: &str) -> String {
        let object = self.get_object("machineregistrations.elemental.cattle.io", registration).unwrap();
        let url = text(&object, "/status/registrationURL").to_owned();
        let secret = self.fake.look("secrets", OWN_NAMESPACE, "baremetal-coordinator-ca").unwrap();
        let authority = decode(text(&secret, "/data/ca.crt"));
        let authority = authority.trim_end().replace('\n', "\n      ");
        format!(
            "elemental:\n  registration:\n    url: {url}\n    ca-cert: |\n      {authority}\n    emulate-tpm: true\n"
        )
    }

    /// An object of [`NAMESPACE`] as it is.
    pub fn get_object(&self, resource: &str, name: &str) -> Option<Value> {
        self.fake.look(resource, NAMESPACE, name)
    }

    fn typed<K: DeserializeOwned>(&self, resource: &str, name: &str) -> Option<K> {
        self.get_object(resource, name).map(|object| serde_json::from_value(object).unwrap())
    }

    pub fn inventory(&self, name: &str) -> Option<MachineInventory> {
        self.typed("machineinventories.elemental.cattle.io", name)
    }

    /// A machine of ours.
    pub fn machine(&self, name: &str) -> Option<BaremetalMachine> {
        self.typed("baremetalmachines.infrastructure.cluster.x-k8s.io", name)
    }

    pub fn phase(&self, machine: &str) -> Option<Phase> {
        self.machine(machine)?.status?.phase
    }

    /// Whether the installed system of a host is attached and free.
    pub fn is_available(&self, host: &str) -> bool {
        self.inventory(host).is_some_and(|inventory| {
            inventory.claim().is_none() && conditions::is_true(inventory.conditions(), Type::Ready)
        })
    }

    /// An operator lets a machine go without its host, which may be dead.
    pub async fn give_up_host(&self, kind: &str, name: &str) {
        let way_out = json!({ "metadata": { "annotations": { annotation::RELEASE_WITHOUT_CLEAN: "" } } });
        self.patch(kind, name, way_out).await;
    }

    /// A condition of a machine.
    pub fn machine_condition(&self, machine: &str, kind: Type) -> Option<Condition> {
        conditions::find_condition(&self.machine(machine)?.status?.conditions, kind).cloned()
    }

    /// A condition of an inventory.
    pub fn host_condition(&self, host: &str, kind: Type) -> Option<Condition> {
        conditions::find_condition(self.inventory(host)?.conditions(), kind).cloned()
    }

    /// Waits for a condition that is False with this reason. Returns its
    /// message, which must contain the next action `action`.
    pub async fn wait_for_reason(&self, machine: &str, kind: Type, reason: Reason, action: &str) -> String {
        let what = format!("{machine}: {} because {}", kind.as_str(), reason.as_str());
        let why = |world: &Self| {
            let found = world.machine_condition(machine, kind)?;
            (found.status == "False" && found.reason == reason.as_str()).then_some(found.message)
        };
        self.wait_until(&what, |world| why(world).is_some()).await;
        let message = why(self).unwrap();
        assert!(message.contains(action), "{what}: {message}");
        let ready = self.machine_condition(machine, Type::Ready).unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", reason.as_str()), "{what}");
        message
    }
}

fn decode(text: &str) -> String {
    String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
}
