//! Networks of hosts: observed and intended.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::names::annotation;
use scenarios::World;
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
    world.check_invariants().await;
}
