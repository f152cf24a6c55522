//! Sessions: one host, one or two replicas.

use std::time::Duration;

use fake_apiserver::{End, Matching, Refusal as Fault};
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use serde_json::json;

use super::world::{Host, INVENTORIES, World, expect_console, refusal, short};
use super::{assert_refused, attach_to, attached, condition, installed, pair, requests, session};
use crate::lease::replica::ReplicaLife;
use crate::rpc::SessionTiming;

const QUARANTINED: &str = "baremetal.cluster.io/quarantined";

/// The annotation that ends it is named.
async fn expect_quarantine(world: &World) {
    world.expect_why("machineinventory/m-a", "DuplicateIdentity", "two running systems", QUARANTINED).await;
}

#[tokio::test]
async fn first_attach_costs_one_write() {
    let world = World::start().await;
    let (host, chain, link, stream) = attached(&world).await;
    assert_eq!(requests(&world.spent().await), (1, 1), "{}", world.spent().await);
    let inventory = world.inventory("m-a").unwrap();
    assert_eq!(condition(&inventory, "Ready"), pair("True", "PlanSuccessfullyApplied"));
    assert_eq!(condition(&inventory, "Installed"), pair("True", "InstallDone"));
    let context = world.context();
    drop((link, stream));
    world.until(|| context.sessions.count_sessions() == 0).await;
    let (_link, _stream) = attach_to(&world, 0, (&host, &chain), "boot-1").await;
    world.until(|| context.sessions.count_sessions() == 1).await;
    let back = world.connect(None).await.register(&host, "token").await.unwrap();
    assert!(matches!(back.next, Some(proto::v1alpha1::complete_response::Next::BootDisk(_))));
    assert_eq!(requests(&world.spent().await), (1, 0), "{}", world.spent().await);
}

// Fault: an identity is quarantined.
// Shown: condition of the MachineInventory, host console: `Quarantined`.
#[tokio::test]
async fn quarantine_ends_the_stream() {
    let world = World::start().await;
    let (host, chain, _link, mut stream) = attached(&world).await;
    world.fake.edit((INVENTORIES, "fleet", "m-a"), |inventory| {
        inventory["metadata"]["annotations"] = json!({ QUARANTINED: "boot-1 boot-2" });
    });
    assert_refused(&mut stream, Refusal::Quarantined).await;
    expect_quarantine(&world).await;
    let refused = world.connect(None).await.register(&host, "token").await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::Quarantined));
    let mut link = world.connect(Some((&host, &chain))).await;
    let mut stream = link.attach(Host::hello("boot-1")).await.unwrap();
    assert_refused(&mut stream, Refusal::Quarantined).await;
}

// Fault: the MachineInventory of a host is deleted.
// Shown: host console: `InventoryGone`.
#[tokio::test]
async fn unknown_identity_is_refused() {
    let world = World::start().await;
    let (_host, _chain, _link, _stream) = attached(&world).await;
    // The name is right and the key is another one.
    let other = Host::new("a");
    let chain = other.certificate(&world.authority, crate::ca::Role::Installed);
    let mut link = world.connect(Some((&other, &chain))).await;
    let mut stream = link.attach(Host::hello("boot-1")).await.unwrap();
    assert_refused(&mut stream, Refusal::InventoryGone).await;
}

// Fault: a disk was cloned: two hosts are attached with one identity.
// Shown: condition of the MachineInventory; both hosts: `Quarantined`.
#[tokio::test]
async fn duplicate_on_one_replica_is_quarantined() {
    let world = World::with_replicas(1, SessionTiming { probe: short().probe, ..Default::default() }).await;
    let (host, chain, _link, mut stream) = attached(&world).await;
    world.spent().await;
    let mut copy = world.connect(Some((&host, &chain))).await;
    let mut other = copy.attach(Host::hello("boot-2")).await.unwrap();
    assert_refused(&mut other, Refusal::Quarantined).await;
    assert_refused(&mut stream, Refusal::Quarantined).await;
    let counts = world.spent().await;
    assert_eq!(counts.writes, 1, "{counts}");
    let inventory = world.inventory("m-a").unwrap();
    assert_eq!(inventory["metadata"]["annotations"][QUARANTINED], "boot-1 boot-2");
    expect_quarantine(&world).await;
}

#[tokio::test]
async fn reboot_waits_for_its_dead_stream() {
    let world = World::start().await;
    let (host, chain, link, stream) = attached(&world).await;
    let mut rebooted = world.connect(Some((&host, &chain))).await;
    let _stream = rebooted.attach(Host::hello("boot-2")).await.unwrap();
    assert_eq!(session(&world)["bootId"], "boot-1", "it waits");
    drop((link, stream));
    world.until(|| session(&world)["bootId"] == "boot-2").await;
    assert_eq!(condition(&world.inventory("m-a").unwrap(), "Ready").0, "True");
}

#[tokio::test]
async fn same_boot_moves_to_another_replica() {
    let world = World::with_replicas(2, SessionTiming::default()).await;
    let (host, chain, _link, mut stream) = attached(&world).await;
    world.spent().await;
    let (_other, _moved) = attach_to(&world, 1, (&host, &chain), "boot-1").await;
    let ended = stream.message().await.unwrap_err();
    assert_eq!((ended.code(), refusal(&ended)), (tonic::Code::Aborted, None), "{ended:?}");
    assert_eq!(world.spent().await.writes, 1);
    world.until(|| world.context().sessions.count_sessions() == 0).await;
    assert_eq!(world.replicas[1].context.sessions.count_sessions(), 1);
}

#[tokio::test]
async fn other_boot_waits_for_the_other_replica() {
    let timing = SessionTiming { end_delay: short().end_delay, ..Default::default() };
    let world = World::with_replicas(2, timing).await;
    let (host, chain, link, stream) = attached(&world).await;
    let mut rebooted = world.connect_to(1, Some((&host, &chain))).await;
    let _rebooted = rebooted.attach(Host::hello("boot-2")).await.unwrap();
    world.until(|| world.replicas[1].context.sessions.count_sessions() == 1).await;
    assert_eq!(session(&world)["bootId"], "boot-1", "it waits");
    drop((link, stream));
    world.until(|| session(&world)["bootId"] == "boot-2").await;
    assert_eq!((&session(&world)["replica"], session(&world).get("ended")), (&json!("coordinator-1"), None));
}

// Fault: the same, on two replicas of the coordinator.
// Shown: condition of the MachineInventory; both hosts: `Quarantined`.
#[tokio::test]
async fn duplicate_on_another_replica_is_quarantined() {
    let timing = SessionTiming { probe: Duration::from_millis(200), ..Default::default() };
    let world = World::with_replicas(2, timing).await;
    let (host, chain, _link, mut stream) = attached(&world).await;
    world.spent().await;
    let mut copy = world.connect_to(1, Some((&host, &chain))).await;
    let mut other = copy.attach(Host::hello("boot-2")).await.unwrap();
    assert_refused(&mut other, Refusal::Quarantined).await;
    assert_refused(&mut stream, Refusal::Quarantined).await;
    let inventory = world.inventory("m-a").unwrap();
    assert_eq!(inventory["metadata"]["annotations"][QUARANTINED], "boot-1 boot-2");
    assert_eq!(world.spent().await.writes, 1);
    expect_quarantine(&world).await;
}

#[tokio::test]
async fn session_of_a_quarantined_host_ends() {
    let SessionTiming { end_delay, .. } = short();
    let timing = SessionTiming { probe: Duration::from_millis(200), end_delay, ..Default::default() };
    let world = World::with_replicas(2, timing).await;
    let (host, chain, _link, mut stream) = attached(&world).await;
    let mut copy = world.connect_to(1, Some((&host, &chain))).await;
    let mut other = copy.attach(Host::hello("boot-2")).await.unwrap();
    assert_refused(&mut other, Refusal::Quarantined).await;
    assert_refused(&mut stream, Refusal::Quarantined).await;
    world.until(|| session(&world)["ended"].is_string()).await;
    for replica in &world.replicas {
        world.until(|| replica.context.sessions.pending_ends() == 0).await;
    }
}

// Fault: a replica dies while hosts are attached to it.
// Shown: nothing: they attach to another one.
#[tokio::test]
async fn dead_replica_holds_no_session() {
    let world = World::with_replicas(2, SessionTiming::default()).await;
    let (host, chain, _link, _stream) = attached(&world).await;
    world.lives.lock().unwrap().insert("coordinator-0".into(), ReplicaLife::Dead);
    let (_other, _moved) = attach_to(&world, 1, (&host, &chain), "boot-2").await;
    world.expect_nothing("machineinventory/m-a").await;
}

// Fault: a replica dies, and the API server that told so dies with it.
// Shown: nothing: the host attaches as soon as the replicas are known again.
#[tokio::test]
async fn unknown_replica_quarantines_no_host() {
    let timing = SessionTiming { probe: Duration::from_millis(50), ..Default::default() };
    let world = World::with_replicas(2, timing).await;
    let (host, chain, _link, _stream) = attached(&world).await;
    world.lives.lock().unwrap().insert("coordinator-0".into(), ReplicaLife::Unknown);
    world.spent().await;
    let mut rebooted = world.connect_to(1, Some((&host, &chain))).await;
    let mut waiting = rebooted.attach(Host::hello("boot-2")).await.unwrap();
    let ended = waiting.message().await.unwrap_err();
    assert_eq!((ended.code(), refusal(&ended)), (tonic::Code::Unavailable, None), "{ended:?}");
    assert_eq!(world.spent().await.writes, 0, "neither a mark nor a session");
    world.lives.lock().unwrap().insert("coordinator-0".into(), ReplicaLife::Dead);
    let (_other, _moved) = attach_to(&world, 1, (&host, &chain), "boot-2").await;
    world.expect_nothing("machineinventory/m-a").await;
}

// Fault: the watch of MachineInventories is silent while a host comes and goes.
// Shown: nothing: the end of the session is read and written at the API server.
#[tokio::test]
async fn session_ends_beside_a_silent_watch() {
    let timing = SessionTiming { end_delay: short().end_delay, ..Default::default() };
    let world = World::with_replicas(2, timing).await;
    let (host, chain) = installed(&world).await;
    world.settled("m-a").await;
    let watches = Matching::any().user("watcher-of-coordinator-0").resource("machineinventories");
    world.fake.faults().end_watches(&watches, End::Silent);
    let mut link = world.connect(Some((&host, &chain))).await;
    let stream = link.attach(Host::hello("boot-1")).await.unwrap();
    world.until(|| session(&world)["bootId"] == "boot-1").await;
    drop((link, stream));
    world.until(|| session(&world)["ended"].is_string()).await;
    let mut link = world.connect_to(1, Some((&host, &chain))).await;
    let _stream = link.attach(Host::hello("boot-2")).await.unwrap();
    world.until(|| session(&world)["bootId"] == "boot-2").await;
    world.expect_nothing("machineinventory/m-a").await;
}

// Fault: the watch of MachineInventories is silent while a host gets a duty for a load balancer and reports it.
// Shown: nothing: the duty is read at the API server, and the report is written.
#[tokio::test]
async fn duty_is_reported_beside_a_silent_watch() {
    let world = World::start().await;
    let (_host, _chain, link, _stream) = attached(&world).await;
    world.settled("m-a").await;
    let watches = Matching::any().user("watcher-of-coordinator-0").resource("machineinventories");
    world.fake.faults().end_watches(&watches, End::Silent);
    world.fake.edit((INVENTORIES, "fleet", "m-a"), |inventory| {
        inventory["status"]["host"]["loadBalancer"] =
            json!({ "duty": { "generation": 1, "port": 6443, "vrid": 51, "position": 0 } });
    });
    let state = wire::LoadBalancerState { generation: 1, is_holder: true, ..Default::default() };
    link.send(wire::host_message::Message::LoadBalancer(state)).await;
    world
        .until(|| {
            let host = world.inventory("m-a").unwrap()["status"]["host"].take();
            host["loadBalancer"]["state"]["isHolder"] == true
        })
        .await;
    world.expect_nothing("machineinventory/m-a").await;
}

// Fault: the end of a session was not recorded.
// Shown: nothing: the session ends at the next event of its inventory.
#[tokio::test]
async fn open_session_without_stream_ends() {
    let timing = SessionTiming { end_delay: short().end_delay, ..Default::default() };
    let world = World::with_replicas(1, timing).await;
    let (_host, _chain, link, stream) = attached(&world).await;
    drop((link, stream));
    world.until(|| session(&world)["ended"].is_string()).await;
    world.spent().await;
    world.fake.edit((INVENTORIES, "fleet", "m-a"), |inventory| {
        inventory["status"]["host"]["session"]["ended"].take();
    });
    world.until(|| session(&world)["ended"].is_string()).await;
    let spent = world.spent().await;
    assert_eq!(requests(&spent), (1, 1), "the cache shows the session: {spent}");
    world.expect_nothing("machineinventory/m-a").await;
}

#[tokio::test]
async fn recreated_inventory_gets_its_facts_back() {
    let world = World::start().await;
    let (host, chain, _link, mut stream) = attached(&world).await;
    let before = world.inventory("m-a").unwrap();
    world.recreate("m-a").await;
    let ended = stream.message().await.unwrap_err();
    assert_eq!(ended.code(), tonic::Code::Aborted, "the host reports its node again: {ended:?}");
    let (_link, _stream) = attach_to(&world, 0, (&host, &chain), "boot-1").await;
    let after = world.inventory("m-a").unwrap();
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_eq!(condition(&after, "Ready"), pair("True", "PlanSuccessfullyApplied"));
    assert_eq!(after["status"]["host"]["carried"], before["status"]["host"]["carried"]);
}

// Fault: a MachineInventory is deleted while its host is attached.
// Shown: host console: `InventoryGone`, after a grace.
#[tokio::test]
async fn deleted_inventory_ends_the_stream_late() {
    let timing = SessionTiming { deletion_grace: short().deletion_grace, ..Default::default() };
    let world = World::with_replicas(1, timing).await;
    let (_host, _chain, _link, mut stream) = attached(&world).await;
    world.fake.take_out(INVENTORIES, "fleet", "m-a");
    assert_refused(&mut stream, Refusal::InventoryGone).await;
}

#[tokio::test]
async fn session_end_is_written_once() {
    let timing = SessionTiming { end_delay: short().end_delay, ..Default::default() };
    let world = World::with_replicas(1, timing).await;
    let (host, chain, link, stream) = attached(&world).await;
    world.spent().await;
    drop((link, stream));
    world.until(|| session(&world)["ended"].is_string()).await;
    assert_eq!(world.spent().await.writes, 1);
    assert_eq!(session(&world)["bootId"], "boot-1");
    world.settled("m-a").await;
    let (_link, _stream) = attach_to(&world, 0, (&host, &chain), "boot-2").await;
    assert_eq!(world.spent().await.writes, 1, "the next session");
}

// Fault: the API server is away when a host is lost.
// Shown: nothing: the end of the session is written later.
#[tokio::test]
async fn session_end_is_retried_until_recorded() {
    let timing = SessionTiming { end_delay: short().end_delay, ..Default::default() };
    let world = World::with_replicas(1, timing).await;
    let (_host, _chain, link, stream) = attached(&world).await;
    let writes = Matching::writes().resource("machineinventories").user("coordinator-0");
    let fault = world.fake.faults().fail(writes, 2, Fault::Internal);
    drop((link, stream));
    world.until(|| session(&world)["ended"].is_string()).await;
    assert_eq!(fault.times_met(), 2);
    world.until(|| world.context().sessions.pending_ends() == 0).await;
    world.expect_nothing("machineinventory/m-a").await;
}

#[tokio::test]
async fn failed_attach_ends_the_session_before() {
    // Longer than an attach takes on a busy machine, which is to meet the fault.
    let timing = SessionTiming { end_delay: Duration::from_secs(5), ..Default::default() };
    let world = World::with_replicas(1, timing).await;
    let (host, chain, link, stream) = attached(&world).await;
    let mut other = world.connect(Some((&host, &chain))).await;
    let writes = Matching::writes().resource("machineinventories").user("coordinator-0");
    let fault = world.fake.faults().fail(writes, 1, Fault::Internal);
    drop((link, stream));
    world.until(|| world.context().sessions.pending_ends() == 1).await;
    let mut refused = other.attach(Host::hello("boot-2")).await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(30), refused.message()).await;
    assert!(answer.unwrap().is_err(), "the fault met another write");
    assert!(fault.is_met());
    world.until(|| session(&world)["ended"].is_string()).await;
    assert_eq!(session(&world)["bootId"], "boot-1");
}

#[tokio::test]
async fn returning_host_has_no_session_end() {
    let world = World::start().await;
    let (host, chain, link, stream) = attached(&world).await;
    let sessions = &world.context().sessions;
    world.spent().await;
    drop((link, stream));
    world.until(|| sessions.pending_ends() == 1).await;
    let (_link, _stream) = attach_to(&world, 0, (&host, &chain), "boot-1").await;
    world.until(|| sessions.pending_ends() == 0 && sessions.contains_host(&host.host_key())).await;
    assert_eq!(world.spent().await.writes, 0);
}

// Fault: the certificate of an attached host expires.
// Shown: nothing: the host renews it and attaches again.
#[tokio::test]
async fn expired_certificate_ends_the_stream() {
    let world = World::start().await;
    let (host, chain) = installed(&world).await;
    let not_after = Host::peer(&chain).not_after;
    let freeze = |time: jiff::Timestamp| *world.frozen.lock().unwrap() = Some(time);
    freeze(not_after - Duration::from_millis(300));
    let mut link = world.connect(Some((&host, &chain))).await;
    let mut stream = link.attach(Host::hello("boot-1")).await.unwrap();
    let ended = stream.message().await.unwrap_err();
    assert_eq!(ended.code(), tonic::Code::Unauthenticated, "{ended:?}");
    assert_eq!(session(&world)["bootId"], "boot-1", "it was attached before");
    freeze(not_after);
    let refused = link.report_observed(Host::network("192.0.2.1/24")).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated, "a call on the open connection");
    expect_console(&refused, "the client certificate has expired");
}

#[tokio::test]
async fn shutdown_ends_the_streams() {
    let world = World::start().await;
    let (_host, _chain, _link, mut stream) = attached(&world).await;
    world.context().sessions.close_all();
    assert_eq!(stream.message().await.unwrap_err().code(), tonic::Code::Unavailable);
}

// Fault: a host attaches without naming its boot.
// Shown: host console: `BadRequest`.
#[tokio::test]
async fn hello_that_cannot_be_read_is_refused() {
    let world = World::start().await;
    let (host, chain) = installed(&world).await;
    let mut silent = Host::hello("boot-1");
    silent.carried = None;
    let mut odd = Host::hello("boot-1");
    odd.carried.as_mut().unwrap().plan = Some(wire::CarriedPlan::default());
    let boots = ["", &"x".repeat(65), "boot 1", "boot\u{7f}1", "b\u{f6}ot-1"].map(Host::hello);
    for hello in boots.into_iter().chain([silent, odd]) {
        let mut link = world.connect(Some((&host, &chain))).await;
        let mut stream = link.attach(hello).await.unwrap();
        assert_refused(&mut stream, Refusal::BadRequest).await;
    }
    assert_eq!(world.spent().await.writes, 0);
}
