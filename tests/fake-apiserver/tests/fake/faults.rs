//! What goes wrong on request, and what the journal says of it.

use std::time::Duration;

use fake_apiserver::{Counts, End, FakeApi, Kind, Matching, Outage, Outcome, Refusal, Side, Verb};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, VersionMatch, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

const SOON: Duration = Duration::from_hours(1);

fn maps(client: Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "a": "1" } })).unwrap()
}

async fn set(maps: &Api<ConfigMap>, name: &str, value: &str) -> kube::Result<ConfigMap> {
    let patch = Patch::Merge(json!({ "data": { "a": value } }));
    maps.patch(name, &PatchParams::default(), &patch).await
}

fn code(result: kube::Result<ConfigMap>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

#[tokio::test(start_paused = true)]
async fn rejections_are_counted_and_change_nothing() {
    let cases = [
        (Refusal::Conflict, 409),
        (Refusal::TooManyRequests { retry_after: 1 }, 429),
        (Refusal::Forbidden, 403),
        (Refusal::Internal, 500),
        (Refusal::Unavailable, 503),
        (Refusal::Timeout, 504),
        (Refusal::Disconnected, 0),
    ];
    for (refusal, want) in cases {
        let fake = FakeApi::new();
        let maps = maps(fake.client("one"));
        maps.create(&PostParams::default(), &map("a")).await.unwrap();
        let patches = Matching::writes().verb(Verb::Patch).resource("configmaps").after(1);
        let fault = fake.faults().fail(patches, 2, refusal);
        assert!(!fault.is_met());
        let mut codes = Vec::new();
        for value in ["2", "3", "4", "5"] {
            codes.push(code(set(&maps, "a", value).await));
        }
        assert_eq!(codes, [200, want, want, 200], "{refusal:?}");
        assert_eq!(fault.times_met(), 2, "{refusal:?}");
        assert_eq!(fake.journal().counts().changes, 3, "{refusal:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn reads_meet_faults_too() {
    let fake = FakeApi::new();
    let maps = maps(fake.client("one"));
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    let reads = || Matching::any().verb(Verb::Get).resource("configmaps").name("a");
    let refusals = [
        (Refusal::Conflict, 409),
        (Refusal::TooManyRequests { retry_after: 1 }, 429),
        (Refusal::Forbidden, 403),
        (Refusal::Internal, 500),
        (Refusal::Unavailable, 503),
    ];
    for (refusal, want) in refusals {
        let fault = fake.faults().fail(reads(), 1, refusal);
        assert_eq!(code(maps.get("a").await), want);
        assert!(fault.is_met());
        assert_eq!(code(maps.get("a").await), 200);
    }
    let lost = fake.faults().lose_responses(reads(), 1);
    assert_eq!(code(maps.get("a").await), 0);
    assert!(lost.is_met());
    let unmet = fake.faults().fail(reads().user("another"), 1, Refusal::Internal);
    assert_eq!(code(maps.get("a").await), 200);
    assert!(!unmet.is_met());
}

#[tokio::test(start_paused = true)]
async fn delays_add_to_other_faults() {
    let fake = FakeApi::new();
    let maps = maps(fake.client("one"));
    let faults = fake.faults();
    let delay = faults.delay(Matching::any().verb(Verb::List), 1, Duration::from_secs(7));
    faults.fail(Matching::any().verb(Verb::List), 1, Refusal::Internal);
    for (want, time) in [(false, 7), (true, 0)] {
        let begun = tokio::time::Instant::now();
        assert_eq!(maps.list(&ListParams::default()).await.is_ok(), want);
        assert_eq!(begun.elapsed(), Duration::from_secs(time));
    }
    assert_eq!(delay.times_met(), 1);
}

#[tokio::test(start_paused = true)]
async fn watches_lag_by_user() {
    let fake = FakeApi::new();
    fake.faults().lag_of("slow", Duration::from_secs(30));
    let wait = |user: &str| {
        let maps = maps(fake.client(user));
        async move {
            let stream = maps.watch(&WatchParams::default().disable_bookmarks(), "100").await.unwrap();
            let begun = tokio::time::Instant::now();
            let event = std::pin::pin!(stream).next().await;
            assert!(matches!(event, Some(Ok(WatchEvent::Added(_)))));
            begun.elapsed()
        }
    };
    maps(fake.client("writer")).create(&PostParams::default(), &map("a")).await.unwrap();
    assert_eq!(tokio::join!(wait("fast"), wait("slow")), (Duration::ZERO, Duration::from_secs(30)));
}

#[tokio::test(start_paused = true)]
async fn discovery_meets_outages() {
    let fake = FakeApi::new();
    let client = fake.client("one");
    fake.faults().outage(Outage::Refused);
    assert!(client.list_api_groups().await.is_err());
    fake.faults().outage(Outage::Over);
    assert!(client.list_api_groups().await.is_ok());
    assert_eq!(fake.journal().counts().requests, 2);
}

#[tokio::test(start_paused = true)]
async fn pages_expire_with_the_history() {
    let fake = FakeApi::new();
    let maps = maps(fake.client("one"));
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &map(name)).await.unwrap();
    }
    let lp = ListParams::default().limit(1);
    let token = maps.list(&lp).await.unwrap().metadata.continue_.unwrap();
    maps.create(&PostParams::default(), &map("d")).await.unwrap();
    fake.compact();
    let result = maps.list(&lp.clone().continue_token(&token)).await;
    assert!(
        matches!(result, Err(kube::Error::Api(status)) if status.code == 410 && status.reason == "Expired")
    );
}

/// Not in the suite: kube's own client retries this answer of a real server.
#[tokio::test(start_paused = true)]
async fn lists_of_a_future_version_time_out() {
    let fake = FakeApi::new();
    let lp = ListParams::default().at("1000").matching(VersionMatch::NotOlderThan);
    let result = maps(fake.client("one")).list(&lp).await;
    assert!(
        matches!(result, Err(kube::Error::Api(status)) if status.code == 504 && status.reason == "Timeout")
    );
}

#[tokio::test(start_paused = true)]
async fn lost_responses_hide_completed_writes() {
    let fake = FakeApi::new();
    let maps = maps(fake.client("one"));
    fake.faults().lose_responses(Matching::writes(), 1);
    assert_eq!(code(maps.create(&PostParams::default(), &map("a")).await), 0);
    assert!(fake.look("configmaps", "default", "a").is_some());
    assert_eq!(code(maps.create(&PostParams::default(), &map("a")).await), 409);
    let outcomes: Vec<_> = fake.journal().entries().iter().map(|entry| entry.outcome).collect();
    assert_eq!(outcomes, [Outcome::Lost, Outcome::Answered(409)]);
}

#[tokio::test(start_paused = true)]
async fn interrupts_run_between_read_and_write() {
    let fake = FakeApi::new();
    let maps = maps(fake.client("one"));
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    let other = fake.clone();
    fake.faults().interrupt(Matching::any().verb(Verb::Update), move || {
        other.edit(("configmaps", "default", "a"), |object| {
            object["data"]["a"] = json!("other");
        });
    });
    let read = maps.get("a").await.unwrap();
    assert_eq!(code(maps.replace("a", &PostParams::default(), &read).await), 409);
    let read = maps.get("a").await.unwrap();
    assert_eq!(read.data.as_ref().unwrap()["a"], "other");
    assert_eq!(code(maps.replace("a", &PostParams::default(), &read).await), 200);
}

#[tokio::test(start_paused = true)]
async fn processes_stop_at_every_write() {
    for side in [Side::Before, Side::After] {
        for write in 1..=3 {
            let fake = FakeApi::new();
            let mut stopped = fake.faults().stop("one", Matching::writes(), write, side);
            let client = fake.client("one");
            let story = async {
                for name in ["a", "b", "c"] {
                    maps(client.clone()).create(&PostParams::default(), &map(name)).await.unwrap();
                }
            };
            tokio::select! {
                () = stopped.reached() => {}
                () = story => panic!("the process went on"),
            }
            let done = fake.look_at_all("configmaps").len();
            let want = if side == Side::Before { write - 1 } else { write };
            assert_eq!(done, want, "{side:?} {write}");
            // The stopped process gets no answers, its successor does.
            let stopped_maps = maps(client);
            assert!(timeout(SOON, stopped_maps.get("a")).await.is_err());
            let next = maps(fake.client("one"));
            assert!(timeout(SOON, next.list(&ListParams::default())).await.is_ok());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_refuses_or_hangs_and_ends() {
    let fake = FakeApi::new();
    let maps = maps(fake.client("one"));
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    fake.faults().outage(Outage::Refused);
    assert_eq!(code(maps.get("a").await), 0);
    fake.faults().outage(Outage::Hanging);
    let hanging = tokio::spawn({
        let maps = maps.clone();
        async move { maps.get("a").await }
    });
    assert!(timeout(SOON, maps.get("a")).await.is_err());
    fake.faults().outage(Outage::Over);
    assert_eq!(code(hanging.await.unwrap()), 0);
    assert_eq!(code(maps.get("a").await), 200);
}

#[tokio::test(start_paused = true)]
async fn watches_lag_while_reads_do_not() {
    let fake = FakeApi::new();
    let maps = maps(fake.client("one"));
    let stream = maps.watch(&WatchParams::default().disable_bookmarks(), "100").await.unwrap();
    let mut stream = std::pin::pin!(stream);
    fake.faults().lag(Duration::from_secs(30));
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    maps.get("a").await.unwrap();
    assert!(timeout(Duration::from_secs(29), stream.next()).await.is_err());
    let event = timeout(Duration::from_secs(2), stream.next()).await.unwrap();
    assert!(matches!(event, Some(Ok(WatchEvent::Added(map))) if map.name_any() == "a"));
}

#[tokio::test(start_paused = true)]
async fn watches_end_as_requested() {
    let cases =
        [(End::Closed, "end"), (End::Broken, "error"), (End::Expired, "410"), (End::Silent, "silence")];
    for (end, want) in cases {
        let fake = FakeApi::new();
        let maps = maps(fake.client("one"));
        let wp = WatchParams::default().disable_bookmarks();
        let mut stream = std::pin::pin!(maps.watch(&wp, "100").await.unwrap());
        let faults = fake.faults();
        assert_eq!(faults.running_watches().len(), 1);
        faults.end_watches(&Matching::any().resource("configmaps"), end);
        let got = match timeout(SOON, stream.next()).await {
            Err(_) => "silence",
            Ok(None) => "end",
            Ok(Some(Ok(WatchEvent::Error(status)))) if status.code == 410 => "410",
            Ok(Some(Err(_))) => "error",
            Ok(Some(Ok(_))) => "event",
        };
        assert_eq!(got, want, "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn compacted_watches_expire() {
    let fake = FakeApi::new();
    let maps = maps(fake.client("one"));
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    fake.compact();
    let mut stream = std::pin::pin!(maps.watch(&WatchParams::default(), "100").await.unwrap());
    let first = stream.next().await;
    assert!(matches!(first, Some(Ok(WatchEvent::Error(status))) if status.code == 410));
    assert!(stream.next().await.is_none());
}

/// As etcd ends a watcher that is behind a compaction.
#[tokio::test(start_paused = true)]
async fn watches_behind_a_compaction_expire() {
    let fake = FakeApi::new();
    let maps = maps(fake.client("one"));
    let stream = maps.watch(&WatchParams::default().disable_bookmarks(), "100").await.unwrap();
    let mut stream = std::pin::pin!(stream);
    fake.faults().lag(Duration::from_secs(30));
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    assert!(timeout(Duration::from_secs(1), stream.next()).await.is_err());
    fake.compact();
    let event = timeout(Duration::from_mins(1), stream.next()).await.unwrap();
    assert!(matches!(event, Some(Ok(WatchEvent::Error(status))) if status.code == 410));
}

#[tokio::test(start_paused = true)]
async fn the_journal_counts_by_user_verb_and_resource() {
    let fake = FakeApi::new();
    fake.register(Kind::namespaced("test.io", "v1", "Thing", "things").with_status());
    let (one, two) = (maps(fake.client("one")), maps(fake.client("two")));
    one.create(&PostParams::default(), &map("a")).await.unwrap();
    let mark = fake.journal().mark();
    set(&one, "a", "1").await.unwrap();
    two.get("a").await.unwrap();
    two.list(&ListParams::default()).await.unwrap();
    let counts = fake.journal().counts();
    assert_eq!((counts.requests, counts.writes, counts.changes), (4, 2, 1));
    assert_eq!(counts.on(Verb::Patch, "configmaps"), 1);
    assert_eq!(fake.journal().counts_of("two").writes, 0);
    assert_eq!(Counts::of(&fake.journal().since(mark)).requests, 3);
    assert!(counts.to_string().contains("1 create configmaps"), "{counts}");
}

#[tokio::test(start_paused = true)]
async fn latency_passes_in_virtual_time() {
    let fake = FakeApi::new();
    let maps = maps(fake.client("one"));
    fake.faults().latency(Duration::from_secs(2));
    let begun = tokio::time::Instant::now();
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(4));
}
