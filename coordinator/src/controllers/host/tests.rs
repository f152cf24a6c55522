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
