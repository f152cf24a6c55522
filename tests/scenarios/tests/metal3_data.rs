//! Data of machines: an index, addresses, rendered Secrets.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::metal3::names;
use fake_apiserver::{Matching, Refusal, Verb};
use scenarios::{NAMESPACE, Scenario, World, bootstrap_data, kill_at_every_write};
use serde_json::{Value, json};

const DATA: &str = "metal3datas.infrastructure.cluster.x-k8s.io";
const CLAIMS: &str = "metal3dataclaims.infrastructure.cluster.x-k8s.io";
const TEMPLATES: &str = "metal3datatemplates.infrastructure.cluster.x-k8s.io";
const ADDRESSES: &str = "ipaddresses.ipam.metal3.io";
const HOSTS: &str = "baremetalhosts.metal3.io";

async fn apply_template(world: &World, name: &str, rest: Value) {
    let mut spec = json!({
        "metaData": {
            "indexes": [{ "key": "index", "prefix": "n-" }],
            "ipAddressesFromIPPool": [{ "key": "ip", "name": "net" }],
            "fromHostInterfaces": [{ "key": "mac", "interface": "ens4" }],
            "objectNames": [{ "key": "machine", "object": "machine" }],
        },
        "networkData": {
            "links": { "ethernets": [{ "type": "phy", "id": "ens4", "macAddress": { "fromHostInterface": "ens4" } }] },
            "networks": { "ipv4": [{ "id": "n", "link": "ens4", "ipAddressFromIPPool": "net", "routes": [
                { "network": "0.0.0.0", "gateway": { "fromIPPool": "net" }, "services": { "dnsFromIPPool": "net" } },
            ] }] },
        },
    });
    spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    world.create("Metal3DataTemplate", name, json!({ "spec": spec })).await;
}

async fn prepare(hosts: &[&str]) -> World {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(hosts).await;
    world.apply_metal3_cluster("c1").await;
    let ranges = json!([{ "start": "10.66.0.10", "end": "10.66.0.19" }]);
    let pool = json!({ "namePrefix": "net", "pools": ranges, "prefix": 24, "gateway": "10.66.0.1", "dnsServers": ["10.66.0.53"] });
    world.create("IPPool", "net", json!({ "spec": pool })).await;
    world
}

fn with_template(name: &str) -> Value {
    json!({ "spec": { "dataTemplate": { "name": name } } })
}

fn secret(world: &World, name: &str, key: &str) -> String {
    let secret = world.fake.look("secrets", NAMESPACE, name).unwrap();
    String::from_utf8(STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn rendered_data_reaches_host_and_is_returned() {
    let world = prepare(&["host-1"]).await;
    apply_template(&world, "workers", json!({})).await;
    world.apply_metal3_machine("m-1", with_template("workers")).await;
    world.wait_metal3_ready("m-1").await;
    world.wait_idle().await;
    let data = world.get_object(DATA, "workers-0").unwrap();
    assert_eq!((&data["status"]["ready"], &data["spec"]["claim"]["name"]), (&json!(true), &json!("m-1")));
    let indexes = world.get_object(TEMPLATES, "workers").unwrap()["status"]["indexes"].clone();
    assert_eq!(indexes, json!({ "m-1": 0 }));
    let meta = secret(&world, "m-1-metadata", "metaData");
    for line in ["index: n-0", "ip: 10.66.0.10", "machine: m-1", "providerid: fleet/bmh-host-1/m-1"] {
        assert!(meta.replace('"', "").contains(line), "{line}: {meta}");
    }
    assert!(secret(&world, "m-1-networkdata", "networkData").contains("10.66.0.10"));
    let seed = world.host("host-1").disk().nocloud_seed();
    let read = |file: &str| std::fs::read_to_string(seed.join(file)).unwrap();
    assert!(read("meta-data").contains("index: n-0"), "{}", read("meta-data"));
    let network = read("network-config").replace('"', "");
    for part in ["10.66.0.10/24", "via: 10.66.0.1", "10.66.0.53"] {
        assert!(network.contains(part), "{part}: {network}");
    }
    assert_eq!(read("network_data.json"), secret(&world, "m-1-networkdata", "networkData"));
    let status = world.metal3_machine("m-1").unwrap()["status"].clone();
    assert_eq!(status["renderedData"]["name"], "workers-0");
    let conditions = status["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|found| found["type"] == Type::Metal3DataReady.as_str()).unwrap();
    assert_eq!(ready["reason"], Reason::Metal3DataSecretsReady.as_str());
    world.delete_metal3_machine("m-1").await;
    assert!(!seed.join("network_data.json").exists(), "a cleaned host keeps no document of its machine");
    for kind in [DATA, CLAIMS, "ipclaims.ipam.metal3.io", ADDRESSES] {
        assert!(world.fake.look_at_all(kind).is_empty(), "{kind}");
    }
    assert!(world.fake.look("secrets", NAMESPACE, "m-1-metadata").is_none());
    world.delete("Metal3DataTemplate", "workers").await;
    world.wait_until("the template is gone", |world| world.get_object(TEMPLATES, "workers").is_none()).await;
    world.wait_until("the host is available", |world| world.host_state("bmh-host-1") == "available").await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn machines_at_once_get_an_index_each() {
    let hosts = ["host-1", "host-2", "host-3"];
    let world = prepare(&hosts).await;
    world.start_coordinator("second");
    world.fake.faults().latency(Duration::from_millis(5));
    world.fake.faults().lag(Duration::from_millis(100));
    apply_template(&world, "workers", json!({})).await;
    let machines = ["m-1", "m-2", "m-3"];
    futures::future::join_all(
        machines.map(|name| world.apply_metal3_machine(name, with_template("workers"))),
    )
    .await;
    for machine in machines {
        world.wait_metal3_ready(machine).await;
    }
    world.wait_idle().await;
    let mut indexes: Vec<_> =
        world.fake.look_at_all(DATA).iter().map(|data| data["spec"]["index"].clone()).collect();
    indexes.sort_by_key(Value::as_i64);
    assert_eq!(json!(indexes), json!([0, 1, 2]));
    assert_eq!(world.fake.look_at_all(ADDRESSES).len(), 3);
    // The lowest index that is free is given again, also by a template that replaces the first.
    let freed = world.fake.look_at_all(DATA).into_iter().find(|data| data["spec"]["index"] == 1).unwrap();
    let freed = freed["spec"]["claim"]["name"].as_str().unwrap().to_owned();
    world.delete_metal3_machine(&freed).await;
    apply_template(&world, "workers-2", json!({ "templateReference": "workers" })).await;
    world.apply_metal3_machine("m-4", with_template("workers-2")).await;
    world.wait_metal3_ready("m-4").await;
    let data = world.get_object(DATA, "workers-1").unwrap();
    assert_eq!(
        (&data["spec"]["claim"]["name"], &data["spec"]["template"]["name"]),
        (&json!("m-4"), &json!("workers-2"))
    );
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_waits_for_its_template_and_pool() {
    let world = prepare(&["host-1"]).await;
    world.delete("IPPool", "net").await;
    world.apply_metal3_machine("m-1", with_template("workers")).await;
    let message = world.wait_metal3_reason("m-1", "WaitingForMetal3Data").await;
    assert!(message.contains("Metal3DataTemplate workers"), "{message}");
    apply_template(&world, "workers", json!({})).await;
    world
        .wait_until("the pool is missed", |world| {
            world.metal3_machine("m-1").unwrap()["status"]
                .to_string()
                .contains("no IPPool net in this namespace")
        })
        .await;
    let pool = json!({ "namePrefix": "net", "pools": [{ "subnet": "10.66.0.0/24" }] });
    world.create("IPPool", "net", json!({ "spec": pool })).await;
    world.wait_metal3_ready("m-1").await;
    world.check_invariants().await;
}

// Fault: the coordinator may not create IPClaims.
// Shown: Event `ApiRequestFailed` of the Metal3Data; the machine waits, and goes on once it may.
#[tokio::test(start_paused = true)]
async fn refused_claims_are_events_of_the_data() {
    let world = prepare(&["host-1"]).await;
    let claims = Matching::any().user("coordinator").verb(Verb::Create).resource("ipclaims");
    let refused = world.fake.faults().fail(claims, usize::MAX, Refusal::Forbidden);
    apply_template(&world, "workers", json!({})).await;
    world.apply_metal3_machine("m-1", with_template("workers")).await;
    world.wait_until("a claim is refused", |_| refused.is_met()).await;
    world.advance_time(Duration::from_secs(1)).await;
    world.expect_event("Metal3Data", "workers-0", Reason::ApiRequestFailed.as_str(), "it is retried");
    assert!(world.fake.look_at_all("ipclaims.ipam.metal3.io").is_empty());
    world.fake.faults().clear();
    world.wait_metal3_ready("m-1").await;
    world.check_invariants().await;
}

// Fault: a rendered Secret is deleted before the plan of its host is made, and while its node runs.
// Shown: it is rendered again when the host waits for it, or when the machine is changed.
#[tokio::test(start_paused = true)]
async fn a_secret_that_is_deleted_is_rendered_again() {
    let world = prepare(&["host-1"]).await;
    apply_template(&world, "workers", json!({})).await;
    world.apply_metal3_machine_with("m-1", Value::Null, with_template("workers")).await;
    let waits = |world: &World, text: &str| {
        world.get_object(HOSTS, "bmh-host-1").unwrap()["status"].to_string().contains(text)
    };
    world.wait_until("the host waits", |world| waits(world, "Secret m-1-bootstrap with")).await;
    let before = secret(&world, "m-1-metadata", "metaData");
    world.fake.take_out("secrets", NAMESPACE, "m-1-metadata");
    world.apply_bootstrap("m-1", &bootstrap_data()).await;
    world.wait_until("the Secret is missed", |world| waits(world, "Secret m-1-metadata with")).await;
    world.wait_metal3_ready("m-1").await;
    assert_eq!(secret(&world, "m-1-metadata", "metaData"), before);
    // Of a node that runs, when the machine is changed.
    world.wait_idle().await;
    world.fake.take_out("secrets", NAMESPACE, "m-1-metadata");
    world.patch("Metal3Machine", "m-1", json!({ "spec": { "failureDomain": "rack-1" } })).await;
    world
        .wait_until("the Secret is there again", |world| {
            world.fake.look("secrets", NAMESPACE, "m-1-metadata").is_some()
        })
        .await;
    assert_eq!(secret(&world, "m-1-metadata", "metaData"), before);
    world.expect_nothing("Metal3Machine/m-1").await;
    world.check_invariants().await;
}

/// A claim on an index, and one on an address, of Cluster `c1`.
async fn create_claims(world: &World, name: &str) {
    let metadata = json!({ "labels": { "cluster.x-k8s.io/cluster-name": "c1" } });
    let template = json!({ "template": { "name": "workers" } });
    world.create("Metal3DataClaim", name, json!({ "metadata": metadata, "spec": template })).await;
    let pool = json!({ "pool": { "name": "net" } });
    world.create("IPClaim", name, json!({ "metadata": metadata, "spec": pool })).await;
}

/// Indexes and addresses of a Cluster that is paused while they are claimed, and while they are given back.
pub(super) struct PausedData;

impl Scenario for PausedData {
    async fn begin() -> World {
        let world = prepare(&["host-1"]).await;
        world.patch("Cluster", "c1", json!({ "spec": { "paused": true } })).await;
        world.wait_idle().await;
        world
    }

    async fn play(world: &mut World) {
        let pause = |is_paused: bool| json!({ "spec": { "paused": is_paused } });
        let mark = world.fake.journal().mark();
        apply_template(world, "workers", json!({ "clusterName": "c1" })).await;
        world.apply_metal3_machine("m-1", with_template("workers")).await;
        create_claims(world, "other").await;
        world.wait_idle().await;
        world.expect_why("Metal3Machine/m-1", "Paused", "", "").await;
        assert_eq!([DATA, ADDRESSES].map(|kind| world.fake.look_at_all(kind).len()), [0, 0]);
        let template = world.get_object(TEMPLATES, "workers").unwrap();
        assert_eq!(template["metadata"]["finalizers"], Value::Null, "{:?}", world.requests_since(mark));
        world.patch("Cluster", "c1", pause(false)).await;
        world.wait_metal3_ready("m-1").await;
        let is_made = |world: &World| {
            let claims = world.fake.look_at_all(CLAIMS);
            let indexed = claims
                .iter()
                .filter(|claim| claim["metadata"]["annotations"][names::CHOSEN_INDEX].is_string());
            indexed.count() == 2 && world.fake.look_at_all(ADDRESSES).len() == 2
        };
        world.wait_until("all have indexes and addresses", is_made).await;
        let template = world.get_object(TEMPLATES, "workers").unwrap();
        assert_eq!(template["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"], "c1");
        world.patch("Cluster", "c1", pause(true)).await;
        world.delete("Metal3DataClaim", "other").await;
        world.delete("IPClaim", "other").await;
        world.advance_time(std::time::Duration::from_mins(1)).await;
        assert_eq!([CLAIMS, ADDRESSES].map(|kind| world.fake.look_at_all(kind).len()), [2, 2]);
        world.patch("Cluster", "c1", pause(false)).await;
        let is_given_back = |world: &World| {
            [DATA, CLAIMS, ADDRESSES].iter().all(|kind| world.fake.look_at_all(kind).len() == 1)
        };
        world.wait_until("the other claims are given back", is_given_back).await;
    }
}

// Fault: the Cluster is paused while indexes and addresses are claimed and while they are given back, and the coordinator is killed at any write.
// Shown: nothing is made or given back while it is paused; everything is afterwards.
#[tokio::test(start_paused = true)]
async fn a_paused_cluster_holds_data_and_addresses() {
    kill_at_every_write::<PausedData>().await;
}

/// What a host reports of its network.
fn report_addresses(world: &World, host: &str, addresses: &[&str]) {
    world.fake.edit(("machineinventories.elemental.cattle.io", NAMESPACE, host), |inventory| {
        inventory["status"]["host"]["addresses"] = json!(addresses);
    });
}

#[tokio::test(start_paused = true)]
async fn free_hosts_keep_addresses_for_own_machines() {
    let world = prepare(&["host-1", "host-2"]).await;
    let small = json!([{ "start": "10.66.1.10", "end": "10.66.1.10" }]);
    world.create("IPPool", "small", json!({ "spec": { "namePrefix": "small", "pools": small } })).await;
    // As its last machine left it.
    report_addresses(&world, "host-1", &["10.66.0.10", "10.66.1.10"]);
    world.wait_idle().await;
    let claim = |name: &str| world.get_object("ipclaims.ipam.metal3.io", name).unwrap();
    for (name, pool) in [("plain", "net"), ("waits", "small")] {
        world.create("IPClaim", name, json!({ "spec": { "pool": { "name": pool } } })).await;
    }
    world.wait_idle().await;
    assert_eq!(claim("plain")["status"]["address"]["name"], "net-10-66-0-11", "the next one");
    let message = claim("waits")["status"]["errorMessage"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("10.66.1.10 is free, but host host-1 still uses it"), "{message}");
    apply_template(&world, "workers", json!({})).await;
    for machine in ["m-1", "m-2"] {
        world.apply_metal3_machine(machine, with_template("workers")).await;
    }
    for machine in ["m-1", "m-2"] {
        world.wait_metal3_ready(machine).await;
        let meta_data = secret(&world, &format!("{machine}-metadata"), "metaData");
        let own =
            if world.host_of(machine).as_deref() == Some("bmh-host-1") { "10.66.0.10" } else { "10.66.0.12" };
        assert!(meta_data.contains(&format!("ip: \"{own}\"")), "{machine}: {meta_data}");
    }
    // As a node again it reports what it has now.
    world
        .wait_until("the claim has what the host gave up", |world| {
            world.get_object(ADDRESSES, "small-10-66-1-10").is_some()
        })
        .await;
    world.check_invariants().await;
}
