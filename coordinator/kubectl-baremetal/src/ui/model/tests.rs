use coordinator_api::explain::Attention;
use serde_json::{Value, json};

use super::*;
use crate::samples::{
    NAMESPACE, attached, clean_plan, cluster_of_one, condition, fleet, held_by, id, machine_with, now,
    object, ready, set_plan,
};

fn all(fleet: &Fleet) -> BTreeSet<Id> {
    fleet.all().map(|object| object.id.clone()).collect()
}

fn host(name: &str, body: Value) -> Object {
    object(Kind::MachineInventory, name, body)
}

fn lines(delta: &Delta) -> Vec<Value> {
    delta.changed.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}

fn names(delta: &Delta) -> Vec<String> {
    lines(delta).iter().map(|line| line["key"].as_str().unwrap().to_owned()).collect()
}

/// A machine that an operator has to act on.
fn broken() -> Object {
    let overdue = condition("NodeLinked", "False", "NodeOverdue", "no Node");
    let summary = condition("Ready", "False", "NodeOverdue", "no Node");
    object(Kind::BaremetalMachine, "m", machine_with(&[summary, overdue]))
}

#[test]
fn change_of_a_host_changes_its_line_alone() {
    let mut fleet = fleet((0..100).map(|number| host(&format!("h{number}"), attached())));
    let mut model = Model::default();
    assert_eq!(model.refresh(&fleet, &all(&fleet), now()).changed.len(), 100);
    let mut body = attached();
    body["metadata"]["annotations"]["baremetal.cluster.io/approval"] = json!("Pending");
    fleet.insert(host("h7", body));
    let changed = BTreeSet::from([id(Kind::MachineInventory, "h7")]);
    let delta = model.refresh(&fleet, &changed, now());
    let line = &lines(&delta)[0];
    assert_eq!(names(&delta), ["machineinventory/site/h7"]);
    assert_eq!(delta.touched, BTreeSet::from(["machineinventory/site/h7".to_owned()]));
    assert_eq!((&line["state"], &line["attention"]), (&json!("Pending"), &json!("act")));
    assert_eq!(
        (&line["reason"], &line["cause"]),
        (&json!("ApprovalPending"), &json!("the host waits for approval"))
    );
    assert!(line["action"].as_str().unwrap().contains("kubectl baremetal approve h7"), "{line}");
    assert!(model.refresh(&fleet, &changed, now()).changed.is_empty());
    fleet.remove(&id(Kind::MachineInventory, "h7"));
    assert_eq!(model.refresh(&fleet, &changed, now()).gone, ["machineinventory/site/h7"]);
    assert_eq!(model.lines().len(), 99);
}

#[test]
fn machine_line_appears_unless_host_shows_it() {
    let mut fleet = fleet([host("h", held_by("m")), broken()]);
    let mut model = Model::default();
    let first = model.refresh(&fleet, &all(&fleet), now());
    // The host is as intended, and its line says what is wrong with its machine.
    assert_eq!(names(&first), ["machineinventory/site/h"]);
    assert_eq!(lines(&first)[0]["reason"], "NodeOverdue");
    fleet.insert(object(Kind::BaremetalMachine, "m", machine_with(&[ready()])));
    let machine = BTreeSet::from([id(Kind::BaremetalMachine, "m")]);
    let repaired = model.refresh(&fleet, &machine, now());
    assert_eq!(
        (names(&repaired), &lines(&repaired)[0]["attention"]),
        (vec!["machineinventory/site/h".to_owned()], &json!("none"))
    );
    // The host waits for something of its own: what its machine asks for has its own line.
    let mut body = held_by("m");
    set_plan(&mut body, &clean_plan(), &json!({ "step": { "name": "stop-kubelet", "attempt": 1 } }));
    fleet.insert(host("h", body));
    fleet.insert(broken());
    let both = model.refresh(&fleet, &all(&fleet), now());
    let told = lines(&both);
    assert_eq!(names(&both), ["machineinventory/site/h", "baremetalmachine/site/m"]);
    assert_eq!(
        (&told[1]["cause"], &told[1]["action"]),
        (
            &json!("no Node"),
            &json!(
                "look at cloud-init and the kubelet on the host's console; delete the Machine to try again"
            )
        )
    );
    fleet.insert(host("h", held_by("m")));
    let host = BTreeSet::from([id(Kind::MachineInventory, "h")]);
    assert_eq!(model.refresh(&fleet, &host, now()).gone, ["baremetalmachine/site/m"]);
}

#[test]
fn time_alone_makes_a_host_unreachable() {
    let mut body = attached();
    body["status"]["host"]["session"]["ended"] = json!("2026-01-01T00:58:00Z");
    let fleet = fleet([host("h", body)]);
    let mut model = Model::default();
    model.refresh(&fleet, &all(&fleet), now());
    let wake = model.next_wake().unwrap();
    assert_eq!(wake, "2026-01-01T01:03:00Z".parse().unwrap());
    assert!(model.take_due(now()).is_empty());
    let delta = model.refresh(&fleet, &model.take_due(wake), wake);
    assert_eq!(lines(&delta)[0]["state"], "Unreachable");
    assert_eq!(model.next_wake(), None);
}

#[test]
fn changes_of_machines_touch_their_cluster() {
    let mut fleet = fleet(cluster_of_one(json!({}), machine_with(&[ready()])));
    fleet.insert(host("h", held_by("m")));
    let mut model = Model::default();
    let first = model.refresh(&fleet, &all(&fleet), now());
    let cluster = lines(&first).into_iter().find(|line| line["kind"] == "Cluster").unwrap();
    assert_eq!((&cluster["name"], &cluster["attention"]), (&json!("lab"), &json!("wait")));
    for kind in [Kind::Machine, Kind::BaremetalMachine] {
        let machine = id(kind, "m");
        fleet.remove(&machine);
        let delta = model.refresh(&fleet, &BTreeSet::from([machine]), now());
        assert!(delta.touched.contains("cluster/site/lab"), "{delta:?}");
    }
    let tree = show_cluster(&fleet, &id(Kind::Cluster, "lab"), now()).unwrap();
    assert_eq!(tree.name, "cluster/lab");
    assert!(show_cluster(&fleet, &id(Kind::Cluster, "other"), now()).is_none());
}

#[test]
fn host_is_shown_with_its_life() {
    let mut body = held_by("m");
    set_plan(
        &mut body,
        &clean_plan(),
        &json!({ "state": "Failed", "message": "step remove-workload: busy" }),
    );
    let fleet = fleet([host("h", body)]);
    let mut model = Model::default();
    model.refresh(&fleet, &all(&fleet), now());
    let view = model.show_host(&fleet, &id(Kind::MachineInventory, "h"), now()).unwrap();
    let shown = serde_json::to_value(view).unwrap();
    assert_eq!((&shown["name"], &shown["namespace"]), (&json!("h"), &json!(NAMESPACE)));
    assert_eq!(shown["newestPlan"]["steps"][1]["state"], "failed");
    assert_eq!(shown["timeline"].as_array().unwrap().len(), 3, "{shown:#}");
    assert_eq!(model.lines.values().next().unwrap().attention, Attention::None);
}
