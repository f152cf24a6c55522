//! Three real API servers with stacked etcd: the endpoint follows the quorum.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::time::Duration;

use control_plane::parts::Parts;
use vip::network::Family;
use vip::probe::{wait_until, write_through};
use vip::site::{Site, TIME_LIMIT};

/// How long the former holder may keep the address beside the one of the majority: half a minute after
/// its API server was ready last.
const OVERLAP: Duration = Duration::from_mins(1);
/// Of a write that may be slow, and one that must not be taken.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);

fn start() -> Site {
    let parts = Parts::from_environment().unwrap();
    let mut site = Site::create(3, Family::V4, Path::new(env!("CARGO_BIN_EXE_vip-agent"))).unwrap();
    site.give_duties(1, &[0, 1, 2]).unwrap();
    site.start_agents().unwrap();
    site.start_kubernetes(&parts).unwrap();
    site
}

// Fault: the holder of the endpoint is cut off from the other members of etcd, or etcd loses its quorum.
// Shown: `LoadBalancerReady` names the holder on the majority's side, or is False, `HolderMissing`.
#[test]
fn endpoint_follows_the_quorum() {
    let mut site = start();
    let holder = site.wait_holder(TIME_LIMIT, |_| true).unwrap();
    site.wait_write("first", ATTEMPT_LIMIT).unwrap();
    let pki = site.nodes[holder].root().join("/etc/kubernetes/pki");
    let write_beside = |name: &str| {
        let namespace = site.network.namespace(holder);
        write_through(&namespace, Family::V4.address(holder), &pki, name, ATTEMPT_LIMIT).unwrap()
    };
    assert!(write_beside("before"), "its own API server takes no write");

    // A partition: the holder is alone, and serves no write although it is told to.
    site.network.set_cable(holder, false).unwrap();
    let others = |site: &Site| -> Vec<usize> {
        (0..3).filter(|node| *node != holder && site.network.holds(*node).unwrap()).collect()
    };
    wait_until("the majority holds the endpoint", TIME_LIMIT, || {
        let found = others(&site);
        Ok(if found.len() == 1 { Ok(()) } else { Err(format!("{found:?}")) })
    })
    .unwrap();
    assert!(!write_beside("minority"), "a minority took a write");
    site.wait_write("partitioned", ATTEMPT_LIMIT).unwrap();
    wait_until("the minority drops the endpoint", OVERLAP, || {
        Ok(if site.network.holds(holder)? { Err("held".to_owned()) } else { Ok(()) })
    })
    .unwrap();
    assert_eq!(others(&site).len(), 1);

    // After it there is one holder again.
    site.network.set_cable(holder, true).unwrap();
    let second = site.wait_holder(TIME_LIMIT, |_| true).unwrap();
    assert_ne!(second, holder, "the one that comes back takes nothing away");
    site.wait_write("repaired", ATTEMPT_LIMIT).unwrap();

    // The API server of the holder is lost: etcd goes on.
    site.nodes[second].kill_api_server();
    let third = site.wait_holder(TIME_LIMIT, |new| new != second).unwrap();
    site.wait_write("moved", ATTEMPT_LIMIT).unwrap();

    // The quorum is lost: no other member would do better, and no write is taken.
    let others: Vec<_> = (0..3).filter(|node| *node != third).collect();
    for node in &others {
        site.nodes[*node].kill_etcd();
    }
    let pki = site.nodes[third].root().join("/etc/kubernetes/pki");
    let namespace = site.network.namespace(third);
    let written = write_through(&namespace, Family::V4.address(third), &pki, "lost", ATTEMPT_LIMIT).unwrap();
    assert!(!written, "one of three took a write");
    assert_eq!(site.network.holders().unwrap(), [third]);
    // Those that are silent may be the majority: no holder.
    for node in &others {
        site.network.set_cable(*node, false).unwrap();
    }
    site.wait_no_holder(TIME_LIMIT).unwrap();
    for node in &others {
        site.network.set_cable(*node, true).unwrap();
    }

    // All nodes lose power, and come back without anything that tells them what to do.
    for node in &mut site.nodes {
        node.lose_power();
    }
    site.start_agents().unwrap();
    site.start_kubernetes(&Parts::from_environment().unwrap()).unwrap();
    site.wait_holder(TIME_LIMIT, |_| true).unwrap();
    site.wait_write("restarted", ATTEMPT_LIMIT).unwrap();
}
