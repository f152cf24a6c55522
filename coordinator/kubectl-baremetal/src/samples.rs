//! Objects for tests.

pub(crate) mod server;

use coordinator_core::network::HostNetwork;
use coordinator_core::plan::{Clean, PlanInputs, render};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use proto::plan::{Generation, Plan};
use serde_json::{Value, json};

use crate::fleet::{Fleet, Id, Kind, Object};

pub(crate) const NAMESPACE: &str = "site";

/// An hour after everything was created.
pub(crate) fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

/// An object of the namespace; `body` has what is beside its name.
pub(crate) fn object(kind: Kind, name: &str, mut body: Value) -> Object {
    let resource = kind.resources().next().unwrap();
    body["apiVersion"] = json!(resource.api_version());
    body["kind"] = json!(kind.name());
    body["metadata"]["name"] = json!(name);
    body["metadata"]["namespace"] = json!(NAMESPACE);
    body["metadata"]["uid"] = json!(format!("uid-of-{name}"));
    body["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    Object::new(kind, serde_json::from_value(body).unwrap())
}

pub(crate) fn id(kind: Kind, name: &str) -> Id {
    Id::new(kind, NAMESPACE, name)
}

pub(crate) fn fleet(objects: impl IntoIterator<Item = Object>) -> Fleet {
    let mut fleet = Fleet::new(Some(NAMESPACE));
    Kind::all().for_each(|kind| fleet.set_listed(kind));
    objects.into_iter().for_each(|object| fleet.insert(object));
    fleet
}

pub(crate) fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:30:00Z",
    })
}

pub(crate) fn ready() -> Value {
    condition("Ready", "True", "Available", "")
}

/// The body of a host that is attached, free and empty.
pub(crate) fn attached() -> Value {
    json!({
        "metadata": { "annotations": {} },
        "spec": { "tpmHash": "ab12cd" },
        "status": {
            "conditions": [condition("Ready", "True", "PlanSuccessfullyApplied", "")],
            "plan": { "secretRef": { "name": "h" } },
            "host": {
                "image": "os:v1", "bootMode": "active", "hostname": "h", "addresses": ["192.0.2.7"],
                "agentVersion": "1",
                "session": { "replica": "r", "bootId": "b", "since": "2026-01-01T00:10:00Z" },
                "carried": {},
                "install": { "state": "Installed", "device": "/dev/disk/by-id/one" },
            },
        },
    })
}

/// The same, held by the `BaremetalMachine` and the Machine `machine`.
pub(crate) fn held_by(machine: &str) -> Value {
    let mut body = attached();
    body["metadata"]["annotations"] = json!({
        "baremetal.alauda.io/owner-baremetalmachine": machine,
        "baremetal.alauda.io/owner-machine": machine,
        "baremetal.alauda.io/owner-cluster": "lab",
        "baremetal.alauda.io/pool": "workers",
        "baremetal.alauda.io/allocation-state": "Allocated",
        "baremetal.cluster.io/claim-generation": "0",
    });
    body
}

/// The status of a plan of that host.
pub(crate) fn set_plan(body: &mut Value, announced: &Plan, plan: &Value) {
    let status = &mut body["status"]["plan"];
    *status = plan.clone();
    status["secretRef"] = json!({ "name": "h" });
    status["id"] = json!(announced.id.as_str());
    status["checksum"] = json!(announced.checksum.as_str());
    status["generation"] = json!(announced.generation.0);
    status["type"] = json!(announced.kind.as_str());
}

pub(crate) fn clean_plan() -> Plan {
    render_clean().0
}

fn render_clean() -> (Plan, proto::plan::Secret) {
    let network = HostNetwork { network_config: Some("version: 2\n".to_owned()), ..HostNetwork::default() };
    render(&PlanInputs::Clean(Clean { network }), Generation(3), "claim").unwrap()
}

/// The Secret of [`clean_plan`].
pub(crate) fn plan_secret(results: &[(&str, &[u8])]) -> Secret {
    let results = results.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec())));
    let plan = ("plan".to_owned(), ByteString(render_clean().1.expose().to_vec()));
    Secret { data: Some(results.chain([plan]).collect()), ..Secret::default() }
}

/// A cluster whose one deployment has the Machine `m`, in the words of Cluster API.
pub(crate) fn cluster_of_one(machine: Value, infrastructure: Value) -> Vec<Object> {
    let infrastructure_ref = json!({ "kind": "BaremetalCluster", "name": "lab" });
    let machine_ref = json!({ "kind": "BaremetalMachine", "name": "m" });
    let labels = json!({
        "cluster.x-k8s.io/cluster-name": "lab", "cluster.x-k8s.io/deployment-name": "workers",
    });
    let available = |status: &str, message: &str| json!({ "conditions": [condition("Available", status, "NotAvailable", message)] });
    let mut machine = machine;
    machine["metadata"]["labels"] = labels.clone();
    machine["spec"] = json!({ "clusterName": "lab", "version": "v1", "infrastructureRef": machine_ref });
    let mut infrastructure = infrastructure;
    infrastructure["metadata"]["labels"] = labels;
    vec![
        object(
            Kind::Cluster,
            "lab",
            json!({
                "spec": { "infrastructureRef": infrastructure_ref },
                "status": available("False", "* WorkersAvailable:\n  * MachineDeployment workers"),
            }),
        ),
        object(Kind::BaremetalCluster, "lab", json!({ "status": { "conditions": [ready()] } })),
        object(
            Kind::MachineDeployment,
            "workers",
            json!({
                "spec": { "clusterName": "lab", "replicas": 1 },
                "status": available("False", "0 of 1"),
            }),
        ),
        object(Kind::Machine, "m", machine),
        object(Kind::BaremetalMachine, "m", infrastructure),
    ]
}

/// The body of a `BaremetalMachine` of the pool `workers`, with these conditions.
pub(crate) fn machine_with(conditions: &[Value]) -> Value {
    json!({
        "metadata": { "annotations": { "baremetal.cluster.io/machine-inventory": "h" } },
        "spec": { "machineInventoryPoolRef": { "name": "workers" } },
        "status": { "conditions": conditions },
    })
}
