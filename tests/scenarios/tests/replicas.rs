//! Replicas of the coordinator that die, and what they leave behind.

use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::SessionStatus;
use coordinator_api::names::annotation;
use fake_apiserver::{End, Matching};
use scenarios::{NAMESPACE, World};
use serde_json::json;

const LEASES: &str = "leases.coordination.k8s.io";

fn session(world: &World, host: &str) -> SessionStatus {
    world.inventory(host).unwrap().status.unwrap().host.unwrap().session.unwrap()
}

fn is_quarantined(world: &World, host: &str) -> bool {
    world.inventory(host).unwrap().metadata.annotations.unwrap().contains_key(annotation::QUARANTINED)
}

/// Hosts that serve at `first` and at another replica, whose watches go silent before the first one dies.
fn lose_management_node(world: &World, first: &str) {
    // The API server on the node that dies served the watches of the other replica.
    let watches = world.fake.faults().end_watches(&Matching::any().user("second"), End::Silent);
    assert!(watches.is_met());
    world.kill_coordinator(first);
}

// Fault: a management node dies with an API server and a replica; the watches of the other replica are silent, and the
// rack loses its power for a moment: one host is back at once, one later, one never.
// Shown: condition `Ready` of the host that stays off: `HostUnreachable`; no host is quarantined.
#[tokio::test(start_paused = true)]
async fn lost_management_node_holds_no_host() {
    let names = ["host-1", "host-2", "host-3", "host-4"];
    let mut world = World::with_hosts(&names).await;
    world.start_coordinator("second");
    world.wait_idle().await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.wait_idle().await;
    lose_management_node(&world, "coordinator");
    for host in ["host-1", "host-2", "host-3"] {
        world.host_mut(host).power_off();
    }
    world.host_mut("host-1").power_on();
    world.advance_time(Duration::from_secs(20)).await;
    world.host_mut("host-2").power_on();
    world.advance_time(Duration::from_secs(20)).await;
    // It attaches to the replica that has not seen anything for a while, and loses its power again.
    world.host_mut("host-3").power_on();
    world.advance_time(Duration::from_secs(5)).await;
    world.host_mut("host-3").power_off();
    let is_served = |world: &World, host: &str| {
        let session = session(world, host);
        session.ended.is_none() && session.replica.starts_with("second-")
    };
    for host in ["host-1", "host-2", "host-4"] {
        world.wait_until(&format!("{host} is served"), |world| is_served(world, host)).await;
    }
    world.wait_until("host-3 is not", |world| session(world, "host-3").ended.is_some()).await;
    world.advance_time(Duration::from_mins(10)).await;
    for host in names {
        assert!(!is_quarantined(&world, host), "{host}: {}", world.dump());
        let lost =
            world.host_condition(host, Type::Ready).unwrap().reason == Reason::HostUnreachable.as_str();
        assert_eq!(lost, host == "host-3", "{host}: {}", world.dump());
    }
    let action = "check power, network and console";
    world.expect_why("machineinventory/host-3", Reason::HostUnreachable, "no connection", action).await;
    world.expect_nothing("baremetalmachine/m-1").await;
    world.apply_machine("m-2").await;
    world.wait_running("m-2").await;
    world.check_invariants().await;
}

// Fault: pods of the coordinator come and go, and nothing deletes their Leases.
// Shown: nothing: the leader deletes the Lease of a replica that is gone, and no other one.
#[tokio::test(start_paused = true)]
async fn leases_of_dead_replicas_are_collected() {
    let world = World::with_hosts(&["host-1"]).await;
    let leases = |world: &World| -> Vec<String> {
        let leases = world.fake.look_at_all(LEASES).into_iter();
        let names = leases.map(|lease| lease["metadata"]["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.contains("-replica-")).collect()
    };
    let own = "baremetal-coordinator-replica-coordinator";
    for pod in ["pod-a", "pod-b"] {
        world.start_coordinator(pod);
        world.advance_time(Duration::from_mins(1)).await;
        world.kill_coordinator(pod);
    }
    assert_eq!(leases(&world).len(), 3, "{:?}", leases(&world));
    world.advance_time(Duration::from_mins(5)).await;
    assert_eq!(leases(&world).len(), 3, "they may come back");
    world.advance_time(Duration::from_mins(10)).await;
    assert_eq!(leases(&world), [own]);
    world.expect_nothing("machineinventory/host-1").await;
    world.check_invariants().await;
}

/// The watches of the replica `second` for `kind` stand still from now on.
fn hold_back(world: &World, kind: &str) {
    world.fake.faults().lag_of_kind("second", kind, Duration::from_hours(1));
}

/// The replica that is behind leads alone, for a while.
async fn lead_behind(world: &World) {
    world.kill_coordinator("coordinator");
    world.advance_time(Duration::from_mins(10)).await;
}

/// A host of Metal3, and two replicas.
async fn metal3_world() -> World {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_metal3_cluster("c1").await;
    world.start_coordinator("second");
    world.wait_idle().await;
    world
}

// Fault: a replica that has not seen the `spec.image` of a BareMetalHost, nor its machine, becomes leader.
// Shown: nothing: the API server is asked, and the host keeps its node.
#[tokio::test(start_paused = true)]
async fn leader_with_old_hosts_cleans_no_node() {
    let world = metal3_world().await;
    hold_back(&world, "baremetalhosts");
    world.apply_metal3_machine("m-1", json!({})).await;
    world.wait_metal3_ready("m-1").await;
    lead_behind(&world).await;
    assert_eq!(world.plans().len(), 1, "{:?}", world.plans());
    world.fake.faults().clear();
    world.wait_idle().await;
    assert_eq!(world.host_state("bmh-host-1"), "provisioned");
    world.expect_nothing("metal3machine/m-1").await;
    world.check_invariants().await;
}

// Fault: a replica that has not seen the deletion of a BaremetalMachine becomes leader when its host is free.
// Shown: nothing: the API server is asked, and the host stays free for others.
#[tokio::test(start_paused = true)]
async fn leader_with_old_machines_claims_for_no_ghost() {
    let world = World::with_hosts(&["host-1"]).await;
    world.start_coordinator("second");
    world.apply_bare_machine("m-1", "pool", "v1").await;
    world
        .wait_until("the host is claimed", |world| world.inventory("host-1").unwrap().claim().is_some())
        .await;
    world.wait_idle().await;
    hold_back(&world, "baremetalmachines");
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    lead_behind(&world).await;
    assert!(world.is_available("host-1"), "{}", world.dump());
    world.expect_nothing("machineinventory/host-1").await;
    world.fake.faults().clear();
    world.apply_machine("m-2").await;
    world.wait_running("m-2").await;
    world.check_invariants().await;
}

// Fault: a replica still sees a Metal3Machine in deletion, whose host another one of the same name has now.
// Shown: nothing: the API server is asked, and the host keeps its node.
#[tokio::test(start_paused = true)]
async fn leader_with_old_deletions_takes_no_host() {
    let mut world = metal3_world().await;
    world.apply_metal3_machine("m-1", json!({})).await;
    world.wait_metal3_ready("m-1").await;
    world.host_mut("host-1").power_off();
    world.begin_metal3_deletion("m-1").await;
    world.advance_time(Duration::from_mins(1)).await;
    for kind in ["machines", "metal3machines"] {
        hold_back(&world, kind);
    }
    world.host_mut("host-1").power_on();
    world.wait_until("the machine is gone", |world| world.metal3_machine("m-1").is_none()).await;
    world.fake.take_out("machines.cluster.x-k8s.io", NAMESPACE, "m-1");
    world.delete_if_there("Secret", "m-1-bootstrap").await;
    world.wait_idle().await;
    world.apply_metal3_machine("m-1", json!({})).await;
    world.wait_metal3_ready("m-1").await;
    let plans = world.plans().len();
    lead_behind(&world).await;
    assert_eq!(world.plans().len(), plans, "{:?}", world.plans());
    world.fake.faults().clear();
    world.wait_idle().await;
    world.wait_metal3_ready("m-1").await;
    assert_eq!(world.host_state("bmh-host-1"), "provisioned");
    world.expect_nothing("metal3machine/m-1").await;
    world.check_invariants().await;
}
