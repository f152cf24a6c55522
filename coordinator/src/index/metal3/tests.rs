use coordinator_api::capi::Machine;
use coordinator_api::conditions::Reason;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::Metal3Machine;
use coordinator_api::names::annotation;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

const EXISTS: Presence = Presence::Exists;

fn host(name: &str, rack: &str, consumer: Option<&str>) -> BareMetalHost {
    let state = if consumer.is_some() { "provisioned" } else { "available" };
    let version = "infrastructure.cluster.x-k8s.io/v1beta1";
    let consumer = consumer.map(
        |name| json!({ "apiVersion": version, "kind": "Metal3Machine", "name": name, "namespace": "fleet" }),
    );
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
        "metadata": {
            "name": "m", "namespace": "fleet", "labels": { "cluster.x-k8s.io/deployment-name": "workers" },
        },
        "spec": {
            "clusterName": "lab", "bootstrap": {}, "infrastructureRef": { "kind": "Metal3Machine", "name": "m" },
        },
    }))
    .unwrap()
}

fn choose(index: &Metal3Index, machine: &Metal3Machine) -> Result<String, Reason> {
    index.choose_host(machine, &owner(), Timestamp::UNIX_EPOCH).map_err(|blocker| blocker.problem.reason)
}

fn called(triggers: &Triggers) -> Vec<String> {
    triggers.keys_of(Kind::Metal3Machine).into_iter().map(|key| key.name.to_string()).collect()
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
            choose(index, machine).unwrap_err();
        }
    };
    index.apply_host(&host("h1", "r1", Some("other")), EXISTS);
    for machine in &machines {
        index.apply_machine(machine, EXISTS);
    }
    wait(&index);
    assert_eq!(called(&index.apply_host(&host("h2", "r2", None), EXISTS)), ["any-1"], "in another rack");
    let freed = called(&index.apply_host(&host("h1", "r1", None), EXISTS));
    assert_eq!(freed, ["any-2", "other", "rack-1"], "and the machine that it was of");
    assert_eq!(called(&index.apply_host(&host("h3", "r1", None), EXISTS)), ["rack-2"], "all are called");
    for host in ["h1", "h2", "h3"] {
        index.apply_host(&self::host(host, "r1", Some("other")), EXISTS);
    }
    wait(&index);
    index.apply_host(&host("h4", "r2", None), EXISTS);
    choose(&index, &machines[0]).unwrap();
    let released = index.apply_machine(&machines[0], Presence::Deleted);
    assert_eq!(called(&released), ["any-2"], "what it had reserved is free");
}

/// A host that is kept for successors in a deployment.
fn kept(state: &str) -> BareMetalHost {
    let mut host = host("h1", "r1", None);
    host.metadata.labels.as_mut().unwrap().insert(names::NODE_REUSE.to_owned(), "md-workers".to_owned());
    host.status.as_mut().unwrap().provisioning.state = state.to_owned();
    host
}

#[test]
fn machines_that_wait_for_kept_host_are_called() {
    let index = Metal3Index::default();
    let machines = ["m1", "m2"].map(|name| machine(name, &json!({})));
    let wait = || {
        for machine in &machines {
            index.apply_machine(machine, EXISTS);
            assert_eq!(choose(&index, machine), Err(Reason::NoHostAvailable), "while h2 is free");
        }
    };
    index.apply_host(&kept("inspecting"), EXISTS);
    index.apply_host(&host("h2", "r1", None), EXISTS);
    wait();
    assert_eq!(called(&index.apply_host(&kept("inspecting"), EXISTS)), Vec::<String>::new(), "no change");
    assert_eq!(called(&index.apply_host(&kept("available"), EXISTS)), ["m1", "m2"], "by its status alone");
    index.apply_host(&kept("inspecting"), EXISTS);
    wait();
    let mut freed = kept("inspecting");
    freed.metadata.labels = None;
    assert_eq!(called(&index.apply_host(&freed, EXISTS)), ["m1", "m2"], "it is kept no longer");
    assert_eq!(choose(&index, &machines[0]).as_deref(), Ok("h2"));
}

#[test]
fn machine_reserves_only_the_host_it_names() {
    let index = Metal3Index::default();
    let [mut first, second] = ["m1", "m2"].map(|name| machine(name, &json!({})));
    for machine in [&first, &second] {
        index.apply_machine(machine, EXISTS);
    }
    index.apply_host(&host("h1", "r1", None), EXISTS);
    assert_eq!(choose(&index, &first).as_deref(), Ok("h1"));
    index.apply_host(&host("h0", "r1", None), EXISTS);
    assert_eq!(choose(&index, &first).as_deref(), Ok("h0"), "before its choice was seen");
    index.apply_host(&host("h1", "r1", Some("other")), EXISTS);
    assert_eq!(choose(&index, &second), Err(Reason::NoHostAvailable));
    let note = [(names::HOST_OF_MACHINE.to_owned(), "fleet/h1".to_owned())];
    first.metadata.annotations = Some(note.into());
    assert_eq!(called(&index.apply_machine(&first, EXISTS)), ["m1", "m2"]);
    assert_eq!(choose(&index, &second).as_deref(), Ok("h0"));
    index.release_all();
    assert_eq!(choose(&index, &first).as_deref(), Ok("h0"), "another replica led meanwhile");
}

/// Claimed by the host `h1` for a machine.
fn inventory(machine: Option<&str>) -> MachineInventory {
    let claim = machine.map(|machine| {
        json!({
            annotation::OWNER_KIND: "BareMetalHost", annotation::OWNER_BAREMETAL_MACHINE: "h1",
            annotation::OWNER_MACHINE: machine,
        })
    });
    serde_json::from_value(json!({
        "apiVersion": "elemental.cattle.io/v1beta1",
        "kind": "MachineInventory",
        "metadata": { "name": "i1", "namespace": "fleet", "annotations": claim },
        "spec": {},
    }))
    .unwrap()
}

#[test]
fn hosts_of_machines_are_found() {
    let index = Metal3Index::default();
    let key = Key::of(&machine("m1", &json!({})));
    assert_eq!(called(&index.apply_inventory(&inventory(Some("m1")), EXISTS)), ["m1"]);
    assert_eq!(called(&index.apply_inventory(&inventory(Some("m1")), EXISTS)), Vec::<String>::new());
    assert_eq!(index.hosts_of_machine(&key), ["h1"], "also one that vanished");
    for name in ["h2", "h1"] {
        index.apply_host(&host(name, "r1", Some("m1")), EXISTS);
    }
    assert_eq!(index.hosts_of_machine(&key), ["h1", "h2"]);
    assert_eq!(called(&index.apply_host(&host("h2", "r1", None), EXISTS)), ["m1"], "which it was of");
    assert_eq!(called(&index.apply_inventory(&inventory(Some("m2")), EXISTS)), ["m1", "m2"]);
    assert_eq!(index.hosts_of_machine(&key), ["h1"], "by its consumer");
    index.apply_host(&host("h1", "r1", None), Presence::Deleted);
    assert_eq!(index.hosts_of_machine(&key), Vec::<String>::new());
    assert_eq!(called(&index.apply_inventory(&inventory(Some("m2")), Presence::Deleted)), ["m2"]);
}
