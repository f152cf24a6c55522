//! The scenarios' own rules: how a scenario ends, and how long it waits.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use scenarios::{NAMESPACE, World, bootstrap_data};

#[tokio::test(start_paused = true)]
#[should_panic(expected = "without a look at the invariants")]
async fn scenario_without_check_of_invariants_fails() {
    let world = World::new().await;
    world.wait_idle().await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "list configmaps")]
async fn wait_names_what_never_becomes_idle() {
    let world = World::without_coordinator();
    let maps: Api<ConfigMap> = Api::namespaced(world.fake.client("busy"), NAMESPACE);
    tokio::spawn(async move { while maps.list(&ListParams::default()).await.is_ok() {} });
    world.wait_idle().await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "never: it runs")]
async fn wait_ends_at_its_deadline() {
    World::without_coordinator().wait_running("it").await;
}

/// Bootstrap data with a token reaches the host by its stream, and is kept on its disk.
#[tokio::test(start_paused = true)]
async fn token_that_reaches_a_host_is_seen() {
    let world = World::with_hosts(&["host-1"]).await;
    let registration = world.get_object("machineregistrations.elemental.cattle.io", "hosts").unwrap();
    let token = registration["status"]["registrationToken"].as_str().unwrap();
    world.apply_bootstrap("m-1", &format!("{}# {token}\n", bootstrap_data())).await;
    world.apply_bare_machine("m-1", "pool", "v1").await;
    world.wait_running("m-1").await;
    let seen = ["host-1 was sent a token of a registration", "host-1 holds a token of a registration in"];
    world.check_invariants_except(&seen).await;
}
