//! The whole lifecycle, and the number of its requests.

use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::pool::MachineInventoryPoolStatus;
use fake_apiserver::{Counts, Verb};
use k8s_openapi::api::core::v1::Secret;
use scenarios::{Table, World};
use serde_json::json;

const POOLS: &str = "machineinventorypools.infrastructure.cluster.x-k8s.io";
/// Requests and writes of a claim, with its reprovision. One of each is for the annotations of the
/// new system, one for the Node.
const CLAIM: (usize, usize) = (25, 21);
/// The same on a host that was claimed before: the machine is read again.
const LATER_CLAIM: (usize, usize) = (CLAIM.0 + 1, CLAIM.1);
/// Requests and writes of a release, with its clean.
const RELEASE: (usize, usize) = (14, 11);

/// Limits of the requests of one part, Events included.
#[track_caller]
fn within(part: &str, counts: &Counts, (requests, writes): (usize, usize)) {
    assert!(counts.requests <= requests && counts.writes <= writes, "{part}: {counts}");
}

fn all_lists(counts: &Counts) -> usize {
    counts.by_resource.iter().filter(|((verb, _), _)| *verb == Verb::List).map(|(_, count)| count).sum()
}

async fn idles(world: &World, who: &str) {
    let mark = world.fake.journal().mark();
    world.advance_time(Duration::from_hours(1)).await;
    assert_eq!(world.requests_since(mark), [], "{who} costs nothing for an hour");
}

#[tokio::test(start_paused = true)]
async fn host_becomes_a_node_twice() {
    let mut world = World::new().await;
    let mut table = Table::default();
    let started = world.fake.journal().counts_of("coordinator");
    world.apply_registration().await;
    world.wait_idle().await;

    let mark = world.fake.journal().mark();
    world.register_hosts(&["host-1"]).await;
    world.wait_idle().await;
    table.add("register, install, attach", world.count_requests(mark));
    within("registration", &world.count_requests(mark), (6, 6));
    let approved = world.host_condition("host-1", Type::Approved).unwrap();
    assert_eq!((&*approved.status, &*approved.reason), ("True", Reason::ApprovedAutomatically.as_str()));
    idles(&world, "an idle host").await;

    world.apply_catalog().await;
    world.apply_cluster("c1").await;
    world.apply_pool("pool", &["host-1"]).await;
    world.wait_idle().await;
    for (machine, version, cost) in [("m-1", "v1", CLAIM), ("m-2", "v2", LATER_CLAIM)] {
        let mark = world.fake.journal().mark();
        world.apply_machine_of(machine, "pool", version).await;
        world.wait_running(machine).await;
        world.wait_idle().await;
        table.add(&format!("claim, reprovision, provide {machine}"), world.count_requests(mark));
        within(machine, &world.count_requests(mark), cost);
        let spec = world.machine(machine).unwrap().spec;
        assert_eq!(spec.provider_id.as_deref(), Some("baremetal:///host-1"));
        let host = world.inventory("host-1").unwrap().status.unwrap().host.unwrap();
        assert_eq!(host.image, format!("registry.example/os:{version}"));
        let user_data = std::fs::read(world.host("host-1").disk().nocloud_seed().join("user-data")).unwrap();
        let secret = world.get_object("secrets", &format!("{machine}-bootstrap")).unwrap();
        let secret: Secret = serde_json::from_value(secret).unwrap();
        assert_eq!(secret.data.unwrap()["resolved-value"].0, user_data, "what the host was given");
        let seed =
            std::fs::read_to_string(world.host("host-1").disk().nocloud_seed().join("meta-data")).unwrap();
        assert!(seed.contains("local-hostname: host-1"), "{seed}");
        let network = world.host("host-1").disk().nocloud_seed().join("network-config");
        let network = std::fs::read_to_string(network).unwrap();
        assert!(network.contains("10.9.0.5/20") && network.contains("10.10.0.0/16"), "{network}");
        idles(&world, "a running host").await;

        let mark = world.fake.journal().mark();
        world.delete_machine(machine).await;
        world.wait_released(machine, "host-1").await;
        world.wait_idle().await;
        table.add(&format!("clean, release {machine}"), world.count_requests(mark));
        within("release", &world.count_requests(mark), RELEASE);
        assert!(!world.host("host-1").disk().join("/var/lib/kubelet/config.yaml").exists());
        assert!(!world.host("host-1").disk().state().node_identity().exists());
        assert!(world.inventory("host-1").unwrap().claim().is_none());
    }
    idles(&world, "a host that was given back").await;

    let counts = world.fake.journal().counts_of("coordinator");
    assert_eq!(all_lists(&counts), all_lists(&started), "no LIST after the start");
    assert_eq!(counts.on(Verb::List, "secrets") + counts.on(Verb::Watch, "secrets"), 0);
    let kinds: Vec<_> = world.plans().into_iter().map(|(_, generation, _)| generation).collect();
    assert_eq!(kinds, [1, 2, 3, 4], "each plan was written once");
    println!("{table}");
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn fleet_requests_scale_with_hosts() {
    let names: Vec<_> = (1..=10).map(|number| format!("host-{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut world = World::new().await;
    world.apply_registration().await;
    world.wait_idle().await;
    let mut table = Table::default();
    let mark = world.fake.journal().mark();
    world.register_hosts(&names).await;
    world.wait_idle().await;
    table.add("10 hosts registered", world.count_requests(mark));
    within("registration of ten", &world.count_requests(mark), (60, 60));
    world.apply_catalog().await;
    world.apply_cluster("c1").await;
    world.apply_pool("pool", &names).await;
    world.wait_idle().await;
    // As far behind as a busy API server lets a cache be.
    world.fake.faults().latency(Duration::from_millis(5));
    world.fake.faults().lag(Duration::from_millis(100));
    let mark = world.fake.journal().mark();
    let machines: Vec<_> = names.iter().map(|name| format!("m-{name}")).collect();
    futures::future::join_all(machines.iter().map(|name| world.apply_machine(name))).await;
    for name in &names {
        world.wait_running(&format!("m-{name}")).await;
    }
    world.wait_idle().await;
    table.add("10 machines run", world.count_requests(mark));
    // As for one, and what a cache that is behind costs: not more with each. The plan Secret is written
    // between the mark of a host and its announcement, which another write may then precede.
    within("ten machines", &world.count_requests(mark), (325, 245));
    println!("{table}");
    world.check_invariants().await;
}

/// What it costs to replace three machines, one after the other, of a pool with so many hosts.
async fn roll_three_of(hosts: usize) -> Counts {
    let names: Vec<_> = (1..=hosts).map(|number| format!("host-{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let world = World::with_hosts(&names).await;
    for machine in ["m-1", "m-2", "m-3"] {
        world.apply_machine(machine).await;
        world.wait_running(machine).await;
    }
    world.wait_idle().await;
    let mark = world.fake.journal().mark();
    for (old, host, new) in [("m-1", "host-1", "m-4"), ("m-2", "host-2", "m-5"), ("m-3", "host-3", "m-6")] {
        world.delete_machine(old).await;
        world.wait_released(old, host).await;
        world.wait_idle().await;
        world.apply_machine(new).await;
        world.wait_running(new).await;
        world.wait_idle().await;
    }
    let counts = world.count_requests(mark);
    world.check_invariants().await;
    counts
}

#[tokio::test(start_paused = true)]
async fn roll_of_three_costs_what_three_cost() {
    let (few, many) = (4, 12);
    let (small, large) = (roll_three_of(few).await, roll_three_of(many).await);
    // A request for each host that is not rolled, once in the whole roll, is that much more.
    let others = many - few;
    let is_equal = |one: usize, other: usize| one.abs_diff(other) < others;
    assert!(
        is_equal(small.requests, large.requests) && is_equal(small.writes, large.writes),
        "{few} hosts: {small}\n{many} hosts: {large}"
    );
    let (requests, writes) = (LATER_CLAIM.0 + RELEASE.0, LATER_CLAIM.1 + RELEASE.1);
    within("the roll", &large, (3 * requests, 3 * writes));
}

/// Available, allocated, preparing, reprovisioning, unavailable, and all members.
fn read_counters(world: &World) -> Option<[i32; 6]> {
    let pool = world.get_object(POOLS, "pool")?;
    let status: MachineInventoryPoolStatus = serde_json::from_value(pool["status"].clone()).ok()?;
    Some([
        status.available,
        status.allocated,
        status.preparing,
        status.reprovisioning,
        status.unavailable,
        status.total,
    ])
}

async fn wait_counters(world: &World, when: &str, want: [i32; 6]) {
    world.wait_until(&format!("{when}: {want:?}"), |world| read_counters(world) == Some(want)).await;
}

/// Each state lasts until its counters are written: a reprovision takes a boot, and a host without
/// power keeps its clean plan.
#[tokio::test(start_paused = true)]
async fn pool_counts_each_host_by_its_state() {
    let mut world = World::with_hosts(&["host-1", "host-2", "host-3"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.wait_idle().await;
    assert_eq!(read_counters(&world), Some([2, 1, 0, 0, 0, 3]), "one runs");
    world.apply_machine("m-2").await;
    wait_counters(&world, "host-2 is reprovisioned", [1, 1, 0, 1, 0, 3]).await;
    world.wait_running("m-2").await;
    world.wait_idle().await;
    assert_eq!(read_counters(&world), Some([1, 2, 0, 0, 0, 3]), "two run");
    world.host_mut("host-2").power_off();
    world.delete_machine("m-2").await;
    wait_counters(&world, "host-2 is cleaned", [1, 1, 1, 0, 0, 3]).await;
    world.host_mut("host-2").power_on();
    world.wait_released("m-2", "host-2").await;
    world.wait_idle().await;
    assert_eq!(read_counters(&world), Some([2, 1, 0, 0, 0, 3]), "host-2 is free again");
    world.host_mut("host-3").power_off();
    wait_counters(&world, "host-3 is away", [1, 1, 0, 0, 1, 3]).await;
    world.host_mut("host-3").power_on();
    wait_counters(&world, "host-3 is back", [2, 1, 0, 0, 0, 3]).await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn node_has_the_hostname_of_its_entry() {
    let world = World::with_hosts(&["host-1", "host-2"]).await;
    let members = json!([{ "name": "host-1", "hostname": "edge-7" }, { "name": "host-2" }]);
    world.patch("MachineInventoryPool", "pool", json!({ "spec": { "machineInventories": members } })).await;
    world.wait_idle().await;
    for (machine, host, name) in [("m-1", "host-1", "edge-7"), ("m-2", "host-2", "host-2")] {
        world.apply_machine(machine).await;
        world.wait_running(machine).await;
        let spec = world.machine(machine).unwrap().spec;
        assert_eq!(spec.provider_id, Some(format!("baremetal:///{host}")), "the host keeps its own name");
        let seed = world.host(host).disk().nocloud_seed().join("meta-data");
        let seed = std::fs::read_to_string(seed).unwrap();
        let line = format!("local-hostname: {name}");
        assert!(seed.lines().any(|found| found == line), "{seed}");
    }
    world.check_invariants().await;
}
