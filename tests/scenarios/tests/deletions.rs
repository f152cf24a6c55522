//! Objects deleted in any order: nothing is lost, nothing is wedged.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::AllocationState;
use coordinator_api::machine::Phase;
use coordinator_api::names::{annotation, finalizer};
use scenarios::World;
use serde_json::{Value, json};

pub(super) async fn running() -> World {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world
}

// Fault: Cluster, machines, pool and inventory are deleted in any order.
// Shown: finalizers hold what is needed; each host ends clean.
#[tokio::test(start_paused = true)]
async fn deletion_in_any_order_releases_the_host() {
    for (kind, name) in [
        ("Cluster", "c1"),
        ("BaremetalCluster", "c1"),
        ("MachineInventoryPool", "pool"),
        ("Machine", "m-1"),
        ("Secret", "m-1-bootstrap"),
        ("MachineRegistration", "hosts"),
    ] {
        let world = running().await;
        world.delete(kind, name).await;
        world.wait_idle().await;
        if world.machine("m-1").is_some_and(|machine| machine.metadata.deletion_timestamp.is_none()) {
            assert_eq!(world.phase("m-1"), Some(Phase::Running), "{kind} first");
            world.delete_machine("m-1").await;
        }
        world.wait_released("m-1", "host-1").await;
        assert_eq!(world.plans().len(), 2, "{kind} first");
        world.expect_nothing("machineinventory/host-1").await;
        world.check_invariants().await;
    }
}

const OBJECTS: [(&str, &str); 10] = [
    ("Cluster", "c1"),
    ("BaremetalCluster", "c1"),
    ("MachineInventoryPool", "pool"),
    ("Machine", "m-1"),
    ("BaremetalMachine", "m-1"),
    ("BaremetalMachineTemplate", "template"),
    ("MachineInventory", "host-1"),
    ("MachineRegistration", "hosts"),
    ("SeedImage", "seed"),
    ("Secret", "m-1-bootstrap"),
];

/// As [`running`], with a template of the pool, and a seed image of the registration whose base ISO cannot
/// be fetched.
async fn running_beside_template_and_image() -> World {
    let world = running().await;
    world.apply_template("template", "pool").await;
    let spec = json!({ "registrationRef": { "name": "hosts" }, "baseImage": "file:///base.iso" });
    world.create("SeedImage", "seed", json!({ "spec": spec })).await;
    let has_failed = |world: &World| {
        let image = world.get_object("seedimages.elemental.cattle.io", "seed");
        image.is_some_and(|image| image["status"]["state"] == "Failed")
    };
    world.wait_until("the seed image has failed", has_failed).await;
    world
}

/// Deletes the machine where it is left, or held until its Machine is deleted; then nothing
/// holds the host, and it is clean.
async fn end_clean(world: World, what: &str) {
    if world.machine("m-1").is_some() {
        world.delete_machine("m-1").await;
    }
    world
        .wait_until(&format!("the host is released after {what}"), |world| {
            let inventory = world.inventory("host-1");
            world.machine("m-1").is_none()
                && inventory.is_none_or(|inventory| {
                    inventory.claim().is_none() && inventory.metadata.deletion_timestamp.is_none()
                })
        })
        .await;
    let kinds: Vec<_> = world.plans().into_iter().map(|(_, _, kind)| kind).collect();
    assert_eq!(kinds, ["reprovision", "clean"], "{what}");
    assert!(!world.host("host-1").disk().state().node_identity().exists(), "{what}");
    if world.inventory("host-1").is_some() {
        world.expect_nothing("machineinventory/host-1").await;
    }
    world.check_invariants().await;
}

// Fault: any two of Cluster, BaremetalCluster, pool, Machine, BaremetalMachine, BaremetalMachineTemplate, MachineInventory, MachineRegistration, SeedImage and bootstrap Secret are deleted, in either order.
// Shown: finalizers hold what is needed; the host ends clean and without owner.
#[tokio::test(start_paused = true)]
async fn every_pair_is_deleted_in_either_order() {
    for first in OBJECTS {
        for second in OBJECTS.into_iter().filter(|second| *second != first) {
            let world = running_beside_template_and_image().await;
            for (kind, name) in [first, second] {
                world.delete_if_there(kind, name).await;
            }
            world.wait_idle().await;
            end_clean(world, &format!("{} and {}", first.0, second.0)).await;
        }
    }
}

/// Deletes the namespace, its objects in a given order.
async fn delete_namespace(world: &World, seed: u64, slowly: bool) {
    let mut held = world.fake.terminate_namespace(scenarios::NAMESPACE);
    fastrand::Rng::with_seed(seed).shuffle(&mut held);
    for (resource, name) in held {
        world.fake.delete_content(&resource, scenarios::NAMESPACE, &name);
        if slowly {
            world.wait_idle().await;
        }
    }
}

// Fault: a namespace with machines, inventories and all their Secrets is deleted.
// Shown: nothing can be created in it, and its hosts are cleaned; then it is empty.
// Seen: gone
#[tokio::test(start_paused = true)]
async fn deleted_namespace_ends_with_clean_hosts() {
    for seed in 0..24 {
        let slowly = seed % 2 == 0;
        println!("seed {seed}, slowly: {slowly}");
        let world = running().await;
        delete_namespace(&world, seed, slowly).await;
        world
            .wait_until("machine and inventory are gone", |world| {
                world.machine("m-1").is_none() && world.inventory("host-1").is_none()
            })
            .await;
        let effects = world.host("host-1").system().effects();
        assert!(effects.iter().any(|effect| effect.contains("workload")), "{effects:?}");
        assert!(!world.host("host-1").disk().state().node_identity().exists(), "seed {seed}");
        world.check_invariants().await;
    }
}

// Fault: the finalizers of a running machine and of its inventory are removed, as a restore or an
// operator may.
// Shown: both come back, and hold the machine until its host is clean.
#[tokio::test(start_paused = true)]
async fn removed_finalizers_are_restored() {
    let world = running().await;
    let before = held_by(&world);
    assert!(before.iter().all(|finalizers| finalizers.len() == 1), "{before:?}");
    for (kind, name) in [("MachineInventory", "host-1"), ("BaremetalMachine", "m-1")] {
        world.patch(kind, name, json!({ "metadata": { "finalizers": null } })).await;
        world.wait_until("the finalizer is back", |world| held_by(world) == before).await;
    }
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    assert_eq!(world.plans().len(), 2, "it was cleaned first");
    world.expect_nothing("machineinventory/host-1").await;
    world.check_invariants().await;
}

fn held_by(world: &World) -> [Vec<String>; 2] {
    let inventory = world.inventory("host-1").and_then(|inventory| inventory.metadata.finalizers);
    let machine = world.machine("m-1").and_then(|machine| machine.metadata.finalizers);
    [inventory.unwrap_or_default(), machine.unwrap_or_default()]
}

// Fault: a claimed MachineInventory is deleted.
// Shown: it stays until its machine is gone and the host is clean.
#[tokio::test(start_paused = true)]
async fn claimed_inventory_is_held_until_cleaned() {
    let world = running().await;
    world.delete("MachineInventory", "host-1").await;
    world.wait_idle().await;
    assert_eq!(world.phase("m-1"), Some(Phase::Running));
    assert!(world.inventory("host-1").is_some(), "the finalizer holds it");
    world
        .expect_why("machineinventory/host-1", "InUse", "the host of machine/m-1", "delete machine/m-1")
        .await;
    world.delete_machine("m-1").await;
    world
        .wait_until("machine and inventory are gone", |world| {
            world.machine("m-1").is_none() && world.inventory("host-1").is_none()
        })
        .await;
    assert_eq!(world.plans().len(), 2, "it was cleaned first");
    world.check_invariants().await;
}

// Fault: the MachineInventory of a running machine vanishes.
// Shown: condition of the machine: `InventoryMissing`; the node is not touched.
#[tokio::test(start_paused = true)]
async fn vanished_inventory_leaves_its_node_alone() {
    let world = running().await;
    let before = world.host("host-1").system().effects();
    world.fake.take_out("machineinventories.elemental.cattle.io", scenarios::NAMESPACE, "host-1");
    let action = "restore its MachineInventory, or delete this Machine";
    world.wait_for_reason("m-1", Type::InventoryAllocated, Reason::InventoryMissing, action).await;
    world
        .expect_why(
            "machine/m-1",
            Reason::InventoryMissing,
            "that the machine names was deleted",
            "restore the MachineInventory",
        )
        .await;
    assert_eq!(world.host("host-1").system().effects(), before, "nothing is done to the host");
    world.delete_machine("m-1").await;
    world.wait_until("m-1 is gone", |world| world.machine("m-1").is_none()).await;
    assert_eq!(world.host("host-1").system().effects(), before, "a host without owner is not wiped");
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn vanished_machine_leaves_its_host_unavailable() {
    let world = running().await;
    world.fake.take_out("baremetalmachines.infrastructure.cluster.x-k8s.io", scenarios::NAMESPACE, "m-1");
    let marked =
        |world: &World| world.inventory("host-1").unwrap().allocation_state() == AllocationState::Unavailable;
    world.wait_until("the inventory is marked", marked).await;
    world.wait_idle().await;
    let events = world.fake.look_at_all("events");
    let is_warning = |event: &&Value| event["type"] == "Warning";
    assert_eq!(events.iter().filter(is_warning).count(), 1, "{events:#?}");
    world.expect_event(
        "MachineInventory",
        "host-1",
        "OwnerMissing",
        "kubectl baremetal clean host-1 --owner m-1",
    );
    let cause = "does not exist or names another host; the host was not cleaned";
    world.expect_why("machineinventory/host-1", Reason::OwnerMissing, cause, "restore the machine").await;
    assert!(world.inventory("host-1").unwrap().claim().is_some(), "no destructive step on a guess");
    world.delete("MachineInventory", "host-1").await;
    world.wait_until("the inventory is gone", |world| world.inventory("host-1").is_none()).await;
    world.check_invariants().await;
}

/// An operator edits or removes the annotation: nothing changes but that it is written again.
#[tokio::test(start_paused = true)]
async fn allocation_state_is_written_and_never_read() {
    let world = World::with_hosts(&["host-1", "host-2"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.wait_idle().await;
    let plans = world.plans();
    for (host, kept) in [("host-1", AllocationState::Allocated), ("host-2", AllocationState::Available)] {
        for edited in [json!("Unavailable"), json!("Preparing"), json!("odd"), json!(null)] {
            let change = json!({ "metadata": { "annotations": { annotation::ALLOCATION_STATE: edited } } });
            world.patch("MachineInventory", host, change).await;
            let is_kept = |world: &World| world.inventory(host).unwrap().allocation_state() == kept;
            world.wait_until("the state is written again", is_kept).await;
            world.wait_idle().await;
        }
    }
    assert_eq!((world.plans(), world.phase("m-1")), (plans, Some(Phase::Running)));
    // Also before it is written again.
    let change = json!({ "metadata": { "annotations": { annotation::ALLOCATION_STATE: "Unavailable" } } });
    world.patch("MachineInventory", "host-2", change).await;
    world.apply_machine("m-2").await;
    world.wait_until("host-2 is claimed", |world| world.inventory("host-2").unwrap().claim().is_some()).await;
    world.check_invariants().await;
}

/// Points of a machine's lifecycle at which it is deleted.
#[derive(Clone, Copy, Debug)]
enum Point {
    Created,
    FinalizerAdded,
    Claimed,
    PlanAssigned,
    Upgraded,
    NodeJoined,
    Provided,
    Running,
}

impl Point {
    const ALL: [Self; 8] = [
        Self::Created,
        Self::FinalizerAdded,
        Self::Claimed,
        Self::PlanAssigned,
        Self::Upgraded,
        Self::NodeJoined,
        Self::Provided,
        Self::Running,
    ];
}

fn is_reached(world: &World, point: Point) -> bool {
    let claimed = world.inventory("host-1").is_some_and(|inventory| inventory.claim().is_some());
    let plan = world.inventory("host-1").and_then(|inventory| inventory.plan()?.generation);
    let effects = world.host("host-1").system().effects();
    match point {
        Point::Created => true,
        Point::FinalizerAdded => world
            .machine("m-1")
            .is_some_and(|machine| !machine.metadata.finalizers.unwrap_or_default().is_empty()),
        Point::Claimed => claimed,
        Point::PlanAssigned => plan.is_some(),
        Point::Upgraded => effects.iter().any(|effect| effect.starts_with("upgrade")),
        Point::NodeJoined => effects.iter().any(|effect| effect.starts_with("node joins")),
        Point::Provided => world.machine("m-1").is_some_and(|machine| machine.spec.provider_id.is_some()),
        Point::Running => world.phase("m-1") == Some(Phase::Running),
    }
}

// Fault: a machine is deleted in any phase.
// Shown: its host is cleaned and free.
#[tokio::test(start_paused = true)]
async fn machine_can_be_deleted_in_every_phase() {
    for lag in [0, 3] {
        for point in Point::ALL {
            println!("lag {lag}, {point:?}");
            let world = World::with_hosts(&["host-1"]).await;
            world.fake.faults().lag(std::time::Duration::from_secs(lag));
            world.apply_machine("m-1").await;
            world.wait_until(&format!("{point:?}"), |world| is_reached(world, point)).await;
            world.delete_machine("m-1").await;
            world.wait_released("m-1", "host-1").await;
            assert!(world.inventory("host-1").unwrap().metadata.finalizers.unwrap_or_default().is_empty());
            world.expect_nothing("machineinventory/host-1").await;
            world.apply_machine("m-2").await;
            world.wait_running("m-2").await;
            world.check_invariants().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unseen_claim_is_released_with_its_machine() {
    let world = World::with_hosts(&["host-1"]).await;
    // The pool holds its member before that.
    world.wait_idle().await;
    let fake = world.fake.clone();
    let claims =
        fake_apiserver::Matching::writes().user("coordinator").resource("machineinventories").subresource("");
    // The claim is in flight when the machine is deleted.
    world.fake.faults().interrupt(claims, move || {
        for kind in ["machines.cluster.x-k8s.io", "baremetalmachines.infrastructure.cluster.x-k8s.io"] {
            fake.edit((kind, scenarios::NAMESPACE, "m-1"), |machine| {
                machine["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            });
        }
        fake_api_lag(&fake);
    });
    world.apply_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    world.check_invariants().await;
}

fn fake_api_lag(fake: &fake_apiserver::FakeApi) {
    fake.faults().lag(std::time::Duration::from_secs(2));
}

/// The finalizer of this name is also that of the upstream operator, which writes it into every inventory.
#[tokio::test(start_paused = true)]
async fn free_inventory_with_a_finalizer_goes() {
    let world = World::with_hosts(&["host-1"]).await;
    let held = json!({ "metadata": { "finalizers": [finalizer::MACHINE_INVENTORY] } });
    world.patch("MachineInventory", "host-1", held).await;
    world.wait_idle().await;
    world.delete("MachineInventory", "host-1").await;
    world.wait_until("the inventory is gone", |world| world.inventory("host-1").is_none()).await;
    assert!(world.plans().is_empty(), "nothing is done to the host");
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_host_registers_as_a_new_inventory() {
    let mut world = World::with_hosts(&["host-1"]).await;
    let before = world.inventory("host-1").unwrap().metadata.uid;
    world.delete("MachineInventory", "host-1").await;
    world.wait_until("the inventory is gone", |world| world.inventory("host-1").is_none()).await;
    world.boot_iso("host-1", "hosts");
    world.wait_until("host-1 is back", |world| world.is_available("host-1")).await;
    assert_ne!(world.inventory("host-1").unwrap().metadata.uid, before);
    assert_eq!(world.host("host-1").installs(), 1, "the disk was left alone");
    world.check_invariants().await;
}
