//! Networks of hosts: observed and intended.

use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::Phase;
use coordinator_api::names::annotation;
use scenarios::{STRANDED_ADDRESS, World};
use serde_json::json;

fn is_drift(world: &World, reason: Reason) -> bool {
    let condition = world.host_condition("host-1", Type::NetworkDrift);
    condition.is_some_and(|condition| condition.reason == reason.as_str())
}

// Fault: the network of a host is not the intended one.
// Shown: condition `NetworkDrift` of the MachineInventory until an operator accepts the network.
#[tokio::test(start_paused = true)]
async fn accepted_network_becomes_the_intended_one() {
    let world = World::with_hosts(&["host-1"]).await;
    world.wait_until("a network is reported", |world| is_drift(world, Reason::NetworkAsIntended)).await;
    let gone = json!([{ "name": "eno9", "mac": "02:00:00:00:00:99", "addresses": ["192.0.2.99/24"] }]);
    let other =
        json!({ "spec": { "observedNetwork": { "interfaces": gone, "dnsServers": ["192.0.2.53"] } } });
    world.patch("MachineInventory", "host-1", other).await;
    world.wait_until("it differs", |world| is_drift(world, Reason::NetworkChanged)).await;
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::NetworkChanged,
            "differs from the one that every plan replays",
            "accept-observed-network",
        )
        .await;
    let before = world.inventory("host-1").unwrap();
    assert_ne!(
        before.spec.observed_network,
        before.status.unwrap().observed_network,
        "reports change no intention"
    );
    let accept = json!({ "metadata": { "annotations": { annotation::ACCEPT_OBSERVED_NETWORK: "" } } });
    world.patch("MachineInventory", "host-1", accept).await;
    world.wait_until("it is intended", |world| is_drift(world, Reason::NetworkAsIntended)).await;
    let after = world.inventory("host-1").unwrap();
    assert_eq!(
        after.spec.observed_network,
        after.status.unwrap().observed_network,
        "nothing of the former stays"
    );
    let annotations = after.metadata.annotations.unwrap_or_default();
    assert!(!annotations.contains_key(annotation::ACCEPT_OBSERVED_NETWORK), "it is accepted once");
    let frozen = "is the intended one now: interface eno9 is gone";
    world.expect_event("MachineInventory", "host-1", "ObservedNetworkAccepted", frozen);
    world.check_invariants().await;
}

// Fault: programs of the cluster add an address and routes to the network of a node.
// Shown: nothing: they are no network of the host, and no report is written for them.
#[tokio::test(start_paused = true)]
async fn what_a_cluster_adds_is_no_drift() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    let before = world.inventory("host-1").unwrap();
    let system = world.host("host-1").system();
    system.put_address("10.9.0.100/32").unwrap();
    for node in 1..50 {
        system.put_route(&format!("10.244.{node}.0/24"), &format!("10.9.1.{node}")).unwrap();
    }
    // The agent states its network when it attaches.
    world.host("host-1").kill_agent();
    world.advance_time(Duration::from_mins(5)).await;
    let after = world.inventory("host-1").unwrap();
    let network = |inventory: &MachineInventory| inventory.status.clone().unwrap().observed_network;
    assert_eq!(network(&after), network(&before));
    assert!(is_drift(&world, Reason::NetworkAsIntended));
    let accept = json!({ "metadata": { "annotations": { annotation::ACCEPT_OBSERVED_NETWORK: "" } } });
    world.patch("MachineInventory", "host-1", accept).await;
    world.advance_time(Duration::from_mins(1)).await;
    let accepted = world.inventory("host-1").unwrap();
    assert_eq!(accepted.spec.observed_network, before.spec.observed_network, "nothing of it is frozen");
    world.expect_event("MachineInventory", "host-1", "ObservedNetworkAccepted", "nothing changes");
    world.check_invariants().await;
}

fn static_network(address: &str) -> serde_json::Value {
    let nic = json!({ "match": { "macaddress": "52:54:00:00:00:02" }, "addresses": [address] });
    let config = json!({ "version": 2, "ethernets": { "ens4": nic } });
    json!({ "spec": { "network": { "configurator": "none", "config": config } } })
}

// Fault: the network of a plan does not reach the coordinator.
// Shown: the host returns with its former network; `PlanApplied`: `NetworkReverted`, with what the
// host saw.
#[tokio::test(start_paused = true)]
async fn host_without_coordinator_returns_with_its_former_network() {
    let world = World::with_hosts(&["host-1"]).await;
    world.patch("MachineInventory", "host-1", static_network(STRANDED_ADDRESS)).await;
    world.apply_machine("m-1").await;
    let action = "correct spec.network of the MachineInventory";
    let why = world.wait_for_reason("m-1", Type::PlanApplied, Reason::NetworkReverted, action).await;
    assert!(why.contains("no coordinator for 10 minutes: ") && why.contains("does not answer"), "{why}");
    world
        .expect_why(
            "machine/m-1",
            Reason::NetworkReverted,
            "no coordinator for 10 minutes",
            "correct spec.network",
        )
        .await;
    assert_eq!(world.phase("m-1"), Some(Phase::Failed));
    assert_eq!(world.plans().len(), 1, "not tried again by itself");
    let effects = world.host("host-1").system().effects();
    let reboots = effects.iter().filter(|effect| effect.starts_with("reboot")).count();
    assert_eq!(reboots, 2, "that of the plan and one into the former network: {effects:?}");
    world.patch("MachineInventory", "host-1", static_network("192.0.2.7/24")).await;
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    world.apply_machine("m-2").await;
    world.wait_running("m-2").await;
    let trial = world.host("host-1").disk().state().network_trial();
    assert!(!trial.exists(), "the coordinator was reached: the new network is the proven one");
    world.check_invariants().await;
}

// Fault: the coordinator is away while a host boots with a new network.
// Shown: a closed port is an answer: the network stays, the plan goes on.
#[tokio::test(start_paused = true)]
async fn restarted_coordinator_takes_no_network_back() {
    let world = World::with_hosts(&["host-1"]).await;
    world.patch("MachineInventory", "host-1", static_network("192.0.2.7/24")).await;
    world.apply_machine("m-1").await;
    let rebooted = |world: &World| {
        let effects = world.host("host-1").system().effects();
        effects.iter().any(|effect| effect.starts_with("reboot"))
    };
    world.wait_until("the plan reboots the host", rebooted).await;
    world.kill_coordinator("coordinator");
    world.advance_time(std::time::Duration::from_mins(40)).await;
    world.start_coordinator("coordinator");
    world.wait_running("m-1").await;
    world.expect_nothing("baremetalmachine/m-1").await;
    world.check_invariants().await;
}

// Fault: `spec.network` of a host is written in a language that is not rendered.
// Shown: condition `BootstrapReady` of the machine: `NetworkInvalid`; it goes on once that is corrected.
#[tokio::test(start_paused = true)]
async fn network_that_cannot_be_rendered_is_said() {
    let world = World::with_hosts(&["host-1"]).await;
    let network = json!({ "configurator": "nmstate", "config": { "interfaces": [] } });
    world.patch("MachineInventory", "host-1", json!({ "spec": { "network": network } })).await;
    world.apply_machine("m-1").await;
    let action = "set it to none and write network-config version 2";
    world.wait_for_reason("m-1", Type::BootstrapReady, Reason::NetworkInvalid, action).await;
    world
        .expect_why(
            "machine/m-1",
            Reason::NetworkInvalid,
            "spec.network.configurator nmstate is not supported",
            "give another network in spec.network",
        )
        .await;
    assert!(world.plans().is_empty(), "the host gets nothing");
    world.patch("MachineInventory", "host-1", json!({ "spec": { "network": null } })).await;
    world.wait_running("m-1").await;
    world.check_invariants().await;
}
