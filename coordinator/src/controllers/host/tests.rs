use std::time::Duration;

use coordinator_api::names::annotation;
use fake_apiserver::{Matching, Refusal, Verb};
use serde_json::{Value, json};

use crate::tests::{NAMESPACE, Setting};

const INVENTORIES: &str = "machineinventories.elemental.cattle.io";

/// A host that a machine held which does not exist; no plan was cleaned.
async fn create_orphan(setting: &Setting) {
    let annotations = json!({
        annotation::OWNER_BAREMETAL_MACHINE: "worker-1",
        annotation::OWNER_MACHINE: "worker-1",
        annotation::OWNER_CLUSTER: "c1",
        annotation::ALLOCATION_STATE: "Allocated",
    });
    let object = json!({ "metadata": { "annotations": annotations }, "spec": {} });
    setting.create("MachineInventory", "host-1", object).await;
}

/// Allocation state, reason and message of `Ready`.
fn read_shown(setting: &Setting) -> (Value, Value, String) {
    let inventory = setting.fake.look(INVENTORIES, NAMESPACE, "host-1").unwrap();
    let conditions = inventory["status"]["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap();
    let state = inventory["metadata"]["annotations"][annotation::ALLOCATION_STATE].clone();
    (state, ready["reason"].clone(), ready["message"].as_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn claim_is_held_while_its_cluster_is_missing() {
    let setting = Setting::leading().await;
    let mark = setting.fake.journal().mark();
    create_orphan(&setting).await;
    setting.settle().await;
    let (state, reason, message) = read_shown(&setting);
    assert_eq!((state, reason), (json!("Allocated"), json!("OwnerMissing")));
    assert!(message.contains("Cluster c1 is not found"), "{message}");
    assert_eq!(setting.count(mark, Verb::Patch, "machineinventories"), 1, "its status");

    setting.create("Cluster", "c1", json!({ "spec": {} })).await;
    setting.settle().await;
    assert_eq!(read_shown(&setting).0, "Unavailable");
}

#[tokio::test(start_paused = true)]
async fn refused_effect_is_shown_until_it_succeeds() {
    let setting = Setting::leading().await;
    setting.create("Cluster", "c1", json!({ "spec": {} })).await;
    let patches = Matching::any().verb(Verb::Patch).resource("machineinventories").name("host-1");
    // Of the first one, and of the one that the event of the condition causes.
    let fault = setting.fake.faults().fail(patches.subresource(""), 2, Refusal::Forbidden);
    create_orphan(&setting).await;
    setting.settle().await;
    let (state, reason, message) = read_shown(&setting);
    assert_eq!((state, reason), (json!("Allocated"), json!("ApiRequestFailed")));
    assert!(message.contains("cannot mark MachineInventory host-1"), "{message}");
    assert_eq!(fault.times_met(), 2);

    tokio::time::sleep(Duration::from_mins(6)).await;
    let (state, reason, _) = read_shown(&setting);
    assert_eq!(state, "Unavailable");
    assert_ne!(reason, "ApiRequestFailed");
}

/// A free host with the duty of an endpoint that it lost, whose observed network is to be accepted.
async fn create_dismissed(setting: &Setting) {
    let annotations = json!({
        annotation::CUSTOM_PLAN: "firmware",
        annotation::ACCEPT_OBSERVED_NETWORK: "",
        annotation::ALLOCATION_STATE: "Unavailable",
    });
    let spec = json!({ "tpmHash": "a" });
    let object = json!({ "metadata": { "annotations": annotations }, "spec": spec });
    setting.create("MachineInventory", "host-1", object).await;
    let duty = json!({ "generation": 1, "cluster": "c1", "address": "10.9.0.100", "port": 6443, "vrid": 9 });
    setting.fake.edit((INVENTORIES, NAMESPACE, "host-1"), |inventory| {
        inventory["status"] = json!({ "host": { "loadBalancer": { "duty": duty } } });
    });
}

// An effect that fails each time: the Secret of an operator's plan is refused to the coordinator.
#[tokio::test(start_paused = true)]
async fn failing_effect_holds_up_nothing_else() {
    let setting = Setting::leading().await;
    let reads = Matching::any().verb(Verb::Get).resource("secrets").name("firmware");
    let fault = setting.fake.faults().fail(reads, 1000, Refusal::Forbidden);
    create_dismissed(&setting).await;
    setting.settle().await;
    assert!(fault.is_met());
    let inventory = setting.fake.look(INVENTORIES, NAMESPACE, "host-1").unwrap();
    let duty = &inventory["status"]["host"]["loadBalancer"]["duty"];
    assert_eq!((&duty["generation"], &duty["address"]), (&json!(2), &Value::Null), "its duty ended");
    let annotations = &inventory["metadata"]["annotations"];
    assert_eq!(annotations[annotation::ACCEPT_OBSERVED_NETWORK], Value::Null, "the network is accepted");
    let conditions = inventory["status"]["conditions"].to_string();
    for kind in ["Approved", "CustomPlanAccepted", "ApiRequestFailed"] {
        assert!(conditions.contains(kind), "{kind}: {conditions}");
    }
    let (_, reason, message) = read_shown(&setting);
    assert_eq!(reason, "ApiRequestFailed");
    assert!(message.contains("firmware"), "{message}");
}

// The change beside the effect is refused each time: the next one and the conditions are written.
#[tokio::test(start_paused = true)]
async fn failing_change_holds_up_no_condition() {
    let setting = Setting::leading().await;
    let reads = Matching::any().verb(Verb::Get).resource("secrets").name("firmware");
    setting.fake.faults().fail(reads, 1000, Refusal::Forbidden);
    let patches = Matching::any().verb(Verb::Patch).resource("machineinventories").name("host-1");
    setting.fake.faults().fail(patches.subresource(""), 1000, Refusal::Forbidden);
    create_dismissed(&setting).await;
    setting.settle().await;
    let inventory = setting.fake.look(INVENTORIES, NAMESPACE, "host-1").unwrap();
    assert_eq!(inventory["status"]["host"]["loadBalancer"]["duty"]["address"], Value::Null);
    assert!(inventory["status"]["conditions"].to_string().contains("Approved"));
    assert_eq!(read_shown(&setting).1, "ApiRequestFailed");
}

// A definition without the subresource `status` answers 404 each time, as a deleted object does.
#[tokio::test(start_paused = true)]
async fn lasting_conflict_is_shown() {
    let setting = Setting::leading().await;
    setting.create("Cluster", "c1", json!({ "spec": {} })).await;
    let patches = Matching::any().verb(Verb::Patch).resource("machineinventories").name("host-1");
    let fault = setting.fake.faults().fail(patches.subresource(""), 10_000, Refusal::Conflict);
    create_orphan(&setting).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    let (_, reason, message) = read_shown(&setting);
    assert_eq!(reason, "ApiRequestFailed", "{message}");
    let met = fault.times_met();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(fault.times_met() - met < 20, "it is retried like a failure: {} times", fault.times_met() - met);
    setting.fake.faults().clear();
    tokio::time::sleep(Duration::from_mins(7)).await;
    assert_eq!(read_shown(&setting).1, "OwnerMissing");
}
