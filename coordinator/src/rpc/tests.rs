//! The whole port over loopback TLS, against an in-memory API.

mod world;

use std::time::Duration;

use coordinator_core::plan::{self, Clean, Job};
use fake_apiserver::{Counts, Matching, Refusal as Fault, Verb};
use proto::plan::Generation;
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use serde_json::{Value, json};
use world::{Host, Link, World, refusal};

use super::presence::Presence;
use crate::ca::{Authority, Role};

const PLAN_KEY: &str = "plan";

fn condition(inventory: &Value, kind: &str) -> (String, String) {
    let conditions = inventory["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default();
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.into(), reason.into())
}

fn requests(counts: &Counts) -> (usize, usize) {
    (counts.requests, counts.writes)
}

#[tokio::test]
async fn a_new_host_costs_three_writes_and_a_known_one_a_look_at_its_secret() {
    let world = World::start().await;
    let host = Host::new("a");
    let mut link = world.connect(None).await;
    let first = link.register(&host, "token").await.unwrap();
    let counts = world.spent();
    assert_eq!(requests(&counts), (3, 3), "{counts}");
    assert_eq!(counts.on(Verb::List, "machineinventories"), 0);
    let inventory = world.inventory("m-a").unwrap();
    assert_eq!(inventory["spec"]["tpmHash"], host.hash());
    assert_eq!(inventory["metadata"]["labels"]["elemental.cattle.io/managed"], "true");
    assert_eq!(inventory["metadata"]["labels"]["site"], "a");
    assert_eq!(inventory["status"]["plan"]["secretRef"]["name"], "m-a");
    assert_eq!(condition(&inventory, "Installed"), pair("False", "Installing"));
    let secret = world.secret("m-a").unwrap();
    assert_eq!(secret["type"], "elemental.cattle.io/plan");
    assert_eq!(secret["data"][PLAN_KEY], "e30=");
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], first.inventory_uid.as_str());
    assert!(matches!(first.next, Some(wire::complete_response::Next::Install(_))));
    world.settled("m-a").await;

    let again = world.connect(None).await.register(&host, "token").await.unwrap();
    assert_eq!(again.inventory_uid, first.inventory_uid);
    assert_eq!(requests(&world.spent()), (1, 0), "{}", world.spent());
}

#[tokio::test]
async fn what_a_crash_left_undone_is_done_by_the_next_call() {
    for (name, broken) in [
        ("no Secret", Matching::writes().resource("secrets")),
        ("no status", Matching::writes().resource("machineinventories").subresource("status")),
    ] {
        let world = World::start().await;
        let host = Host::new("a");
        world.fake.faults().fail(broken.user("coordinator"), 1, Fault::Internal);
        let failed = world.connect(None).await.register(&host, "token").await.unwrap_err();
        assert_eq!(failed.code(), tonic::Code::Unavailable, "{name}");
        let done = world.connect(None).await.register(&host, "token").await.unwrap();
        assert_eq!(done.inventory_name, "m-a", "{name}");
        let inventory = world.inventory("m-a").unwrap();
        assert_eq!(inventory["status"]["plan"]["secretRef"]["name"], "m-a", "{name}");
        assert!(world.secret("m-a").is_some(), "{name}");
    }
}

#[tokio::test]
async fn a_proof_counts_once_and_on_its_own_connection_only() {
    let world = World::start().await;
    let host = Host::new("a");
    let (mut one, mut other) = (world.connect(None).await, world.connect(None).await);
    let nonce = one.begin(&host, "token").await.unwrap();
    let stolen = host.complete(&nonce, &one.exporter);
    other.begin(&host, "token").await.unwrap();
    let relayed = other.complete(stolen.clone()).await.unwrap_err();
    assert_eq!(refusal(&relayed), Some(Refusal::BadProof), "another session");
    one.complete(stolen.clone()).await.unwrap();
    let second = one.complete(stolen).await.unwrap_err();
    assert_eq!(refusal(&second), Some(Refusal::BadProof), "a second time");
    let nonce = one.begin(&host, "token").await.unwrap();
    let foreign = Host::new("b").complete(&nonce, &one.exporter);
    let forged = one.complete(foreign).await.unwrap_err();
    assert_eq!(refusal(&forged), Some(Refusal::BadProof), "another key");
}

#[tokio::test]
async fn a_stranger_costs_no_request_at_all() {
    let world = World::start().await;
    let host = Host::new("a");
    for (token, want) in [
        ("unknown", Refusal::UnknownToken),
        ("", Refusal::UnknownToken),
        ("token-not-ready", Refusal::UnknownToken),
    ] {
        let refused = world.connect(None).await.register(&host, token).await.unwrap_err();
        assert_eq!(refusal(&refused), Some(want), "{token:?}");
    }
    assert_eq!(requests(&world.spent()), (0, 0), "{}", world.spent());
}

#[tokio::test]
async fn what_a_person_cures_at_the_registration_is_told_there_once() {
    for (token, want) in [("token", Refusal::BadTemplate), ("token-tpm-only", Refusal::TpmRequired)] {
        let world = World::start().await;
        for _ in 0..3 {
            // Each time another key: what is told is the registration's affair.
            let refused = world.connect(None).await.register(&Host::new(""), token).await.unwrap_err();
            assert_eq!(refusal(&refused), Some(want));
        }
        let counts = world.spent();
        assert_eq!((requests(&counts), counts.on(Verb::Create, "events")), ((1, 1), 1), "{want:?}: {counts}");
        let events = world.fake.look_at_all("events.events.k8s.io");
        let note = events[0]["note"].as_str().unwrap();
        assert_eq!(events[0]["reason"], want.code());
        assert_eq!(
            (&events[0]["regarding"]["name"], note.contains(want.next_action())),
            (&json!(token), true)
        );
    }
}

#[tokio::test]
async fn a_name_stays_with_the_key_that_took_it() {
    let world = World::start().await;
    world.connect(None).await.register(&Host::new("a"), "token").await.unwrap();
    for (name, settled) in [("before the watch has seen it", false), ("after", true)] {
        if settled {
            world.settled("m-a").await;
        }
        let refused = world.connect(None).await.register(&Host::new("a"), "token").await.unwrap_err();
        assert_eq!(refusal(&refused), Some(Refusal::NameTaken), "{name}");
    }
}

#[tokio::test]
async fn nobody_talks_to_a_coordinator_that_is_not_theirs() {
    let world = World::start().await;
    let other = Authority::generate(jiff::Timestamp::now()).unwrap();
    let host = Host::new("a");
    assert!(world.try_connect(&other, None).await.is_err(), "another authority");
    world.until(|| world.metrics().contains("refusals_total{reason=\"UnknownAuthority\"} 1")).await;
    let chain = host.certificate(&other, Role::Installed, "uid");
    let refused = match world.try_connect(&world.authority, Some((&host, &chain))).await {
        // TLS 1.3 tells the client of a refused certificate after its handshake.
        Ok(mut link) => link.report_install(Host::started()).await.is_err(),
        Err(_) => true,
    };
    assert!(refused, "a certificate of another authority");
    world.until(|| world.metrics().contains("refusals_total{reason=\"UnknownAuthority\"} 2")).await;
}

#[tokio::test]
async fn a_live_system_gets_no_plans_and_a_stranger_nothing() {
    let world = World::start().await;
    let host = Host::new("a");
    let done = world.connect(None).await.register(&host, "token").await.unwrap();
    let mut nobody = world.connect(None).await;
    let refused = nobody.report_install(Host::started()).await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::RoleNotAllowed));
    let mut live = world.connect(Some((&host, &done.certificate_chain))).await;
    let refused = live.attach(Host::hello("boot-1", 0)).await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::RoleNotAllowed));
    let refused = live.report_step(wire::StepReport::default()).await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::RoleNotAllowed));
    let chain = live.renew(&host).await.unwrap();
    assert_eq!(Host::role(&chain), Role::Live, "nothing is installed yet");
    let other = live.renew(&Host::new("b")).await.unwrap_err();
    assert_eq!(refusal(&other), Some(Refusal::BadRequest), "for another key");
    live.report_install(Host::started()).await.unwrap();
    live.report_install(Host::installed()).await.unwrap();
    world.settled("m-a").await;
    let chain = live.renew(&host).await.unwrap();
    assert_eq!(Host::role(&chain), Role::Installed);
}

/// A host that is installed and attached, and its open stream.
async fn attached(world: &World) -> (Host, Link, tonic::Streaming<wire::CoordinatorMessage>) {
    let host = Host::new("a");
    let done = world.connect(None).await.register(&host, "token").await.unwrap();
    let chain = host.certificate(&world.authority, Role::Installed, &done.inventory_uid);
    world.settled("m-a").await;
    world.spent();
    let mut link = world.connect(Some((&host, &chain))).await;
    let stream = link.attach(Host::hello("boot-1", 0)).await.unwrap();
    world.until(|| world.context.presence.count() == 1).await;
    world.until(|| condition(&world.inventory("m-a").unwrap(), "Ready").0 == "True").await;
    world.settled("m-a").await;
    (host, link, stream)
}

#[tokio::test]
async fn the_first_attach_makes_a_host_ready_and_the_next_one_writes_nothing() {
    let world = World::start().await;
    let (host, link, stream) = attached(&world).await;
    assert_eq!(requests(&world.spent()), (1, 1), "{}", world.spent());
    let inventory = world.inventory("m-a").unwrap();
    assert_eq!(condition(&inventory, "Ready"), pair("True", "PlanSuccessfullyApplied"));
    assert_eq!(condition(&inventory, "Installed"), pair("True", "InstallDone"));
    assert_eq!(inventory["status"]["host"]["bootId"], "boot-1");
    let uid = inventory["metadata"]["uid"].as_str().unwrap().to_owned();
    drop((link, stream));
    world.until(|| world.context.presence.count() == 0).await;
    let chain = host.certificate(&world.authority, Role::Installed, &uid);
    let mut link = world.connect(Some((&host, &chain))).await;
    let _stream = link.attach(Host::hello("boot-1", 0)).await.unwrap();
    world.until(|| world.context.presence.count() == 1).await;
    let back = world.connect(None).await.register(&host, "token").await.unwrap();
    assert!(matches!(back.next, Some(wire::complete_response::Next::BootDisk(_))));
    assert_eq!(requests(&world.spent()), (1, 0), "{}", world.spent());
}

fn clean(generation: u64) -> plan::Stored {
    plan::write(&Job::Clean(Clean { network_config: None }), Generation(generation), "owner").unwrap()
}

fn done(plan: &wire::Plan, step: usize) -> wire::StepReport {
    let done = wire::StepDone { output: format!("output {step}"), system: None };
    wire::StepReport {
        plan_id: plan.id.clone(),
        generation: plan.generation,
        step: u32::try_from(step).unwrap(),
        outcome: Some(wire::step_report::Outcome::Done(done)),
    }
}

async fn next_plan(stream: &mut tonic::Streaming<wire::CoordinatorMessage>) -> wire::Plan {
    let message = stream.message().await.unwrap().unwrap();
    let Some(wire::coordinator_message::Message::Plan(plan)) = message.message else {
        panic!("not a plan: {message:?}");
    };
    plan
}

#[tokio::test]
async fn a_plan_is_streamed_when_it_is_announced_and_its_end_costs_two_writes() {
    let world = World::start().await;
    let (_host, mut link, mut stream) = attached(&world).await;
    let stored = clean(1);
    world.announce("m-a", &stored);
    let plan = next_plan(&mut stream).await;
    assert_eq!((plan.id.as_str(), plan.generation), (stored.plan.id.as_str(), 1));
    world.settled("m-a").await;
    world.spent();
    let last = plan.steps.len() - 1;
    for step in 0..last {
        link.report_step(done(&plan, step)).await.unwrap();
    }
    assert_eq!(requests(&world.spent()), (0, 0), "progress is not written");
    link.report_step(done(&plan, last)).await.unwrap();
    let counts = world.spent();
    assert_eq!(requests(&counts), (2, 2), "{counts}");
    let inventory = world.inventory("m-a").unwrap();
    assert_eq!(inventory["status"]["plan"]["state"], "Applied");
    assert_eq!(inventory["status"]["plan"]["checksum"], stored.checksum.as_str());
    assert_eq!(condition(&inventory, "Ready"), pair("True", "PlanSuccessfullyApplied"));
    let secret = world.secret("m-a").unwrap();
    let text = |key: &str| world::decode(&secret["data"][key]);
    assert_eq!(text("applied-checksum"), stored.checksum.as_bytes());
    assert_eq!((text("failure-count"), text("success-count")), (b"0".to_vec(), b"1".to_vec()));
    world.settled("m-a").await;
    link.report_step(done(&plan, last)).await.unwrap();
    assert_eq!(requests(&world.spent()), (0, 0), "told twice");
}

#[tokio::test]
async fn a_report_that_is_not_about_the_newest_plan_changes_nothing() {
    let world = World::start().await;
    let (_host, mut link, mut stream) = attached(&world).await;
    world.announce("m-a", &clean(1));
    let old = next_plan(&mut stream).await;
    world.announce("m-a", &clean(2));
    let new = next_plan(&mut stream).await;
    assert_eq!((old.generation, new.generation), (1, 2));
    let writes = world.spent().writes;
    let foreign = wire::StepReport { plan_id: "clean-0000000000000000".into(), ..done(&new, 0) };
    for (name, report) in [("older", done(&old, old.steps.len() - 1)), ("foreign", foreign)] {
        let refused = link.report_step(report).await.unwrap_err();
        assert_eq!(refusal(&refused), Some(Refusal::StalePlan), "{name}");
    }
    assert_eq!(world.spent().writes, 0, "{writes}");
}

#[tokio::test]
async fn a_failed_step_ends_the_plan_with_its_message() {
    let world = World::start().await;
    let (_host, mut link, mut stream) = attached(&world).await;
    let stored = clean(1);
    world.announce("m-a", &stored);
    let plan = next_plan(&mut stream).await;
    let failed = wire::StepFailed { message: "containerd does not answer".into(), ..Default::default() };
    let report =
        wire::StepReport { outcome: Some(wire::step_report::Outcome::Failed(failed)), ..done(&plan, 1) };
    link.report_step(report).await.unwrap();
    let inventory = world.inventory("m-a").unwrap();
    assert_eq!(inventory["status"]["plan"]["state"], "Failed");
    let message = inventory["status"]["plan"]["message"].as_str().unwrap();
    assert!(message.contains("containerd does not answer"), "{message}");
    assert_eq!(condition(&inventory, "Ready"), pair("False", "PlanFailure"));
    let secret = world.secret("m-a").unwrap();
    assert_eq!(world::decode(&secret["data"]["failed-checksum"]), stored.checksum.as_bytes());
    assert_eq!(world::decode(&secret["data"]["failure-count"]), b"1");
}

#[tokio::test]
async fn a_garbled_plan_is_a_condition_and_its_cure_is_noticed() {
    let world = World::start().await;
    let (_host, _link, mut stream) = attached(&world).await;
    let stored = clean(1);
    let bytes = stored.bytes.expose().to_vec();
    world.write_secret("m-a", b"{ not json");
    world.announce_status("m-a", &stored);
    world.until(|| condition(&world.inventory("m-a").unwrap(), "Ready").1 == "PlanSecretInvalid").await;
    world.write_secret("m-a", &bytes);
    assert_eq!(next_plan(&mut stream).await.generation, 1, "the Secret is read again");
    world.until(|| condition(&world.inventory("m-a").unwrap(), "Ready").1 == "WaitingForPlan").await;
}

#[tokio::test]
async fn a_quarantined_host_and_one_without_inventory_are_turned_away() {
    let world = World::start().await;
    let (host, _link, mut stream) = attached(&world).await;
    let key = ("machineinventories.elemental.cattle.io", "fleet", "m-a");
    world.fake.edit(key, |inventory| {
        inventory["metadata"]["annotations"] = json!({ "baremetal.cluster.io/quarantined": "boot-1 boot-2" });
    });
    let ended = stream.message().await.unwrap_err();
    assert_eq!(refusal(&ended), Some(Refusal::Quarantined));
    let refused = world.connect(None).await.register(&host, "token").await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::Quarantined));
    let chain = host.certificate(&world.authority, Role::Installed, "another uid");
    let mut link = world.connect(Some((&host, &chain))).await;
    let mut stream = link.attach(Host::hello("boot-1", 0)).await.unwrap();
    let refused = stream.message().await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::InventoryGone));
}

#[tokio::test]
async fn a_host_that_nobody_saw_leave_is_shown_as_away_and_comes_back() {
    let world = World::start().await;
    let (host, link, stream) = attached(&world).await;
    super::host::sweep(&world.context).await;
    let inventory = world.inventory("m-a").unwrap();
    assert_eq!(condition(&inventory, "Ready").0, "True", "it has a stream");
    drop((link, stream));
    world.until(|| world.context.presence.count() == 0).await;
    super::host::sweep(&world.context).await;
    let inventory = world.inventory("m-a").unwrap();
    assert_eq!(condition(&inventory, "Ready"), pair("Unknown", "HostUnreachable"));
    let uid = inventory["metadata"]["uid"].as_str().unwrap().to_owned();
    let chain = host.certificate(&world.authority, Role::Installed, &uid);
    let mut link = world.connect(Some((&host, &chain))).await;
    let _stream = link.attach(Host::hello("boot-1", 0)).await.unwrap();
    world.until(|| condition(&world.inventory("m-a").unwrap(), "Ready").0 == "True").await;
}

#[tokio::test]
async fn a_changed_network_is_drift_and_the_same_one_is_no_write() {
    let world = World::start().await;
    let (_host, mut link, _stream) = attached(&world).await;
    world.spent();
    for (name, network, truth, writes) in [
        ("as registered", Host::network("192.0.2.1/24"), "False", 1),
        ("again", Host::network("192.0.2.1/24"), "False", 0),
        ("another address", Host::network("192.0.2.9/24"), "True", 1),
    ] {
        link.report_observed(network).await.unwrap();
        let inventory = world.inventory("m-a").unwrap();
        assert_eq!(condition(&inventory, "NetworkDrift").0, truth, "{name}");
        let intended = &inventory["spec"]["observedNetwork"]["interfaces"][0]["addresses"];
        assert_eq!(intended, &json!(["192.0.2.1/24"]), "{name}: the intention stays");
        world.settled("m-a").await;
        assert_eq!(world.spent().writes, writes, "{name}");
    }
}

#[tokio::test]
async fn of_two_living_systems_with_one_identity_neither_gets_a_plan() {
    let world = World::with_presence(Presence::with_probe(Duration::from_millis(50))).await;
    let (host, _link, mut stream) = attached(&world).await;
    let inventory = world.inventory("m-a").unwrap();
    let uid = inventory["metadata"]["uid"].as_str().unwrap();
    let chain = host.certificate(&world.authority, Role::Installed, uid);
    world.spent();
    let mut copy = world.connect(Some((&host, &chain))).await;
    let mut other = copy.attach(Host::hello("boot-2", 0)).await.unwrap();
    for (name, stream) in [("the second", &mut other), ("the first", &mut stream)] {
        let ended = stream.message().await.unwrap_err();
        assert_eq!(refusal(&ended), Some(Refusal::Quarantined), "{name}");
    }
    let counts = world.spent();
    assert_eq!(counts.writes, 2, "{counts}");
    let inventory = world.inventory("m-a").unwrap();
    let mark = &inventory["metadata"]["annotations"]["baremetal.cluster.io/quarantined"];
    assert_eq!(mark, "boot-1 boot-2");
    assert_eq!(condition(&inventory, "Ready"), pair("False", "DuplicateIdentity"));
}

#[tokio::test]
async fn a_reboot_takes_the_seat_of_its_dead_stream() {
    let world = World::start().await;
    let (host, link, stream) = attached(&world).await;
    let inventory = world.inventory("m-a").unwrap();
    let uid = inventory["metadata"]["uid"].as_str().unwrap();
    let chain = host.certificate(&world.authority, Role::Installed, uid);
    let mut rebooted = world.connect(Some((&host, &chain))).await;
    let _stream = rebooted.attach(Host::hello("boot-2", 0)).await.unwrap();
    assert_eq!(world.inventory("m-a").unwrap()["status"]["host"]["bootId"], "boot-1", "it waits");
    drop((link, stream));
    world.until(|| world.inventory("m-a").unwrap()["status"]["host"]["bootId"] == "boot-2").await;
    assert_eq!(condition(&world.inventory("m-a").unwrap(), "Ready").0, "True");
}

#[tokio::test]
async fn hosts_are_told_when_a_replica_goes_away() {
    let world = World::start().await;
    let (_host, _link, mut stream) = attached(&world).await;
    world.context.presence.close();
    assert_eq!(stream.message().await.unwrap_err().code(), tonic::Code::Unavailable);
}

#[tokio::test]
async fn two_replicas_that_start_at_once_have_one_authority() {
    let fake = fake_apiserver::FakeApi::new();
    let secrets = |user: &str| kube::Api::namespaced(fake.client(user), "system");
    let (one, other) = (secrets("one"), secrets("other"));
    let now = jiff::Timestamp::now();
    let (one, other) =
        tokio::join!(crate::ca::read_or_create(&one, now), crate::ca::read_or_create(&other, now));
    let third = crate::ca::read_or_create(&secrets("third"), now).await.unwrap();
    assert_eq!(one.unwrap().certificate(), third.certificate());
    assert_eq!(other.unwrap().certificate(), third.certificate());
    assert_eq!(fake.journal().counts().on(Verb::List, "secrets"), 0);
}
