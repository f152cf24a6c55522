use std::collections::BTreeSet;
use std::sync::Arc;

use coordinator_api::capi::{self, Cluster, ClusterSpec};
use coordinator_api::conditions::Reason;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::{annotation, label};
use coordinator_api::pool::MachineInventoryPool;
use serde_json::{Value, json};

use super::*;

const EXISTS: Presence = Presence::Exists;
const DELETED: Presence = Presence::Deleted;
const EARLY: Timestamp = Timestamp::UNIX_EPOCH;

fn key(name: &str) -> Key {
    Key::new("fleet", name)
}

fn keys<const N: usize>(names: [&str; N]) -> BTreeSet<Key> {
    names.into_iter().map(key).collect()
}

/// An attached host that can be claimed.
fn host(name: &str, annotations: &Value) -> MachineInventory {
    serde_json::from_value(json!({
        "apiVersion": "elemental.cattle.io/v1beta1",
        "kind": "MachineInventory",
        "metadata": { "name": name, "namespace": "fleet", "annotations": annotations },
        "spec": {},
        "status": {
            "plan": { "secretRef": { "name": name } },
            "host": {
                "session": { "replica": "r1", "bootId": "b1", "since": "2026-01-01T00:00:00Z" },
                "carried": {},
            },
        },
    }))
    .unwrap()
}

fn in_pool(name: &str, pool: &str) -> MachineInventory {
    host(name, &json!({ annotation::POOL: pool }))
}

fn claimed(name: &str, pool: &str, machine: &str) -> MachineInventory {
    host(
        name,
        &json!({
            annotation::POOL: pool,
            annotation::OWNER_BAREMETAL_MACHINE: machine,
            annotation::OWNER_CLUSTER: "c1",
        }),
    )
}

fn pool(name: &str, generation: i64, members: &[String]) -> Arc<MachineInventoryPool> {
    let members: Vec<_> = members.iter().map(|member| json!({ "name": member })).collect();
    let pool = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
        "kind": "MachineInventoryPool",
        "metadata": { "name": name, "namespace": "fleet", "uid": name, "generation": generation },
        "spec": { "clusterName": "c1", "machineInventories": members },
    });
    Arc::new(serde_json::from_value(pool).unwrap())
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

fn machine(name: &str, host: Option<&str>) -> BaremetalMachine {
    serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
        "kind": "BaremetalMachine",
        "metadata": {
            "name": name, "namespace": "fleet",
            "labels": { label::CLUSTER_NAME: "c1" },
            "annotations": host.map(|host| json!({ annotation::MACHINE_INVENTORY: host })),
        },
        "spec": { "machineInventoryPoolRef": { "name": "p1" } },
    }))
    .unwrap()
}

fn cluster(paused: Option<bool>) -> Cluster {
    let mut cluster = Cluster::new(
        "c1",
        &capi::cluster_resource("v1beta2"),
        ClusterSpec { paused, ..ClusterSpec::default() },
    );
    cluster.metadata.namespace = Some("fleet".to_owned());
    cluster
}

fn choose(index: &Index, for_machine: &str) -> Option<String> {
    index.with_roster(&key(for_machine), "p1", |roster, is_reserved| {
        Some(roster?.choose_member(&Wish::default(), EARLY, is_reserved).ok()?.name.clone())
    })
}

#[test]
fn a_claimed_host_triggers_its_machine_and_pool() {
    let index = Index::default();
    index.apply_pool(&pool("p1", 1, &names(["h1", "h2"])), EXISTS);
    index.apply_host(&in_pool("h1", "p1"), EXISTS);
    let triggers = index.apply_host(&claimed("h1", "p1", "m1"), EXISTS);
    assert_eq!(triggers.keys_of(Kind::MachineInventory), keys(["h1"]));
    assert_eq!(triggers.keys_of(Kind::BaremetalMachine), keys(["m1"]));
    assert_eq!(triggers.keys_of(Kind::MachineInventoryPool), keys(["p1"]));
    assert_eq!(index.hosts_by_claim(KIND, &key("m1")), keys(["h1"]));
    let again = index.apply_host(&claimed("h1", "p1", "m1"), EXISTS);
    assert_eq!(again.keys_of(Kind::MachineInventoryPool), keys([]), "the availability did not change");
    let released = index.apply_host(&in_pool("h1", "p1"), EXISTS);
    assert_eq!(released.keys_of(Kind::BaremetalMachine), keys(["m1"]), "the former owner is triggered");
    assert_eq!(index.hosts_by_claim(KIND, &key("m1")), keys([]));
}

#[test]
fn a_deleted_machine_triggers_the_hosts_it_holds() {
    let index = Index::default();
    index.apply_machine(&machine("m1", Some("h1")), EXISTS);
    index.apply_host(&claimed("h1", "p1", "m1"), EXISTS);
    assert_eq!(
        index.apply_machine(&machine("m1", Some("h1")), EXISTS).keys_of(Kind::MachineInventory),
        keys([])
    );
    let triggers = index.apply_machine(&machine("m1", Some("h1")), DELETED);
    assert_eq!(triggers.keys_of(Kind::MachineInventory), keys(["h1"]));
    assert_eq!(triggers.keys_of(Kind::BaremetalMachine), keys([]));
}

#[test]
fn a_paused_cluster_triggers_machines_and_hosts_once() {
    let index = Index::default();
    index.apply_machine(&machine("m1", Some("h1")), EXISTS);
    index.apply_host(&claimed("h1", "p1", "m1"), EXISTS);
    index.apply_cluster(&cluster(None), EXISTS);
    let paused = index.apply_cluster(&cluster(Some(true)), EXISTS);
    assert_eq!(
        (paused.keys_of(Kind::BaremetalMachine), paused.keys_of(Kind::MachineInventory)),
        (keys(["m1"]), keys(["h1"]))
    );
    assert_eq!(index.apply_cluster(&cluster(Some(true)), EXISTS), Triggers::default());
    assert_eq!(
        index.apply_cluster(&cluster(Some(true)), DELETED).keys_of(Kind::BaremetalMachine),
        keys(["m1"])
    );
}

fn infrastructure(endpoint: Option<&str>, balancer: &Value) -> BaremetalCluster {
    let endpoint = endpoint.map(|host| json!({ "host": host, "port": 6443 }));
    serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
        "kind": "BaremetalCluster",
        "metadata": { "name": "b1", "namespace": "fleet" },
        "spec": { "controlPlaneEndpoint": endpoint, "controlPlaneLoadBalancer": balancer },
    }))
    .unwrap()
}

#[test]
fn an_endpoint_that_changes_triggers_the_pools_once() {
    let index = Index::default();
    index.apply_pool(&pool("p1", 1, &[]), EXISTS);
    let apply = |endpoint, balancer: &Value, presence| {
        let triggers = index.apply_baremetal_cluster(&infrastructure(endpoint, balancer), presence);
        assert_eq!(triggers.keys_of(Kind::BaremetalCluster), keys(["b1"]));
        triggers.keys_of(Kind::MachineInventoryPool)
    };
    let internal = json!({ "host": "192.0.2.1", "port": 6443, "type": "Internal" });
    assert_eq!(apply(None, &Value::Null, EXISTS), keys([]), "no Cluster names it");
    let mut cluster = cluster(None);
    assert_eq!(index.apply_cluster(&cluster, EXISTS).keys_of(Kind::MachineInventoryPool), keys(["p1"]));
    let reference =
        json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "BaremetalCluster", "name": "b1" });
    cluster.spec.infrastructure_ref = Some(serde_json::from_value(reference).unwrap());
    assert_eq!(
        index.apply_cluster(&cluster, EXISTS).keys_of(Kind::MachineInventoryPool),
        keys(["p1"]),
        "it names it now"
    );
    assert_eq!(apply(None, &Value::Null, EXISTS), keys([]), "nothing has changed");
    assert_eq!(apply(None, &internal, EXISTS), keys(["p1"]));
    assert_eq!(apply(Some("192.0.2.1"), &internal, EXISTS), keys([]), "the same place");
    assert_eq!(apply(Some("192.0.2.9"), &internal, EXISTS), keys(["p1"]), "the nodes use another one");
    assert_eq!(apply(None, &internal, DELETED), keys(["p1"]));
    assert_eq!(index.apply_cluster(&cluster, DELETED).keys_of(Kind::MachineInventoryPool), keys(["p1"]));
    assert_eq!(apply(None, &internal, EXISTS), keys([]), "the Cluster is gone");
}

/// A host of the group `g`, with a clean plan for its former machine.
fn cleaned(name: &str, state: Option<&str>) -> MachineInventory {
    let mut inventory = claimed(name, "p1", "m0");
    inventory.metadata.annotations.as_mut().unwrap().extend(in_group());
    let plan = json!({
        "secretRef": { "name": name }, "id": "clean-1", "type": "clean", "generation": 1, "state": state,
        "checksum": "0".repeat(64),
    });
    inventory.status.as_mut().unwrap().plan = Some(serde_json::from_value(plan).unwrap());
    inventory
}

fn in_group() -> [(String, String); 1] {
    [(annotation::NODE_REUSE_GROUP.to_owned(), "g".to_owned())]
}

fn released(name: &str) -> MachineInventory {
    let mut inventory = in_pool(name, "p1");
    inventory.metadata.annotations.as_mut().unwrap().extend(in_group());
    inventory
}

#[test]
fn all_that_wait_for_return_are_called() {
    let index = Index::default();
    let mut pool = MachineInventoryPool::clone(&pool("p1", 1, &names(["h1", "h2", "h3"])));
    pool.spec.node_reuse = Some(true);
    index.apply_pool(&Arc::new(pool), EXISTS);
    let wait_at = |now: &str| {
        for name in ["m1", "m2", "m3"] {
            index.apply_machine(&machine(name, None), EXISTS);
            let wish = Wish { failure_domain: None, reuse_group: Some("g".to_owned()) };
            index.set_wait(&key(name), Some(Wait::Host(wish)), now.parse().unwrap());
        }
    };
    let wait = || wait_at("2026-01-01T00:00:00Z");
    let machines = |host| index.apply_host(&host, EXISTS).keys_of(Kind::BaremetalMachine);
    let mut deleted = machine("m0", None);
    index.apply_machine(&deleted, EXISTS);
    for host in ["h1", "h2"] {
        machines(cleaned(host, Some("Applied")));
    }
    deleted.metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    let triggers = index.apply_machine(&deleted, EXISTS);
    assert_eq!(triggers.keys_of(Kind::MachineInventoryPool), keys(["p1"]), "its hosts are on their way back");
    assert_eq!(index.apply_machine(&deleted, EXISTS).keys_of(Kind::MachineInventoryPool), keys([]));
    wait();
    assert_eq!(machines(in_pool("h3", "p1")), keys([]), "they leave alone what is free");
    assert_eq!(machines(cleaned("h1", Some("Applied"))), keys(["m0"]), "it comes back");
    assert_eq!(machines(released("h1")), keys(["m0", "m1"]), "another one comes back");
    assert_eq!(machines(cleaned("h2", Some("Applied"))), keys(["m0"]));
    assert_eq!(machines(released("h2")), keys(["m0", "m2", "m3"]), "none comes back any more");
    for host in ["h1", "h2"] {
        machines(cleaned(host, None));
    }
    wait();
    assert_eq!(machines(cleaned("h1", Some("Failed"))), keys(["m0"]), "the other one comes back");
    assert_eq!(machines(cleaned("h2", Some("Failed"))), keys(["m0", "m1", "m2", "m3"]));
    for host in ["h1", "h2"] {
        machines(cleaned(host, None));
    }
    wait_at("2026-01-01T00:29:59Z");
    machines(claimed("h3", "p1", "m9"));
    assert_eq!(machines(in_pool("h3", "p1")), keys(["m9"]), "they wait for h1 and h2");
    wait_at("2026-01-01T00:30:00Z");
    machines(claimed("h3", "p1", "m9"));
    assert_eq!(machines(in_pool("h3", "p1")), keys(["m1", "m9"]), "the wait is over");
}

#[test]
fn an_available_member_triggers_waiting_machines() {
    let index = Index::default();
    index.apply_pool(&pool("p1", 1, &names(["h1"])), EXISTS);
    index.apply_machine(&machine("m1", None), EXISTS);
    index.apply_machine(&machine("m2", None), EXISTS);
    index.set_wait(&key("m1"), Some(Wait::Decision), EARLY);
    assert_eq!(index.apply_host(&in_pool("h1", "p1"), EXISTS).keys_of(Kind::BaremetalMachine), keys(["m1"]));
    assert_eq!(index.apply_host(&in_pool("h1", "p1"), EXISTS).keys_of(Kind::BaremetalMachine), keys([]));
    assert_eq!(index.apply_catalog().keys_of(Kind::BaremetalMachine), keys(["m1"]));
    index.set_wait(&key("m1"), None, EARLY);
    assert_eq!(index.apply_catalog().keys_of(Kind::BaremetalMachine), keys([]));
    index.set_wait(&key("m2"), Some(Wait::Catalog), EARLY);
    index.apply_machine(&machine("m2", None), DELETED);
    assert_eq!(
        index.apply_catalog().keys_of(Kind::BaremetalMachine),
        keys([]),
        "a deleted machine waits for nothing"
    );
    for name in ["m3", "m4"] {
        index.apply_machine(&machine(name, None), EXISTS);
        index.set_wait(&key(name), Some(Wait::Host(Wish::default())), EARLY);
    }
    index.apply_host(&claimed("h1", "p1", "m1"), EXISTS);
    assert_eq!(
        index.apply_host(&in_pool("h1", "p1"), EXISTS).keys_of(Kind::BaremetalMachine),
        keys(["m1", "m3"])
    );
    let gone = index.apply_machine(&machine("m3", None), DELETED);
    assert_eq!(gone.keys_of(Kind::BaremetalMachine), keys(["m4"]), "it was called and did not come");
}

#[test]
fn reservations_end_with_claim_or_machine() {
    let index = Index::default();
    index.apply_pool(&pool("p1", 1, &names(["h1", "h2"])), EXISTS);
    for host in ["h1", "h2"] {
        index.apply_host(&in_pool(host, "p1"), EXISTS);
    }
    for name in ["m1", "m2", "m3"] {
        index.apply_machine(&machine(name, None), EXISTS);
    }
    assert!(index.reserve_host("h1", &key("m1")));
    assert!(!index.reserve_host("h1", &key("m2")));
    assert_eq!(choose(&index, "m1").as_deref(), Some("h1"), "its own reservation");
    assert_eq!(choose(&index, "m2").as_deref(), Some("h2"));
    assert!(index.reserve_host("h2", &key("m2")));
    assert_eq!(choose(&index, "m3"), None);
    let any_member = || Wait::Host(Wish::default());
    index.set_wait(&key("m3"), Some(any_member()), EARLY);
    let triggers = index.apply_machine(&machine("m2", None), DELETED);
    assert_eq!(triggers.keys_of(Kind::BaremetalMachine), keys(["m3"]), "who waits may have it");
    index.set_wait(&key("m3"), Some(any_member()), EARLY);
    assert!(!index.reserve_host("h2", &key("m2")), "a deleted machine reserves nothing");
    index.apply_host(&claimed("h1", "p1", "m1"), EXISTS);
    assert_eq!(index.release_reservation(&key("m1")).keys_of(Kind::BaremetalMachine), keys([]), "claimed");
    assert_eq!(
        index.apply_host(&in_pool("h1", "p1"), EXISTS).keys_of(Kind::BaremetalMachine),
        keys(["m1", "m3"])
    );
    assert_eq!(choose(&index, "m3").as_deref(), Some("h1"), "claimed and given back");
}

#[test]
fn a_member_that_no_pool_holds_is_unheld() {
    let index = Index::default();
    index.apply_host(&host("h1", &json!({})), EXISTS);
    let triggers = index.apply_pool(&pool("p1", 1, &names(["h1"])), EXISTS);
    assert_eq!(triggers.keys_of(Kind::MachineInventoryPool), keys(["p1"]));
    assert_eq!(index.unheld_members(&key("p1")), ["h1"]);
    index.apply_host(&in_pool("h1", "p1"), EXISTS);
    assert!(index.unheld_members(&key("p1")).is_empty());
}

#[test]
fn a_pool_without_its_member_frees_it() {
    let index = Index::default();
    index.apply_pool(&pool("p1", 1, &names(["h1"])), EXISTS);
    index.apply_pool(&pool("p2", 1, &names(["h1"])), EXISTS);
    index.apply_host(&in_pool("h1", "p1"), EXISTS);
    assert!(index.unheld_members(&key("p2")).is_empty(), "p1 lists it");
    let triggers = index.apply_pool(&pool("p1", 2, &[]), EXISTS);
    assert!(
        triggers.keys_of(Kind::MachineInventoryPool).contains(&key("p2")),
        "without an event of the host"
    );
    assert_eq!(index.unheld_members(&key("p2")), ["h1"]);
    index.apply_host(&claimed("h1", "p1", "m1"), EXISTS);
    assert!(index.unheld_members(&key("p2")).is_empty(), "a claimed host is not taken over");
}

#[test]
fn a_deleted_pool_frees_its_members() {
    let index = Index::default();
    index.apply_pool(&pool("p1", 1, &names(["h1"])), EXISTS);
    index.apply_pool(&pool("p2", 1, &names(["h1"])), EXISTS);
    index.apply_host(&in_pool("h1", "p1"), EXISTS);
    index.apply_pool(&pool("p1", 1, &names(["h1"])), DELETED);
    assert_eq!(index.unheld_members(&key("p2")), ["h1"]);
    assert_eq!(index.read_roster(&key("p1"), |_| ()), None);
}

#[test]
fn an_open_session_is_found_by_replica() {
    let index = Index::default();
    index.apply_host(&in_pool("h1", "p1"), EXISTS);
    assert_eq!(index.hosts_by_replica("r1"), keys(["h1"]));
    let mut ended = json!(in_pool("h1", "p1"));
    ended["status"]["host"]["session"]["ended"] = json!("2026-01-01T00:00:01Z");
    index.apply_host(&serde_json::from_value(ended).unwrap(), EXISTS);
    assert_eq!(index.hosts_by_replica("r1"), keys([]));
}

#[test]
fn domains_of_labelled_pools_are_for_control_planes() {
    for (case, pools, want) in [
        ("none is labelled", [("d1", false), ("d2", false)], &[("d1", true), ("d2", true)][..]),
        ("one is labelled", [("d1", true), ("d2", false)], &[("d1", true), ("d2", false)]),
        ("both are labelled", [("d1", true), ("d2", true)], &[("d1", true), ("d2", true)]),
        ("both have the domain", [("d1", true), ("d1", false)], &[("d1", true)]),
    ] {
        let index = Index::default();
        for (name, (domain, is_labelled)) in ["p1", "p2"].into_iter().zip(pools) {
            let member = format!("host-of-{name}");
            let mut inventory = in_pool(&member, name);
            inventory.labels_mut().insert(label::FAILURE_DOMAIN.to_owned(), domain.to_owned());
            index.apply_host(&inventory, EXISTS);
            let mut pool = pool(name, 1, &[member]);
            index.apply_pool(&pool, EXISTS);
            if is_labelled {
                // The generation stays: a label is no part of the spec.
                Arc::make_mut(&mut pool).labels_mut().insert(label::CONTROL_PLANE.to_owned(), String::new());
                index.apply_pool(&pool, EXISTS);
            }
        }
        let want: BTreeMap<_, _> = want.iter().map(|(name, is)| ((*name).to_owned(), *is)).collect();
        assert_eq!(index.failure_domains(&key("c1")), want, "{case}");
        assert_eq!(index.failure_domains(&key("c2")), BTreeMap::new(), "{case}: another cluster");
    }
}

#[test]
fn an_event_costs_the_same_beside_many_others() {
    let touched = |members: usize| {
        let index = Index::default();
        let names: Vec<_> = (0..members).map(|number| format!("h{number}")).collect();
        index.apply_pool(&pool("p1", 1, &names), EXISTS);
        for name in &names {
            index.apply_host(&in_pool(name, "p1"), EXISTS);
            index.apply_machine(&machine(name, None), EXISTS);
            let wait = Wait::Host(Wish::default());
            index.set_wait(&key(name), Some(wait), EARLY);
        }
        let before = index.read_inner().touched;
        index.apply_host(&claimed("h7", "p1", "m1"), EXISTS);
        index.apply_pool(&pool("p1", 1, &names), EXISTS);
        let triggers = index.apply_host(&in_pool("h7", "p1"), EXISTS);
        assert_eq!(choose(&index, "m2").as_deref(), Some("h0"));
        (index.read_inner().touched - before, triggers.into_iter().count())
    };
    assert_eq!(touched(100), touched(10_000));
    assert_eq!(touched(100).0, 4);
}

#[test]
fn changed_admission_concerns_the_pools_that_select() {
    let index = Index::default();
    let registration = |approval: &str, refusal: &str| -> MachineRegistration {
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "SuccessfullyCreated", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let refusal = json!({ "reason": refusal, "message": "", "time": "2026-01-01T00:00:00Z" });
        let object = json!({
            "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineRegistration",
            "metadata": { "name": "hosts", "namespace": "fleet" }, "spec": { "approval": approval },
            "status": { "conditions": [ready], "lastRefusal": refusal },
        });
        serde_json::from_value(object).unwrap()
    };
    let mut selecting = MachineInventoryPool::clone(&pool("selecting", 1, &[]));
    selecting.spec.selector = Some(serde_json::from_value(json!({})).unwrap());
    index.apply_pool(&Arc::new(selecting), EXISTS);
    index.apply_pool(&pool("listing", 1, &[]), EXISTS);
    let reason = || index.admission_condition(&key("selecting")).unwrap().reason;
    for (name, registration, presence, concerns, is_open) in [
        ("it is new", registration("Automatic", ""), EXISTS, true, true),
        ("another refusal", registration("Automatic", "NameTaken"), EXISTS, false, true),
        ("approval", registration("Manual", ""), EXISTS, true, false),
        ("it is gone", registration("Manual", ""), DELETED, true, false),
    ] {
        let pools = index.apply_registration(&registration, presence).keys_of(Kind::MachineInventoryPool);
        assert_eq!(pools, if concerns { keys(["selecting"]) } else { keys([]) }, "{name}");
        let want = if is_open { Reason::TokenAdmitsMembers } else { Reason::AdmissionGuarded };
        assert_eq!(reason(), want, "{name}");
    }
    assert_eq!(index.admission_condition(&key("listing")), None);
}
