use serde_json::{Value, json};

use super::*;
use crate::samples::{
    attached, clean_plan, condition, fleet, held_by, id, machine_with, now, object, ready, set_plan,
};

fn with(mut body: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = value;
    body
}

fn approval(state: &str) -> Value {
    with(attached(), "/metadata/annotations/baremetal.cluster.io~1approval", json!(state))
}

fn planned(mut body: Value, plan: &Value) -> Value {
    set_plan(&mut body, &clean_plan(), plan);
    body
}

#[test]
fn states_follow_from_the_stored_facts() {
    let node = json!({ "node": { "uuid": "u", "providerID": "baremetal:///h" } });
    let ended = json!("2026-01-01T00:20:00Z");
    let mut running = planned(held_by("m"), &json!({ "state": "Applied" }));
    running["status"]["plan"]["type"] = json!("reprovision");
    running["status"]["host"]["carried"] = node.clone();
    let unattached = with(attached(), "/status/host", json!({ "install": { "state": "Registered" } }));
    for (name, body, state, attention) in [
        ("free", attached(), HostState::Available, Attention::None),
        ("pending", approval("Pending"), HostState::Pending, Attention::Act),
        ("revoked", approval("Revoked"), HostState::Revoked, Attention::Act),
        (
            "cloned",
            with(attached(), "/metadata/annotations/baremetal.cluster.io~1quarantined", json!("")),
            HostState::Quarantined,
            Attention::Act,
        ),
        (
            "away",
            with(attached(), "/status/host/session/ended", ended),
            HostState::Unreachable,
            Attention::Act,
        ),
        (
            "registered",
            with(
                unattached,
                "/status/conditions",
                json!([condition("Ready", "False", "WaitingForPlan", "")]),
            ),
            HostState::Installing,
            Attention::Wait,
        ),
        ("cleaning", planned(held_by("m"), &json!({})), HostState::Cleaning, Attention::Wait),
        (
            "failed",
            planned(held_by("m"), &json!({ "state": "Failed", "reason": "NoSpace", "message": "full" })),
            HostState::Failed,
            Attention::Act,
        ),
        ("claimed", held_by("m"), HostState::Allocated, Attention::None),
        ("a node", running, HostState::Running, Attention::None),
        (
            "a node of no machine",
            with(attached(), "/status/host/carried", node),
            HostState::Unavailable,
            Attention::None,
        ),
    ] {
        let object = object(Kind::MachineInventory, "h", body);
        let row = describe_host(&fleet([object.clone()]), &object, now()).unwrap();
        assert_eq!((row.state, row.attention), (state, attention), "{name}: {row:#?}");
        let told = attention == Attention::None;
        assert_eq!(row.reason.is_empty() && row.action.is_empty(), told, "{name}: {row:#?}");
    }
}

#[test]
fn machine_tells_what_its_host_cannot() {
    let overdue = condition("NodeLinked", "False", "NodeOverdue", "no Node");
    let machine = machine_with(&[condition("Ready", "False", "NodeOverdue", "no Node"), overdue]);
    let fleet = fleet([
        object(Kind::MachineInventory, "h", held_by("m")),
        object(Kind::BaremetalMachine, "m", machine),
        object(Kind::MachineInventory, "other", held_by("fine")),
        object(Kind::BaremetalMachine, "fine", machine_with(&[ready()])),
    ]);
    let row = |name| {
        let object = fleet.get(&id(Kind::MachineInventory, name)).unwrap();
        describe_host(&fleet, object, now()).unwrap()
    };
    assert_eq!((row("h").reason.as_str(), row("h").pool.as_str()), ("NodeOverdue", "workers"));
    assert!(row("h").action.contains("kubelet"), "{}", row("h").action);
    assert_eq!((row("other").reason.as_str(), row("other").machine.as_str()), ("", "fine"));
}
