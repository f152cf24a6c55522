//! Addresses of `IPPool`s: given once, given back, given again.

use std::collections::BTreeSet;

use coordinator_api::conditions::Reason;
use scenarios::{NAMESPACE, Scenario, World, kill_at_every_write};
use serde_json::{Value, json};

const POOLS: &str = "ippools.ipam.metal3.io";
const CLAIMS: &str = "ipclaims.ipam.metal3.io";
const ADDRESSES: &str = "ipaddresses.ipam.metal3.io";

async fn apply_pool(world: &World, name: &str, spec: Value) {
    let mut whole = json!({ "namePrefix": name });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    world.create("IPPool", name, json!({ "spec": whole })).await;
}

async fn apply_claim(world: &World, name: &str, pool: &str) {
    world.create("IPClaim", name, json!({ "spec": { "pool": { "name": pool } } })).await;
}

/// The address that a claim reports, once its object exists.
fn address_of(world: &World, claim: &str) -> Option<String> {
    let claim = world.get_object(CLAIMS, claim)?;
    let object = world.get_object(ADDRESSES, claim["status"]["address"]["name"].as_str()?)?;
    assert_eq!(object["spec"]["claim"]["name"], claim["metadata"]["name"]);
    object["spec"]["address"].as_str().map(str::to_owned)
}

fn error_of(world: &World, claim: &str) -> String {
    let claim = world.get_object(CLAIMS, claim).unwrap();
    claim["status"]["errorMessage"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn claims_get_addresses_and_give_them_back() {
    let world = World::with_metal3().await;
    let ranges = json!([{ "start": "10.0.0.1", "end": "10.0.0.2" }]);
    let spec = json!({ "pools": ranges, "prefix": 24, "gateway": "10.0.0.254", "dnsServers": ["10.0.0.53"] });
    apply_pool(&world, "net", spec).await;
    for claim in ["a", "b", "c"] {
        apply_claim(&world, claim, "net").await;
        world.wait_idle().await;
    }
    let given = |claim| address_of(&world, claim);
    assert_eq!([given("a"), given("b")].map(Option::unwrap), ["10.0.0.1", "10.0.0.2"]);
    assert!(error_of(&world, "c").starts_with("Exhausted IP Pools"), "{}", error_of(&world, "c"));
    let object = world.get_object(ADDRESSES, "net-10-0-0-1").unwrap();
    let spec = &object["spec"];
    assert_eq!(
        (&spec["prefix"], &spec["gateway"], &spec["dnsServers"]),
        (&json!(24), &json!("10.0.0.254"), &json!(["10.0.0.53"]))
    );
    let indexes = world.get_object(POOLS, "net").unwrap()["status"]["indexes"].clone();
    assert_eq!(indexes, json!({ "a": "10.0.0.1", "b": "10.0.0.2" }));
    world.delete("IPClaim", "a").await;
    world
        .wait_until("c has the address of a", |world| address_of(world, "c").as_deref() == Some("10.0.0.1"))
        .await;
    assert_eq!((error_of(&world, "c").as_str(), world.get_object(CLAIMS, "a")), ("", None));
    world.delete("IPPool", "net").await;
    world.wait_idle().await;
    assert!(world.get_object(POOLS, "net").is_some(), "held while addresses are in use");
    for claim in ["b", "c"] {
        world.delete("IPClaim", claim).await;
    }
    world.wait_until("the pool is gone", |world| world.get_object(POOLS, "net").is_none()).await;
    assert!(world.fake.look_at_all(ADDRESSES).is_empty());
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn cluster_pools_get_labels_with_finalizer() {
    let world = World::with_metal3().await;
    world.wait_idle().await;
    let mark = world.fake.journal().mark();
    apply_pool(&world, "net", json!({ "clusterName": "c1", "pools": [{ "subnet": "10.0.0.0/24" }] })).await;
    world.wait_idle().await;
    let labels = &world.get_object(POOLS, "net").unwrap()["metadata"]["labels"];
    let want = json!({ "cluster.x-k8s.io/cluster-name": "c1", "cluster.x-k8s.io/provider": "ipam-metal3" });
    assert_eq!(*labels, want);
    assert_eq!(
        world.count_requests(mark).writes,
        2,
        "metadata, then status: {:?}",
        world.requests_since(mark)
    );
    // One that loses its labels gets them again.
    let without = json!({ "metadata": { "labels": { "cluster.x-k8s.io/provider": null } } });
    world.patch("IPPool", "net", without).await;
    world.wait_idle().await;
    assert_eq!(world.get_object(POOLS, "net").unwrap()["metadata"]["labels"], want);
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn claims_at_once_never_share_an_address() {
    let world = World::with_metal3().await;
    // Two leaders at a time, and caches that are behind.
    world.start_coordinator("second");
    world.fake.faults().latency(std::time::Duration::from_millis(5));
    world.fake.faults().lag(std::time::Duration::from_millis(100));
    apply_pool(&world, "net", json!({ "pools": [{ "subnet": "10.0.0.0/26" }] })).await;
    let names: Vec<_> = (0..40).map(|number| format!("claim-{number}")).collect();
    futures::future::join_all(names.iter().map(|name| apply_claim(&world, name, "net"))).await;
    world
        .wait_until("every claim has an address", |world| {
            names.iter().all(|name| address_of(world, name).is_some())
        })
        .await;
    world.wait_idle().await;
    let given: BTreeSet<_> = names.iter().filter_map(|name| address_of(&world, name)).collect();
    assert_eq!((given.len(), world.fake.look_at_all(ADDRESSES).len()), (40, 40), "{given:?}");
    for name in &names {
        world.delete("IPClaim", name).await;
    }
    world.wait_until("every address is free", |world| world.fake.look_at_all(ADDRESSES).is_empty()).await;
    world.check_invariants().await;
}

/// The only address of a pool, allocated, released and allocated again.
pub(super) struct LastAddress;

impl Scenario for LastAddress {
    async fn begin() -> World {
        let world = World::with_metal3().await;
        apply_pool(&world, "net", json!({ "pools": [{ "start": "10.0.0.1", "end": "10.0.0.1" }] })).await;
        world.wait_idle().await;
        world
    }

    async fn play(world: &mut World) {
        apply_claim(world, "a", "net").await;
        world.wait_until("a has the address", |world| address_of(world, "a").is_some()).await;
        world.delete("IPClaim", "a").await;
        world.wait_until("a is removed", |world| world.get_object(CLAIMS, "a").is_none()).await;
        apply_claim(world, "b", "net").await;
        world.wait_until("b has the address", |world| address_of(world, "b").is_some()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_leaks_no_address() {
    kill_at_every_write::<LastAddress>().await;
}

#[tokio::test(start_paused = true)]
async fn restored_claims_keep_their_addresses() {
    let world = World::with_metal3().await;
    apply_pool(&world, "net", json!({ "pools": [{ "start": "10.0.0.1", "end": "10.0.0.9" }] })).await;
    apply_claim(&world, "a", "net").await;
    apply_claim(&world, "b", "net").await;
    world
        .wait_until("both have addresses", |world| {
            ["a", "b"].iter().all(|claim| address_of(world, claim).is_some())
        })
        .await;
    world.wait_idle().await;
    let before = [address_of(&world, "a"), address_of(&world, "b")];
    // Another UID, no status, and the objects of the addresses are restored last.
    for name in ["a", "b"] {
        world.fake.edit((CLAIMS, NAMESPACE, name), |object| {
            object["metadata"]["uid"] = json!(format!("restored-{name}"));
            object.as_object_mut().unwrap().remove("status");
        });
    }
    world.fake.take_out(ADDRESSES, NAMESPACE, "net-10-0-0-1");
    apply_claim(&world, "c", "net").await;
    world.wait_until("c has an address", |world| address_of(world, "c").is_some()).await;
    world
        .wait_until("both have addresses again", |world| {
            ["a", "b"].iter().all(|claim| address_of(world, claim).is_some())
        })
        .await;
    assert_eq!([address_of(&world, "a"), address_of(&world, "b")], before);
    assert_eq!(address_of(&world, "c").as_deref(), Some("10.0.0.3"));
    world.check_invariants().await;
}

const ADDRESS_CLAIMS: &str = "ipaddressclaims.ipam.cluster.x-k8s.io";
const GIVEN: &str = "ipaddresses.ipam.cluster.x-k8s.io";

async fn apply_address_claim(world: &World, name: &str, pool: &str) {
    let pool = json!({ "apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": pool });
    world.create("IPAddressClaim", name, json!({ "spec": { "clusterName": "c1", "poolRef": pool } })).await;
}

/// The address that a claim of Cluster API reports.
fn given_to(world: &World, claim: &str) -> Option<String> {
    let claim = world.get_object(ADDRESS_CLAIMS, claim)?;
    let ready = claim["status"]["conditions"].as_array()?.iter().find(|found| found["type"] == "Ready")?;
    let object = world.get_object(GIVEN, claim["status"]["addressRef"]["name"].as_str()?)?;
    assert_eq!(
        (&object["spec"]["claimRef"]["name"], &ready["status"]),
        (&claim["metadata"]["name"], &json!("True"))
    );
    object["spec"]["address"].as_str().map(str::to_owned)
}

fn reason_of(world: &World, claim: &str) -> String {
    let claim = world.get_object(ADDRESS_CLAIMS, claim).unwrap();
    claim["status"]["conditions"][0]["reason"].as_str().unwrap_or_default().to_owned()
}

// Fault: claims of Cluster API and of Metal3 with the same names ask one IPPool at once, and for more than it has.
// Shown: condition `Ready` of the IPAddressClaim with `PoolExhausted`; no address is given twice.
#[tokio::test(start_paused = true)]
async fn claims_of_cluster_api_share_the_pools() {
    let world = World::with_metal3().await;
    world.apply_metal3_cluster("c1").await;
    let ranges = json!([{ "start": "10.0.0.1", "end": "10.0.0.4" }]);
    apply_pool(&world, "net", json!({ "pools": ranges, "prefix": 24, "gateway": "10.0.0.254" })).await;
    apply_pool(&world, "six", json!({ "pools": [{ "subnet": "fd00::/64" }] })).await;
    for name in ["a", "b"] {
        apply_claim(&world, name, "net").await;
        apply_address_claim(&world, name, "net").await;
    }
    let addresses = |world: &World| {
        let given = ["a", "b"].into_iter().flat_map(|name| [address_of(world, name), given_to(world, name)]);
        given.collect::<Option<BTreeSet<_>>>()
    };
    world.wait_until("every claim has an address", |world| addresses(world).is_some()).await;
    assert_eq!(addresses(&world).unwrap().len(), 4);
    let given = world.get_object(GIVEN, "a").unwrap();
    assert_eq!((&given["spec"]["prefix"], &given["spec"]["gateway"]), (&json!(24), &json!("10.0.0.254")));
    // The other family is another claim.
    apply_address_claim(&world, "a-six", "six").await;
    world.wait_until("of the other family", |world| given_to(world, "a-six").is_some()).await;
    assert_eq!(given_to(&world, "a-six").as_deref(), Some("fd00::1"));

    apply_address_claim(&world, "late", "net").await;
    world.wait_until("it waits", |world| reason_of(world, "late") == "PoolExhausted").await;
    world
        .expect_why(
            "ipaddressclaim/late",
            Reason::PoolExhausted,
            "every host or address of the pool is in use",
            "a range to the IPPool",
        )
        .await;
    let freed = given_to(&world, "a");
    world.delete("IPAddressClaim", "a").await;
    world.wait_until("it has the address", |world| given_to(world, "late") == freed).await;
    assert!(world.get_object(GIVEN, "a").is_none() && address_of(&world, "a").is_some());

    // What a claim was given comes back while the claim is there.
    world.fake.take_out(GIVEN, NAMESPACE, "b");
    world.restart_coordinator();
    world.wait_until("it is given again", |world| given_to(world, "b").is_some()).await;
    for name in ["b", "late", "a-six"] {
        world.delete("IPAddressClaim", name).await;
    }
    world.wait_until("nothing is given", |world| world.fake.look_at_all(GIVEN).is_empty()).await;
    world.wait_idle().await;
    assert_eq!(world.fake.look_at_all(ADDRESSES).len(), 2, "those of the IPClaims");
    world.check_invariants().await;
}

/// The claim of a Cluster that is paused, then resumed.
pub(super) struct PausedClaim;

impl Scenario for PausedClaim {
    async fn begin() -> World {
        let world = World::with_metal3().await;
        world.apply_metal3_cluster("c1").await;
        apply_pool(&world, "net", json!({ "pools": [{ "subnet": "10.0.0.0/30" }] })).await;
        world.patch("Cluster", "c1", json!({ "spec": { "paused": true } })).await;
        world.wait_idle().await;
        world
    }

    async fn play(world: &mut World) {
        apply_address_claim(world, "a", "net").await;
        world.wait_idle().await;
        let action = "set spec.paused of the Cluster to false";
        world.expect_why("ipaddressclaim/a", Reason::Paused, "spec.paused is true", action).await;
        assert!(world.fake.look_at_all(ADDRESSES).is_empty());
        world.patch("Cluster", "c1", json!({ "spec": { "paused": false } })).await;
        world.wait_until("a has an address", |world| given_to(world, "a").is_some()).await;
        world.delete("IPAddressClaim", "a").await;
        world.wait_until("a is removed", |world| world.get_object(ADDRESS_CLAIMS, "a").is_none()).await;
        world.wait_idle().await;
        assert!(world.fake.look_at_all(ADDRESSES).is_empty() && world.fake.look_at_all(GIVEN).is_empty());
    }
}

// Fault: the Cluster of a claim of Cluster API is paused, and the coordinator is killed at any write.
// Shown: nothing is given or given back while it is paused; no address leaks.
#[tokio::test(start_paused = true)]
async fn a_paused_claim_of_cluster_api_waits() {
    kill_at_every_write::<PausedClaim>().await;
}

// Fault: an IPPool is missing, then has a range without an address.
// Shown: condition `Ready` of the IPAddressClaim: `AllocationFailed`, and of the IPPool: `PoolInvalid`; the claim gets
// its address once the range is corrected.
#[tokio::test(start_paused = true)]
async fn claim_on_unusable_pool_waits_for_correction() {
    let world = World::with_metal3().await;
    world.apply_metal3_cluster("c1").await;
    apply_address_claim(&world, "a", "net").await;
    let is_refused = |world: &World| reason_of(world, "a") == Reason::AllocationFailed.as_str();
    world.wait_until("it waits for its pool", is_refused).await;
    let missing = "no IPPool net in this namespace";
    world
        .expect_why("ipaddressclaim/a", Reason::AllocationFailed, missing, "create or restore ippool/net")
        .await;
    // For IPv6 no rule compares the start with the subnet.
    let outside = json!([{ "start": "2001:db9::1", "subnet": "2001:db8::/64" }]);
    apply_pool(&world, "net", json!({ "pools": outside, "prefix": 24 })).await;
    let is_invalid = |world: &World| {
        let pool = world.get_object(POOLS, "net").unwrap();
        pool["status"]["conditions"].to_string().contains(Reason::PoolInvalid.as_str())
    };
    world.wait_until("the pool is refused", is_invalid).await;
    world
        .expect_why(
            "ippool/net",
            Reason::PoolInvalid,
            "start is above end",
            "correct the field that the message names",
        )
        .await;
    world.wait_idle().await;
    assert!(is_refused(&world) && world.fake.look_at_all(ADDRESSES).is_empty());
    let corrected = json!({ "pools": [{ "start": "10.0.0.1", "end": "10.0.0.9" }] });
    world.patch("IPPool", "net", json!({ "spec": corrected })).await;
    world.wait_until("it has an address", |world| given_to(world, "a").as_deref() == Some("10.0.0.1")).await;
    world.expect_nothing("ippool/net").await;
    world.check_invariants().await;
}
