use std::time::Duration;

use coordinator_api::names::annotation;
use fake_apiserver::Verb;
use serde_json::{Value, json};

use crate::tests::{NAMESPACE, Setting};

const INVENTORIES: &str = "machineinventories.elemental.cattle.io";
const POOLS: &str = "machineinventorypools.infrastructure.cluster.x-k8s.io";

async fn create_host(setting: &Setting, name: &str, annotations: Value) {
    let object = json!({ "metadata": { "annotations": annotations }, "spec": {} });
    setting.create("MachineInventory", name, object).await;
}

async fn create_pool(setting: &Setting, name: &str, members: &[&str]) {
    let members: Vec<_> = members.iter().map(|member| json!({ "name": member })).collect();
    let spec = json!({ "clusterName": "c1", "machineInventories": members });
    setting.create("MachineInventoryPool", name, json!({ "spec": spec })).await;
}

fn read_holder(setting: &Setting, host: &str) -> Option<String> {
    let inventory = setting.fake.look(INVENTORIES, NAMESPACE, host).unwrap();
    inventory["metadata"]["annotations"][annotation::POOL].as_str().map(str::to_owned)
}

fn read_total(setting: &Setting, pool: &str) -> Value {
    setting.fake.look(POOLS, NAMESPACE, pool).unwrap()["status"]["total"].clone()
}

#[tokio::test(start_paused = true)]
async fn changes_at_once_are_one_write() {
    let setting = Setting::leading().await;
    create_pool(&setting, "workers", &["host-1", "host-2"]).await;
    setting.settle().await;
    let mark = setting.fake.journal().mark();
    create_host(&setting, "host-1", json!({})).await;
    create_host(&setting, "host-2", json!({})).await;
    setting.settle().await;
    assert_eq!(setting.count(mark, Verb::Patch, "machineinventorypools"), 1);
}

#[tokio::test(start_paused = true)]
async fn burst_of_changes_costs_few_writes() {
    let setting = Setting::leading().await;
    create_pool(&setting, "workers", &[]).await;
    setting.settle().await;
    let (mark, mut names) = (setting.fake.journal().mark(), Vec::new());
    for number in 1..=40 {
        names.push(json!({ "name": format!("host-{number}") }));
        let spec = json!({ "spec": { "machineInventories": names } });
        setting.patch("MachineInventoryPool", "workers", spec).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    setting.settle().await;
    assert_eq!(read_total(&setting, "workers"), 40, "the last change is counted");
    let writes = setting.count(mark, Verb::Patch, "machineinventorypools");
    assert!((2..=6).contains(&writes), "{writes} writes in two seconds");
}

#[tokio::test(start_paused = true)]
async fn listed_member_is_held_by_annotation() {
    let setting = Setting::leading().await;
    create_host(&setting, "host-1", json!({})).await;
    create_host(&setting, "host-2", json!({})).await;
    create_pool(&setting, "workers", &["host-1", "host-3"]).await;
    setting.settle().await;
    assert_eq!(read_holder(&setting, "host-1").as_deref(), Some("workers"));
    assert_eq!(read_holder(&setting, "host-2"), None, "not listed");
    create_host(&setting, "host-3", json!({})).await;
    setting.settle().await;
    assert_eq!(read_holder(&setting, "host-3").as_deref(), Some("workers"), "registered later");
}

#[tokio::test(start_paused = true)]
async fn member_of_another_pool_is_not_taken() {
    let setting = Setting::leading().await;
    create_host(&setting, "host-1", json!({})).await;
    create_pool(&setting, "first", &["host-1"]).await;
    setting.settle().await;
    create_pool(&setting, "second", &["host-1"]).await;
    setting.settle().await;
    assert_eq!(read_holder(&setting, "host-1").as_deref(), Some("first"));
    let released = json!({ "spec": { "machineInventories": [] } });
    setting.patch("MachineInventoryPool", "first", released).await;
    setting.settle().await;
    assert_eq!(read_holder(&setting, "host-1").as_deref(), Some("second"), "the holder lists it no more");
}

#[tokio::test(start_paused = true)]
async fn claimed_member_stays_with_its_pool() {
    let setting = Setting::leading().await;
    let claim = json!({
        annotation::POOL: "deleted",
        annotation::OWNER_BAREMETAL_MACHINE: "worker-1",
        annotation::OWNER_MACHINE: "worker-1",
        annotation::OWNER_CLUSTER: "c1",
        annotation::ALLOCATION_STATE: "Allocated",
    });
    create_host(&setting, "claimed", claim).await;
    create_host(&setting, "free", json!({ annotation::POOL: "deleted" })).await;
    create_pool(&setting, "workers", &["claimed", "free"]).await;
    setting.settle().await;
    assert_eq!(read_holder(&setting, "claimed").as_deref(), Some("deleted"));
    assert_eq!(read_holder(&setting, "free").as_deref(), Some("workers"), "its pool is gone");
}

/// One that the cache cannot parse still holds its members.
#[tokio::test(start_paused = true)]
async fn unreadable_pool_keeps_its_members() {
    let mut setting = Setting::new(&[]);
    create_host(&setting, "host-1", json!({ annotation::POOL: "unreadable" })).await;
    create_pool(&setting, "unreadable", &["host-1"]).await;
    create_pool(&setting, "workers", &["host-1"]).await;
    assert!(
        setting.fake.edit((POOLS, NAMESPACE, "unreadable"), |pool| pool["spec"]["clusterName"] = json!(1))
    );
    setting.start();
    setting.settle().await;
    assert_eq!(read_total(&setting, "workers"), 1, "the other pool is reconciled");
    assert_eq!(read_holder(&setting, "host-1").as_deref(), Some("unreadable"));
}

#[tokio::test(start_paused = true)]
async fn refused_hold_is_shown() {
    let setting = Setting::leading().await;
    let writes = fake_apiserver::Matching::writes().user("coordinator").resource("machineinventories");
    let refused = setting.fake.faults().fail(writes.subresource(""), 5, fake_apiserver::Refusal::Forbidden);
    create_host(&setting, "h1", json!({})).await;
    create_pool(&setting, "p1", &["h1"]).await;
    let shown = || {
        let pool = setting.fake.look(POOLS, NAMESPACE, "p1").unwrap();
        let conditions = pool["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().any(|condition| condition["reason"] == "ApiRequestFailed")
    };
    setting.settle().await;
    assert!(refused.is_met() && shown());
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert!(!shown() && read_holder(&setting, "h1").is_some());
}

#[tokio::test(start_paused = true)]
async fn refused_member_holds_up_no_other() {
    let setting = Setting::leading().await;
    let writes = fake_apiserver::Matching::writes().user("coordinator").resource("machineinventories");
    let refused = fake_apiserver::Refusal::Forbidden;
    let refused = setting.fake.faults().fail(writes.name("h1").subresource(""), usize::MAX, refused);
    let names: Vec<_> = (1..=4 * super::MEMBERS_AT_ONCE).map(|number| format!("h{number}")).collect();
    for name in &names {
        create_host(&setting, name, json!({})).await;
    }
    // Requests take longer than changes of a pool are collected.
    setting.fake.faults().latency(Duration::from_millis(20));
    let mark = setting.fake.journal().mark();
    create_pool(&setting, "p1", &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    setting.settle().await;
    assert!(refused.times_met() > 0);
    let writes = setting.fake.journal().since(mark).into_iter();
    let writes = writes.filter(|entry| entry.changed && entry.request.verb == Verb::Patch);
    let until_counters = writes.take_while(|entry| entry.request.resource != "machineinventorypools");
    let held = until_counters.filter(|entry| {
        entry.request.resource == "machineinventories" && entry.request.subresource.is_empty()
    });
    let held = held.count();
    assert!(held > 0 && held <= 2 * super::MEMBERS_AT_ONCE, "{held} before the counters are written");
    assert_eq!(read_total(&setting, "p1"), names.len());
    for name in &names {
        assert_eq!(read_holder(&setting, name).is_some(), name != "h1", "{name}");
    }
}

/// A tenant lists and selects the host of another tenant.
#[tokio::test(start_paused = true)]
async fn pool_takes_no_host_of_another_namespace() {
    let setting = Setting::leading().await;
    create_host(&setting, "host-1", json!({})).await;
    let label = json!({ "metadata": { "labels": { "rack": "r1" } } });
    setting.patch("MachineInventory", "host-1", label).await;
    let members = json!([{ "name": "host-1" }]);
    let listing = json!({ "clusterName": "c1", "machineInventories": members });
    let selector = json!({ "matchLabels": { "rack": "r1" } });
    let selecting = json!({ "clusterName": "c1", "machineInventories": [], "selector": selector });
    for (name, spec) in [("listing", listing), ("selecting", selecting)] {
        setting.create_in("other", "MachineInventoryPool", name, json!({ "spec": spec })).await;
    }
    setting.settle().await;
    for pool in ["listing", "selecting"] {
        let status = setting.fake.look(POOLS, "other", pool).unwrap()["status"].clone();
        assert!(status["conditions"].is_array() && status["available"] != 1, "{pool}: {status}");
    }
    assert_eq!(read_holder(&setting, "host-1"), None);
    create_pool(&setting, "own", &["host-1"]).await;
    setting.settle().await;
    assert_eq!(read_holder(&setting, "host-1").as_deref(), Some("own"));
}

#[tokio::test(start_paused = true)]
async fn pool_takes_the_hosts_that_its_selector_fits() {
    let setting = Setting::leading().await;
    create_host(&setting, "h1", json!({})).await;
    create_host(&setting, "h2", json!({})).await;
    let label = |rack: Value| json!({ "metadata": { "labels": { "rack": rack } } });
    setting.patch("MachineInventory", "h1", label(json!("r1"))).await;
    let selector = json!({ "matchLabels": { "rack": "r1" } });
    let spec = json!({ "clusterName": "c1", "machineInventories": [], "selector": selector });
    setting.create("MachineInventoryPool", "p1", json!({ "spec": spec })).await;
    setting.settle().await;
    let held = || ["h1", "h2"].map(|host| read_holder(&setting, host));
    assert_eq!((held(), read_total(&setting, "p1")), ([Some("p1".to_owned()), None], json!(1)));
    setting.patch("MachineInventory", "h2", label(json!("r1"))).await;
    setting.settle().await;
    assert_eq!((held()[1].as_deref(), read_total(&setting, "p1")), (Some("p1"), json!(2)));
    setting.patch("MachineInventory", "h1", label(json!(null))).await;
    setting.settle().await;
    assert_eq!(read_total(&setting, "p1"), json!(1));
}
