//! Watches.

use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

use super::{CaseResult, Fixture, Mismatch, define_cases, expect_equal};

define_cases![
    watches_from_a_list_see_later_changes,
    watches_from_zero_begin_with_present_objects,
    a_watch_with_initial_events_marks_their_end,
    unchanged_writes_are_no_events,
    deselected_objects_are_deleted_from_watches,
    a_held_object_is_modified_then_deleted,
    a_watch_ends_after_its_timeout,
    a_deletion_event_carries_a_new_version,
];

type Events = Vec<String>;

fn map(name: &str, value: &str) -> Result<ConfigMap, Mismatch> {
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "watched": name } },
        "data": { "a": value },
    }))?)
}

fn describe_event(event: &WatchEvent<ConfigMap>) -> String {
    let value = |map: &ConfigMap| {
        let data = map.data.clone().unwrap_or_default();
        format!("{} {}", map.name_any(), data.get("a").cloned().unwrap_or_default())
    };
    match event {
        WatchEvent::Added(map) => format!("added {}", value(map)),
        WatchEvent::Modified(map) => format!("modified {}", value(map)),
        WatchEvent::Deleted(map) => format!("deleted {}", value(map)),
        WatchEvent::Bookmark(bookmark) => {
            let end = bookmark.metadata.annotations.contains_key("k8s.io/initial-events-end");
            format!("bookmark {end}")
        }
        WatchEvent::Error(status) => format!("error {}", status.code),
    }
}

/// The first `count` events, or those of 30 s.
async fn events(
    stream: impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>>,
    count: usize,
) -> Result<Events, Mismatch> {
    let mut stream = std::pin::pin!(stream.take(count));
    let mut events = Events::new();
    let all = async {
        while let Some(event) = stream.try_next().await? {
            events.push(describe_event(&event));
        }
        Ok::<_, Mismatch>(())
    };
    match tokio::time::timeout(Duration::from_secs(30), all).await {
        Ok(result) => result?,
        Err(_elapsed) => events.push("nothing more".into()),
    }
    Ok(events)
}

fn only(name: &str) -> WatchParams {
    WatchParams::default().labels(&format!("watched={name}")).timeout(30)
}

async fn now(maps: &Api<ConfigMap>) -> Result<String, Mismatch> {
    let list = maps.list(&ListParams::default()).await?;
    Ok(list.metadata.resource_version.unwrap_or_default())
}

async fn watches_from_a_list_see_later_changes(fixture: Fixture) -> CaseResult {
    let maps = fixture.api::<ConfigMap>();
    let from = now(&maps).await?;
    let (pp, name) = (PostParams::default(), "after-list");
    maps.create(&pp, &map(name, "1")?).await?;
    maps.replace(name, &pp, &map(name, "2")?).await?;
    let stream = maps.watch(&only(name), &from).await?;
    maps.delete(name, &DeleteParams::default()).await?;
    let want = ["added after-list 1", "modified after-list 2", "deleted after-list 2"];
    expect_equal("events", events(stream, 3).await?, want.map(Into::into).into())
}

async fn watches_from_zero_begin_with_present_objects(fixture: Fixture) -> CaseResult {
    let maps = fixture.api::<ConfigMap>();
    let name = "there-already";
    maps.create(&PostParams::default(), &map(name, "1")?).await?;
    let stream = maps.watch(&only(name), "0").await?;
    maps.delete(name, &DeleteParams::default()).await?;
    // The end of what is there is marked even without a request for initial events.
    let want = ["added there-already 1", "bookmark true", "deleted there-already 1"];
    expect_equal("events", events(stream, 3).await?, want.map(Into::into).into())
}

async fn a_watch_with_initial_events_marks_their_end(fixture: Fixture) -> CaseResult {
    let maps = fixture.api::<ConfigMap>();
    let name = "streamed";
    maps.create(&PostParams::default(), &map(name, "1")?).await?;
    let from = now(&maps).await?;
    let stream = maps.watch(&only(name).initial_events(), &from).await?;
    maps.replace(name, &PostParams::default(), &map(name, "2")?).await?;
    let want = ["added streamed 1", "bookmark true", "modified streamed 2"];
    expect_equal("events", events(stream, 3).await?, want.map(Into::into).into())
}

async fn unchanged_writes_are_no_events(fixture: Fixture) -> CaseResult {
    let maps = fixture.api::<ConfigMap>();
    let (pp, name) = (PostParams::default(), "quiet");
    maps.create(&pp, &map(name, "1")?).await?;
    let from = now(&maps).await?;
    maps.replace(name, &pp, &map(name, "1")?).await?;
    maps.replace(name, &pp, &map(name, "2")?).await?;
    let stream = maps.watch(&only(name), &from).await?;
    expect_equal("events", events(stream, 1).await?, vec!["modified quiet 2".into()])
}

async fn deselected_objects_are_deleted_from_watches(fixture: Fixture) -> CaseResult {
    let maps = fixture.api::<ConfigMap>();
    let name = "relabelled";
    maps.create(&PostParams::default(), &map(name, "1")?).await?;
    let from = now(&maps).await?;
    let stream = maps.watch(&only(name), &from).await?;
    for label in ["other", name] {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "watched": label } } }));
        maps.patch(name, &PatchParams::default(), &patch).await?;
    }
    let want = ["deleted relabelled 1", "added relabelled 1"];
    expect_equal("events", events(stream, 2).await?, want.map(Into::into).into())
}

async fn a_held_object_is_modified_then_deleted(fixture: Fixture) -> CaseResult {
    let maps = fixture.api::<ConfigMap>();
    let name = "held-watched";
    let mut held = map(name, "1")?;
    held.finalizers_mut().push("test.baremetal.cluster.io/held".into());
    maps.create(&PostParams::default(), &held).await?;
    let from = now(&maps).await?;
    maps.delete(name, &DeleteParams::default()).await?;
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null }, "data": { "a": "2" } }));
    maps.patch(name, &PatchParams::default(), &patch).await?;
    let stream = maps.watch(&only(name), &from).await?;
    // The change that came with the last finalizer was never stored.
    let want = ["modified held-watched 1", "deleted held-watched 1"];
    expect_equal("events", events(stream, 2).await?, want.map(Into::into).into())
}

async fn a_watch_ends_after_its_timeout(fixture: Fixture) -> CaseResult {
    let maps = fixture.api::<ConfigMap>();
    let from = now(&maps).await?;
    let wp = WatchParams::default().labels("watched=nothing").timeout(1).disable_bookmarks();
    let stream = maps.watch(&wp, &from).await?;
    expect_equal("events", events(stream, 1).await?, Events::new())
}

async fn a_deletion_event_carries_a_new_version(fixture: Fixture) -> CaseResult {
    let maps = fixture.api::<ConfigMap>();
    let name = "deletion-version";
    let made = maps.create(&PostParams::default(), &map(name, "1")?).await?;
    let from = made.resource_version().unwrap_or_default();
    maps.delete(name, &DeleteParams::default()).await?;
    let mut stream = std::pin::pin!(maps.watch(&only(name), &from).await?);
    match tokio::time::timeout(Duration::from_secs(5), stream.next()).await? {
        Some(Ok(WatchEvent::Deleted(last))) => {
            let version: u64 = last.resource_version().unwrap_or_default().parse()?;
            expect_equal("newer", version > from.parse()?, true)
        }
        other => Err(format!("got {other:?}, want a deletion").into()),
    }
}
