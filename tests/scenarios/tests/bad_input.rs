//! What is wrong with a machine is said on the machine, with the next action,
//! and goes away with its cause; nothing has to be deleted for it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::machine::Phase;
use fake_apiserver::{Matching, Refusal, Verb};
use scenarios::{World, bootstrap_data};
use serde_json::json;

// Fault: the pool of a machine does not exist.
// Shown: condition `InventoryAllocated` of the machine and Event: `PoolMissing`.
#[tokio::test(start_paused = true)]
async fn missing_pool_is_reported_and_retried() {
    let mut world = World::new().await;
    world.apply_registration().await;
    world.register_hosts(&["host-1"]).await;
    world.apply_catalog().await;
    world.apply_cluster("c1").await;
    world.apply_machine("m-1").await;
    let action = "no MachineInventoryPool pool in this namespace; next: create it";
    world.wait_for_reason("m-1", Type::InventoryAllocated, Reason::PoolMissing, action).await;
    world
        .expect_why(
            "machine/m-1",
            Reason::PoolMissing,
            "names a pool that its namespace does not have",
            "create the MachineInventoryPool",
        )
        .await;
    world.expect_event("BaremetalMachine", "m-1", "PoolMissing", action);
    world.apply_pool("pool", &["host-1"]).await;
    world.wait_running("m-1").await;
    world.check_invariants().await;
}

// Fault: the pool has no free host.
// Shown: condition `InventoryAllocated`: `PoolExhausted`; its Event and the pool's condition `Ready` have the
// number of hosts for each cause.
#[tokio::test(start_paused = true)]
async fn exhausted_pool_reports_exclusions_until_a_host_registers() {
    let mut world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.apply_machine("m-2").await;
    let action = "add a host to it or free one";
    let why = world.wait_for_reason("m-2", Type::InventoryAllocated, Reason::PoolExhausted, action).await;
    assert!(!why.contains(char::is_numeric), "a count would be a write of each machine: {why}");
    world.expect_event("BaremetalMachine", "m-2", "PoolExhausted", "1 allocated; next: add a host to it");
    world
        .expect_why("machine/m-2", Reason::PoolExhausted, "1 held by machines", "add a host to the pool")
        .await;
    let members = json!([{ "name": "host-1" }, { "name": "host-2" }]);
    world.patch("MachineInventoryPool", "pool", json!({ "spec": { "machineInventories": members } })).await;
    world.boot_host("host-2", "hosts");
    world.wait_running("m-2").await;
    world.check_invariants().await;
}

// Fault: the image catalog does not have the version.
// Shown: condition `ImageResolved`: `ImageCatalogMiss` with the versions that it has; phase
// `Failed` until it is added.
#[tokio::test(start_paused = true)]
async fn version_without_image_waits_for_the_catalog() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine_of("m-1", "pool", "v9").await;
    let why = world
        .wait_for_reason("m-1", Type::ImageResolved, Reason::ImageCatalogMiss, "add it to the ConfigMap")
        .await;
    assert!(why.contains("v9") && why.contains("it has v1, v2"), "{why}");
    world
        .expect_why(
            "machine/m-1",
            Reason::ImageCatalogMiss,
            "it has v1, v2",
            "add the version to the ConfigMap elemental-image-catalog",
        )
        .await;
    assert_eq!(world.phase("m-1"), Some(Phase::Failed));
    world.patch_catalog(json!({ "v9": "registry.example/os:v9" })).await;
    world.wait_running("m-1").await;
    world.check_invariants().await;
}

// Fault: no registry is named for the image.
// Shown: condition `ImageResolved`: `ImageRegistryMissing`.
#[tokio::test(start_paused = true)]
async fn image_without_registry_waits_for_the_cluster() {
    let world = World::with_hosts(&["host-1"]).await;
    let annotate = |value| json!({ "metadata": { "annotations": { "cpaas.io/registry-address": value } } });
    world.patch("Cluster", "c1", annotate(json!(null))).await;
    world.apply_machine("m-1").await;
    let action = "set the annotation cpaas.io/registry-address of the Cluster";
    world.wait_for_reason("m-1", Type::ImageResolved, Reason::ImageRegistryMissing, action).await;
    world
        .expect_why(
            "machine/m-1",
            Reason::ImageRegistryMissing,
            "names no registry",
            "annotate the Cluster with cpaas.io/registry-address",
        )
        .await;
    world.patch("Cluster", "c1", annotate(json!("registry.example"))).await;
    world.wait_running("m-1").await;
    world.check_invariants().await;
}

// Fault: the bootstrap Secret is missing, or is not cloud-config.
// Shown: condition `BootstrapReady`: `BootstrapWaiting`, `BootstrapInvalid`.
#[tokio::test(start_paused = true)]
async fn bootstrap_data_must_be_cloud_config() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_bare_machine("m-1", "pool", "v1").await;
    let action =
        "Secret m-1-bootstrap with the bootstrap data is missing or has no key value; next: create it";
    world.wait_for_reason("m-1", Type::BootstrapReady, Reason::BootstrapWaiting, action).await;
    world
        .expect_why(
            "machine/m-1",
            Reason::BootstrapWaiting,
            "Secret m-1-bootstrap",
            "if it is not written, look at the bootstrap configuration",
        )
        .await;
    world.apply_bootstrap("m-1", "{\"ignition\": {\"version\": \"3.1.0\"}}").await;
    let why =
        world.wait_for_reason("m-1", Type::BootstrapReady, Reason::BootstrapInvalid, "cloud-config").await;
    println!("{why}");
    world
        .expect_why(
            "machine/m-1",
            Reason::BootstrapInvalid,
            "is no cloud-config",
            "correct the bootstrap configuration",
        )
        .await;
    world.patch("Secret", "m-1-bootstrap", json!({ "stringData": { "value": bootstrap_data() } })).await;
    world.wait_running("m-1").await;
    world.check_invariants().await;
}

// Fault: the coordinator may not read a Secret.
// Shown: condition of the machine: `ApiRequestFailed`.
#[tokio::test(start_paused = true)]
async fn unreadable_secrets_are_shown() {
    for secret in ["m-1-bootstrap", "host-1"] {
        let world = World::with_hosts(&["host-1"]).await;
        let reads = Matching::any().verb(Verb::Get).resource("secrets").name(secret).user("coordinator");
        // The status that shows it causes a reconcile of its own.
        let fault = world.fake.faults().fail(reads, 4, Refusal::Forbidden);
        world.apply_machine("m-1").await;
        world.wait_for_reason("m-1", Type::Ready, Reason::ApiRequestFailed, secret).await;
        world
            .expect_why("machine/m-1", Reason::ApiRequestFailed, secret, "correct what the message names")
            .await;
        assert!(fault.is_met(), "{secret}");
        world.wait_running("m-1").await;
        world.check_invariants().await;
    }
}

// Fault: a Secret of another type has the name of the plan Secret.
// Shown: condition of the machine; the Secret is not changed.
#[tokio::test(start_paused = true)]
async fn secret_of_other_type_is_never_written() {
    let world = World::with_hosts(&["host-1"]).await;
    let foreign = |secret: &mut serde_json::Value| secret["type"] = json!("Opaque");
    assert!(world.fake.edit(("secrets", "fleet", "host-1"), foreign));
    let before = world.get_object("secrets", "host-1");
    world.apply_machine("m-1").await;
    world.wait_for_reason("m-1", Type::Ready, Reason::ApiRequestFailed, "is not a plan Secret").await;
    world
        .expect_why(
            "machine/m-1",
            Reason::ApiRequestFailed,
            "is not a plan Secret",
            "correct what the message names",
        )
        .await;
    assert_eq!(world.get_object("secrets", "host-1"), before);
    world.delete("Secret", "host-1").await;
    world.wait_running("m-1").await;
    world.check_invariants().await;
}

// Fault: the plan Secret of a free host is deleted or garbled.
// Shown: Event: `PlanSecretMissing`, `PlanSecretInvalid`; it is created again.
#[tokio::test(start_paused = true)]
async fn lost_plan_secret_is_recreated_with_an_event() {
    let missing = ("PlanSecretMissing", "; next: find out what deleted it");
    let invalid = ("PlanSecretInvalid", "; recreated with plan reprovision-");
    for (garbage, (reason, says)) in [
        (None, missing),
        (Some("not json"), invalid),
        (Some("{\"files\": 3}"), invalid),
        (Some("{\"instructions\": [{\"command\": \"/bin/sh\"}"), invalid),
    ] {
        let world = World::with_hosts(&["host-1"]).await;
        match garbage {
            None => world.delete("Secret", "host-1").await,
            Some(garbage) => {
                world.patch("Secret", "host-1", json!({ "stringData": { "plan": garbage } })).await;
            }
        }
        world.apply_machine("m-1").await;
        world.wait_running("m-1").await;
        world.expect_event("MachineInventory", "host-1", reason, says);
        world.expect_nothing("baremetalmachine/m-1").await;
        let secret = world.get_object("secrets", "host-1").unwrap();
        assert_eq!(secret["type"], "elemental.cattle.io/plan");
        assert!(secret["metadata"]["ownerReferences"].is_null(), "a restore must not delete it");
        world.check_invariants().await;
    }
}

// Fault: the plan Secret is deleted while its plan runs.
// Shown: condition `Ready` of the machine: `PlanSecretMissing`; the report is taken once it is
// restored.
#[tokio::test(start_paused = true)]
async fn report_is_accepted_once_plan_secret_is_restored() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    let joins = |world: &World| {
        world.host("host-1").system().effects().iter().any(|effect| effect.starts_with("upgrade"))
    };
    world.wait_until("the host works on its plan", joins).await;
    let secret = world.get_object("secrets", "host-1").unwrap();
    world.delete("Secret", "host-1").await;
    world.advance_time(std::time::Duration::from_mins(30)).await;
    let says = world.machine_condition("m-1", Type::Ready).unwrap();
    assert!(says.reason == "PlanSecretMissing" && says.message.contains("restore the Secret"), "{says:?}");
    world.expect_why("machine/m-1", Reason::PlanSecretMissing, "was deleted", "restore the Secret").await;
    let kept = json!({ "type": secret["type"], "data": { "plan": secret["data"]["plan"] } });
    world.create("Secret", "host-1", kept).await;
    world.wait_running("m-1").await;
    assert_eq!(world.plans().len(), 1);
    world.check_invariants().await;
}

// Fault: an announced plan is garbled before the host has it.
// Shown: condition `Ready` of the MachineInventory: `PlanSecretInvalid`.
#[tokio::test(start_paused = true)]
async fn corrupt_assigned_plan_is_reported_on_the_inventory() {
    let mut world = World::with_hosts(&["host-1"]).await;
    world.host_mut("host-1").power_off();
    world.apply_machine("m-1").await;
    let announced = |world: &World| world.inventory("host-1").unwrap().plan().unwrap().generation == Some(1);
    world.wait_until("the plan is announced", announced).await;
    let plan = world.get_object("secrets", "host-1").unwrap()["data"]["plan"].clone();
    world.patch("Secret", "host-1", json!({ "stringData": { "plan": "{}{" } })).await;
    world.host_mut("host-1").power_on();
    let because = |world: &World| {
        let ready = world.host_condition("host-1", Type::Ready).unwrap();
        ready.reason == Reason::PlanSecretInvalid.as_str() && ready.message.contains("restore the Secret")
    };
    world.wait_until("the inventory says so", because).await;
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::PlanSecretInvalid,
            "was overwritten with something else",
            "restore the Secret",
        )
        .await;
    world.patch("Secret", "host-1", json!({ "data": { "plan": plan } })).await;
    world.wait_running("m-1").await;
    world.check_invariants().await;
}

// Fault: an older copy of the plan Secret is restored while a node is made.
// Shown: condition of the MachineInventory: `PlanSecretAltered`; the host gets nothing.
#[tokio::test(start_paused = true)]
async fn old_copy_of_a_plan_is_rejected() {
    let mut world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    let old = plan_data(&world);
    world.apply_bare_machine("m-2", "pool", "v1").await;
    world.wait_for_reason("m-2", Type::BootstrapReady, Reason::BootstrapWaiting, "create it").await;
    world.host_mut("host-1").power_off();
    world.apply_bootstrap("m-2", &scenarios::bootstrap_data()).await;
    world.wait_until("the plan is announced", is_announced(3)).await;
    let new = plan_data(&world);
    world.patch("Secret", "host-1", json!({ "data": { "plan": old } })).await;
    let before = world.host("host-1").system().effects().len();
    world.host_mut("host-1").power_on();
    let action = "restore the Secret";
    world.wait_for_reason("m-2", Type::PlanApplied, Reason::PlanSecretAltered, action).await;
    let cause = "is not the one that was announced";
    world.expect_why("machine/m-2", Reason::PlanSecretAltered, cause, action).await;
    let effects = world.host("host-1").system().effects();
    assert!(!effects[before..].iter().any(|effect| effect.starts_with("upgrade")), "{effects:?}");
    world.patch("Secret", "host-1", json!({ "data": { "plan": new } })).await;
    world.wait_running("m-2").await;
    world.check_invariants_except(&["of generation 3, then clean-"]).await;
}

// Fault: an older copy of the plan Secret is restored while a host is to be cleaned.
// Shown: nothing: the clean plan is rendered again, and is the one that was announced.
#[tokio::test(start_paused = true)]
async fn clean_goes_on_with_an_old_secret() {
    let mut world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    let old = plan_data(&world);
    world.host_mut("host-1").power_off();
    world.delete_machine("m-1").await;
    world.wait_until("the clean is announced", is_announced(2)).await;
    world.patch("Secret", "host-1", json!({ "data": { "plan": old } })).await;
    world.host_mut("host-1").power_on();
    world.wait_released("m-1", "host-1").await;
    world.expect_nothing("machineinventory/host-1").await;
    world.check_invariants_except(&["of generation 2, then reprovision-"]).await;
}

fn plan_data(world: &World) -> serde_json::Value {
    world.get_object("secrets", "host-1").unwrap()["data"]["plan"].clone()
}

fn is_announced(generation: i64) -> impl Fn(&World) -> bool {
    move |world| world.inventory("host-1").unwrap().plan().unwrap().generation == Some(generation)
}

// Fault: two pools list one host.
// Shown: condition `MembersValid` of the pool that does not hold it.
#[tokio::test(start_paused = true)]
async fn host_in_two_pools_belongs_to_its_holder() {
    let world = World::with_hosts(&["host-1"]).await;
    world.wait_idle().await;
    world.apply_pool("rival", &["host-1"]).await;
    world.apply_machine_of("m-1", "rival", "v1").await;
    let action = "add a host to it or free one";
    world.wait_for_reason("m-1", Type::InventoryAllocated, Reason::PoolExhausted, action).await;
    world.expect_event("BaremetalMachine", "m-1", "PoolExhausted", "1 held by another pool");
    let says = |world: &World| {
        let pool =
            world.get_object("machineinventorypools.infrastructure.cluster.x-k8s.io", "rival").unwrap();
        let text = pool["status"]["conditions"].to_string();
        text.contains("MemberInAnotherPool") && text.contains("remove the entry from one of the two")
    };
    world.wait_until("the pool says so", says).await;
    world
        .expect_why(
            "machine/m-1",
            Reason::MemberInAnotherPool,
            "another pool of the namespace holds a member",
            "remove the host from one of the two pools",
        )
        .await;
    world.patch("MachineInventoryPool", "pool", json!({ "spec": { "machineInventories": [] } })).await;
    world.wait_running("m-1").await;
    world.check_invariants().await;
}

// Fault: a machine or its Cluster is paused.
// Shown: condition `Paused`; nothing is changed.
#[tokio::test(start_paused = true)]
async fn paused_machine_resumes_after_the_pause() {
    let world = World::with_hosts(&["host-1"]).await;
    world.patch("Cluster", "c1", json!({ "spec": { "paused": true } })).await;
    world.apply_machine("m-1").await;
    world
        .wait_until("it is paused", |world| {
            world.machine_condition("m-1", Type::Paused).is_some_and(|paused| paused.status == "True")
        })
        .await;
    world.advance_time(std::time::Duration::from_mins(5)).await;
    world
        .expect_why(
            "machine/m-1",
            Reason::Paused,
            "spec.paused is true",
            "set spec.paused of the Cluster to false",
        )
        .await;
    assert!(world.inventory("host-1").unwrap().claim().is_none());
    world.patch("Cluster", "c1", json!({ "spec": { "paused": false } })).await;
    world.wait_running("m-1").await;
    world.check_invariants().await;
}

/// Bootstrap data with a file of as many random bytes, in base64.
fn large_bootstrap_data(bytes: usize) -> String {
    let mut random = vec![0; bytes];
    fastrand::Rng::with_seed(1).fill(&mut random);
    let file = format!(
        "write_files:\n-   path: /etc/large\n    encoding: b64\n    content: {}\n",
        STANDARD.encode(random)
    );
    bootstrap_data().replacen("write_files:\n", &file, 1)
}

// Fault: the bootstrap data of a machine is nearly as large as a Secret may be, then larger than a plan.
// Shown: condition `BootstrapReady`: `BootstrapInvalid` with the sizes; the host is not touched.
#[tokio::test(start_paused = true)]
async fn large_bootstrap_data_runs_or_is_measured() {
    let world = World::with_hosts(&["host-1"]).await;
    let data = large_bootstrap_data(500_000);
    world.apply_bootstrap("m-1", &data).await;
    world.apply_bare_machine("m-1", "pool", "v1").await;
    world.wait_running("m-1").await;
    let seed = std::fs::read(world.host("host-1").disk().nocloud_seed().join("user-data")).unwrap();
    let read = coordinator_core::bootstrap::read_user_data(&seed).unwrap();
    let (_, content) = data.split_once("content: ").unwrap();
    assert!(seed.len() < 600_000 && read.contains(content.lines().next().unwrap()), "{}", seed.len());
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    let plans = world.plans().len();
    world.apply_bootstrap("m-2", &large_bootstrap_data(700_000)).await;
    world.apply_bare_machine("m-2", "pool", "v1").await;
    let sizes = "the user-data has 93";
    let why = world.wait_for_reason("m-2", Type::BootstrapReady, Reason::BootstrapInvalid, sizes).await;
    assert!(why.contains("the Secret of a plan holds 884736: let the host download files"), "{why}");
    world
        .expect_why("machine/m-2", Reason::BootstrapInvalid, sizes, "correct the bootstrap configuration")
        .await;
    assert_eq!(world.plans().len(), plans, "no plan was made");
    world.check_invariants().await;
}
