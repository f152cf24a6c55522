//! Who holds the endpoint, with a stand-in for the API servers: real keepalived, run by the agent's
//! own code.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::time::Duration;

use agent::alive::config::{Part, render_config};
use agent::alive::placement::Placement;
use proto::balancer::Duty;
use proto::v1alpha1::LoadBalancerDuty;
use vip::network::{CARD, Family, Network};
use vip::node::{HUNG, LATE, UNREADY};
use vip::probe::{time_failover, wait_until};
use vip::site::Site;

const TIME_LIMIT: Duration = Duration::from_mins(1);
/// After a loss the address is served again by then; the distribution is `make bench BENCH=vip`'s.
const SOON: Duration = Duration::from_secs(20);
/// For a move of the address from one member that is fit to another: longer than a check takes.
const MOMENT: Duration = Duration::from_secs(8);

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_vip-agent"))
}

fn started(nodes: usize) -> (Site, Vec<usize>) {
    started_with(nodes, Family::V4)
}

fn started_with(nodes: usize, family: Family) -> (Site, Vec<usize>) {
    let mut site = Site::create(nodes, family, program()).unwrap();
    let all: Vec<_> = (0..nodes).collect();
    site.give_duties(1, &all).unwrap();
    site.start_agents().unwrap();
    for node in 0..nodes {
        site.start_stand_in(node).unwrap();
    }
    (site, all)
}

#[test]
fn first_node_holds_before_init_and_hands_over() {
    let mut site = Site::create(3, Family::V4, program()).unwrap();
    site.give_duties(1, &[0]).unwrap();
    site.start_agents().unwrap();
    // No API server runs anywhere.
    site.wait_holder(TIME_LIMIT, |holder| holder == 0).unwrap();
    site.start_stand_in(0).unwrap();
    let root = site.nodes[0].root();
    wait_until("its API server served", TIME_LIMIT, || {
        Ok(if agent::state::duty::has_served(&root) { Ok(()) } else { Err("not yet".to_owned()) })
    })
    .unwrap();
    // From now on it holds the address only with its API server.
    site.nodes[0].kill_api_server();
    site.wait_no_holder(TIME_LIMIT).unwrap();
    site.give_duties(2, &[0, 1, 2]).unwrap();
    site.start_stand_in(1).unwrap();
    site.wait_holder(TIME_LIMIT, |holder| holder == 1).unwrap();
    // The one that comes back takes nothing away.
    site.start_stand_in(0).unwrap();
    site.nodes[1].kill_api_server();
    site.wait_holder(TIME_LIMIT, |holder| holder == 0).unwrap();
}

/// Ten announcements a second: one that it hears is a warning in the journal each time.
#[test]
fn sole_member_does_not_hear_itself() {
    for family in [Family::V4, Family::V6] {
        let (site, _) = started_with(1, family);
        site.wait_holder(TIME_LIMIT, |holder| holder == 0).unwrap();
        let log = site.nodes[0].log("agent");
        std::thread::sleep(Duration::from_secs(3));
        let text = std::fs::read_to_string(log).unwrap();
        assert_eq!(text.matches("Entering MASTER STATE").count(), 1, "said once: {text}");
        assert!(!text.contains("WARNING"), "{text}");
        assert!(site.network.holds(0).unwrap());
        let state = site.nodes[0].state();
        assert!(!state.spreads && state.failure.is_none(), "there is nothing to spread over: {state:?}");
    }
}

// Fault: the API server of the holder is busy; the others are not ready, then one is, then one is silent.
// Shown: `LoadBalancerReady` names the holder, or is False, `HolderMissing`.
#[test]
fn strained_holder_keeps_endpoint_while_none_is_better() {
    let mut site = Site::create(2, Family::V4, program()).unwrap();
    site.give_duties(1, &[0, 1]).unwrap();
    site.start_agents().unwrap();
    site.start_stand_in(0).unwrap();
    site.wait_holder(TIME_LIMIT, |holder| holder == 0).unwrap();
    site.nodes[0].set_mark(UNREADY, true).unwrap();
    for _ in 0..10 {
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(site.network.holders().unwrap(), [0], "the other refuses connections");
    }
    site.start_stand_in(1).unwrap();
    site.wait_holder(TIME_LIMIT, |holder| holder == 1).unwrap();
    // The other may be one of a majority.
    site.nodes[1].set_mark(UNREADY, true).unwrap();
    site.network.set_cable(0, false).unwrap();
    site.wait_no_holder(TIME_LIMIT).unwrap();
    site.nodes[1].set_mark(UNREADY, false).unwrap();
    site.wait_holder(TIME_LIMIT, |holder| holder == 1).unwrap();
}

// Fault: each API server of the control plane is slow, then one hangs, then one is in time.
// Shown: `LoadBalancerReady` names the holder.
#[test]
fn late_answers_count_while_none_is_in_time() {
    let mut site = Site::create(2, Family::V4, program()).unwrap();
    site.give_duties(1, &[0, 1]).unwrap();
    for node in [0, 1] {
        site.nodes[node].set_mark(LATE, true).unwrap();
        site.start_stand_in(node).unwrap();
    }
    site.start_agents().unwrap();
    site.wait_holder(TIME_LIMIT, |_| true).unwrap();
    for _ in 0..15 {
        std::thread::sleep(Duration::from_secs(1));
        // No earlier answer is counted.
        for node in &site.nodes {
            let _ = std::fs::remove_file(node.root().load_balancer().join("ready"));
        }
        site.wait_holder(MOMENT, |_| true).unwrap();
    }
    let first = site.wait_holder(MOMENT, |_| true).unwrap();
    site.nodes[first].set_mark(HUNG, true).unwrap();
    site.wait_holder(TIME_LIMIT, |holder| holder != first).unwrap();
    site.nodes[first].set_mark(HUNG, false).unwrap();
    site.nodes[first].set_mark(LATE, false).unwrap();
    site.wait_holder(TIME_LIMIT, |holder| holder == first).unwrap();
}

// Fault: a control-plane machine is deleted, or its host is cleaned, while it holds the endpoint.
// Shown: `LoadBalancerReady` names the next holder.
#[test]
fn removed_member_hands_the_endpoint_over() {
    let (site, _) = started(3);
    let holder = site.wait_holder(TIME_LIMIT, |_| true).unwrap();
    let rest: Vec<_> = (0..3).filter(|node| *node != holder).collect();
    site.give_duties(2, &rest).unwrap();
    let removed = &site.nodes[holder];
    let served = time_failover(
        &site.network,
        || removed.keep_duty(&LoadBalancerDuty { generation: 2, ..Default::default() }),
        SOON,
    );
    served.unwrap();
    site.wait_holder(TIME_LIMIT, |new| new != holder).unwrap();
    wait_until("the removed host says so", TIME_LIMIT, || {
        let state = site.nodes[holder].state();
        Ok(if state.generation == 2 && state.interface.is_empty() {
            Ok(())
        } else {
            Err(format!("{state:?}"))
        })
    })
    .unwrap();
    // A clean plan does the same without the coordinator.
    let next = site.wait_holder(TIME_LIMIT, |_| true).unwrap();
    agent::state::duty::end_duty(&site.nodes[next].root()).unwrap();
    site.wait_holder(TIME_LIMIT, |new| new != holder && new != next).unwrap();
}

// Fault: the holder of the endpoint loses its network, its API server, or keepalived is killed.
// Shown: `LoadBalancerReady` names the next holder.
#[test]
fn each_loss_moves_the_endpoint() {
    for family in [Family::V4, Family::V6] {
        lose_each(started_with(3, family).0);
    }
}

fn lose_each(mut site: Site) {
    let first = site.wait_holder(TIME_LIMIT, |_| true).unwrap();
    // The host is lost.
    time_failover(&site.network, || site.network.set_cable(first, false), SOON).unwrap();
    let others =
        |site: &Site| (0..3).filter(|node| *node != first && site.network.holds(*node).unwrap()).count();
    // Two can take it for a moment: the one with the lower priority gives it back.
    wait_until("one other holder", TIME_LIMIT, || {
        let count = others(&site);
        Ok(if count == 1 { Ok(()) } else { Err(count.to_string()) })
    })
    .unwrap();
    site.network.set_cable(first, true).unwrap();
    let second = site.wait_holder(TIME_LIMIT, |_| true).unwrap();
    // Its API server is lost.
    site.nodes[second].kill_api_server();
    let third = site.wait_holder(TIME_LIMIT, |holder| holder != second).unwrap();
    site.start_stand_in(second).unwrap();
    // keepalived is killed: what it left must not stay beside the new holder's.
    site.nodes[third].kill_keepalived().unwrap();
    wait_until("keepalived was started again", TIME_LIMIT, || {
        let state = site.nodes[third].state();
        Ok(if state.failure.is_none_or(|failure| failure.message.contains("IPVS")) {
            Ok(())
        } else {
            Err(state.interface)
        })
    })
    .unwrap();
    site.wait_holder(TIME_LIMIT, |_| true).unwrap();
}

// Fault: the file with the duty of a control-plane host is damaged, and keepalived is killed.
// Shown: `LoadBalancerReady`, with what the host says of the file.
#[test]
fn damaged_duty_does_not_end_the_duty() {
    let (site, _) = started(1);
    site.wait_holder(TIME_LIMIT, |_| true).unwrap();
    let node = &site.nodes[0];
    std::fs::write(node.root().state().load_balancer().join("duty.json"), "{").unwrap();
    wait_until("the damaged file is said", TIME_LIMIT, || {
        let state = node.state();
        let message = state.failure.map(|failure| failure.message).unwrap_or_default();
        let is_told = message.contains("cannot be parsed") && state.is_holder;
        Ok(if is_told { Ok(()) } else { Err(message) })
    })
    .unwrap();
    let killed = node.keepalived();
    assert!(killed.is_some(), "it goes on");
    node.kill_keepalived().unwrap();
    wait_until("keepalived was started again", TIME_LIMIT, || {
        let now = node.keepalived();
        Ok(if now.is_some() && now != killed { Ok(()) } else { Err(format!("{now:?}")) })
    })
    .unwrap();
    site.wait_holder(TIME_LIMIT, |_| true).unwrap();
}

// Fault: all control-plane hosts lose power, and the management cluster is away.
// Shown: nothing: the hosts hold the endpoint again from their own files.
#[test]
fn all_nodes_come_back_without_a_coordinator() {
    let (mut site, all) = started(3);
    site.wait_holder(TIME_LIMIT, |_| true).unwrap();
    for node in &mut site.nodes {
        node.lose_power();
    }
    assert_eq!(site.network.holders().unwrap(), Vec::<usize>::new());
    site.start_agents().unwrap();
    for node in &all {
        site.start_stand_in(*node).unwrap();
    }
    site.wait_holder(TIME_LIMIT, |_| true).unwrap();
}

// Fault: `networkDevice` names an interface that a host lacks, or the host has another address than it reported.
// Shown: `LoadBalancerReady=False`, `MemberFailed`, with what the host has.
#[test]
fn wrong_interface_and_address_are_said() {
    let mut site = Site::create(1, Family::V4, program()).unwrap();
    let duty = LoadBalancerDuty {
        generation: 1,
        address: Family::V4.endpoint().to_string(),
        port: 6443,
        router_id: 51,
        interface: "eth7".to_owned(),
        members: vec![Family::V4.address(0).to_string()],
        holds_first: true,
        ..Default::default()
    };
    site.nodes[0].keep_duty(&duty).unwrap();
    site.start_agents().unwrap();
    let said = |site: &Site, part: &str| {
        let look = || {
            let message = site.nodes[0].state().failure.map(|failure| failure.message).unwrap_or_default();
            Ok(if message.contains(part) { Ok(()) } else { Err(message) })
        };
        wait_until(part, TIME_LIMIT, look).unwrap();
    };
    said(&site, "no interface eth7; it has eno1");
    let elsewhere = LoadBalancerDuty {
        generation: 2,
        interface: String::new(),
        members: vec!["10.55.0.77".to_owned()],
        ..duty.clone()
    };
    site.nodes[0].keep_duty(&elsewhere).unwrap();
    said(&site, "does not have the address 10.55.0.77");
    site.nodes[0].keep_duty(&LoadBalancerDuty { generation: 3, interface: CARD.to_owned(), ..duty }).unwrap();
    site.wait_holder(TIME_LIMIT, |holder| holder == 0).unwrap();
}

#[test]
fn keepalived_takes_every_configuration() {
    let network = Network::create(1, Family::V4).unwrap();
    let (four, six) = (["10.0.0.1", "10.0.0.2", "10.0.0.3"], ["2001:db8::1", "2001:db8::2"]);
    for (name, endpoint, members, spreads) in [
        ("one", "10.0.0.100", &four[..1], false),
        ("three", "10.0.0.100", &four[..], false),
        ("spread", "10.0.0.100", &four[..], true),
        ("IPv6", "2001:db8::100", &six[..], false),
        ("IPv6, spread", "2001:db8::100", &six[..], true),
    ] {
        let duty = LoadBalancerDuty {
            generation: 1,
            address: endpoint.to_owned(),
            port: 6443,
            router_id: 51,
            members: members.iter().map(|member| (*member).to_owned()).collect(),
            ..Default::default()
        };
        let duty = Duty::parse(&duty).unwrap().unwrap();
        let placement = Placement { interface: CARD.to_owned(), is_holder: false };
        let text = render_config(&Part { duty: &duty, placement: &placement, check: "/bin/true", spreads });
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keepalived.conf");
        std::fs::write(&path, &text).unwrap();
        let mut check = std::process::Command::new("ip");
        check.args(["netns", "exec", &network.namespace(0), "keepalived", "--config-test", "--use-file"]);
        let tested = check.arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&tested.stderr);
        assert!(tested.status.success(), "{name}: {said}\n{text}");
    }
}
