//! kube's own runtime on the fake: watchers and reflectors.

use std::collections::BTreeMap;
use std::time::Duration;

use fake_apiserver::{End, FakeApi, Matching, Outage};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use serde_json::json;
use tokio::time::sleep;

fn maps(client: Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

fn map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "a": value } })).unwrap()
}

/// What a reflector of all maps holds, after everything has settled.
async fn settled(store: &reflector::Store<ConfigMap>) -> BTreeMap<String, String> {
    sleep(Duration::from_mins(2)).await;
    let entry = |map: &ConfigMap| {
        let value = map.data.as_ref().unwrap()["a"].clone();
        (map.metadata.name.clone().unwrap(), value)
    };
    store.state().iter().map(|map| entry(map)).collect()
}

fn start(client: Client, config: watcher::Config) -> reflector::Store<ConfigMap> {
    let (store, writer) = reflector::store();
    let stream = watcher(maps(client), config).default_backoff().reflect(writer);
    tokio::spawn(stream.for_each(|_| async {}));
    store
}

#[tokio::test(start_paused = true)]
async fn a_reflector_survives_every_end_of_its_watch() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        for end in [End::Closed, End::Broken, End::Expired] {
            let fake = FakeApi::new();
            let writer = maps(fake.client("writer"));
            writer.create(&PostParams::default(), &map("a", "1")).await.unwrap();
            let store = start(fake.client("reader"), config.clone());
            let want = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
                pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
            };
            assert_eq!(settled(&store).await, want(&[("a", "1")]));
            fake.faults().end_watches(&Matching::any().user("reader"), end);
            writer.create(&PostParams::default(), &map("b", "2")).await.unwrap();
            writer.delete("a", &DeleteParams::default()).await.unwrap();
            assert_eq!(settled(&store).await, want(&[("b", "2")]), "{end:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn reflectors_recover_from_outage_and_compaction() {
    let fake = FakeApi::new();
    let writer = maps(fake.client("writer"));
    let store = start(fake.client("reader"), watcher::Config::default());
    writer.create(&PostParams::default(), &map("a", "1")).await.unwrap();
    assert_eq!(settled(&store).await.len(), 1);
    fake.faults().outage(Outage::Refused);
    fake.take_out("configmaps", "default", "a");
    fake.compact();
    sleep(Duration::from_mins(1)).await;
    fake.faults().outage(Outage::Over);
    assert_eq!(settled(&store).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_idle_watcher_lists_once_a_day() {
    let fake = FakeApi::new();
    let _store = start(fake.client("reader"), watcher::Config::default());
    sleep(Duration::from_hours(24)).await;
    let counts = fake.journal().counts();
    let watches = counts.on(fake_apiserver::Verb::Watch, "configmaps");
    assert!((24..=24 * 60).contains(&watches), "{watches} watches in a day");
    assert_eq!(counts.on(fake_apiserver::Verb::List, "configmaps"), 1);
}

#[tokio::test(start_paused = true)]
async fn servers_share_no_state() {
    let servers: Vec<_> = (0..200).map(|_| FakeApi::new()).collect();
    for (index, fake) in servers.iter().enumerate() {
        let maps = maps(fake.client("writer"));
        maps.create(&PostParams::default(), &map(&format!("map-{index}"), "new")).await.unwrap();
        let patch = Patch::Merge(json!({ "data": { "a": index.to_string() } }));
        maps.patch(&format!("map-{index}"), &PatchParams::default(), &patch).await.unwrap();
    }
    let first = servers[0].look_at_all("configmaps")[0]["metadata"].clone();
    for (index, fake) in servers.iter().enumerate() {
        let objects = fake.look_at_all("configmaps");
        assert_eq!(objects.len(), 1, "{index}");
        assert_eq!(objects[0]["metadata"]["name"], format!("map-{index}"));
        assert_eq!(objects[0]["data"]["a"], index.to_string());
        for identity in ["uid", "resourceVersion"] {
            assert_eq!(objects[0]["metadata"][identity], first[identity], "{index}");
        }
        assert_eq!(fake.journal().counts().requests, 2, "{index}");
    }
}

/// A deadline in virtual time ends a test in which requests never end.
#[tokio::test(start_paused = true)]
async fn endless_requests_let_time_pass() {
    let fake = FakeApi::new();
    let maps = maps(fake.client("busy"));
    let asks = async {
        loop {
            maps.list(&ListParams::default()).await.unwrap();
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(2), asks).await.is_err());
    let requests = fake.journal().counts().requests;
    assert!((1000..=2000).contains(&requests), "{requests}");
}
