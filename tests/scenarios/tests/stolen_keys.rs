//! What root of a former tenant has copied from a host: its key, its certificate and its token.

use std::path::{Path, PathBuf};
use std::time::Duration;

use coordinator_api::names::annotation;
use scenarios::{NAMESPACE, World};
use serde_json::json;

/// The identity and the configuration of a host, as root copies them.
struct Stolen(Vec<(PathBuf, Vec<u8>)>);

impl Stolen {
    fn copy_from(world: &World, host: &str) -> Self {
        let state = world.host(host).disk().state();
        let identity = std::fs::read_dir(state.identity()).unwrap().map(|entry| entry.unwrap().path());
        let files = identity.chain([state.config()]);
        Self(files.map(|path| (relative(&path, state.path()), std::fs::read(&path).unwrap())).collect())
    }

    /// Puts the files on the disk of another host, which boots with them.
    fn use_on(&self, world: &mut World, host: &str) {
        world.host_mut(host).power_off();
        let state = world.host(host).disk().state();
        std::fs::remove_dir_all(state.identity()).unwrap();
        for (path, contents) in &self.0 {
            let path = state.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, contents).unwrap();
        }
        world.host_mut(host).power_on();
    }
}

fn relative(path: &Path, directory: &Path) -> PathBuf {
    path.strip_prefix(directory).unwrap().to_owned()
}

/// SHA-256 of the key that the coordinator knows of a host.
fn certified_key(world: &World, host: &str) -> String {
    let object = world.get_object("machineinventories.elemental.cattle.io", host).unwrap();
    object["status"]["host"]["certifiedKey"]["hash"].as_str().unwrap_or_default().to_owned()
}

fn is_refused(world: &World) -> bool {
    let events = world.fake.look_at_events("MachineInventory", "host-1");
    events.iter().any(|event| event["reason"] == "KeyReplaced")
}

/// The machine of the next tenant gets the host, and nothing of it comes to the thief.
async fn check_next_tenant(world: &mut World) {
    world.wait_until("the stolen key is refused", is_refused).await;
    world.apply_machine("m-2").await;
    world.wait_running("m-2").await;
    world.advance_time(Duration::from_mins(10)).await;
    assert!(world.host("thief").disk().state().journal().metadata().is_err(), "it got a plan");
    world.expect_event("MachineInventory", "host-1", "KeyReplaced", "the key is");
    world.expect_nothing("baremetalmachine/m-2").await;
}

async fn with_thief() -> World {
    let mut world = World::with_hosts(&["host-1"]).await;
    world.boot_host("thief", "hosts");
    world.wait_until("the thief's machine is installed", |world| world.is_available("thief")).await;
    world
}

// Fault: root of a former tenant copied the identity of a host, and uses it after the clean, while the next tenant's
// machine gets the host.
// Shown: Event of the MachineInventory: `KeyReplaced`; the thief gets no plan and no certificate.
#[tokio::test(start_paused = true)]
async fn a_key_ends_with_its_tenancy() {
    let mut world = with_thief().await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    let (stolen, former) = (Stolen::copy_from(&world, "host-1"), certified_key(&world, "host-1"));
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    assert_ne!(certified_key(&world, "host-1"), former, "the clean made a new key");
    stolen.use_on(&mut world, "thief");
    check_next_tenant(&mut world).await;
    assert_eq!(world.host("host-1").installs(), 1);
    world.check_invariants().await;
}

// Fault: root of a former tenant copied the identity of a host without TPM, which an operator installs again.
// Shown: Event of the MachineInventory: `KeyReplaced`; the host keeps its MachineInventory.
#[tokio::test(start_paused = true)]
async fn a_reinstall_makes_a_new_key() {
    let mut world = with_thief().await;
    let (stolen, former) = (Stolen::copy_from(&world, "host-1"), certified_key(&world, "host-1"));
    let ask = json!({ "metadata": { "annotations": { annotation::REINSTALL: "/dev/vda" } } });
    world.patch("MachineInventory", "host-1", ask).await;
    world.boot_iso("host-1", "hosts");
    let is_again = |world: &World| world.host("host-1").installs() == 2 && world.is_available("host-1");
    world.wait_until("it is installed again", is_again).await;
    assert_ne!(certified_key(&world, "host-1"), former);
    stolen.use_on(&mut world, "thief");
    check_next_tenant(&mut world).await;
    world.check_invariants().await;
}

// Fault: etcd is restored from a backup that is older than the last clean of a host, and with it the key of a former
// tenant.
// Shown: nothing: the certificate of the host tells that its key is the newer one.
#[tokio::test(start_paused = true)]
async fn a_restored_record_takes_the_newer_key() {
    let mut world = with_thief().await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    let stolen = Stolen::copy_from(&world, "host-1");
    let backup = world.get_object("machineinventories.elemental.cattle.io", "host-1").unwrap();
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    let current = certified_key(&world, "host-1");
    let object = ("machineinventories.elemental.cattle.io", NAMESPACE, "host-1");
    world.fake.edit(object, |inventory| {
        inventory["status"]["host"]["certifiedKey"] = backup["status"]["host"]["certifiedKey"].clone();
    });
    assert_ne!(certified_key(&world, "host-1"), current);
    // The host attaches again at the latest with its next certificate.
    world.host("host-1").kill_agent();
    world.wait_until("its key is known again", |world| certified_key(world, "host-1") == current).await;
    stolen.use_on(&mut world, "thief");
    check_next_tenant(&mut world).await;
    world.check_invariants().await;
}

// Fault: an inventory is restored without status, and a former tenant uses the copied key before the host attaches.
// Shown: Event of the MachineInventory: `KeyReplaced`; the thief gets no plan and no certificate.
#[tokio::test(start_paused = true)]
async fn a_lost_status_admits_no_former_key() {
    let mut world = with_thief().await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    let stolen = Stolen::copy_from(&world, "host-1");
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    let current = certified_key(&world, "host-1");
    world.host_mut("host-1").power_off();
    let object = ("machineinventories.elemental.cattle.io", NAMESPACE, "host-1");
    world.fake.edit(object, |inventory| drop(inventory.as_object_mut().unwrap().remove("status")));
    stolen.use_on(&mut world, "thief");
    world.wait_until("the stolen key is refused", is_refused).await;
    world.host_mut("host-1").power_on();
    world.wait_until("its key is known again", |world| certified_key(world, "host-1") == current).await;
    check_next_tenant(&mut world).await;
    world.check_invariants().await;
}

// Fault: the key of a host without TPM was stolen: an operator takes it away, and accepts the key on the host's
// console.
// Shown: Event of the MachineInventory, host console: `KeyReplaced`, then nothing.
#[tokio::test(start_paused = true)]
async fn an_operator_replaces_a_stolen_key() {
    let world = World::with_hosts(&["host-1"]).await;
    let stolen = certified_key(&world, "host-1");
    let take = json!({ "metadata": { "annotations": { annotation::REPLACED_KEY: stolen } } });
    world.patch("MachineInventory", "host-1", take).await;
    world.wait_until("the host is refused", is_refused).await;
    let offers_other = |world: &World| offered_key(world).is_some_and(|offered| offered != stolen);
    world.wait_until("the host offers another key", offers_other).await;
    world.expect_event("MachineInventory", "host-1", "KeyReplaced", "kubectl baremetal replace-key");
    let accept = json!({ "metadata": { "annotations": { annotation::ACCEPTED_KEY: offered_key(&world) } } });
    world.patch("MachineInventory", "host-1", accept).await;
    let is_back = |world: &World| {
        world.is_available("host-1") && Some(certified_key(world, "host-1")) == offered_key(world)
    };
    world.wait_until("the host is back by its new key", is_back).await;
    world.expect_nothing("machineinventory/host-1").await;
    assert_eq!(world.host("host-1").installs(), 1);
    world.check_invariants().await;
}

/// SHA-256 of the key on the disk of the host, as its console prints it.
fn offered_key(world: &World) -> Option<String> {
    let identity =
        agent::identity::Identity::load(&world.host("host-1").disk().state().identity()).unwrap()?;
    Some(proto::proof::identity(&identity.public_key()))
}
