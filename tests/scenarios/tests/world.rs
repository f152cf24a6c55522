//! The scenarios' own rules: how a scenario ends, and how long it waits.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use scenarios::{NAMESPACE, World};

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
