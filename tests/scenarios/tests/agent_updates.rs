//! Another agent for a host, over its stream.

use std::time::Duration;

use agent::ground::version::own_version;
use agent::update::keys;
use agent::update::record::Record;
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::AgentUpdateState;
use coordinator_api::names::annotation;
use proto::agent_mark::AgentMark;
use proto::proof;
use proto::update_keys::{ReleaseSignature, UpdateKeys};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use scenarios::World;
use serde_json::{Value, json};
use simulated_host::{Behaviour, Program};

async fn ask(world: &World, host: &str, version: Value) {
    let asked = json!({ "metadata": { "annotations": { annotation::AGENT_VERSION: version } } });
    world.patch("MachineInventory", host, asked).await;
}

fn shows(world: &World, host: &str, reason: Reason) -> bool {
    let shown = world.host_condition(host, Type::AgentUpdated);
    shown.is_some_and(|shown| shown.reason == reason.as_str())
}

fn runs(world: &World, host: &str) -> String {
    world.inventory(host).unwrap().status.unwrap().host.unwrap().agent_version
}

async fn wait_updated(world: &World, host: &str, version: &str) {
    world
        .wait_until(&format!("{host} runs agent {version}"), |world| {
            runs(world, host) == version && shows(world, host, Reason::AgentAsWanted)
        })
        .await;
}

fn effects(world: &World) -> Vec<String> {
    world.host("host-1").system().effects()
}

#[tokio::test(start_paused = true)]
async fn host_runs_other_agent_on_operator_request() {
    let mut world = World::with_hosts(&["host-1", "host-2"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.serve_agent(&Program::file("0.2.0", Behaviour::Works));
    world.wait_idle().await;
    let own = own_version().to_string();
    assert_eq!((runs(&world, "host-1"), runs(&world, "host-2")), (own.clone(), own.clone()), "unasked");
    let before = effects(&world);
    ask(&world, "host-1", json!("0.2.0")).await;
    wait_updated(&world, "host-1", "0.2.0").await;
    world
        .wait_until("it is kept", |world| {
            let record = Record::read(&world.host("host-1").disk().state()).unwrap();
            record.kept.is_some_and(|kept| kept.version.to_string() == "0.2.0") && record.trial.is_none()
        })
        .await;
    assert_eq!(effects(&world), before, "no step of a plan ran again");
    world.host_mut("host-1").power_off();
    world.host_mut("host-1").power_on();
    world.wait_idle().await;
    wait_updated(&world, "host-1", "0.2.0").await;
    assert_eq!(runs(&world, "host-2"), own);
    ask(&world, "host-1", Value::Null).await;
    world
        .wait_until("the condition ends", |world| {
            world.host_condition("host-1", Type::AgentUpdated).is_none()
        })
        .await;
    assert_eq!(runs(&world, "host-1"), "0.2.0", "what was kept stays");
    world.wait_running("m-1").await;
    world.check_invariants().await;
}

// Fault: the agent that a host is sent ends at once, or does not reach the coordinator.
// Shown: condition `AgentUpdated`: `AgentUpdateFailed`, and an Event; the former agent runs, and tries it no more.
#[tokio::test(start_paused = true)]
async fn agent_failing_to_attach_is_given_up() {
    for (behaviour, why) in
        [(Behaviour::Crashes, "started 3 times"), (Behaviour::Deaf, "did not attach for 5 minutes")]
    {
        let mut world = World::with_hosts(&["host-1"]).await;
        world.serve_agent(&Program::file("0.2.0", behaviour));
        ask(&world, "host-1", json!("0.2.0")).await;
        world.wait_until("it has failed", |world| shows(world, "host-1", Reason::AgentUpdateFailed)).await;
        let message = world.host_condition("host-1", Type::AgentUpdated).unwrap().message;
        assert!(message.contains(why) && message.contains("; next: "), "{message}");
        world.expect_why("machineinventory/host-1", Reason::AgentUpdateFailed, why, "ask again").await;
        world.expect_event("MachineInventory", "host-1", "AgentUpdateFailed", &message);
        assert_eq!(runs(&world, "host-1"), own_version().to_string());
        world.wait_idle().await;
        let mark = world.fake.journal().mark();
        world.advance_time(Duration::from_hours(1)).await;
        assert!(world.requests_since(mark).is_empty(), "it is not tried again");
        world.restart_coordinator();
        world.wait_idle().await;
        assert!(shows(&world, "host-1", Reason::AgentUpdateFailed), "the host remembers it");

        world.serve_agent(&Program::file("0.2.0", Behaviour::Works));
        ask(&world, "host-1", Value::Null).await;
        world.wait_idle().await;
        ask(&world, "host-1", json!("0.2.0")).await;
        wait_updated(&world, "host-1", "0.2.0").await;
        world.apply_machine("m-1").await;
        world.wait_running("m-1").await;
        world.check_invariants().await;
    }
}

/// Signs an agent as `make image` does; hosts trust `next` from it on.
fn sign_release(file: &[u8], signer: &Ed25519KeyPair, next: &UpdateKeys) -> ReleaseSignature {
    let AgentMark { version, architecture } = AgentMark::find(file).unwrap();
    let size = file.len() as u64;
    let statement = proof::release(&version, &architecture, size, &proof::identity(file), next);
    ReleaseSignature { keys: next.clone(), signature: signer.sign(&statement).as_ref().to_vec() }
}

// Fault: the coordinator of hosts that have a key for updates serves an agent without its signature, or signed by another key.
// Shown: condition `AgentUpdated`: `AgentUpdateFailed`, and an Event; the former agent runs, and a host without keys takes the agent.
#[tokio::test(start_paused = true)]
async fn key_for_updates_outranks_the_authority() {
    let [own, next, other] = [1, 2, 3].map(|seed| Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap());
    let keys_of =
        |signer: &Ed25519KeyPair| UpdateKeys::parse(&[signer.public_key().as_ref().to_vec()]).unwrap();
    let mut world = World::with_hosts(&["host-1", "host-2"]).await;
    keys::write(&world.host("host-1").disk().state(), &keys_of(&own)).unwrap();
    let kept = |world: &World, host: &str| keys::read(&world.host(host).disk().state()).unwrap();
    let file = Program::file("0.2.0", Behaviour::Works);
    world.serve_agent(&file);
    for host in ["host-1", "host-2"] {
        ask(&world, host, json!("0.2.0")).await;
    }
    wait_updated(&world, "host-2", "0.2.0").await;
    assert_eq!(kept(&world, "host-2"), None, "nothing brought it keys");
    let why = "no signature by a key for updates, which this host demands; next: run a coordinator whose image was built with AGENT_UPDATE_KEY";
    world.wait_until("it is refused", |world| shows(world, "host-1", Reason::AgentUpdateFailed)).await;
    world.expect_why("machineinventory/host-1", Reason::AgentUpdateFailed, why, "ask again").await;
    world.expect_event("MachineInventory", "host-1", "AgentUpdateFailed", why);

    ask(&world, "host-1", Value::Null).await;
    world.wait_idle().await;
    world.serve_signed_agent(&file, &sign_release(&file, &other, &keys_of(&other)));
    ask(&world, "host-1", json!("0.2.0")).await;
    // The failure before it is shown until the host has compared this one.
    let untrusted = |world: &World| {
        let condition = world.host_condition("host-1", Type::AgentUpdated);
        condition.is_some_and(|found| found.message.contains("of no key for updates that this host trusts"))
    };
    world.wait_until("the signature of another key is refused", untrusted).await;
    assert_eq!(runs(&world, "host-1"), own_version().to_string());

    ask(&world, "host-1", Value::Null).await;
    world.wait_idle().await;
    world.serve_signed_agent(&file, &sign_release(&file, &own, &keys_of(&next)));
    ask(&world, "host-1", json!("0.2.0")).await;
    wait_updated(&world, "host-1", "0.2.0").await;
    let follows = |world: &World| kept(world, "host-1") == Some(keys_of(&next));
    world.wait_until("the next key is trusted", follows).await;
    let newer = Program::file("0.3.0", Behaviour::Works);
    world.serve_signed_agent(&newer, &sign_release(&newer, &own, &keys_of(&own)));
    ask(&world, "host-1", json!("0.3.0")).await;
    world
        .wait_until("the former key is over", |world| shows(world, "host-1", Reason::AgentUpdateFailed))
        .await;
    world.check_invariants().await;
}

// Fault: another agent is asked for while the host executes a plan.
// Shown: condition `AgentUpdated`: `AgentUpdateWaiting`; the host takes it after the plan, whose steps run once.
#[tokio::test(start_paused = true)]
async fn an_update_waits_for_the_plan() {
    let mut world = World::with_hosts(&["host-1"]).await;
    world.serve_agent(&Program::file("0.2.0", Behaviour::Works));
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    world.apply_machine("m-1").await;
    let is_running = |world: &World| {
        let plan = world.inventory("host-1").unwrap().status.unwrap().plan.unwrap();
        plan.generation == Some(1) && plan.state.is_none()
    };
    world.wait_until("the plan runs", is_running).await;
    ask(&world, "host-1", json!("0.2.0")).await;
    world.wait_until("the update waits", |world| shows(world, "host-1", Reason::AgentUpdateWaiting)).await;
    assert!(is_running(&world), "the plan was not over");
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::PlanRunning,
            "the host executes its",
            "kubectl baremetal logs host-1",
        )
        .await;
    assert_eq!(runs(&world, "host-1"), own_version().to_string());
    world.wait_running("m-1").await;
    wait_updated(&world, "host-1", "0.2.0").await;
    let upgrades = effects(&world).iter().filter(|effect| effect.starts_with("upgrade ")).count();
    assert_eq!(upgrades, 1, "{:?}", effects(&world));
    world.check_invariants().await;
}

// Fault: power is lost at any moment of an update of the agent.
// Shown: the host attaches, by the new agent or by the former one, which takes the new one again.
#[tokio::test(start_paused = true)]
async fn an_update_survives_power_cuts() {
    let mut world = World::with_hosts(&["host-1"]).await;
    for (number, delay) in [0, 50, 100, 150, 200, 300, 400, 800, 1600, 2400, 3200].into_iter().enumerate() {
        let version = format!("0.{}.0", number + 2);
        world.serve_agent(&Program::file(&version, Behaviour::Works));
        world.wait_idle().await;
        ask(&world, "host-1", json!(version)).await;
        world.advance_time(Duration::from_millis(delay)).await;
        world.host("host-1").power_cut();
        wait_updated(&world, "host-1", &version).await;
    }
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.expect_nothing("machineinventory/host-1").await;
    world.check_invariants().await;
}

// Fault: an operator asks for an agent that the coordinator does not serve, then for another one before the first came.
// Shown: condition `AgentUpdated`: `AgentUpdateUnavailable`, with what the coordinator serves; the last request holds.
#[tokio::test(start_paused = true)]
async fn the_last_request_holds() {
    let mut world = World::with_hosts(&["host-1"]).await;
    ask(&world, "host-1", json!("0.2.0")).await;
    world.wait_until("no agent", |world| shows(world, "host-1", Reason::AgentUpdateUnavailable)).await;
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::AgentUpdateUnavailable,
            "serves no agent; next: upgrade the coordinator to 0.2.0, or ask for the version that it serves",
            "upgrade the coordinator or the OS image",
        )
        .await;
    world.serve_agent(&Program::file("0.3.0", Behaviour::Works));
    world
        .wait_until("another agent", |world| {
            let shown = world.host_condition("host-1", Type::AgentUpdated).unwrap();
            shown.message.contains("the coordinator serves agent 0.3.0")
        })
        .await;
    ask(&world, "host-1", json!("0.3.0")).await;
    world.wait_until("it is sent", |world| shows(world, "host-1", Reason::AgentUpdateSent)).await;
    world.serve_agent(&Program::file("0.4.0", Behaviour::Works));
    ask(&world, "host-1", json!("0.4.0")).await;
    wait_updated(&world, "host-1", "0.4.0").await;
    ask(&world, "host-1", json!("0.3.0")).await;
    world.wait_until("no step back", |world| shows(world, "host-1", Reason::AgentUpdateUnavailable)).await;
    assert_eq!(runs(&world, "host-1"), "0.4.0");
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn replica_updates_few_hosts_at_once() {
    let names: Vec<String> = (1..=12).map(|number| format!("host-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::with_hosts(&names).await;
    world.serve_agent(&Program::file("0.2.0", Behaviour::Works));
    world.wait_idle().await;
    for name in &names {
        ask(&world, name, json!("0.2.0")).await;
    }
    let count = |world: &World, wanted: AgentUpdateState| {
        let is_wanted = |name: &&&str| {
            let host = world.inventory(name).unwrap().status.unwrap().host.unwrap();
            host.agent_version != "0.2.0" && host.agent_update.is_some_and(|update| update.state == wanted)
        };
        names.iter().filter(is_wanted).count()
    };
    world.wait_until("four wait", |world| count(world, AgentUpdateState::Waiting) == 4).await;
    assert_eq!(count(&world, AgentUpdateState::Sent), 8);
    for name in &names {
        wait_updated(&world, name, "0.2.0").await;
    }
    world.check_invariants().await;
}
