use coordinator_api::capi::{self, Cluster};
use coordinator_api::inventory::MachineInventory;
use futures::FutureExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Value, json};

use super::*;
use crate::clock::Clock;
use crate::index::metal3::Metal3Index;
use crate::index::replicas::ReplicaTracker;
use crate::index::{Index, Router};
use crate::key::{Key, object_ref};
use crate::metrics::Metrics;
use crate::rpc::log::capture_log;
use crate::workload::WorkloadClients;

fn handlers() -> ChangeHandlers {
    ChangeHandlers {
        index: Index::default(),
        metal3: Metal3Index::default(),
        router: Router::default(),
        replicas: ReplicaTracker::new("a-1", Clock::system()),
        inventory_changes: Arc::new(|_, _| {}),
        registration_changes: Arc::new(|_, _| {}),
        seed_image_changes: Arc::new(|_, _| {}),
        workloads: WorkloadClients::default(),
        metrics: Metrics::default(),
    }
}

fn feed<K: Watched>(scopes: &[Scope], kind: K::DynamicType) -> Feed<K> {
    let unlisted = Unlisted::default();
    unlisted.add_kind();
    Feed::new(kind, scopes.iter().cloned(), handlers(), unlisted)
}

fn cluster(name: &str, spec: Option<Value>) -> DeserializeGuard<Cluster> {
    let mut object = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": { "name": name, "namespace": "fleet" },
    });
    if let Some(spec) = spec {
        object["spec"] = spec;
    }
    serde_json::from_value(object).unwrap()
}

fn host(name: &str, replica: &str) -> DeserializeGuard<MachineInventory> {
    host_of("fleet", name, replica)
}

fn host_of(namespace: &str, name: &str, replica: &str) -> DeserializeGuard<MachineInventory> {
    serde_json::from_value(json!({
        "apiVersion": "elemental.cattle.io/v1beta1",
        "kind": "MachineInventory",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {},
        "status": { "host": {
            "session": { "replica": replica, "bootId": "b", "since": "2026-01-01T00:00:00Z" },
        } },
    }))
    .unwrap()
}

#[test]
fn an_unparsable_object_stops_no_other() {
    let kind = capi::cluster_resource("v1beta2");
    let mut feed = feed::<Cluster>(&[None], kind.clone());
    let store = feed.writer.as_reader();
    let known = |name: &str| store.get(&object_ref(&Key::new("fleet", name), kind.clone()));
    let metrics = feed.handlers.metrics.clone();
    let is_counted = |count: usize| {
        let line = format!("baremetal_coordinator_unparsable_objects_total{{kind=\"Cluster\"}} {count}");
        metrics.encode_text().unwrap().lines().any(|known| known == line)
    };
    assert!(is_counted(0), "alerts see the first one by an earlier 0");
    feed.take_event(&None, Event::Init);
    for name in ["c1", "c2"] {
        feed.take_event(&None, Event::InitApply(cluster(name, Some(json!({ "paused": true })))));
    }
    let log = capture_log(|| feed.take_event(&None, Event::InitApply(cluster("broken", None))));
    for part in ["kind=\"Cluster\"", "namespace=\"fleet\"", "name=\"broken\"", "correct the object"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    feed.take_event(&None, Event::InitDone);
    assert!(known("c1").is_some() && known("c2").is_some());
    assert!(known("broken").is_none());
    feed.take_event(&None, Event::Apply(cluster("c1", None)));
    assert_eq!(known("c1").unwrap().spec.paused, Some(true), "the last usable version");
    assert!(is_counted(2));
}

#[test]
fn managed_fields_of_an_object_are_not_kept() {
    let mut feed = feed::<MachineInventory>(&[None], ());
    let store = feed.writer.as_reader();
    let managed = |replica: &str| {
        let mut inventory = host("h1", replica).0.unwrap();
        inventory.metadata.managed_fields = Some(vec![ManagedFieldsEntry::default()]);
        DeserializeGuard(Ok(inventory))
    };
    let are_dropped = || {
        let kept = store.state();
        kept.len() == 1 && kept[0].metadata.managed_fields.is_none()
    };
    feed.take_event(&None, Event::Init);
    feed.take_event(&None, Event::InitApply(managed("r1")));
    feed.take_event(&None, Event::InitDone);
    assert!(are_dropped(), "of a listed object: {:?}", store.state());
    feed.take_event(&None, Event::Apply(managed("r2")));
    assert!(are_dropped(), "of a changed object: {:?}", store.state());
}

#[test]
fn a_relist_reports_what_was_deleted() {
    let mut feed = feed::<MachineInventory>(&[None], ());
    let list = |feed: &mut Feed<MachineInventory>, names: &[&str]| {
        feed.take_event(&None, Event::Init);
        for name in names {
            feed.take_event(&None, Event::InitApply(host(name, "r1")));
        }
        feed.take_event(&None, Event::InitDone);
    };
    list(&mut feed, &["h1", "h2"]);
    assert_eq!(feed.handlers.index.hosts_by_replica("r1").len(), 2);
    list(&mut feed, &["h2"]);
    let left = feed.handlers.index.hosts_by_replica("r1");
    assert_eq!(left.into_iter().collect::<Vec<_>>(), [Key::new("fleet", "h2")]);
    feed.take_event(&None, Event::Delete(host("h2", "r1")));
    assert!(feed.handlers.index.hosts_by_replica("r1").is_empty());
}

#[test]
fn store_is_filled_when_each_namespace_was_listed() {
    let (one, two) = (Some("one".to_owned()), Some("two".to_owned()));
    let mut feed = feed::<MachineInventory>(&[one.clone(), two.clone()], ());
    let store = feed.writer.as_reader();
    let unlisted = feed.unlisted.clone();
    let is_filled = || unlisted.wait_none().now_or_never().is_some();
    let list = |feed: &mut Feed<MachineInventory>, scope: &Scope, names: &[&str]| {
        feed.take_event(scope, Event::Init);
        for name in names {
            feed.take_event(scope, Event::InitApply(host_of(scope.as_deref().unwrap(), name, "r1")));
        }
        feed.take_event(scope, Event::InitDone);
    };
    list(&mut feed, &one, &["h1", "h2"]);
    feed.take_event(&one, Event::Delete(host_of("one", "h2", "r1")));
    assert!(!is_filled());
    list(&mut feed, &two, &["h1"]);
    assert!(is_filled());
    let known = |feed: &Feed<MachineInventory>| feed.handlers.index.hosts_by_replica("r1");
    assert_eq!((known(&feed).len(), store.state().len()), (2, 2));
    list(&mut feed, &one, &[]);
    assert_eq!(known(&feed).into_iter().collect::<Vec<_>>(), [Key::new("two", "h1")], "of its own alone");
    assert_eq!(store.state().len(), 1);
}
