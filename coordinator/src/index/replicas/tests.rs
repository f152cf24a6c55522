use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;
use tokio::time::advance;

use super::*;

const OWN: &str = "a-1";

/// `renewal` stands for the renewTime, whatever the other node's clock says.
fn lease(instance: &str, holder: &str, renewal: i64) -> Lease {
    let renewed = Timestamp::from_second(renewal).unwrap();
    serde_json::from_value(json!({
        "metadata": { "name": format!("baremetal-coordinator-replica-{instance}") },
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "renewTime": format!("{renewed:.6}"),
        },
    }))
    .unwrap()
}

fn tracker() -> ReplicaTracker {
    let started = Instant::now();
    let clock = Clock::new(move || Timestamp::UNIX_EPOCH + started.elapsed());
    let tracker = ReplicaTracker::new(OWN, clock);
    tracker.observe_lease(&lease("a", OWN, 1), Presence::Exists);
    tracker
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

async fn advance_and_renew_own(tracker: &ReplicaTracker, seconds: u64) {
    for second in 0..seconds {
        advance(Duration::from_secs(1)).await;
        let renewal = 1000 + i64::try_from(second).unwrap();
        tracker.observe_lease(&lease("a", OWN, renewal), Presence::Exists);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_dies_when_its_lease_stands_still() {
    let tracker = tracker();
    tracker.observe_lease(&lease("b", "b-1", 1), Presence::Exists);
    advance_and_renew_own(&tracker, 14).await;
    // Seen again unchanged, as after a relist: no renewal.
    tracker.observe_lease(&lease("b", "b-1", 1), Presence::Exists);
    assert_eq!(tracker.died_at("b-1"), None);
    assert!(tracker.take_expired().is_empty());
    advance_and_renew_own(&tracker, 3).await;
    assert_eq!(tracker.died_at("b-1"), Some(at(15)));
    assert_eq!(tracker.take_expired(), ["b-1"]);
    assert!(tracker.take_expired().is_empty(), "announced once");
    tracker.observe_lease(&lease("b", "b-1", 2), Presence::Exists);
    assert_eq!(tracker.died_at("b-1"), None, "it renewed after all");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_replica_is_another_one() {
    let tracker = tracker();
    tracker.observe_lease(&lease("b", "b-1", 1), Presence::Exists);
    advance_and_renew_own(&tracker, 5).await;
    assert_eq!(tracker.observe_lease(&lease("b", "b-2", 2), Presence::Exists), ["b-1"]);
    assert_eq!((tracker.died_at("b-1"), tracker.died_at("b-2")), (Some(at(5)), None));
}

#[tokio::test(start_paused = true)]
async fn a_released_or_deleted_lease_is_a_death() {
    let tracker = tracker();
    tracker.observe_lease(&lease("b", "b-1", 1), Presence::Exists);
    tracker.observe_lease(&lease("c", "c-1", 1), Presence::Exists);
    advance_and_renew_own(&tracker, 2).await;
    assert_eq!(tracker.observe_lease(&lease("b", "", 2), Presence::Exists), ["b-1"]);
    assert_eq!(tracker.observe_lease(&lease("c", "c-1", 1), Presence::Deleted), ["c-1"]);
    advance_and_renew_own(&tracker, 2).await;
    assert_eq!((tracker.died_at("b-1"), tracker.died_at("c-1")), (Some(at(2)), Some(at(2))));
}

#[tokio::test(start_paused = true)]
async fn a_replica_without_lease_is_dead_since_noticed() {
    let tracker = tracker();
    advance_and_renew_own(&tracker, 3).await;
    assert_eq!(tracker.died_at("x-1"), Some(at(3)));
    advance_and_renew_own(&tracker, 4).await;
    assert_eq!(tracker.died_at("x-1"), Some(at(3)));
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_watch_declares_no_death() {
    let tracker = tracker();
    tracker.observe_lease(&lease("b", "b-1", 1), Presence::Exists);
    advance(Duration::from_mins(10)).await;
    assert_eq!(tracker.died_at("b-1"), None);
    assert!(tracker.take_expired().is_empty());
    tracker.observe_lease(&lease("a", OWN, 2), Presence::Exists);
    assert_eq!(tracker.died_at("b-1"), Some(at(600)), "the grace begins with the observation");
    tracker.observe_lease(&lease("b", "b-1", 2), Presence::Exists);
    assert_eq!(tracker.died_at("b-1"), None);
}

/// A Lease that announces base ISOs.
fn announcing(instance: &str, renewal: i64, bases: &str) -> Lease {
    let mut lease = lease(instance, &format!("{instance}-1"), renewal);
    lease.metadata.annotations = Some([(annotation::BASE_ISOS.to_owned(), bases.to_owned())].into());
    lease
}

#[tokio::test(start_paused = true)]
async fn only_live_replicas_are_listed_as_others() {
    let tracker = tracker();
    let others = || {
        let mut others = tracker.list_others();
        others.sort_by(|one, other| one.replica.cmp(&other.replica));
        others.into_iter().map(|other| (other.replica, Vec::from_iter(other.digests))).collect::<Vec<_>>()
    };
    let other = |name: &str, digests: &[&str]| {
        (name.to_owned(), digests.iter().map(|digest| (*digest).to_owned()).collect::<Vec<_>>())
    };
    tracker.observe_lease(&announcing("b", 1, ""), Presence::Exists);
    tracker.observe_lease(&announcing("c", 1, "sha256:1"), Presence::Exists);
    // Of an earlier version.
    tracker.observe_lease(&lease("d", "d-1", 1), Presence::Exists);
    assert_eq!(others(), [other("b", &[]), other("c", &["sha256:1"]), other("d", &[])]);
    advance_and_renew_own(&tracker, 10).await;
    tracker.observe_lease(&announcing("b", 2, "sha256:1,sha256:2"), Presence::Exists);
    advance_and_renew_own(&tracker, 10).await;
    assert_eq!(others(), [other("b", &["sha256:1", "sha256:2"])], "the Leases of the others expired");
    advance(Duration::from_mins(1)).await;
    assert_eq!(others().len(), 3, "the watch has no event: all may be alive");
}

// A coordinator starts: one Lease is of a pod that ended long ago, one of a live replica.
#[tokio::test(start_paused = true)]
async fn dead_pod_is_no_replica_after_a_start() {
    let tracker = tracker();
    advance_and_renew_own(&tracker, 300).await;
    tracker.observe_lease(&lease("gone", "gone-1", 100), Presence::Exists);
    tracker.observe_lease(&lease("released", "", 100), Presence::Exists);
    tracker.observe_lease(&lease("live", "live-1", 298), Presence::Exists);
    let others = |tracker: &ReplicaTracker| -> Vec<String> {
        tracker.list_others().into_iter().map(|other| other.replica).collect()
    };
    assert_eq!(others(&tracker), ["live"]);
    assert_eq!(tracker.died_at("gone-1"), None, "sessions wait for the Lease to expire");
    // A live replica whose clock is behind is seen with its next renewal.
    tracker.observe_lease(&lease("gone", "gone-1", 105), Presence::Exists);
    assert_eq!(others(&tracker).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn leases_of_dead_replicas_are_stale_later() {
    let tracker = tracker();
    tracker.observe_lease(&lease("b", "b-1", 1), Presence::Exists);
    tracker.observe_lease(&lease("released", "", 1), Presence::Exists);
    let stale = |tracker: &ReplicaTracker| {
        let mut names: Vec<_> = tracker.list_stale().into_iter().map(|lease| lease.name).collect();
        names.sort_unstable();
        names
    };
    advance_and_renew_own(&tracker, 600).await;
    assert!(stale(&tracker).is_empty());
    advance_and_renew_own(&tracker, 20).await;
    let all = ["b", "released"].map(|name| format!("baremetal-coordinator-replica-{name}"));
    assert_eq!(stale(&tracker), all);
    tracker.observe_lease(&lease("b", "b-2", 700), Presence::Exists);
    assert_eq!(stale(&tracker), all[1..], "the pod is back");
    // The own Lease is not seen to change: nothing is known of the others.
    advance(Duration::from_hours(1)).await;
    assert!(stale(&tracker).is_empty());
}

#[tokio::test(start_paused = true)]
async fn lease_of_former_days_is_stale_soon() {
    let tracker = tracker();
    advance_and_renew_own(&tracker, 4000).await;
    tracker.observe_lease(&lease("old", "old-1", 100), Presence::Exists);
    tracker.observe_lease(&lease("recent", "recent-1", 3900), Presence::Exists);
    advance_and_renew_own(&tracker, 10).await;
    assert!(tracker.list_stale().is_empty(), "a replica with a wrong clock would renew it by now");
    advance_and_renew_own(&tracker, 10).await;
    let stale: Vec<_> = tracker.list_stale().into_iter().map(|lease| lease.name).collect();
    assert_eq!(stale, ["baremetal-coordinator-replica-old"]);
}
