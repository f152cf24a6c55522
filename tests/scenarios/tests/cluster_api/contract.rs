//! The rules for what a provider does, at v1beta2; those that read Cluster and Machine at both versions.

use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::machine::Phase;
use coordinator_api::names::annotation;
use scenarios::World;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::definitions::schema;

const CLUSTERS: &str = "baremetalclusters.infrastructure.cluster.x-k8s.io";
pub(crate) const DOMAIN: &str = "infrastructure.cluster.x-k8s.io/failure-domain";

/// Those at which a contract is kept.
pub(super) const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// Where Cluster and Machine are served at this version alone.
pub(crate) async fn at_version(version: &'static str, hosts: &[&str]) -> World {
    let mut world = World::with_cluster_api(version).await;
    world.create_prerequisites(hosts).await;
    world
}

pub(super) async fn running() -> World {
    running_at("v1beta2").await
}

pub(super) async fn running_at(version: &'static str) -> World {
    let world = at_version(version, &["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world
}

pub(crate) fn baremetal_cluster(world: &World, name: &str) -> Value {
    world.get_object(CLUSTERS, name).unwrap()
}

pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap()
}

pub(crate) fn ready(world: &World) -> (String, String) {
    let found = world.machine_condition("m-1", Type::Ready).unwrap();
    (found.status, found.reason)
}

// InfraMachine

#[tokio::test(start_paused = true)]
async fn infra_machine_provider_id() {
    let world = running().await;
    let machine = world.machine("m-1").unwrap();
    assert_eq!(machine.spec.provider_id.as_deref(), Some("baremetal:///host-1"));
    let bounds = schema("BaremetalMachine", "spec/providerID");
    assert_eq!((&bounds["minLength"], &bounds["maxLength"]), (&json!(1), &json!(512)));
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn infra_machine_initialization_completed() {
    let world = running().await;
    let status = world.machine("m-1").unwrap().status.unwrap();
    assert!(status.ready && status.initialization.unwrap().provisioned == Some(true));
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn infra_machine_addresses() {
    let world = running().await;
    let addresses = world.machine("m-1").unwrap().status.unwrap().addresses;
    let known = ["Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS"];
    assert!(!addresses.is_empty() && addresses.iter().all(|address| known.contains(&address.kind.as_str())));
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn infra_machine_failure_domain() {
    let pause = |is: bool| json!({ "spec": { "paused": is } });
    for version in VERSIONS {
        let world = at_version(version, &["host-1", "host-2"]).await;
        let label = json!({ "metadata": { "labels": { DOMAIN: "d2" } } });
        world.patch("MachineInventory", "host-2", label).await;
        world.patch("Cluster", "c1", pause(true)).await;
        for (machine, domain) in [("m-1", "d2"), ("m-2", "d3")] {
            world.apply_machine(machine).await;
            world.patch("Machine", machine, json!({ "spec": { "failureDomain": domain } })).await;
        }
        world.patch("Cluster", "c1", pause(false)).await;
        world.wait_running("m-1").await;
        let machine = world.machine("m-1").unwrap();
        assert_eq!(machine.spec.provider_id.as_deref(), Some("baremetal:///host-2"), "{version}");
        assert_eq!(machine.status.unwrap().failure_domain.as_deref(), Some("d2"), "{version}");
        let action = "it has no member in failure domain d3";
        world.wait_for_reason("m-2", Type::InventoryAllocated, Reason::PoolExhausted, action).await;
        world.check_invariants().await;
    }
}

// Fault: the host of a running machine loses its power.
// Shown: conditions of the machine: `HostUnreachable`, until it is back; `Ready` is unknown, not false.
#[tokio::test(start_paused = true)]
async fn infra_machine_ready_during_the_entire_lifecycle() {
    let mut world = running().await;
    assert_eq!(ready(&world), ("True".to_owned(), "Running".to_owned()));
    world.host_mut("host-1").power_off();
    // Health checks delete the machine of a healthy node after `False`.
    let unreachable = ("Unknown".to_owned(), "HostUnreachable".to_owned());
    world.wait_until("it is not ready", |world| ready(world) == unreachable).await;
    world
        .expect_why(
            "machine/m-1",
            Reason::HostUnreachable,
            "no connection to the coordinator",
            "check power, network and console",
        )
        .await;
    let reachable = world.machine_condition("m-1", Type::HostReachable).unwrap();
    assert_eq!((reachable.status.as_str(), reachable.reason.as_str()), ("False", "HostUnreachable"));
    assert!(world.machine("m-1").unwrap().status.unwrap().ready, "it stays provisioned");
    world.host_mut("host-1").power_on();
    world.wait_until("it is ready again", |world| ready(world).0 == "True").await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn infra_machine_conditions_are_unknown_at_first() {
    let world = World::with_hosts(&[]).await;
    world.apply_machine("m-1").await;
    world.wait_until("it has a status", |world| world.machine_condition("m-1", Type::Ready).is_some()).await;
    for kind in [Type::BootstrapReady, Type::ImageResolved, Type::PlanApplied, Type::NodeLinked] {
        let found = world.machine_condition("m-1", kind).unwrap();
        assert_eq!((found.status.as_str(), found.reason.as_str()), ("Unknown", "NotDecided"), "{kind:?}");
    }
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn infra_machine_terminal_failures_are_not_reported() {
    let world = World::with_hosts(&[]).await;
    world.apply_machine_of("m-1", "pool", "v9").await;
    world.wait_idle().await;
    let status = world.machine("m-1").unwrap().status.unwrap();
    assert_eq!((status.failure_reason, status.failure_message), (None, None));
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn infra_machine_waits_for_cluster_infrastructure() {
    for version in VERSIONS {
        let world = at_version(version, &["host-1"]).await;
        world.set_infrastructure_provisioned("c1", false);
        world.apply_machine("m-1").await;
        let action = "see the conditions of its infrastructure object";
        world.wait_for_reason("m-1", Type::Ready, Reason::ClusterInfrastructureWaiting, action).await;
        world.wait_idle().await;
        assert!(world.inventory("host-1").unwrap().claim().is_none());
        world.set_infrastructure_provisioned("c1", true);
        world.wait_running("m-1").await;
        world.set_infrastructure_provisioned("c1", false);
        world.wait_idle().await;
        assert_eq!(world.phase("m-1"), Some(Phase::Running), "what is provisioned stays so");
        world.check_invariants().await;
    }
}

#[tokio::test(start_paused = true)]
async fn infra_machine_waits_for_bootstrap_data() {
    for version in VERSIONS {
        let world = at_version(version, &["host-1"]).await;
        world.apply_bare_machine("m-1", "pool", "v1").await;
        world.wait_for_reason("m-1", Type::BootstrapReady, Reason::BootstrapWaiting, "create it").await;
        world.apply_bootstrap("m-1", &scenarios::bootstrap_data()).await;
        world.wait_running("m-1").await;
        world.check_invariants().await;
    }
}

#[tokio::test(start_paused = true)]
async fn infra_machine_pausing() {
    let is_paused =
        |world: &World| world.machine_condition("m-1", Type::Paused).is_some_and(|c| c.status == "True");
    let pause = |is: Value| json!({ "spec": { "paused": is } });
    let annotate = |value: Value| json!({ "metadata": { "annotations": { annotation::PAUSED: value } } });
    for version in VERSIONS {
        let world = at_version(version, &["host-1"]).await;
        world.patch("Cluster", "c1", pause(json!(true))).await;
        world.apply_machine("m-1").await;
        world.wait_until("it is paused", is_paused).await;
        world.wait_idle().await;
        assert!(world.inventory("host-1").unwrap().claim().is_none());
        world.patch("Cluster", "c1", pause(json!(false))).await;
        world.wait_running("m-1").await;
        world.patch("BaremetalMachine", "m-1", annotate(json!("true"))).await;
        world.wait_until("it is paused by annotation", is_paused).await;
        world.check_invariants().await;
    }
}

/// The same hosts come back to a control plane or deployment whose pool says so.
#[tokio::test(start_paused = true)]
async fn pool_gives_former_hosts_back() {
    let world = World::with_hosts(&["host-1", "host-2"]).await;
    world.patch("MachineInventoryPool", "pool", json!({ "spec": { "nodeReuse": true } })).await;
    let own = json!({ "metadata": { "labels": { "cluster.x-k8s.io/deployment-name": "md" } } });
    let apply = async |machine: &str| {
        world.patch("Cluster", "c1", json!({ "spec": { "paused": true } })).await;
        world.apply_machine(machine).await;
        world.patch("Machine", machine, own.clone()).await;
        world.patch("Cluster", "c1", json!({ "spec": { "paused": false } })).await;
        world.wait_running(machine).await;
    };
    apply("m-1").await;
    apply("m-2").await;
    world.delete_machine("m-1").await;
    world.delete_machine("m-2").await;
    world.wait_released("m-2", "host-2").await;
    world.wait_released("m-1", "host-1").await;
    let other =
        json!({ "metadata": { "annotations": { annotation::NODE_REUSE_GROUP: "deployment/other" } } });
    world.patch("MachineInventory", "host-1", other).await;
    world.wait_idle().await;
    apply("m-3").await;
    let machine = world.machine("m-3").unwrap();
    assert_eq!(machine.spec.provider_id.as_deref(), Some("baremetal:///host-2"), "the first was another's");
    world.check_invariants().await;
}

/// A pool with `nodeReuse`, whose `host-1` is being cleaned and is away, and machines of its group.
async fn with_returning_host(machines: &[&str]) -> World {
    let mut world = World::with_hosts(&["host-1", "host-2"]).await;
    world.patch("MachineInventoryPool", "pool", json!({ "spec": { "nodeReuse": true } })).await;
    let labels = json!({ "metadata": { "labels": { "cluster.x-k8s.io/deployment-name": "md" } } });
    let apply = async |world: &World, machine: &str| {
        world.patch("Cluster", "c1", json!({ "spec": { "paused": true } })).await;
        world.apply_machine(machine).await;
        world.patch("Machine", machine, labels.clone()).await;
        world.patch("Cluster", "c1", json!({ "spec": { "paused": false } })).await;
    };
    apply(&world, "m-1").await;
    world.wait_running("m-1").await;
    // It gets its clean plan when it comes back.
    world.host_mut("host-1").power_off();
    world.delete_machine("m-1").await;
    let is_deleting = |world: &World| {
        world.machine("m-1").is_some_and(|machine| machine.metadata.deletion_timestamp.is_some())
    };
    world.wait_until("m-1 is in deletion", is_deleting).await;
    // The clock of the fake API server is another one than that of the coordinator.
    let deleted = json!(world.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let machine = ("baremetalmachines.infrastructure.cluster.x-k8s.io", scenarios::NAMESPACE, "m-1");
    assert!(world.fake.edit(machine, |machine| machine["metadata"]["deletionTimestamp"] = deleted));
    for machine in machines {
        apply(&world, machine).await;
    }
    world.advance_time(Duration::from_mins(1)).await;
    assert!(world.inventory("host-2").unwrap().claim().is_none(), "they take no other host");
    world
}

// Fault: a machine of a group with `nodeReuse` comes while the group's former host is being cleaned, and another is free.
// Shown: condition `InventoryAllocated` of the machine says that it waits for a clean; its Event names the host.
#[tokio::test(start_paused = true)]
async fn pool_waits_for_the_host_of_the_group() {
    let mut world = with_returning_host(&["m-2"]).await;
    let cause = "waiting for the clean of a host that this group used last";
    world.expect_why("machine/m-2", Reason::PoolExhausted, cause, "add a host to the pool").await;
    world.host_mut("host-1").power_on();
    world.wait_running("m-2").await;
    let machine = world.machine("m-2").unwrap();
    assert_eq!(machine.spec.provider_id.as_deref(), Some("baremetal:///host-1"));
    world.check_invariants().await;
}

// Fault: the former host of a group with `nodeReuse` is lost while it is being cleaned.
// Shown: condition `InventoryAllocated` of the machine says that it waits for a clean; after 30 minutes it takes another.
#[tokio::test(start_paused = true)]
async fn group_takes_another_host_for_a_lost_one() {
    let world = with_returning_host(&["m-2"]).await;
    world.advance_time(Duration::from_mins(25)).await;
    let cause = "waiting for the clean of a host that this group used last";
    world.expect_why("machine/m-2", Reason::PoolExhausted, cause, "add a host to the pool").await;
    world.advance_time(Duration::from_mins(5)).await;
    world.wait_running("m-2").await;
    let machine = world.machine("m-2").unwrap();
    assert_eq!(machine.spec.provider_id.as_deref(), Some("baremetal:///host-2"));
    assert!(world.machine("m-1").is_some(), "it waits for its host");
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn group_takes_other_hosts_once_none_returns() {
    let mut world = with_returning_host(&["m-2", "m-3"]).await;
    world.host_mut("host-1").power_on();
    let is_claimed = |host: &'static str| {
        move |world: &World| {
            world.inventory(host).unwrap().claim().is_some_and(|claim| claim.baremetal_machine != "m-1")
        }
    };
    world.wait_until("the host of the group is claimed", is_claimed("host-1")).await;
    let claimed = Instant::now();
    world.wait_until("the other one is", is_claimed("host-2")).await;
    assert!(claimed.elapsed() < Duration::from_secs(2), "{:?}", claimed.elapsed());
    for machine in ["m-2", "m-3"] {
        world.wait_running(machine).await;
    }
    world.check_invariants().await;
}

// clusterctl

/// A plan in flight holds the move of its host back.
#[tokio::test(start_paused = true)]
async fn clusterctl_block_move() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    let blocks = |world: &World| {
        let annotations = world.inventory("host-1").unwrap().metadata.annotations.unwrap_or_default();
        annotations.contains_key(annotation::BLOCK_MOVE)
    };
    world.wait_until("the move is held back", blocks).await;
    world.wait_running("m-1").await;
    world.patch("Cluster", "c1", json!({ "spec": { "paused": true } })).await;
    world.wait_until("the move may go on", |world| !blocks(world)).await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn infra_machine_template_autoscaling_from_zero() {
    let world = World::with_hosts(&["host-1", "host-2"]).await;
    world.apply_template("t-1", "pool").await;
    let template = |world: &World| {
        world.get_object("baremetalmachinetemplates.infrastructure.cluster.x-k8s.io", "t-1").unwrap()
    };
    let has_capacity = |world: &World| template(world)["status"]["capacity"]["cpu"].is_string();
    world.wait_until("the hosts have told their hardware", has_capacity).await;
    let status = template(&world)["status"].clone();
    let host = world.inventory("host-1").unwrap().status.unwrap().host.unwrap().hardware.unwrap();
    assert_eq!(status["capacity"]["memory"], host.memory_bytes.to_string());
    let kind = json!({ "architecture": "amd64", "operatingSystem": "linux" });
    if host.architecture == "x86_64" {
        assert_eq!(status["nodeInfo"], kind);
    }
    let pause =
        |value: Option<&str>| json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": value } } });
    world.patch("BaremetalMachineTemplate", "t-1", pause(Some(""))).await;
    world.wait_idle().await;
    world.delete("MachineInventoryPool", "pool").await;
    world.wait_idle().await;
    assert!(has_capacity(&world), "a paused template stays as it is");
    world.patch("BaremetalMachineTemplate", "t-1", pause(None)).await;
    world.wait_until("nothing is known without the pool", |world| !has_capacity(world)).await;
    world.check_invariants().await;
}
