//! Replicas of the coordinator that die, and what they leave behind.

use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::SessionStatus;
use coordinator_api::names::annotation;
use fake_apiserver::{End, Matching};
use scenarios::World;

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
