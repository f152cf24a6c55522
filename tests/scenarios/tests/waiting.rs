//! Many machines that wait for a host: they write nothing while nothing changes for them.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::machine::Phase;
use coordinator_api::names::annotation;
use fake_apiserver::Verb;
use scenarios::{SILENT, World};
use serde_json::{Value, json};

/// Machines that wait beside the one that has a host.
const WAITING: usize = 100;
/// Changes of the counts of hosts.
const CHANGES: usize = 10;

fn waiting() -> impl Iterator<Item = String> {
    (0..WAITING).map(|number| format!("waits-{number}"))
}

/// Events of the machines that wait, with repetitions.
fn count_events(world: &World, kind: &str) -> usize {
    let events = waiting().flat_map(|name| world.fake.look_at_events(kind, &name));
    events.map(|event| event["count"].as_u64().map_or(1, |count| usize::try_from(count).unwrap())).sum()
}

/// Events `DeletedDuringPlan` of an object.
fn count_interruptions(world: &World, kind: &str, name: &str) -> usize {
    let events = world.fake.look_at_events(kind, name);
    events.iter().filter(|event| event["reason"] == "DeletedDuringPlan").count()
}

/// Changes the host of `kind` again and again so that other causes are counted, and looks after the
/// time after which each machine looks again.
async fn change_counts(world: &World, kind: &str, host: &str, paused: &str) {
    for change in 0..CHANGES {
        let value = if change % 2 == 0 { json!("") } else { Value::Null };
        world.patch(kind, host, json!({ "metadata": { "annotations": { (paused): value } } })).await;
        world.advance_time(std::time::Duration::from_secs(35)).await;
    }
}

// Fault: a hundred machines wait for a host of a full pool, and the counts of the pool change ten times.
// Shown: reason `PoolExhausted` of each machine; the counts are in the condition `Ready` of the pool.
#[tokio::test(start_paused = true)]
async fn machines_of_a_full_pool_write_nothing() {
    let world = World::with_hosts(&["host-1", "host-2"]).await;
    let quarantined = json!({ "metadata": { "annotations": { (annotation::QUARANTINED): "for a test" } } });
    world.patch("MachineInventory", "host-2", quarantined).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    for name in waiting() {
        world.apply_machine(&name).await;
    }
    for name in waiting() {
        world.wait_for_reason(&name, Type::InventoryAllocated, Reason::PoolExhausted, "add a host").await;
    }
    world.wait_idle().await;
    assert_eq!(count_events(&world, "BaremetalMachine"), WAITING, "one for each");
    let mark = world.fake.journal().mark();
    change_counts(&world, "MachineInventory", "host-2", annotation::PAUSED).await;
    let counts = world.count_requests(mark);
    let [of_pool, of_host] = ["machineinventorypools/status", "machineinventories/status"]
        .map(|resource| counts.on(Verb::Patch, resource));
    assert_eq!(
        (counts.writes, of_pool, of_host),
        (2 * CHANGES, CHANGES, CHANGES),
        "the pool counts, the host shows its pause, and nobody else writes: {counts}"
    );
    assert_eq!(count_events(&world, "BaremetalMachine"), WAITING, "no other one");
    let pool = "machineinventorypools.infrastructure.cluster.x-k8s.io";
    let pool = world.get_object(pool, "pool").unwrap()["status"]["conditions"].to_string();
    assert!(
        pool.contains("0 of 2 members available: 1 allocated, 1 quarantined; MachineInventory host-2"),
        "{pool}"
    );
    world.expect_event("BaremetalMachine", "waits-7", "PoolExhausted", "1 quarantined");
    world.check_invariants().await;
}

// Fault: a hundred Metal3Machines wait for a BareMetalHost, and the states of the hosts change ten times.
// Shown: reason `NoHostAvailable` of each machine; its Event has the counts.
#[tokio::test(start_paused = true)]
async fn metal3_machines_that_wait_write_nothing() {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1", "host-2"]).await;
    world.apply_metal3_cluster("c1").await;
    let unhealthy = json!({ "metadata": { "annotations": { "capi.metal3.io/unhealthy": "" } } });
    world.patch("BareMetalHost", "bmh-host-2", unhealthy).await;
    world.apply_metal3_machine("m-1", json!({})).await;
    world.wait_metal3_ready("m-1").await;
    for name in waiting() {
        world.apply_metal3_machine(&name, json!({})).await;
    }
    for name in waiting() {
        world.wait_metal3_reason(&name, "NoHostAvailable").await;
    }
    world.wait_idle().await;
    let before = count_events(&world, "Metal3Machine");
    world.expect_event("Metal3Machine", "waits-7", "NoHostAvailable", "1 in use, 1 marked unhealthy");
    let mark = world.fake.journal().mark();
    change_counts(&world, "BareMetalHost", "bmh-host-2", "baremetalhost.metal3.io/paused").await;
    let counts = world.count_requests(mark);
    for resource in ["metal3machines", "metal3machines/status", "events"] {
        let written = [Verb::Create, Verb::Patch].map(|verb| counts.on(verb, resource));
        assert_eq!(written, [0, 0], "{resource}: {counts}");
    }
    assert_eq!(count_events(&world, "Metal3Machine"), before, "no other one");
    world.expect_why("Metal3Machine/waits-7", "NoHostAvailable", "no BareMetalHost can be", "free").await;
    world.check_invariants().await;
}

/// Workload clusters that never answer, as many as reconciles of a kind run at a time.
const SILENT_CLUSTERS: usize = 16;

/// Machines whose hosts have joined clusters that never answer, a host for `m-1`, and another leader.
async fn beside_silent_clusters() -> World {
    let names: Vec<_> = (0..=SILENT_CLUSTERS).map(|number| format!("host-{number}")).collect();
    let mut world = World::new().await;
    world.stop_finding_nodes();
    world.apply_registration().await;
    world.apply_catalog().await;
    world.register_hosts(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    world.apply_cluster("c1").await;
    world.apply_kubeconfig().await;
    world.apply_pool("pool", &["host-0"]).await;
    for (number, host) in names.iter().enumerate().skip(1) {
        let (cluster, machine) = (format!("silent-{number}"), format!("joins-{number}"));
        world.apply_cluster(&cluster).await;
        world.apply_kubeconfig_of(&cluster, SILENT).await;
        world.apply_pool_of(&cluster, &cluster, &[host]).await;
        world.apply_machine_of(&machine, &cluster, "v1").await;
    }
    for number in 1..=SILENT_CLUSTERS {
        let machine = format!("joins-{number}");
        world
            .wait_until("its cluster was asked", |world| {
                let condition = world.machine_condition(&machine, Type::NodeLinked);
                condition.is_some_and(|found| found.reason == Reason::WorkloadUnreachable.as_str())
            })
            .await;
    }
    world.restart_coordinator();
    world
}

// Fault: as many workload clusters as reconciles run at a time never answer, and all their machines wait for Nodes
// when a leader begins.
// Shown: reason `WorkloadUnreachable` of their machines; a machine of another cluster has its host within seconds.
#[tokio::test(start_paused = true)]
async fn silent_clusters_hold_up_no_claim() {
    let world = beside_silent_clusters().await;
    let begin = tokio::time::Instant::now();
    world.apply_machine("m-1").await;
    world
        .wait_until("the host is claimed", |world| world.inventory("host-0").unwrap().claim().is_some())
        .await;
    assert!(begin.elapsed() < std::time::Duration::from_secs(3), "{:?}", begin.elapsed());
    world.wait_running("m-1").await;
    world.expect_why("baremetalmachine/joins-1", Reason::WorkloadUnreachable, "silent-1", "kubeconfig").await;
    world.check_invariants().await;
}

// Fault: a BareMetalHost gets an image and loses it while its host is installed, again and again.
// Shown: Event `DeletedDuringPlan` of the BareMetalHost, once.
#[tokio::test(start_paused = true)]
async fn images_taken_during_plans_are_said_once() {
    let mut world = World::with_bare_metal_hosts().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_metal3_cluster("c1").await;
    world.apply_bootstrap("h", &scenarios::bootstrap_data()).await;
    let labels = json!({ "cluster.x-k8s.io/cluster-name": "c1" });
    let user_data = json!({ "name": "h-bootstrap" });
    for times in 1..=3 {
        let spec = json!({ "image": { "url": "oci://registry.example/os:v1" }, "userData": user_data });
        let change = json!({ "metadata": { "labels": labels }, "spec": spec });
        world.patch("BareMetalHost", "bmh-host-1", change).await;
        world.wait_until("it is installed", |world| world.host_state("bmh-host-1") == "provisioning").await;
        let none = json!({ "spec": { "image": null, "userData": null } });
        world.patch("BareMetalHost", "bmh-host-1", none).await;
        world.wait_until("it is free", |world| world.host_state("bmh-host-1") == "available").await;
        let said = count_interruptions(&world, "BareMetalHost", "bmh-host-1");
        assert_eq!(said, usize::from(times > 1), "after {times} times");
    }
    let action = "give the MachineHealthCheck more time";
    world.expect_event("BareMetalHost", "bmh-host-1", "DeletedDuringPlan", action);
    world.check_invariants().await;
}

// Fault: a health check deletes each machine while its host is installed, again and again.
// Shown: Event `DeletedDuringPlan` of the second machine, and of no other one that day.
#[tokio::test(start_paused = true)]
async fn deletions_during_plans_are_said_once() {
    let world = World::with_hosts(&["host-1"]).await;
    let machines = ["m-1", "m-2", "m-3", "m-4"];
    for machine in machines {
        world.apply_machine(machine).await;
        let is_installed = |world: &World| world.phase(machine) == Some(Phase::Reprovisioning);
        world.wait_until("the host is installed", is_installed).await;
        world.delete_machine(machine).await;
        world.wait_released(machine, "host-1").await;
    }
    let said = machines.map(|machine| count_interruptions(&world, "BaremetalMachine", machine));
    assert_eq!(said, [0, 1, 0, 0]);
    world.expect_event(
        "BaremetalMachine",
        "m-2",
        "DeletedDuringPlan",
        "give the MachineHealthCheck more time",
    );
    world.check_invariants().await;
}
