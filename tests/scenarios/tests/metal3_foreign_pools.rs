//! Addresses of pools of other providers, by the contract of Cluster API. The provider is simulated: it answers
//! claims as the in-cluster provider does.

use std::time::Duration;

use fake_apiserver::OwnerReferences;
use scenarios::{NAMESPACE, World};
use serde_json::{Value, json};

const CLAIMS: &str = "ipaddressclaims.ipam.cluster.x-k8s.io";
const ADDRESSES: &str = "ipaddresses.ipam.cluster.x-k8s.io";
const DATA: &str = "metal3datas.infrastructure.cluster.x-k8s.io";
const FINALIZER: &str = "ipam.cluster.x-k8s.io/ReleaseAddress";
const CLAIM: &str = "workers-0-racks";

async fn begin() -> World {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_metal3_cluster("c1").await;
    let pool = json!({ "name": "racks", "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool" });
    let key = |key: &str| {
        let mut item = pool.clone();
        item["key"] = json!(key);
        json!([item])
    };
    let spec = json!({
        "metaData": {
            "ipAddressesFromIPPool": key("ip"),
            "prefixesFromIPPool": key("prefix"),
            "gatewaysFromIPPool": key("gateway"),
        },
        "networkData": {
            "links": { "ethernets": [{ "type": "phy", "id": "ens4", "macAddress": { "fromHostInterface": "ens4" } }] },
            "networks": { "ipv4": [{ "id": "n", "link": "ens4", "fromPoolRef": pool, "routes": [
                { "network": "0.0.0.0", "gateway": { "fromPoolRef": pool } },
            ] }] },
            "services": {},
        },
    });
    world.create("Metal3DataTemplate", "workers", json!({ "spec": spec })).await;
    world.apply_metal3_machine("m-1", json!({ "spec": { "dataTemplate": { "name": "workers" } } })).await;
    world.wait_until("the address is claimed", |world| world.get_object(CLAIMS, CLAIM).is_some()).await;
    world
}

/// The provider gives the claim an address.
fn answer(world: &World) {
    let address = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
        "metadata": { "name": CLAIM, "namespace": NAMESPACE },
        "spec": {
            "claimRef": { "name": CLAIM }, "address": "10.77.0.9", "prefix": 16, "gateway": "10.77.0.1",
            "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "racks" },
        },
    });
    world.fake.put_back(address, OwnerReferences::Keep).unwrap();
    world.fake.edit((CLAIMS, NAMESPACE, CLAIM), |claim| {
        claim["metadata"]["finalizers"] = json!([FINALIZER]);
        claim["status"] = json!({ "addressRef": { "name": CLAIM } });
    });
}

fn message(world: &World) -> String {
    let data = world.get_object(DATA, "workers-0");
    data.map_or_else(String::new, |data| data["status"]["errorMessage"].to_string())
}

#[tokio::test(start_paused = true)]
async fn pools_of_other_providers_give_addresses() {
    let world = begin().await;
    let claim = world.get_object(CLAIMS, CLAIM).unwrap();
    let pool = json!({ "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "racks" });
    assert_eq!(claim["spec"], json!({ "clusterName": "c1", "poolRef": pool }));
    answer(&world);
    world.wait_metal3_ready("m-1").await;
    let seed = world.host("host-1").disk().nocloud_seed();
    let read = |file: &str| std::fs::read_to_string(seed.join(file)).unwrap().replace('"', "");
    for line in ["ip: 10.77.0.9", "prefix: 16", "gateway: 10.77.0.1"] {
        assert!(read("meta-data").contains(line), "{line}: {}", read("meta-data"));
    }
    for part in ["10.77.0.9/16", "via: 10.77.0.1"] {
        assert!(read("network-config").contains(part), "{part}: {}", read("network-config"));
    }
    // The provider has a finalizer on the claim, and the data waits for it.
    let ((), ()) = tokio::join!(world.delete_metal3_machine("m-1"), async {
        let is_deleted = |world: &World| {
            world
                .get_object(CLAIMS, CLAIM)
                .is_some_and(|claim| claim["metadata"]["deletionTimestamp"].is_string())
        };
        world.wait_until("the claim is released", is_deleted).await;
        assert!(world.get_object(DATA, "workers-0").is_some(), "the index is free after the address");
        world.fake.take_out(ADDRESSES, NAMESPACE, CLAIM);
        world.fake.take_out(CLAIMS, NAMESPACE, CLAIM);
    });
    assert!(world.get_object(DATA, "workers-0").is_none());
    world.check_invariants().await;
}

// Fault: the provider of a pool does not answer, then its pool is exhausted.
// Shown: condition `Metal3DataReady` of the Metal3Machine: `WaitingForMetal3Data` with the claim and the cause.
#[tokio::test(start_paused = true)]
async fn a_silent_provider_is_named() {
    let world = begin().await;
    world.advance_time(Duration::from_mins(20)).await;
    let silent = world.wait_metal3_reason("m-1", "WaitingForMetal3Data").await;
    assert!(silent.contains("IPAddressClaim workers-0-racks has no address and no answer"), "{silent}");
    assert!(silent.contains("InClusterIPPool racks of ipam.cluster.x-k8s.io exists"), "{silent}");
    world.fake.edit((CLAIMS, NAMESPACE, CLAIM), |claim| {
        claim["status"] = json!({ "conditions": [{
            "type": "Ready", "status": "False", "reason": "PoolExhausted", "message": "no free address",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] });
    });
    world
        .wait_until("the cause is shown", |world| message(world).contains("PoolExhausted: no free address"))
        .await;
    world.expect_why("Metal3Machine/m-1", "WaitingForMetal3Data", "PoolExhausted", "").await;
    answer(&world);
    world.wait_metal3_ready("m-1").await;
    world.check_invariants().await;
}

// Fault: the data of a claim on a pool of another provider is removed by force.
// Shown: Event `OrphanDeleted` of the IPAddressClaim, which its provider releases.
#[tokio::test(start_paused = true)]
async fn claims_of_lost_data_are_deleted() {
    let world = begin().await;
    answer(&world);
    world.wait_metal3_ready("m-1").await;
    for (kind, name) in [
        ("metal3machines.infrastructure.cluster.x-k8s.io", "m-1"),
        ("metal3dataclaims.infrastructure.cluster.x-k8s.io", "m-1"),
        (DATA, "workers-0"),
    ] {
        world.fake.take_out(kind, NAMESPACE, name);
    }
    world.advance_time(Duration::from_mins(25)).await;
    let is_deleted = |world: &World| {
        let claim: Option<Value> = world.get_object(CLAIMS, CLAIM);
        claim.is_some_and(|claim| claim["metadata"]["deletionTimestamp"].is_string())
    };
    assert!(!is_deleted(&world), "too early");
    world.wait_until("the claim is deleted", is_deleted).await;
    world.expect_event("IPAddressClaim", CLAIM, "OrphanDeleted", "did not come back");
    world.check_invariants().await;
}
