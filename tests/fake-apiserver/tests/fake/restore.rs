//! Objects that leave and enter the store beneath the API, and the garbage collector with a delay.

use std::time::Duration;

use fake_apiserver::{FakeApi, GarbageCollection, OwnerReferences};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tokio::time::sleep;

const DELAY: Duration = Duration::from_secs(30);
const MACHINES: &str = "baremetalmachines.infrastructure.cluster.x-k8s.io";

fn maps(fake: &FakeApi) -> Api<ConfigMap> {
    Api::default_namespaced(fake.client("one"))
}

async fn create(fake: &FakeApi, name: &str, owners: &[Value]) -> ConfigMap {
    let map = json!({ "metadata": { "name": name, "ownerReferences": owners } });
    maps(fake).create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap()
}

fn reference(owner: &ConfigMap) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid() })
}

fn get(fake: &FakeApi, name: &str) -> Option<Value> {
    fake.look("configmaps", "default", name)
}

fn machine(name: &str) -> Value {
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
        "kind": "BaremetalMachine",
        "metadata": {
            "name": name, "namespace": "default", "uid": "old", "resourceVersion": "7",
            "generation": 5, "deletionTimestamp": "2026-01-01T00:00:00Z",
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "labels": { "a": "1" }, "annotations": { "b": "2" }, "finalizers": ["a.b/c"],
            "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "gone" }],
        },
        "spec": { "machineInventoryPoolRef": { "name": "pool" }, "unknown": 1 },
        "status": { "phase": "Running" },
    })
}

#[tokio::test(start_paused = true)]
async fn taken_objects_are_deleted_for_watches_only() {
    let fake = FakeApi::new();
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": { "name": "a", "finalizers": ["a.b/c"] },
    }))
    .unwrap();
    let made = maps(&fake).create(&PostParams::default(), &map).await.unwrap();
    let version = made.resource_version().unwrap();
    let stream = maps(&fake).watch(&WatchParams::default(), &version).await.unwrap();
    let taken = fake.take_out("configmaps", "default", "a").unwrap();
    assert_eq!(taken["metadata"]["uid"], made.uid().unwrap());
    assert_eq!(taken["metadata"]["deletionTimestamp"], Value::Null);
    let mut stream = std::pin::pin!(stream);
    let Some(Ok(WatchEvent::Deleted(last))) = stream.next().await else {
        panic!("no deletion");
    };
    assert_eq!(last.metadata.deletion_timestamp, None);
    assert_eq!(get(&fake, "a"), None);
    assert_eq!(fake.take_out("configmaps", "default", "a"), None);
}

#[tokio::test(start_paused = true)]
async fn restored_objects_are_new_objects() {
    for (owners, want) in [(OwnerReferences::Keep, 1), (OwnerReferences::Drop, 0)] {
        let fake = FakeApi::new();
        for crd in coordinator_api::crds::all() {
            fake.register_crd(&crd);
        }
        let restored = fake.put_back(machine("m"), owners).unwrap();
        assert_eq!(Some(&restored), fake.look(MACHINES, "default", "m").as_ref());
        let metadata = &restored["metadata"];
        assert_ne!(metadata["uid"], "old");
        assert_ne!(metadata["resourceVersion"], "7");
        assert_eq!(metadata["generation"], 1);
        assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:00:00Z");
        assert_eq!(metadata["deletionTimestamp"], Value::Null);
        for name in ["labels", "annotations", "finalizers"] {
            assert_eq!(metadata[name], machine("m")["metadata"][name], "{name}");
        }
        let references = metadata["ownerReferences"].as_array().map_or(0, Vec::len);
        assert_eq!(references, want, "{owners:?}");
        assert_eq!(restored["spec"], json!({ "machineInventoryPoolRef": { "name": "pool" } }));
        assert_eq!(restored["status"], Value::Null);
        assert!(fake.journal().entries().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn unserved_or_present_objects_are_not_restored() {
    let fake = FakeApi::new();
    assert!(fake.put_back(machine("m"), OwnerReferences::Keep).is_err());
    create(&fake, "a", &[]).await;
    let object = fake.look("configmaps", "default", "a").unwrap();
    let error = fake.put_back(object, OwnerReferences::Keep).unwrap_err();
    assert!(error.contains("already exists"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn dependants_are_collected_after_the_delay() {
    let fake = FakeApi::new();
    fake.garbage_collection(GarbageCollection::After(DELAY));
    let owner = create(&fake, "owner", &[]).await;
    let dependant = create(&fake, "dependant", &[reference(&owner)]).await;
    create(&fake, "second", &[reference(&dependant)]).await;
    fake.take_out("configmaps", "default", "owner");
    sleep(DELAY.checked_sub(Duration::from_secs(1)).unwrap()).await;
    assert!(get(&fake, "dependant").is_some());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(get(&fake, "dependant"), None);
    assert!(get(&fake, "second").is_some());
    sleep(DELAY).await;
    assert_eq!(get(&fake, "second"), None);
}

#[tokio::test(start_paused = true)]
async fn owners_that_never_existed_are_absent() {
    let fake = FakeApi::new();
    fake.garbage_collection(GarbageCollection::After(DELAY));
    let owner = create(&fake, "owner", &[]).await;
    let absent = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "other" });
    let unknown = json!({ "apiVersion": "a.b/v1", "kind": "Unknown", "name": "x", "uid": "y" });
    create(&fake, "stale", std::slice::from_ref(&absent)).await;
    create(&fake, "shared", &[absent, reference(&owner)]).await;
    create(&fake, "undecided", &[unknown]).await;
    sleep(DELAY * 2).await;
    let left = ["owner", "stale", "shared", "undecided"].map(|name| get(&fake, name).is_some());
    assert_eq!(left, [true, false, true, true]);
}

#[tokio::test(start_paused = true)]
async fn restored_owners_do_not_save_dependants() {
    let fake = FakeApi::new();
    fake.garbage_collection(GarbageCollection::After(DELAY));
    let owner = create(&fake, "owner", &[]).await;
    create(&fake, "dependant", &[reference(&owner)]).await;
    let object = fake.take_out("configmaps", "default", "owner").unwrap();
    fake.put_back(object, OwnerReferences::Keep).unwrap();
    sleep(DELAY * 2).await;
    assert_eq!(get(&fake, "dependant"), None);
}

#[tokio::test(start_paused = true)]
async fn repaired_references_stop_the_collection() {
    let fake = FakeApi::new();
    fake.garbage_collection(GarbageCollection::After(DELAY));
    let owner = create(&fake, "owner", &[]).await;
    create(&fake, "dependant", &[reference(&owner)]).await;
    fake.take_out("configmaps", "default", "owner");
    sleep(DELAY / 2).await;
    fake.edit(("configmaps", "default", "dependant"), |object| {
        object["metadata"]["ownerReferences"] = json!([]);
    });
    sleep(DELAY * 2).await;
    assert!(get(&fake, "dependant").is_some());
}

#[tokio::test(start_paused = true)]
async fn held_dependants_are_marked_only() {
    let fake = FakeApi::new();
    fake.garbage_collection(GarbageCollection::After(DELAY));
    let owner = create(&fake, "owner", &[]).await;
    create(&fake, "dependant", &[reference(&owner)]).await;
    fake.edit(("configmaps", "default", "dependant"), |object| {
        object["metadata"]["finalizers"] = json!(["a.b/c"]);
    });
    maps(&fake).delete("owner", &DeleteParams::default()).await.unwrap();
    sleep(DELAY * 2).await;
    let held = get(&fake, "dependant").unwrap();
    assert_eq!(held["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
}
