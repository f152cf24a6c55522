//! Two kinds of machines on one host engine.

use coordinator_api::machine::Phase;
use scenarios::{NAMESPACE, World, bootstrap_data};
use serde_json::json;

/// A host that is to run an image, by an inventory that a pool lists too.
async fn provision_host(world: &World, name: &str, inventory: &str) {
    world.apply_bootstrap(name, &bootstrap_data()).await;
    let metadata = json!({ "annotations": { "baremetal.cluster.io/machine-inventory": inventory } });
    let spec = json!({
        "online": true,
        "image": { "url": "oci://registry.example/os:v1" },
        "userData": { "name": format!("{name}-bootstrap"), "namespace": NAMESPACE },
    });
    world.create("BareMetalHost", name, json!({ "metadata": metadata, "spec": spec })).await;
}

#[tokio::test(start_paused = true)]
async fn one_host_is_claimed_by_one_front_door() {
    let mut world = World::with_metal3().await;
    world.create_prerequisites(&["host-1"]).await;
    tokio::join!(provision_host(&world, "bmh-1", "host-1"), world.apply_machine("m-1"));
    let running = |world: &World| {
        let by_pool = world.phase("m-1") == Some(Phase::Running);
        [by_pool, world.host_state("bmh-1") == "provisioned"].into_iter().filter(|runs| *runs).count()
    };
    world.wait_until("one of them runs", |world| running(world) == 1).await;
    world.wait_idle().await;
    assert_eq!((running(&world), world.plans().len()), (1, 1), "the other one waits");
    world.check_invariants().await;
}
