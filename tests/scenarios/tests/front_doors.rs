//! Two kinds of machines on one host engine.

use coordinator_api::machine::Phase;
use scenarios::{NAMESPACE, World, bootstrap_data};
use serde_json::json;

const MACHINES: &str = "namedhostmachines.test.baremetal.cluster.io";

async fn apply_named(world: &World, name: &str, host: &str) {
    world.apply_bootstrap(name, &bootstrap_data()).await;
    let secret = format!("{name}-bootstrap");
    let spec = json!({ "host": host, "image": "registry.example/os:v1", "userDataSecret": secret });
    world.create("NamedHostMachine", name, json!({ "spec": spec })).await;
}

fn phase(world: &World, name: &str) -> Option<Phase> {
    let object = world.fake.look(MACHINES, NAMESPACE, name)?;
    serde_json::from_value(object["status"]["phase"].clone()).ok()
}

#[tokio::test(start_paused = true)]
async fn second_front_door_runs_and_releases_a_host() {
    let mut world = World::with_second_front_door().await;
    world.apply_registration().await;
    world.register_hosts(&["host-1"]).await;
    apply_named(&world, "named-1", "host-1").await;
    world.wait_until("named-1 runs", |world| phase(world, "named-1") == Some(Phase::Running)).await;
    let claim = world.inventory("host-1").unwrap().claim().unwrap();
    assert_eq!((claim.kind.as_str(), claim.baremetal_machine.as_str()), ("NamedHostMachine", "named-1"));
    world.delete("NamedHostMachine", "named-1").await;
    world
        .wait_until("named-1 is gone", |world| world.fake.look(MACHINES, NAMESPACE, "named-1").is_none())
        .await;
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    let plans: Vec<_> = world.plans().into_iter().map(|(_, _, kind)| kind).collect();
    assert_eq!(plans, ["reprovision", "clean"]);
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn one_host_is_claimed_by_one_front_door() {
    let mut world = World::with_second_front_door().await;
    world.create_prerequisites(&["host-1"]).await;
    tokio::join!(apply_named(&world, "named-1", "host-1"), world.apply_machine("m-1"));
    let runs = |world: &World| {
        [phase(world, "named-1"), world.phase("m-1")]
            .iter()
            .filter(|phase| **phase == Some(Phase::Running))
            .count()
    };
    world.wait_until("one of them runs", |world| runs(world) == 1).await;
    world.wait_idle().await;
    assert_eq!((runs(&world), world.plans().len()), (1, 1), "the other one waits");
    world.check_invariants().await;
}
