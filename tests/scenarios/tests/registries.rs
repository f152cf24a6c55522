//! How hosts reach the registries of their images.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::names::annotation;
use scenarios::World;
use serde_json::json;

// Fault: the Secret for a private registry is missing, then wrong.
// Shown: condition `ImageResolved` of the machine: `RegistrySecretInvalid`; the machine goes on by itself when the Secret is right.
#[tokio::test(start_paused = true)]
async fn machine_waits_for_secret_of_its_registry() {
    let world = World::with_hosts(&["host-1"]).await;
    let named = json!({ "metadata": { "annotations": { annotation::REGISTRY_SECRET: "pull" } } });
    world.patch("Cluster", "c1", named).await;
    world.apply_machine("m-1").await;
    let reason = Reason::RegistrySecretInvalid;
    let message = world.wait_for_reason("m-1", Type::ImageResolved, reason, "create it").await;
    assert!(message.contains("Secret pull"), "{message}");
    world
        .expect_why(
            "machine/m-1",
            Reason::RegistrySecretInvalid,
            "Secret pull",
            "create or correct the Secret",
        )
        .await;
    let login = |registry: &str| {
        json!({ "auths": { registry: { "username": "host", "password": scenarios::BOOTSTRAP_CANARY } } })
            .to_string()
    };
    let rest = json!({
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": { ".dockerconfigjson": login("elsewhere.example") },
    });
    world.create("Secret", "pull", rest).await;
    world
        .wait_until("the Secret is for another registry", |world| {
            let resolved = world.machine_condition("m-1", Type::ImageResolved);
            resolved
                .is_some_and(|resolved| resolved.message.contains("has no credentials for registry.example"))
        })
        .await;
    world
        .patch("Secret", "pull", json!({ "stringData": { ".dockerconfigjson": login("registry.example") } }))
        .await;
    world.wait_running("m-1").await;
    world.check_invariants().await;
}

// Fault: `--image-catalog` names another ConfigMap than the one that has the version.
// Shown: condition `ImageResolved` of the machine: `ImageCatalogMiss`, until the named one has it.
#[tokio::test(start_paused = true)]
async fn catalog_is_the_one_that_the_flag_names() {
    let mut world = World::with_hosts(&["host-1"]).await;
    world.read_catalog("images");
    world.apply_machine("m-1").await;
    let reason = Reason::ImageCatalogMiss;
    world.wait_for_reason("m-1", Type::ImageResolved, reason, "the one that --image-catalog names").await;
    world.expect_why("machine/m-1", reason, "has no key \"v1\"", "add the version").await;
    world.create("ConfigMap", "images", json!({ "data": { "v1": "registry.example/os:v2" } })).await;
    world.wait_running("m-1").await;
    let host = world.inventory("host-1").unwrap().status.unwrap().host.unwrap();
    assert_eq!(host.image, "registry.example/os:v2");
    world.check_invariants().await;
}
