//! Objects deleted in any order: nothing is lost, nothing is wedged.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::AllocationState;
use coordinator_api::machine::Phase;
use scenarios::World;
use serde_json::{Value, json};

async fn running() -> World {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.runs("m-1").await;
    world
}

#[tokio::test(start_paused = true)]
async fn whatever_goes_first_a_machine_is_cleaned_and_its_host_is_free() {
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
        world.fake_is_quiet().await;
        if world.machine("m-1").is_some_and(|machine| machine.metadata.deletion_timestamp.is_none()) {
            assert_eq!(world.phase("m-1"), Some(Phase::Running), "{kind} first");
            world.delete_machine("m-1").await;
        }
        world.gone("m-1", "host-1").await;
        assert_eq!(world.plans().len(), 2, "{kind} first");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_inventory_that_is_claimed_is_held_until_its_host_was_cleaned() {
    let world = running().await;
    world.delete("MachineInventory", "host-1").await;
    world.fake_is_quiet().await;
    assert_eq!(world.phase("m-1"), Some(Phase::Running));
    assert!(world.inventory("host-1").is_some(), "the finalizer holds it");
    world.delete_machine("m-1").await;
    world
        .until("machine and inventory are gone", |world| {
            world.machine("m-1").is_none() && world.inventory("host-1").is_none()
        })
        .await;
    assert_eq!(world.plans().len(), 2, "it was cleaned first");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn vanished_inventory_leaves_its_node_alone() {
    let world = running().await;
    let before = world.host("host-1").system().effects();
    world.fake.take_out("machineinventories.elemental.cattle.io", scenarios::NAMESPACE, "host-1");
    let action = "restore its MachineInventory, or delete this Machine";
    world.explains("m-1", Type::InventoryAllocated, Reason::InventoryMissing, action).await;
    assert_eq!(world.host("host-1").system().effects(), before, "nothing is done to the host");
    world.delete_machine("m-1").await;
    world.until("m-1 is gone", |world| world.machine("m-1").is_none()).await;
    assert_eq!(world.host("host-1").system().effects(), before, "nobody owns it: nobody wipes it");
}

#[tokio::test(start_paused = true)]
async fn abandoned_host_is_cleaned_when_it_returns() {
    let mut world = running().await;
    world.host_mut("host-1").power_off();
    world.delete_machine("m-1").await;
    let way_out = "baremetal.cluster.io/release-without-clean";
    world.explains("m-1", Type::PlanApplied, Reason::HostUnreachable, way_out).await;
    let abandon = json!({ "metadata": { "annotations": { way_out: "" } } });
    world.patch("BaremetalMachine", "m-1", abandon).await;
    world.until("m-1 is gone", |world| world.machine("m-1").is_none()).await;
    let inventory = world.inventory("host-1").unwrap();
    assert!(inventory.claim().is_some(), "the host may still run the node of its owner");
    world.apply_machine("m-2").await;
    let action = "add a host to it or free one";
    world.explains("m-2", Type::InventoryAllocated, Reason::PoolExhausted, action).await;
    world.host_mut("host-1").power_on();
    world.runs("m-2").await;
    let plans: Vec<_> = world.plans().into_iter().map(|(_, _, kind)| kind).collect();
    assert_eq!(plans, ["reprovision", "clean", "reprovision"], "it was cleaned before it was claimed");
    world.end().await;
}

/// The pool's opt-in removes the machine; the host waits for its clean.
#[tokio::test(start_paused = true)]
async fn pool_abandons_unreachable_hosts_in_time() {
    let mut world = running().await;
    let opt_in = json!({ "spec": { "abandonUnreachableAfter": "30m" } });
    world.patch("MachineInventoryPool", "pool", opt_in).await;
    world.host_mut("host-1").power_off();
    world.delete_machine("m-1").await;
    world.pass(std::time::Duration::from_mins(25)).await;
    assert!(world.machine("m-1").is_some(), "its time is not over");
    world.pass(std::time::Duration::from_mins(10)).await;
    assert!(world.machine("m-1").is_none());
    assert_eq!(world.inventory("host-1").unwrap().allocation_state(), AllocationState::Unavailable);
    world.host_mut("host-1").power_on();
    world.until("host-1 is available", |world| world.is_available("host-1")).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_vanishes_without_a_clean_leaves_a_host_that_nobody_gets() {
    let world = running().await;
    world.fake.take_out("baremetalmachines.infrastructure.cluster.x-k8s.io", scenarios::NAMESPACE, "m-1");
    let marked =
        |world: &World| world.inventory("host-1").unwrap().allocation_state() == AllocationState::Unavailable;
    world.until("the inventory is marked", marked).await;
    let events = world.fake.look_at_all("events.events.k8s.io");
    let told = |event: &Value| {
        event["reason"] == "OwnerMissing" && event["note"].as_str().unwrap().contains("boot the seed ISO")
    };
    assert_eq!(events.iter().filter(|event| told(event)).count(), 1, "{events:#?}");
    assert!(world.inventory("host-1").unwrap().claim().is_some(), "no destructive step on a guess");
    world.delete("MachineInventory", "host-1").await;
    world.until("the inventory is gone", |world| world.inventory("host-1").is_none()).await;
}

/// How far the machine may come before it is deleted.
fn reached(world: &World, point: usize) -> bool {
    let claimed = world.inventory("host-1").is_some_and(|inventory| inventory.claim().is_some());
    let plan = world.inventory("host-1").and_then(|inventory| inventory.plan()?.generation);
    let effects = world.host("host-1").system().effects();
    match point {
        0 => true,
        1 => world
            .machine("m-1")
            .is_some_and(|machine| !machine.metadata.finalizers.unwrap_or_default().is_empty()),
        2 => claimed,
        3 => plan.is_some(),
        4 => effects.iter().any(|effect| effect.starts_with("upgrade")),
        5 => effects.iter().any(|effect| effect.starts_with("node joins")),
        6 => world.machine("m-1").is_some_and(|machine| machine.spec.provider_id.is_some()),
        _ => world.phase("m-1") == Some(Phase::Running),
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_can_be_deleted_in_every_phase() {
    for lag in [0, 3] {
        for point in 0..8 {
            println!("lag {lag}, point {point}");
            let world = World::with_hosts(&["host-1"]).await;
            world.fake.faults().lag(std::time::Duration::from_secs(lag));
            world.apply_machine("m-1").await;
            world.until(&format!("point {point}"), |world| reached(world, point)).await;
            world.delete_machine("m-1").await;
            world.gone("m-1", "host-1").await;
            assert!(world.inventory("host-1").unwrap().metadata.finalizers.unwrap_or_default().is_empty());
            world.apply_machine("m-2").await;
            world.runs("m-2").await;
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unseen_claim_is_released_with_its_machine() {
    let world = World::with_hosts(&["host-1"]).await;
    // The pool holds its member before that.
    world.fake_is_quiet().await;
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
    world.gone("m-1", "host-1").await;
    world.end().await;
}

fn fake_api_lag(fake: &fake_apiserver::FakeApi) {
    fake.faults().lag(std::time::Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_deleted_and_registers_again_is_a_new_host() {
    let mut world = World::with_hosts(&["host-1"]).await;
    let before = world.inventory("host-1").unwrap().metadata.uid;
    world.delete("MachineInventory", "host-1").await;
    world.until("the inventory is gone", |world| world.inventory("host-1").is_none()).await;
    let seed = world.seed("hosts");
    world.host_mut("host-1").power_off();
    world.host("host-1").insert(&seed);
    world.host_mut("host-1").power_on();
    world.until("host-1 is back", |world| world.is_available("host-1")).await;
    assert_ne!(world.inventory("host-1").unwrap().metadata.uid, before);
    assert_eq!(world.host("host-1").installs(), 1, "the disk was left alone");
    world.end().await;
}
