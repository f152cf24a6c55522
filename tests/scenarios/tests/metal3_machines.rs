//! Machines by Metal3 manifests on hosts without a BMC.

use std::collections::BTreeSet;

use coordinator_api::conditions::Reason;
use coordinator_api::names::annotation;
use scenarios::{Scenario, World, kill_at_every_write};
use serde_json::{Value, json};

fn seed(world: &World, host: &str, file: &str) -> String {
    std::fs::read_to_string(world.host(host).disk().nocloud_seed().join(file)).unwrap()
}

fn host_object(world: &World, host: &str) -> Value {
    world.get_object("baremetalhosts.metal3.io", host).unwrap()
}

#[tokio::test(start_paused = true)]
async fn machine_runs_on_host_and_releases_it() {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    let owner = |world: &World| {
        let annotations = world.inventory("host-1").unwrap().metadata.annotations.unwrap();
        annotations.get("baremetal.cluster.io/owner-baremetalhost").cloned()
    };
    assert_eq!(owner(&world).as_deref(), Some("bmh-host-1"));
    world.apply_metal3_cluster("c1").await;
    world.apply_metal3_machine("m-1", json!({})).await;
    world.wait_metal3_ready("m-1").await;
    world.wait_idle().await;
    let machine = world.metal3_machine("m-1").unwrap();
    assert_eq!(machine["spec"]["providerID"], "metal3://fleet/bmh-host-1/m-1");
    assert_eq!(machine["status"]["phase"], "provisioned");
    let host = host_object(&world, "bmh-host-1");
    assert_eq!(host["spec"]["consumerRef"]["name"], "m-1");
    let meta = seed(&world, "host-1", "meta-data");
    let uid = host["metadata"]["uid"].as_str().unwrap();
    for line in [
        format!("uuid: {uid}"),
        "providerid: fleet/bmh-host-1/m-1".to_owned(),
        "name: bmh-host-1".to_owned(),
        "metal3-namespace: fleet".to_owned(),
    ] {
        assert!(meta.replace('"', "").contains(&line), "{line}: {meta}");
    }
    let identity = std::fs::read_to_string(world.host("host-1").disk().state().node_identity()).unwrap();
    assert!(identity.contains("metal3://fleet/bmh-host-1/m-1") && identity.contains(uid), "{identity}");
    world.delete_metal3_machine("m-1").await;
    world.wait_until("the host is available", |world| world.host_state("bmh-host-1") == "available").await;
    world.wait_idle().await;
    let host = host_object(&world, "bmh-host-1");
    assert_eq!((&host["spec"]["consumerRef"], &host["spec"]["image"]), (&Value::Null, &Value::Null));
    assert_eq!(host["metadata"]["annotations"]["baremetal.cluster.io/provider-id"], Value::Null);
    assert!(!world.host("host-1").disk().state().node_identity().exists());
    world.delete("BareMetalHost", "bmh-host-1").await;
    world.wait_until("the inventory is free", |world| owner(world).is_none()).await;
    assert!(world.get_object("baremetalhosts.metal3.io", "bmh-host-1").is_none());
    let plans: Vec<_> = world.plans().into_iter().map(|(_, _, kind)| kind).collect();
    assert_eq!(plans, ["reprovision", "clean"]);
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn machines_at_once_get_a_host_each() {
    let names = ["host-1", "host-2", "host-3"];
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&names).await;
    world.start_coordinator("second");
    world.fake.faults().latency(std::time::Duration::from_millis(5));
    world.fake.faults().lag(std::time::Duration::from_millis(100));
    world.apply_metal3_cluster("c1").await;
    let machines = ["m-1", "m-2", "m-3", "m-4"];
    futures::future::join_all(machines.map(|name| world.apply_metal3_machine(name, json!({})))).await;
    let ready = |world: &World| {
        machines
            .iter()
            .filter(|name| {
                world.metal3_machine(name).is_some_and(|machine| machine["status"]["ready"] == true)
            })
            .count()
    };
    world.wait_until("three machines are ready", |world| ready(world) == 3).await;
    world.wait_idle().await;
    let used: BTreeSet<_> = machines.iter().filter_map(|name| world.host_of(name)).collect();
    assert_eq!((used.len(), ready(&world)), (3, 3), "{used:?}");
    let waiting = machines.iter().find(|name| world.host_of(name).is_none()).unwrap();
    world.advance_time(std::time::Duration::from_secs(10)).await;
    world.wait_metal3_reason(waiting, "NoHostAvailable").await;
    world.expect_event("Metal3Machine", waiting, "NoHostAvailable", "no BareMetalHost can be chosen: ");
    let freed = machines.iter().find(|name| world.host_of(name).is_some()).unwrap();
    world.delete_metal3_machine(freed).await;
    world.wait_metal3_ready(waiting).await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn kept_host_is_free_when_its_cluster_goes() {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_metal3_cluster("c1").await;
    let spec = json!({ "nodeReuse": true, "template": { "spec": {} } });
    world.create("Metal3MachineTemplate", "t", json!({ "spec": spec })).await;
    let cloned = json!({ "metadata": { "annotations": { "cluster.x-k8s.io/cloned-from-name": "t" } } });
    world.apply_metal3_machine("m-1", cloned).await;
    world.wait_metal3_ready("m-1").await;
    world.delete_metal3_machine("m-1").await;
    world.wait_idle().await;
    let host = host_object(&world, "bmh-host-1");
    let label = &host["metadata"]["labels"]["infrastructure.cluster.x-k8s.io/node-reuse"];
    assert_eq!((&host["spec"]["consumerRef"]["kind"], label), (&json!("Cluster"), &json!("md-workers")));
    world.delete("Cluster", "c1").await;
    let is_free = |world: &World| host_object(world, "bmh-host-1")["spec"]["consumerRef"].is_null();
    world.wait_until("the host is free", is_free).await;
    let label = &host_object(&world, "bmh-host-1")["metadata"]["labels"];
    assert_eq!(label["infrastructure.cluster.x-k8s.io/node-reuse"], Value::Null);
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn secrets_of_the_operator_reach_the_host() {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_metal3_cluster("c1").await;
    let given = json!({ "metaData": { "name": "meta" }, "networkData": { "name": "net" } });
    world.apply_metal3_machine("m-1", json!({ "spec": given })).await;
    world
        .wait_until("the host waits", |world| {
            host_object(world, "bmh-host-1")["status"]["conditions"].to_string().contains("Secret meta")
        })
        .await;
    world.create("Secret", "meta", json!({ "stringData": { "metaData": "name: other\nrack: '7'\n" } })).await;
    let data = json!({
        "links": [{ "type": "phy", "id": "eth9", "ethernet_mac_address": "52:54:00:00:00:99", "mtu": 1500 }],
        "networks": [{ "type": "ipv4", "id": "n", "link": "eth9", "ip_address": "10.77.0.5", "netmask": "255.255.255.0", "routes": [] }],
        "services": [],
    });
    world.create("Secret", "net", json!({ "stringData": { "networkData": data.to_string() } })).await;
    world.wait_metal3_ready("m-1").await;
    let meta = seed(&world, "host-1", "meta-data");
    assert!(meta.contains("name: other") && meta.contains("rack: \"7\""), "{meta}");
    let network = seed(&world, "host-1", "network-config");
    assert!(network.contains("10.77.0.5/24") && !network.contains("10.9.0.5"), "{network}");
    world.delete_metal3_machine("m-1").await;
    world.wait_until("the host is available", |world| world.host_state("bmh-host-1") == "available").await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn hosts_of_other_managers_are_never_touched() {
    let world = World::with_metal3().await;
    let spec = json!({ "online": true, "bmc": { "address": "redfish://bmc", "credentialsName": "bmc" }, "image": { "url": "https://x/os.raw" } });
    world.create("BareMetalHost", "ironic", json!({ "spec": spec })).await;
    let mark = world.fake.journal().mark();
    world.wait_idle().await;
    assert_eq!(world.requests_since(mark), []);
    assert_eq!(host_object(&world, "ironic")["status"], Value::Null);
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn one_inventory_has_one_owner() {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_bare_metal_host("second", "host-1").await;
    let message = |world: &World| host_object(world, "second")["status"]["errorMessage"].to_string();
    world.wait_until("the second is refused", |world| message(world).contains("bmh-host-1 names")).await;
    // A pool has no part in it either.
    world.apply_catalog().await;
    world.apply_cluster("c1").await;
    world.apply_pool("pool", &["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_idle().await;
    assert!(world.inventory("host-1").unwrap().claim().is_none());
    world.delete_machine("m-1").await;
    world.delete("MachineInventoryPool", "pool").await;
    world.delete("BareMetalHost", "bmh-host-1").await;
    world.wait_until("the second has it", |world| world.host_state("second") == "available").await;
    world.check_invariants().await;
}

/// A host registered as a `BareMetalHost`, a machine on it with an index and an address, and its release.
pub(super) struct Metal3Lifecycle;

impl Scenario for Metal3Lifecycle {
    async fn begin() -> World {
        let mut world = World::with_metal3().await;
        world.apply_registration().await;
        world.register_hosts(&["host-1"]).await;
        world.wait_idle().await;
        world
    }

    async fn play(world: &mut World) {
        world.apply_bare_metal_host("bmh-host-1", "host-1").await;
        world.apply_metal3_cluster("c1").await;
        let pool = json!({ "namePrefix": "net", "pools": [{ "subnet": "10.66.0.0/24" }] });
        world.create("IPPool", "net", json!({ "spec": pool })).await;
        let meta_data = json!({
            "indexes": [{ "key": "index" }],
            "ipAddressesFromIPPool": [{ "key": "ip", "name": "net" }],
        });
        world.create("Metal3DataTemplate", "workers", json!({ "spec": { "metaData": meta_data } })).await;
        world.apply_metal3_machine("m-1", json!({ "spec": { "dataTemplate": { "name": "workers" } } })).await;
        world.wait_metal3_ready("m-1").await;
        world.wait_idle().await;
        world.note_state("metal3machines.infrastructure.cluster.x-k8s.io", "m-1");
        world.note_state("baremetalhosts.metal3.io", "bmh-host-1");
        world.delete_metal3_machine("m-1").await;
        let is_free = |world: &World| world.host_state("bmh-host-1") == "available";
        world.wait_until("the host is available", is_free).await;
        world.expect_nothing("baremetalhost/bmh-host-1").await;
    }
}

// Fault: the coordinator is killed before or after any write of the lifecycle of a Metal3Machine.
// Shown: nothing: index, address and host are allocated once, and all are released.
#[tokio::test(start_paused = true)]
async fn crash_at_any_write_changes_no_outcome() {
    kill_at_every_write::<Metal3Lifecycle>().await;
}

// Fault: the clean of a Metal3Machine in deletion fails.
// Shown: the Metal3Machine and the BareMetalHost say why, and name the object on which a retry is asked for.
#[tokio::test(start_paused = true)]
async fn failed_clean_is_retried_by_its_host() {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_metal3_cluster("c1").await;
    world.apply_metal3_machine("m-1", json!({})).await;
    world.wait_metal3_ready("m-1").await;
    world.host("host-1").system().fail("remove-workload", 1).unwrap();
    world.begin_metal3_deletion("m-1").await;
    let place = format!("set the annotation {} on BareMetalHost bmh-host-1", annotation::RETRY_PLAN);
    let next = "kubectl baremetal release host-1 --retry-clean";
    world.expect_why("Metal3Machine/m-1", Reason::Cleaning, &place, next).await;
    world.expect_why("baremetalhost/bmh-host-1", Reason::CommandFailed, "remove-workload", next).await;
    std::fs::remove_file(world.host("host-1").disk().join("/simulation/fail/remove-workload")).unwrap();
    let retry = json!({ "metadata": { "annotations": { annotation::RETRY_PLAN: "" } } });
    world.patch("BareMetalHost", "bmh-host-1", retry).await;
    let is_free = |world: &World| world.host_state("bmh-host-1") == "available";
    world.wait_until("the host is available", is_free).await;
    world.finish_deletions();
    let host = world.get_object("baremetalhosts.metal3.io", "bmh-host-1").unwrap();
    assert_eq!(host["metadata"]["annotations"].get(annotation::RETRY_PLAN), None);
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn another_image_replaces_the_node() {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_bootstrap("by-hand", &scenarios::bootstrap_data()).await;
    let image = |tag: &str| {
        json!({ "spec": {
        "image": { "url": format!("oci://registry.example/os:{tag}") },
        "userData": { "name": "by-hand-bootstrap", "namespace": "fleet" },
    } })
    };
    for tag in ["v1", "v2"] {
        world.patch("BareMetalHost", "bmh-host-1", image(tag)).await;
        let runs = |world: &World| {
            let running = world.inventory("host-1").unwrap().status.unwrap().host.unwrap().image;
            world.host_state("bmh-host-1") == "provisioned" && running.ends_with(tag)
        };
        world.wait_until(&format!("{tag} runs"), runs).await;
    }
    let plans: Vec<_> = world.plans().into_iter().map(|(_, _, kind)| kind).collect();
    assert_eq!(plans, ["reprovision", "clean", "reprovision"]);
    world.check_invariants().await;
}
