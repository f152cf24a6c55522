//! Ownership survives restored backups: objects vanish without a deletion and
//! come back without status, with new UIDs, in any order, while the coordinator
//! and the garbage collector run.

use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::machine::Phase;
use coordinator_api::names::annotation;
use fake_apiserver::{GarbageCollection, OwnerReferences};
use scenarios::{NAMESPACE, Scenario, World, kill_at_every_write};
use serde_json::{Value, json};

/// Orders of one restore.
const SEEDS: u64 = 12;
const KINDS: [&str; 18] = [
    "secrets",
    "machineregistrations.elemental.cattle.io",
    "machineinventories.elemental.cattle.io",
    "machineinventorypools.infrastructure.cluster.x-k8s.io",
    "baremetalclusters.infrastructure.cluster.x-k8s.io",
    "baremetalmachines.infrastructure.cluster.x-k8s.io",
    "machines.cluster.x-k8s.io",
    "clusters.cluster.x-k8s.io",
    "baremetalhosts.metal3.io",
    "metal3clusters.infrastructure.cluster.x-k8s.io",
    "metal3machines.infrastructure.cluster.x-k8s.io",
    "metal3machinetemplates.infrastructure.cluster.x-k8s.io",
    "metal3datatemplates.infrastructure.cluster.x-k8s.io",
    "metal3dataclaims.infrastructure.cluster.x-k8s.io",
    "metal3datas.infrastructure.cluster.x-k8s.io",
    "ippools.ipam.metal3.io",
    "ipclaims.ipam.metal3.io",
    "ipaddresses.ipam.metal3.io",
];
const MACHINES: &str = KINDS[5];

/// A fixed sequence of numbers (`SplitMix64`).
struct Sequence(u64);

impl Sequence {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, usize::try_from(self.next(end as u64 + 1)).unwrap());
        }
    }
}

/// Two hosts: one runs a node, one is free.
async fn running() -> World {
    let world = World::with_hosts(&["host-1", "host-2"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.wait_idle().await;
    world.fake.garbage_collection(GarbageCollection::After(Duration::from_secs(2)));
    world
}

/// Takes every object out and puts all of them back, in the order of `seed`.
async fn restore(world: &World, seed: u64, owners: OwnerReferences) {
    let mut sequence = Sequence(seed);
    let mut objects: Vec<(&str, Value)> = vec![];
    for kind in KINDS {
        let kept = |object: &Value| object["metadata"]["namespace"] == NAMESPACE;
        objects.extend(world.fake.look_at_all(kind).into_iter().filter(kept).map(|object| (kind, object)));
    }
    sequence.shuffle(&mut objects);
    for (kind, object) in &objects {
        world.fake.take_out(kind, NAMESPACE, object["metadata"]["name"].as_str().unwrap());
        world.advance_time(Duration::from_millis(sequence.next(400))).await;
    }
    sequence.shuffle(&mut objects);
    for (_, object) in objects {
        // What was recreated meanwhile is replaced, as a restore with overwrite does.
        let (kind, name) = (object["kind"].clone(), object["metadata"]["name"].clone());
        let resource = KINDS.into_iter().find(|resource| {
            world
                .fake
                .look(resource, NAMESPACE, name.as_str().unwrap())
                .is_some_and(|found| found["kind"] == kind)
        });
        if let Some(resource) = resource {
            world.fake.take_out(resource, NAMESPACE, name.as_str().unwrap());
        }
        world.fake.put_back(object, owners).unwrap();
        world.advance_time(Duration::from_millis(sequence.next(20_000))).await;
    }
}

/// What was done to the hosts.
fn effects(world: &World) -> Vec<Vec<String>> {
    ["host-1", "host-2"].map(|host| world.host(host).system().effects()).to_vec()
}

/// As Cluster API does with its machines after a restore.
async fn adopt(world: &World, machine: &str) {
    let uid = world.get_object("machines.cluster.x-k8s.io", machine).unwrap()["metadata"]["uid"].clone();
    let owner = json!([{ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": machine, "uid": uid, "controller": true }]);
    world.patch("BaremetalMachine", machine, json!({ "metadata": { "ownerReferences": owner } })).await;
}

fn provider_id(world: &World) -> Option<String> {
    world.machine("m-1")?.spec.provider_id
}

// Fault: all objects are restored from a backup: no status, new UIDs, no ownerReferences.
// Shown: Events of adopted claims; no host is changed.
#[tokio::test(start_paused = true)]
async fn restore_without_owners_changes_no_host() {
    for seed in 0..SEEDS {
        let world = running().await;
        let before = (effects(&world), provider_id(&world));
        restore(&world, seed, OwnerReferences::Drop).await;
        adopt(&world, "m-1").await;
        world
            .wait_until("m-1 is ready again", |world| {
                world.machine_condition("m-1", Type::Ready).is_some_and(|ready| ready.status == "True")
            })
            .await;
        world.wait_until("host-2 is available", |world| world.is_available("host-2")).await;
        world.wait_idle().await;
        assert_eq!((effects(&world), provider_id(&world)), before, "seed {seed}");
        assert_eq!(world.phase("m-1"), Some(Phase::Running), "seed {seed}");
        let claim = world.inventory("host-1").unwrap().claim().unwrap();
        assert_eq!(
            claim.uid,
            world.machine("m-1").unwrap().metadata.uid,
            "seed {seed}: the claim is adopted"
        );
        // In some orders the registration comes back after the hosts have attached again.
        for host in ["host-1", "host-2"] {
            let known = world.host_condition(host, Type::CoordinatorKnown);
            assert!(known.is_some_and(|known| known.status == "True"), "seed {seed}: {host}");
        }
        world.expect_nothing("baremetalmachine/m-1").await;
        world.expect_nothing("machineinventory/host-1").await;
        world.check_invariants().await;
    }
}

/// All objects restored without status and with new UIDs, in one order.
pub(super) struct Restore;

impl Scenario for Restore {
    async fn begin() -> World {
        running().await
    }

    async fn play(world: &mut World) {
        let before = (effects(world), provider_id(world));
        restore(world, 3, OwnerReferences::Drop).await;
        adopt(world, "m-1").await;
        let is_ready = |world: &World| {
            world.machine_condition("m-1", Type::Ready).is_some_and(|ready| ready.status == "True")
        };
        world.wait_until("m-1 is ready again", is_ready).await;
        world.wait_until("host-2 is available", |world| world.is_available("host-2")).await;
        world.wait_idle().await;
        assert_eq!((effects(world), provider_id(world)), before);
        world.expect_nothing("baremetalmachine/m-1").await;
        world.expect_nothing("machineinventory/host-1").await;
    }
}

// Fault: the coordinator is killed before and after any write during a restore.
// Shown: nothing: the claim is adopted, and no host is changed.
#[tokio::test(start_paused = true)]
async fn a_killed_coordinator_restores_every_claim() {
    kill_at_every_write::<Restore>().await;
}

/// What a machine of Metal3 has: its host, and by their names its data with the index and its
/// addresses.
fn metal3_claims(world: &World) -> Vec<String> {
    let named = |kind: &str, field: &str| -> Vec<String> {
        let objects = world.fake.look_at_all(kind);
        let mut found: Vec<_> = objects
            .iter()
            .map(|object| format!("{} {}", object["metadata"]["name"], object["spec"][field]["name"]))
            .collect();
        found.sort();
        found
    };
    let host = world.host_of("m-1").unwrap_or_default();
    let provider_id = world.metal3_machine("m-1").unwrap()["spec"]["providerID"].to_string();
    let data = named("metal3datas.infrastructure.cluster.x-k8s.io", "claim");
    let addresses = named("ipaddresses.ipam.metal3.io", "claim");
    [vec![host, provider_id], data, addresses].concat()
}

/// Two hosts as `BareMetalHost`s: one runs a node with an index and an address, one is free.
async fn running_metal3() -> World {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1", "host-2"]).await;
    world.apply_metal3_cluster("c1").await;
    let pool = json!({ "namePrefix": "net", "pools": [{ "subnet": "10.66.0.0/24" }] });
    world.create("IPPool", "net", json!({ "spec": pool })).await;
    let template = json!({ "metaData": { "indexes": [{ "key": "index" }], "ipAddressesFromIPPool": [{ "key": "ip", "name": "net" }] } });
    world.create("Metal3DataTemplate", "workers", json!({ "spec": template })).await;
    world.apply_metal3_machine("m-1", json!({ "spec": { "dataTemplate": { "name": "workers" } } })).await;
    world.wait_metal3_ready("m-1").await;
    world.wait_idle().await;
    world.fake.garbage_collection(GarbageCollection::After(Duration::from_secs(2)));
    world
}

// Fault: all objects of Metal3 are restored from a backup: no status, new UIDs, no ownerReferences.
// Shown: the machine is ready again on its host, with its index and its address; no host is changed.
#[tokio::test(start_paused = true)]
async fn restore_of_metal3_keeps_hosts_indexes_and_addresses() {
    for seed in 0..SEEDS / 2 {
        let world = running_metal3().await;
        let before = (effects(&world), metal3_claims(&world));
        assert_eq!(before.1.len(), 4, "{:?}", before.1);
        restore(&world, seed, OwnerReferences::Drop).await;
        // Cluster API adopts its objects again.
        for (owner, resource, object, name) in [
            ("Machine", "machines.cluster.x-k8s.io", "Metal3Machine", "m-1"),
            ("Cluster", "clusters.cluster.x-k8s.io", "Metal3Cluster", "c1"),
        ] {
            let uid = world.get_object(resource, name).unwrap()["metadata"]["uid"].clone();
            let owners = json!([{ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": owner, "name": name, "uid": uid }]);
            world.patch(object, name, json!({ "metadata": { "ownerReferences": owners } })).await;
        }
        world.wait_metal3_ready("m-1").await;
        world.wait_until("host-2 is available", |world| world.host_state("bmh-host-2") == "available").await;
        world.wait_idle().await;
        assert_eq!((effects(&world), metal3_claims(&world)), before, "seed {seed}");
        // What the next machine gets is not what this one has.
        world.apply_metal3_machine("m-2", json!({ "spec": { "dataTemplate": { "name": "workers" } } })).await;
        world.wait_metal3_ready("m-2").await;
        assert_eq!(world.host_of("m-2").as_deref(), Some("bmh-host-2"), "seed {seed}");
        world.expect_nothing("Metal3Machine/m-1").await;
        world.check_invariants().await;
    }
}

// Fault: all objects of Metal3 are restored with ownerReferences that lead nowhere.
// Shown: `Ready=False`, `OwnerMismatch`, where the garbage collector deleted the machine; no host is changed.
#[tokio::test(start_paused = true)]
async fn stale_owners_of_metal3_change_no_host() {
    let mut held = 0;
    for seed in 0..SEEDS / 2 {
        let world = running_metal3().await;
        let before = (effects(&world), world.host_of("m-1"));
        restore(&world, seed, OwnerReferences::Keep).await;
        world.advance_time(Duration::from_mins(10)).await;
        assert_eq!((effects(&world), world.host_of("m-1")), before, "seed {seed}");
        let machine = world.metal3_machine("m-1").unwrap();
        if !machine["metadata"]["deletionTimestamp"].is_null() {
            held += 1;
            let (reason, action) = (Reason::OwnerMismatch, "delete the Machine to have the host cleaned");
            world.expect_why("Metal3Machine/m-1", reason, "deleted by the garbage collector", action).await;
        }
        world.check_invariants().await;
    }
    assert!(held > 0, "the garbage collector never acted");
}

/// The garbage collector deletes the machine: it is held, and its host stays.
// Fault: the same with ownerReferences that lead nowhere.
// Shown: Events of adopted claims; no host is changed.
#[tokio::test(start_paused = true)]
async fn restore_with_stale_owners_changes_no_host() {
    let mut held = 0;
    for seed in 0..SEEDS {
        let world = running().await;
        let before = (effects(&world), provider_id(&world));
        restore(&world, seed, OwnerReferences::Keep).await;
        world.advance_time(Duration::from_mins(10)).await;
        assert_eq!(effects(&world), before.0, "seed {seed}");
        let object = world.get_object(MACHINES, "m-1").unwrap();
        if !object["metadata"]["deletionTimestamp"].is_null() {
            held += 1;
            let ready = world.machine_condition("m-1", Type::Ready).unwrap();
            assert_eq!(ready.reason, Reason::OwnerMismatch.as_str(), "seed {seed}: {}", ready.message);
            world
                .expect_why(
                    "machine/m-1",
                    Reason::OwnerMismatch,
                    "deleted by the garbage collector",
                    "delete the Machine to have the host cleaned",
                )
                .await;
        }
        assert_eq!(provider_id(&world), before.1, "seed {seed}");
        let claim = world.inventory("host-1").unwrap().claim().unwrap();
        assert_eq!(claim.baremetal_machine, "m-1", "seed {seed}");
        world.wait_until("host-2 is available", |world| world.is_available("host-2")).await;
        world.check_invariants().await;
    }
    assert!(held > 0, "the garbage collector never acted");
}

/// A backup from before the machine was created: its host says what it carries.
// Fault: a host carries a node that no machine knows.
// Shown: it is not available; condition with the next action.
#[tokio::test(start_paused = true)]
async fn host_with_an_unknown_node_is_not_claimed() {
    let world = World::with_hosts(&["host-1"]).await;
    let backup = world.get_object("machineinventories.elemental.cattle.io", "host-1").unwrap();
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    let before = world.host("host-1").system().effects();
    for (kind, name) in [(MACHINES, "m-1"), ("machines.cluster.x-k8s.io", "m-1"), (KINDS[2], "host-1")] {
        world.fake.take_out(kind, NAMESPACE, name);
    }
    world.fake.put_back(backup, OwnerReferences::Keep).unwrap();
    world
        .wait_until("the inventory explains", |world| {
            world.host_condition("host-1", Type::Ready).is_some_and(|ready| ready.reason == "HostCarriesNode")
        })
        .await;
    world.apply_machine("m-2").await;
    let action = "add a host to it or free one";
    world.wait_for_reason("m-2", Type::InventoryAllocated, Reason::PoolExhausted, action).await;
    world.expect_event("BaremetalMachine", "m-2", "PoolExhausted", "1 carrying a node");
    world
        .expect_why(
            "machine/m-2",
            Reason::HostCarriesNode,
            "the owner annotations were lost",
            "restore the machine",
        )
        .await;
    world.advance_time(Duration::from_hours(1)).await;
    assert_eq!(world.host("host-1").system().effects(), before);
    world.check_invariants().await;
}

// Fault: the machine of a node and the status of its host are lost, and an old request to install the host
// again is left over.
// Shown: reason `LiveBootAfterInstall` of the inventory, then `HostCarriesNode`; the host boots its disk.
#[tokio::test(start_paused = true)]
async fn left_over_reinstall_loses_no_node() {
    let mut world = World::with_hosts(&["host-1"]).await;
    let ask = json!({ "metadata": { "annotations": { annotation::REINSTALL: "/dev/vda" } } });
    world.patch("MachineInventory", "host-1", ask).await;
    let backup = world.get_object(KINDS[2], "host-1").unwrap();
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.host_mut("host-1").power_off();
    for (kind, name) in [(MACHINES, "m-1"), ("machines.cluster.x-k8s.io", "m-1"), (KINDS[2], "host-1")] {
        world.fake.take_out(kind, NAMESPACE, name);
    }
    world.fake.put_back(backup, OwnerReferences::Keep).unwrap();
    world.boot_iso("host-1", "hosts");
    let why = Reason::LiveBootAfterInstall;
    world
        .wait_until("the ISO leaves the disk alone", |world| {
            let installed = world.host_condition("host-1", Type::Installed);
            installed.is_some_and(|installed| installed.reason == why.as_str())
        })
        .await;
    let action = "remove the medium, and switch it on";
    world.expect_why("machineinventory/host-1", why, "its disk was left alone", action).await;
    world
        .wait_until("the host says what it carries", |world| {
            world.host_condition("host-1", Type::Ready).is_some_and(|ready| ready.reason == "HostCarriesNode")
        })
        .await;
    assert_eq!(world.host("host-1").installs(), 1);
    world.check_invariants().await;
}

// Fault: a backup is restored in which a machine holds a host that another machine got since then.
// Shown: reason `HostCarriesNode` of the machine names whose node it is.
#[tokio::test(start_paused = true)]
async fn host_of_a_later_machine_stays() {
    const OBJECTS: [&str; 3] = [MACHINES, "machines.cluster.x-k8s.io", KINDS[2]];
    let world = World::with_hosts(&["host-1"]).await;
    let read = |machine: &str| {
        let names = [machine, machine, "host-1"];
        std::iter::zip(OBJECTS, names).map(|(kind, name)| world.get_object(kind, name).unwrap()).collect()
    };
    let put_back = |objects: Vec<Value>| {
        for object in objects {
            world.fake.put_back(object, OwnerReferences::Drop).unwrap();
        }
    };
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    let backup: Vec<Value> = read("m-1");
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    world.apply_machine("m-2").await;
    world.wait_running("m-2").await;
    let newest: Vec<Value> = read("m-2");
    let before = world.host("host-1").system().effects();
    for (kind, name) in std::iter::zip(OBJECTS, ["m-2", "m-2", "host-1"]) {
        world.fake.take_out(kind, NAMESPACE, name);
    }
    world.fake.take_out(OBJECTS[1], NAMESPACE, "m-1");
    put_back(backup);
    adopt(&world, "m-1").await;
    let is_shown = |world: &World| {
        let shown = world.machine_condition("m-1", Type::InventoryAllocated);
        shown.is_some_and(|shown| shown.message.contains("runs the node of BaremetalMachine/m-2"))
    };
    world.wait_until("it says whose node it is", is_shown).await;
    let cause = "a restored claim is older than the node";
    world.expect_why("machine/m-1", Reason::HostCarriesNode, cause, "restore the machine of the node").await;
    world.delete_machine("m-1").await;
    world.wait_until("m-1 is gone", |world| world.machine("m-1").is_none()).await;
    world.wait_idle().await;
    assert!(world.inventory("host-1").unwrap().claim().is_none());
    put_back(newest.into_iter().take(2).collect());
    adopt(&world, "m-2").await;
    world.wait_until("m-2 has it again", |world| world.inventory("host-1").unwrap().claim().is_some()).await;
    world.wait_running("m-2").await;
    world.wait_idle().await;
    assert_eq!(world.host("host-1").system().effects(), before);
    world.check_invariants().await;
}

/// Objects of the seeds' systems carry no UID and no generation of a claim.
pub(super) struct Adoption;

impl Scenario for Adoption {
    async fn begin() -> World {
        let world = running().await;
        world.patch("Cluster", "c1", json!({ "spec": { "paused": true } })).await;
        world.wait_idle().await;
        world
    }

    async fn play(world: &mut World) {
        let before = (effects(world), provider_id(world));
        let foreign = json!({ "metadata": { "annotations": {
            "baremetal.cluster.io/owner-uid": null,
            "baremetal.cluster.io/claim-generation": null,
        } } });
        world.patch("MachineInventory", "host-1", foreign).await;
        let chosen =
            json!({ "metadata": { "annotations": { "baremetal.cluster.io/machine-inventory": null } } });
        world.patch("BaremetalMachine", "m-1", chosen).await;
        world.advance_time(Duration::from_hours(1)).await;
        let uid = |world: &World| world.inventory("host-1").unwrap().claim().unwrap().uid;
        assert_eq!(uid(world), None, "nothing is done while paused");
        world.patch("Cluster", "c1", json!({ "spec": { "paused": false } })).await;
        world.wait_until("the claim is adopted", |world| uid(world).is_some()).await;
        world.wait_idle().await;
        assert_eq!((effects(world), provider_id(world)), before);
        assert_eq!(world.phase("m-1"), Some(Phase::Running));
    }
}

#[tokio::test(start_paused = true)]
async fn imported_claims_are_adopted() {
    kill_at_every_write::<Adoption>().await;
}
