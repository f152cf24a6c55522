use coordinator_api::capi::Machine;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::Metal3Machine;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

const EXISTS: Presence = Presence::Exists;

fn host(name: &str, rack: &str, consumer: Option<&str>) -> BareMetalHost {
    let state = if consumer.is_some() { "provisioned" } else { "available" };
    let consumer =
        consumer.map(|name| json!({ "kind": "Metal3Machine", "name": name, "namespace": "fleet" }));
    serde_json::from_value(json!({
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHost",
        "metadata": { "name": name, "namespace": "fleet", "labels": { "rack": rack } },
        "spec": { "consumerRef": consumer },
        "status": { "provisioning": { "state": state } },
    }))
    .unwrap()
}

fn machine(name: &str, selector: &Value) -> Metal3Machine {
    serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
        "kind": "Metal3Machine",
        "metadata": { "name": name, "namespace": "fleet" },
        "spec": { "hostSelector": selector },
    }))
    .unwrap()
}

fn owner() -> Machine {
    serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "metadata": { "name": "m", "namespace": "fleet" },
        "spec": {
            "clusterName": "lab", "bootstrap": {}, "infrastructureRef": { "kind": "Metal3Machine", "name": "m" },
        },
    }))
    .unwrap()
}

fn called(triggers: Triggers) -> Vec<String> {
    let machines = triggers.metal3.into_iter().filter(|(kind, _)| *kind == Kind::Machine);
    machines.map(|(_, key)| key.name.to_string()).collect()
}

#[test]
fn free_host_is_offered_to_one_machine() {
    let index = Metal3Index::default();
    let [any, of_rack] = [json!({}), json!({ "matchLabels": { "rack": "r1" } })];
    let machines: Vec<_> = [("any-1", &any), ("any-2", &any), ("rack-1", &of_rack), ("rack-2", &of_rack)]
        .map(|(name, selector)| machine(name, selector))
        .into();
    let wait = |index: &Metal3Index| {
        for machine in &machines {
            index.choose_host(machine, &owner(), Timestamp::UNIX_EPOCH).unwrap_err();
        }
    };
    index.apply_host(&host("h1", "r1", Some("other")), EXISTS);
    for machine in &machines {
        index.apply_machine(machine, EXISTS);
    }
    wait(&index);
    assert_eq!(called(index.apply_host(&host("h2", "r2", None), EXISTS)), ["any-1"], "in another rack");
    assert_eq!(called(index.apply_host(&host("h1", "r1", None), EXISTS)), ["any-2", "rack-1"]);
    assert_eq!(called(index.apply_host(&host("h3", "r1", None), EXISTS)), ["rack-2"], "all are called");
    for host in ["h1", "h2", "h3"] {
        index.apply_host(&self::host(host, "r1", Some("other")), EXISTS);
    }
    wait(&index);
    index.apply_host(&host("h4", "r2", None), EXISTS);
    index.choose_host(&machines[0], &owner(), Timestamp::UNIX_EPOCH).unwrap();
    let released = index.apply_machine(&machines[0], Presence::Deleted);
    assert_eq!(called(released), ["any-2"], "what it had reserved is free");
}
