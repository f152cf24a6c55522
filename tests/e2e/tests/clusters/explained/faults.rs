//! Faults, how they are played, and what an operator is told.

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use scenarios::World;
use serde_json::{Value, json};

/// A fault and what is seen of it.
pub(super) struct Fault {
    pub(super) play: fn() -> LocalBoxFuture<'static, World>,
    /// The object that an operator asks about, `KIND/NAME`.
    pub(super) object: &'static str,
    pub(super) reason: &'static str,
    /// Words of the cause, and of the next action, in the answer of `why`.
    pub(super) cause: &'static str,
    pub(super) action: &'static str,
    /// Exit code of `why`.
    pub(super) exit: i32,
    /// A word of `kubectl get`.
    pub(super) listed: &'static str,
    /// Words of `kubectl describe`: conditions and Events.
    pub(super) described: &'static [&'static str],
}

/// `why`: an operator has to act; it goes on by itself.
const ACT: i32 = 11;
const WAITS: i32 = 10;

const MACHINE: &str = "baremetalmachine/m-1";
const HOST: &str = "machineinventory/host-1";
const REGISTRATION: &str = "machineregistration/hosts";

const fn act(
    play: fn() -> LocalBoxFuture<'static, World>,
    (object, reason): (&'static str, &'static str),
    (cause, action): (&'static str, &'static str),
    described: &'static [&'static str],
) -> Fault {
    Fault { play, object, reason, cause, action, exit: ACT, listed: "", described }
}

pub(super) const FAULTS: &[Fault] = &[
    act(
        || missing_pool().boxed_local(),
        (MACHINE, "PoolMissing"),
        ("names a pool that its namespace does not have", "create the MachineInventoryPool"),
        &["PoolMissing", "Events:", "create it"],
    ),
    act(
        || exhausted_pool().boxed_local(),
        (MACHINE, "PoolExhausted"),
        ("no member is available", "add a host to the pool"),
        &["PoolExhausted", "Events:", "add machineInventories to it"],
    ),
    act(
        || version_without_image().boxed_local(),
        (MACHINE, "ImageCatalogMiss"),
        ("it has v1, v2", "add the version to the ConfigMap elemental-image-catalog"),
        &["ImageCatalogMiss", "add it to the ConfigMap"],
    ),
    act(
        || image_without_registry().boxed_local(),
        (MACHINE, "ImageRegistryMissing"),
        ("names no registry", "annotate the Cluster with cpaas.io/registry-address"),
        &["ImageRegistryMissing", "set the annotation cpaas.io/registry-address"],
    ),
    Fault {
        exit: WAITS,
        ..act(
            || missing_bootstrap_data().boxed_local(),
            (MACHINE, "BootstrapWaiting"),
            ("Secret m-1-bootstrap", "if it is not written, look at the bootstrap configuration"),
            &["BootstrapWaiting", "Secret m-1-bootstrap"],
        )
    },
    act(
        || ignition_as_bootstrap_data().boxed_local(),
        (MACHINE, "BootstrapInvalid"),
        ("is no cloud-config", "correct the bootstrap configuration"),
        &["BootstrapInvalid", "cloud-config"],
    ),
    act(
        || host_of_two_pools().boxed_local(),
        ("machineinventorypool/rival", "MemberInAnotherPool"),
        ("another pool of the namespace holds a member", "remove the host from one of the two pools"),
        &["MemberInAnotherPool", "remove the entry from one of the two"],
    ),
    act(
        || failed_upgrade().boxed_local(),
        (MACHINE, "CommandFailed"),
        ("step upgrade-system", "then delete machine/m-1"),
        &["CommandFailed", "step upgrade-system", "delete the Machine"],
    ),
    act(
        || image_that_does_not_boot().boxed_local(),
        (MACHINE, "BootFallback"),
        ("fell back", "then delete machine/m-1"),
        &["BootFallback", "delete the Machine"],
    ),
    act(
        || failed_clean().boxed_local(),
        (MACHINE, "CommandFailed"),
        ("remove-workload", "kubectl baremetal release host-1 --retry-clean"),
        &["CommandFailed", "baremetal.cluster.io/retry-plan"],
    ),
    act(
        || lost_plan_secret().boxed_local(),
        (MACHINE, "PlanSecretMissing"),
        ("was deleted", "restore the Secret"),
        &["PlanSecretMissing", "restore the Secret"],
    ),
    act(
        || late_install_device().boxed_local(),
        (HOST, "InstallWaiting"),
        ("is not there yet", "baremetal.cluster.io/install-device"),
        &["InstallWaiting", "is not there yet"],
    ),
    act(
        || host_without_approval().boxed_local(),
        (HOST, "ApprovalPending"),
        ("has spec.approval: Manual", "kubectl baremetal approve host-1"),
        &["ApprovalPending", "Events:"],
    ),
    act(
        || silent_host().boxed_local(),
        (HOST, "HostUnreachable"),
        ("no connection to the coordinator", "check power, network and console"),
        &["HostUnreachable"],
    ),
    act(
        || iso_on_installed_host().boxed_local(),
        (HOST, "LiveBootAfterInstall"),
        ("its disk was left alone", "remove the medium, and switch it on"),
        &["LiveBootAfterInstall", "remove the medium"],
    ),
    act(
        || bad_template().boxed_local(),
        (REGISTRATION, "HostRefused"),
        ("BadTemplate", "correct spec.machineName"),
        &["BadTemplate", "Events:", "add letters or digits"],
    ),
    act(
        || taken_name().boxed_local(),
        (REGISTRATION, "HostRefused"),
        ("NameTaken", "give the two hosts different names"),
        &["NameTaken", "Events:", "give the two hosts different names"],
    ),
    act(
        || exhausted_addresses().boxed_local(),
        ("ipclaim/a", "PoolExhausted"),
        ("no free address", "a range to the IPPool"),
        &["Exhausted IP Pools", "add a range to the IPPool"],
    ),
];

async fn with_machine(change: impl AsyncFnOnce(&World)) -> World {
    let world = World::with_hosts(&["host-1"]).await;
    change(&world).await;
    world.apply_machine("m-1").await;
    world
}

async fn missing_pool() -> World {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine_of("m-1", "other", "v1").await;
    world
}

async fn exhausted_pool() -> World {
    let world = World::new().await;
    world.apply_catalog().await;
    world.apply_cluster("c1").await;
    world.apply_pool("pool", &[]).await;
    world.apply_machine("m-1").await;
    world
}

async fn version_without_image() -> World {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine_of("m-1", "pool", "v9").await;
    world
}

async fn image_without_registry() -> World {
    let none = json!({ "metadata": { "annotations": { "cpaas.io/registry-address": null } } });
    with_machine(async |world| world.patch("Cluster", "c1", none).await).await
}

async fn missing_bootstrap_data() -> World {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_bare_machine("m-1", "pool", "v1").await;
    world
}

async fn ignition_as_bootstrap_data() -> World {
    let world = missing_bootstrap_data().await;
    world.apply_bootstrap("m-1", "{\"ignition\": {\"version\": \"3.1.0\"}}").await;
    world
}

async fn host_of_two_pools() -> World {
    let world = World::with_hosts(&["host-1"]).await;
    world.wait_idle().await;
    world.apply_pool("rival", &["host-1"]).await;
    world
}

async fn failed_upgrade() -> World {
    with_machine(async |world| world.host("host-1").system().fail("upgrade", 1).unwrap()).await
}

async fn image_that_does_not_boot() -> World {
    with_machine(async |world| world.host("host-1").system().spoil_image("registry.example/os:v1").unwrap())
        .await
}

async fn failed_clean() -> World {
    let world = with_machine(async |_| ()).await;
    world.wait_running("m-1").await;
    world.host("host-1").system().fail("remove-workload", 1).unwrap();
    world.delete_machine("m-1").await;
    world
}

async fn lost_plan_secret() -> World {
    let world = with_machine(async |_| ()).await;
    let upgrades = |world: &World| {
        world.host("host-1").system().effects().iter().any(|effect| effect.starts_with("upgrade"))
    };
    world.wait_until("the host works on its plan", upgrades).await;
    world.delete("Secret", "host-1").await;
    world
}

/// A host boots the ISO of this registration.
async fn with_booted_host(template: &str, device: &str, rest: Value) -> World {
    let mut world = World::new().await;
    world.apply_registration_of("hosts", template, device).await;
    world.patch("MachineRegistration", "hosts", rest).await;
    world.wait_idle().await;
    world.boot_host("host-1", "hosts");
    world
}

const SERIAL: &str = "${System Information/Serial Number}";

async fn with_registered_host(device: &str, rest: Value) -> World {
    let world = with_booted_host(SERIAL, device, rest).await;
    world.wait_until("the host is registered", |world| world.inventory("host-1").is_some()).await;
    world
}

async fn late_install_device() -> World {
    with_registered_host("/dev/elemental-install-target", json!({})).await
}

async fn host_without_approval() -> World {
    with_registered_host("/dev/vda", json!({ "spec": { "approval": "Manual" } })).await
}

async fn silent_host() -> World {
    let mut world = World::with_hosts(&["host-1"]).await;
    world.host_mut("host-1").power_off();
    world
}

async fn iso_on_installed_host() -> World {
    let mut world = World::with_hosts(&["host-1"]).await;
    let seed = world.seed_config("hosts");
    world.host_mut("host-1").power_off();
    world.host("host-1").insert(&seed);
    world.host_mut("host-1").power_on();
    world
}

async fn bad_template() -> World {
    with_booted_host("-", "/dev/vda", json!({})).await
}

async fn taken_name() -> World {
    let mut world = with_booted_host("host", "/dev/vda", json!({})).await;
    world.wait_until("the first is available", |world| world.is_available("host")).await;
    world.boot_host("host-2", "hosts");
    world
}

async fn exhausted_addresses() -> World {
    let world = World::with_metal3().await;
    let none = json!([{ "start": "10.0.0.1", "end": "10.0.0.1" }]);
    world.create("IPPool", "net", json!({ "spec": { "namePrefix": "net", "pools": none } })).await;
    for claim in ["first", "a"] {
        world.create("IPClaim", claim, json!({ "spec": { "pool": { "name": "net" } } })).await;
        world.wait_idle().await;
    }
    world
}
