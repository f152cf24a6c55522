//! Claims, data and addresses whose holder was removed by force.

use std::time::Duration;

use coordinator_api::metal3::names;
use fake_apiserver::{GarbageCollection, OwnerReferences, Verb};
use scenarios::{NAMESPACE, World};
use serde_json::{Value, json};

const MACHINES: &str = "metal3machines.infrastructure.cluster.x-k8s.io";
const CLAIMS: &str = "metal3dataclaims.infrastructure.cluster.x-k8s.io";
const DATA: &str = "metal3datas.infrastructure.cluster.x-k8s.io";
const IP_CLAIMS: &str = "ipclaims.ipam.metal3.io";
const ADDRESSES: &str = "ipaddresses.ipam.metal3.io";
/// In the order in which one releases the next.
const CHAIN: [&str; 5] = [MACHINES, CLAIMS, DATA, IP_CLAIMS, ADDRESSES];
/// Shorter than the time for which a holder may be missing.
const SHORT: Duration = Duration::from_mins(25);

fn only(world: &World, kind: &str) -> Option<Value> {
    world.fake.look_at_all(kind).into_iter().find(|object| object["metadata"]["namespace"] == NAMESPACE)
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// The kind of an object as Events name it.
fn kind(object: &Value) -> String {
    object["kind"].as_str().unwrap().to_owned()
}

async fn begin() -> World {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1", "host-2"]).await;
    world.apply_metal3_cluster("c1").await;
    let ranges = json!([{ "start": "10.66.0.10", "end": "10.66.0.19" }]);
    let pool = json!({ "namePrefix": "net", "pools": ranges, "prefix": 24, "gateway": "10.66.0.1" });
    world.create("IPPool", "net", json!({ "spec": pool })).await;
    let meta_data = json!({ "ipAddressesFromIPPool": [{ "key": "ip", "name": "net" }] });
    world.create("Metal3DataTemplate", "workers", json!({ "spec": { "metaData": meta_data } })).await;
    world.apply_metal3_machine("m-1", json!({ "spec": { "dataTemplate": { "name": "workers" } } })).await;
    world.wait_metal3_ready("m-1").await;
    world.wait_idle().await;
    world.fake.garbage_collection(GarbageCollection::After(Duration::from_secs(2)));
    world
}

fn is_empty(world: &World, kinds: &[&str]) -> bool {
    kinds.iter().all(|kind| only(world, kind).is_none())
}

// Fault: a machine, a claim or data with all its finalizers is removed by force.
// Shown: Events `Orphaned` and `OrphanDeleted` of the object that it held; index, address and Secret are free after half an hour.
#[tokio::test(start_paused = true)]
async fn objects_of_a_lost_holder_are_released() {
    for (place, lost) in CHAIN[..4].iter().enumerate() {
        let world = begin().await;
        let left = &CHAIN[place + 1..];
        let orphan = only(&world, left[0]).unwrap();
        world.fake.take_out(lost, NAMESPACE, &name(&only(&world, lost).unwrap()));
        if *lost != MACHINES {
            // Else its machine would claim data again.
            world.fake.take_out(MACHINES, NAMESPACE, "m-1");
            for above in &CHAIN[1..place] {
                let object = only(&world, above).unwrap();
                world.fake.take_out(above, NAMESPACE, &name(&object));
            }
        }
        world.advance_time(Duration::from_secs(1)).await;
        world.expect_event(&kind(&orphan), &name(&orphan), "Orphaned", "restore it before");
        let mark = world.fake.journal().mark();
        world.advance_time(SHORT).await;
        assert!(left.iter().all(|kind| only(&world, kind).is_some()), "{lost}: deleted too early");
        let requests = world.requests_since(mark);
        let asked = requests.iter().filter(|entry| entry.request.resource.starts_with("metal3"));
        assert!(asked.count() < 4, "{lost}: nothing is asked for again and again: {requests:?}");
        let has_secret = |world: &World| world.fake.look("secrets", NAMESPACE, "m-1-metadata").is_some();
        world.wait_until(lost, |world| is_empty(world, left) && !has_secret(world)).await;
        world.expect_event(&kind(&orphan), &name(&orphan), "OrphanDeleted", "did not come back");
        world.wait_idle().await;
        let pool = world.get_object("ippools.ipam.metal3.io", "net").unwrap();
        assert_eq!(pool["status"]["indexes"], Value::Null, "{lost}");
        world.check_invariants().await;
    }
}

// Fault: a machine, its claim, its data or its IPClaim is removed by force with what holds it, and all are restored
// before what they hold is deleted.
// Shown: Event `Orphaned` of the next object; nothing is released, and the restore ends the wait.
#[tokio::test(start_paused = true)]
async fn restored_holders_keep_what_they_hold() {
    for place in 1..CHAIN.len() {
        let world = begin().await;
        let before = CHAIN.map(|kind| only(&world, kind).unwrap());
        for (kind, object) in CHAIN.iter().zip(&before).take(place) {
            world.fake.take_out(kind, NAMESPACE, &name(object));
        }
        world.advance_time(SHORT).await;
        let (held, holder) = (&before[place], &before[place - 1]);
        let why = format!("{} {} does not exist: restore it before", kind(holder), name(holder));
        world.expect_event(&kind(held), &name(held), "Orphaned", &why);
        for object in &before[..place] {
            world.fake.put_back(object.clone(), OwnerReferences::Keep).unwrap();
        }
        world.advance_time(Duration::from_secs(20)).await;
        for (kind, before) in CHAIN.iter().zip(&before) {
            let object = only(&world, kind).unwrap();
            assert_eq!(name(&object), name(before));
            assert_eq!(object["metadata"]["annotations"].get(names::ORPHANED_SINCE), None, "{object}");
            assert_eq!(object["status"].get("errorMessage"), None, "{object}");
        }
        world.check_invariants().await;
    }
}

// Fault: the machine of a running node is removed by force, and its address is reserved for the next machine.
// Shown: Event `AddressRefused` of the IPClaim of the next machine, with the host; the node stays the only holder.
#[tokio::test(start_paused = true)]
async fn address_of_a_node_is_kept_from_others() {
    let world = begin().await;
    let own = world.host_of("m-1").unwrap();
    let inventory = own.strip_prefix("bmh-").unwrap();
    world.fake.edit(("machineinventories.elemental.cattle.io", NAMESPACE, inventory), |inventory| {
        inventory["status"]["host"]["addresses"] = json!(["10.66.0.10"]);
    });
    world.fake.take_out(MACHINES, NAMESPACE, "m-1");
    world.advance_time(SHORT).await;
    world.wait_until("all is released", |world| is_empty(world, &CHAIN)).await;
    let kept = json!({ "spec": { "preAllocations": { "workers-0-net": "10.66.0.10" } } });
    world.patch("IPPool", "net", kept).await;
    world.apply_metal3_machine("m-2", json!({ "spec": { "dataTemplate": { "name": "workers" } } })).await;
    world
        .wait_until("the claim is refused", |world| {
            let claim = only(world, IP_CLAIMS);
            claim.is_some_and(|claim| {
                claim["status"]["errorMessage"].to_string().contains(&format!("host {inventory} runs a node"))
            })
        })
        .await;
    world.expect_event("IPClaim", "workers-0-net", "AddressRefused", "runs a node with 10.66.0.10");
    assert!(only(&world, ADDRESSES).is_none());
    world.check_invariants().await;
}

// Fault: the cache of the coordinator has lost a machine that exists.
// Shown: nothing: the API server is asked, and the claim stays.
#[tokio::test(start_paused = true)]
async fn a_stale_cache_makes_no_orphan() {
    let world = begin().await;
    let machine = only(&world, MACHINES).unwrap();
    world.fake.faults().lag_of_kind("coordinator", "metal3machines", Duration::from_secs(30));
    world.fake.take_out(MACHINES, NAMESPACE, "m-1");
    world.fake.put_back(machine, OwnerReferences::Keep).unwrap();
    let mark = world.fake.journal().mark();
    world.advance_time(Duration::from_mins(2)).await;
    let claim = only(&world, CLAIMS).unwrap();
    assert_eq!(claim["metadata"]["annotations"][names::ORPHANED_SINCE], Value::Null, "{claim}");
    assert!(world.requests_since(mark).iter().all(|entry| entry.request.verb != Verb::Delete));
    world.expect_nothing("Metal3Machine/m-1").await;
    world.check_invariants().await;
}
