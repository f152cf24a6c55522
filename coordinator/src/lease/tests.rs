use clap::Parser as _;
use fake_apiserver::{FakeApi, Matching, Outage, Refusal, Verb};
use kube::ResourceExt as _;
use tokio::task::JoinHandle;

use super::replica::ReplicaLease;
use super::*;
use crate::config::Config;

const TIMES: ElectionTimes = ElectionTimes {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

struct Replica {
    task: JoinHandle<()>,
    leads: watch::Receiver<bool>,
    stop: watch::Sender<bool>,
}

impl Replica {
    fn start(fake: &FakeApi, name: &str) -> Self {
        let leases = Api::namespaced(fake.client(name), "own");
        let (election, leads) = Election::new(leases, name.to_owned(), Clock::system(), TIMES);
        let (stop, shutdown) = watch::channel(false);
        Self { task: tokio::spawn(election.run_election(shutdown)), leads, stop }
    }

    /// How long it takes until it leads, or does not any more.
    async fn wait(&mut self, leads: bool) -> Duration {
        let started = Instant::now();
        self.leads.wait_for(|leading| *leading == leads).await.unwrap();
        started.elapsed()
    }

    fn is_leading(&self) -> bool {
        *self.leads.borrow()
    }
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_replaced_after_its_lease() {
    let fake = FakeApi::new();
    let mut first = Replica::start(&fake, "a");
    first.wait(true).await;
    let mut second = Replica::start(&fake, "b");
    sleep(Duration::from_millis(30_700)).await;
    assert!(first.is_leading() && !second.is_leading());
    first.task.abort();
    let taken = second.wait(true).await;
    assert!(taken > Duration::from_secs(12) && taken < Duration::from_secs(16), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_releases_the_lease() {
    let fake = FakeApi::new();
    let mut first = Replica::start(&fake, "a");
    first.wait(true).await;
    let mut second = Replica::start(&fake, "b");
    sleep(Duration::from_millis(2500)).await;
    first.stop.send_replace(true);
    first.task.await.unwrap();
    assert!(second.wait(true).await <= TIMES.retry_period);
}

/// The leader ends while a renewal that the API server has done is not answered yet.
#[tokio::test(start_paused = true)]
async fn release_succeeds_after_an_unanswered_renewal() {
    let fake = FakeApi::new();
    let mut first = Replica::start(&fake, "a");
    first.wait(true).await;
    let mut second = Replica::start(&fake, "b");
    sleep(Duration::from_millis(2500)).await;
    let renewal = Matching::any().user("a").verb(Verb::Update).resource("leases");
    let lost = fake.faults().lose_responses(renewal, 1);
    sleep(TIMES.retry_period).await;
    assert!(lost.is_met() && first.is_leading());
    first.stop.send_replace(true);
    first.task.await.unwrap();
    assert!(second.wait(true).await <= TIMES.retry_period);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_another_holder_is_not_released() {
    let fake = FakeApi::new();
    let mut first = Replica::start(&fake, "a");
    first.wait(true).await;
    let key = ("leases.coordination.k8s.io", "own", NAME);
    fake.edit(key, |lease| lease["spec"]["holderIdentity"] = "b".into());
    first.stop.send_replace(true);
    first.task.await.unwrap();
    assert_eq!(fake.look(key.0, key.1, key.2).unwrap()["spec"]["holderIdentity"], "b");
}

#[tokio::test(start_paused = true)]
async fn failed_renewals_within_the_deadline_change_nothing() {
    let fake = FakeApi::new();
    let mut replica = Replica::start(&fake, "a");
    replica.wait(true).await;
    let renewals = || Matching::any().verb(Verb::Update).resource("leases");
    for refusal in [Refusal::Unavailable, Refusal::Internal, Refusal::Conflict, Refusal::Disconnected] {
        let refused = fake.faults().fail(renewals(), 1, refusal);
        let lost = fake.faults().lose_responses(renewals().after(1), 1);
        sleep(Duration::from_secs(10)).await;
        assert!(refused.is_met() && lost.is_met(), "{refusal:?}");
        assert!(replica.is_leading(), "{refusal:?}");
        assert!(!replica.leads.has_changed().unwrap(), "{refusal:?}: it led all the time");
    }
}

#[tokio::test(start_paused = true)]
async fn leadership_ends_when_requests_hang() {
    let fake = FakeApi::new();
    let mut replica = Replica::start(&fake, "a");
    replica.wait(true).await;
    sleep(Duration::from_millis(10_500)).await;
    fake.faults().outage(Outage::Hanging);
    let lost = replica.wait(false).await;
    assert!(lost < TIMES.lease_duration, "{lost:?}: before another replica may take over");
    fake.faults().outage(Outage::Over);
    assert!(replica.wait(true).await < TIMES.lease_duration + TIMES.retry_period * 2);
}

// Fault: the API server needs three seconds for an answer.
// Shown: nothing: a replica leads, and keeps to lead.
#[tokio::test(start_paused = true)]
async fn slow_api_server_has_one_leader() {
    let fake = FakeApi::new();
    fake.faults().delay(Matching::any().resource("leases"), usize::MAX, Duration::from_secs(3));
    let mut first = Replica::start(&fake, "a");
    assert!(first.wait(true).await < Duration::from_secs(7));
    let second = Replica::start(&fake, "b");
    sleep(Duration::from_mins(10)).await;
    assert!(first.is_leading() && !first.leads.has_changed().unwrap(), "it led all the time");
    assert!(!second.is_leading());
}

#[test]
fn times_of_the_election_are_in_order() {
    let flags = ["coordinator", "--server-url=https://c", "--own-namespace=own"];
    assert_eq!(Config::parse_from(flags).election, TIMES, "the defaults of Cluster API's managers");
    assert!(TIMES.is_ordered());
    let [zero, long] = [Duration::ZERO, Duration::from_mins(1)];
    for times in [
        ElectionTimes { retry_period: long, ..TIMES },
        ElectionTimes { renew_deadline: long, ..TIMES },
        ElectionTimes { retry_period: zero, ..TIMES },
        ElectionTimes { lease_duration: zero, ..TIMES },
    ] {
        assert!(!times.is_ordered(), "{times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn contact_ends_with_the_duration_of_the_lease() {
    let fake = FakeApi::new();
    let leases: Api<Lease> = Api::namespaced(fake.client("a"), "own");
    let (contact, mut seen) = watch::channel(true);
    let lease = ReplicaLease::new(leases, "pod-1", "pod-1-x".to_owned(), Clock::system());
    let lease = lease.with_contact(move |has_contact| {
        contact.send_replace(has_contact);
    });
    let (_stop, shutdown) = watch::channel(false);
    let _task = tokio::spawn(lease.keep_renewed(shutdown));
    for outage in [Outage::Hanging, Outage::Refused] {
        sleep(Duration::from_secs(12)).await;
        assert!(!seen.has_changed().unwrap());
        fake.faults().outage(outage);
        let started = Instant::now();
        seen.wait_for(|has_contact| !has_contact).await.unwrap();
        assert!(started.elapsed() <= replica::DURATION, "{:?}", started.elapsed());
        fake.faults().outage(Outage::Over);
        seen.wait_for(|has_contact| *has_contact).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn clocks_of_other_nodes_are_not_compared() {
    let fake = FakeApi::new();
    let started = Instant::now();
    let behind = Clock::new(move || jiff::Timestamp::UNIX_EPOCH + started.elapsed());
    let leases = Api::namespaced(fake.client("a"), "own");
    let (election, mut leads) = Election::new(leases, "a".into(), behind, TIMES);
    let (_stop, shutdown) = watch::channel(false);
    let _first = tokio::spawn(election.run_election(shutdown));
    leads.wait_for(|leads| *leads).await.unwrap();
    let second = Replica::start(&fake, "b");
    sleep(Duration::from_mins(2)).await;
    assert!(*leads.borrow() && !second.is_leading());
}

#[tokio::test(start_paused = true)]
async fn a_replica_renews_and_releases_its_lease() {
    let fake = FakeApi::new();
    let leases: Api<Lease> = Api::namespaced(fake.client("a"), "own");
    let started = Instant::now();
    let clock = Clock::new(move || jiff::Timestamp::UNIX_EPOCH + started.elapsed());
    let lease = ReplicaLease::new(leases.clone(), "pod-1", "pod-1-x".to_owned(), clock);
    let lease = lease.with_bases(|| "sha256:a,sha256:b".to_owned());
    let (stop, shutdown) = watch::channel(false);
    let task = tokio::spawn(lease.keep_renewed(shutdown));
    sleep(Duration::from_secs(1)).await;
    let read = || async {
        let lease = leases.get("baremetal-coordinator-replica-pod-1").await.unwrap();
        assert_eq!(lease.labels()["baremetal.cluster.io/replica"], "true");
        assert_eq!(lease.annotations()["baremetal.cluster.io/base-isos"], "sha256:a,sha256:b");
        assert!(lease.owner_references().is_empty());
        lease.spec.unwrap()
    };
    let first = read().await;
    assert_eq!(first.holder_identity.as_deref(), Some("pod-1-x"));
    let renewals = Matching::any().verb(Verb::Patch).resource("leases");
    let refused = fake.faults().fail(renewals, 1, Refusal::Unavailable);
    sleep(replica::DURATION).await;
    assert!(refused.is_met());
    let later = read().await;
    assert!(later.renew_time > first.renew_time);
    stop.send_replace(true);
    task.await.unwrap();
    assert_eq!(read().await.holder_identity.as_deref(), Some(""));
}
