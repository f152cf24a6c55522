use coordinator_api::capi::{self, Cluster};
use coordinator_api::inventory::MachineInventory;
use serde_json::{Value, json};

use super::*;
use crate::clock::Clock;
use crate::controllers::index::{Index, Key};
use crate::controllers::replicas::ReplicaTracker;
use crate::controllers::triggers::Router;

fn sinks() -> Sinks {
    Sinks {
        index: Index::default(),
        router: Router::default(),
        replicas: ReplicaTracker::new("a-1", Clock::system()),
        inventory_events: Arc::new(|_| {}),
        registration_events: Arc::new(|_| {}),
        seed_image_events: Arc::new(|_| {}),
        metrics: Metrics::default(),
    }
}

fn feed<K: Watched>(writer: Writer<K>, kind: K::DynamicType) -> Feed<K>
where
    K::DynamicType: Eq + Hash + Clone,
{
    Feed { writer, kind, sinks: sinks() }
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
    serde_json::from_value(json!({
        "apiVersion": "elemental.cattle.io/v1beta1",
        "kind": "MachineInventory",
        "metadata": { "name": name, "namespace": "fleet" },
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
    let mut feed = feed(Writer::<Cluster>::new(kind.clone()), kind.clone());
    let store = feed.writer.as_reader();
    let known = |name: &str| store.get(&Key::new("fleet", name).object_ref_with(kind.clone()));
    feed.take_event(Event::Init);
    for name in ["c1", "c2"] {
        feed.take_event(Event::InitApply(cluster(name, Some(json!({ "paused": true })))));
    }
    feed.take_event(Event::InitApply(cluster("broken", None)));
    feed.take_event(Event::InitDone);
    assert!(known("c1").is_some() && known("c2").is_some());
    assert!(known("broken").is_none());
    feed.take_event(Event::Apply(cluster("c1", None)));
    assert_eq!(known("c1").unwrap().spec.paused, Some(true), "the last usable version");
    let text = feed.sinks.metrics.encode_text().unwrap();
    let counted = "baremetal_coordinator_unparsable_objects_total{kind=\"Cluster\"} 2";
    assert!(text.lines().any(|line| line == counted), "{text}");
}

#[test]
fn a_relist_reports_what_was_deleted() {
    let mut feed = feed(Writer::<MachineInventory>::default(), ());
    let list = |feed: &mut Feed<MachineInventory>, names: &[&str]| {
        feed.take_event(Event::Init);
        for name in names {
            feed.take_event(Event::InitApply(host(name, "r1")));
        }
        feed.take_event(Event::InitDone);
    };
    list(&mut feed, &["h1", "h2"]);
    assert_eq!(feed.sinks.index.hosts_by_replica("r1").len(), 2);
    list(&mut feed, &["h2"]);
    let left = feed.sinks.index.hosts_by_replica("r1");
    assert_eq!(left.into_iter().collect::<Vec<_>>(), [Key::new("fleet", "h2")]);
    feed.take_event(Event::Delete(host("h2", "r1")));
    assert!(feed.sinks.index.hosts_by_replica("r1").is_empty());
}
