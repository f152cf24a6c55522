//! Unhealthy machines: their hosts are rebooted by their agents, or given up.

use std::time::Duration;

use coordinator_api::conditions::Reason;
use scenarios::{Scenario, World, kill_at_every_write};
use serde_json::{Value, json};

const HOSTS: &str = "baremetalhosts.metal3.io";
const REMEDIATIONS: &str = "metal3remediations.infrastructure.cluster.x-k8s.io";
const MACHINES: &str = "machines.cluster.x-k8s.io";

async fn with_node() -> World {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_metal3_cluster("c1").await;
    world.apply_metal3_machine("m-1", json!({})).await;
    world.wait_metal3_ready("m-1").await;
    world.wait_idle().await;
    world
}

/// As a `MachineHealthCheck` does.
async fn apply_remediation(world: &World) {
    let machine = world.get_object(MACHINES, "m-1").unwrap();
    let owner = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m-1",
        "uid": machine["metadata"]["uid"],
    });
    let strategy = json!({ "type": "Reboot", "retryLimit": 1, "timeout": "600s" });
    let object = json!({ "metadata": { "ownerReferences": [owner] }, "spec": { "strategy": strategy } });
    world.create("Metal3Remediation", "m-1", object).await;
}

fn status(world: &World) -> Value {
    world.get_object(REMEDIATIONS, "m-1").unwrap_or_default()["status"].clone()
}

async fn wait_phase(world: &World, phase: &str, retries: i64) {
    world
        .wait_until(&format!("{phase} {retries}"), |world| {
            let status = status(world);
            status["phase"] == phase && status["retryCount"].as_i64().unwrap_or_default() == retries
        })
        .await;
}

fn reboots(world: &World) -> Option<u32> {
    let session =
        world.inventory("host-1")?.status?.host?.session.filter(|session| session.ended.is_none())?;
    session.boot_id.strip_prefix("boot-")?.parse().ok()
}

fn annotations(world: &World) -> Value {
    world.get_object(HOSTS, "bmh-host-1").unwrap()["metadata"]["annotations"].clone()
}

fn requests(world: &World) -> Vec<String> {
    let annotations = annotations(world);
    let names = annotations.as_object().unwrap().keys();
    names.filter(|name| name.contains("reboot")).cloned().collect()
}

// Fault: the node of a machine is unhealthy, and a MachineHealthCheck asks for its remediation.
// Shown: phases of the Metal3Remediation; the host is rebooted once, and the request is taken back.
#[tokio::test(start_paused = true)]
async fn an_unhealthy_machine_is_rebooted_once() {
    let world = with_node().await;
    let first = reboots(&world).unwrap();
    apply_remediation(&world).await;
    wait_phase(&world, "Waiting", 0).await;
    world
        .expect_why(
            "metal3remediation/m-1",
            Reason::RemediationWaiting,
            "its node is not healthy yet",
            "after spec.strategy.timeout",
        )
        .await;
    world.wait_until("the request is taken back", |world| requests(world).is_empty()).await;
    world.advance_time(Duration::from_mins(5)).await;
    assert_eq!(reboots(&world), Some(first + 1));
    world.wait_metal3_ready("m-1").await;
    world.delete("Metal3Remediation", "m-1").await;
    world.wait_until("it ends", |world| world.get_object(REMEDIATIONS, "m-1").is_none()).await;
    assert_eq!(annotations(&world)["capi.metal3.io/unhealthy"], Value::Null);
    world.check_invariants().await;
}

// Fault: the node stays unhealthy after a reboot, and after another one.
// Shown: two reboots, then phase `Deleting machine`, condition `OwnerRemediated` of the Machine, annotation `capi.metal3.io/unhealthy`.
#[tokio::test(start_paused = true)]
async fn a_machine_that_stays_unhealthy_is_given_up() {
    let world = with_node().await;
    let first = reboots(&world).unwrap();
    apply_remediation(&world).await;
    wait_phase(&world, "Waiting", 0).await;
    wait_phase(&world, "Waiting", 1).await;
    assert_eq!(reboots(&world), Some(first + 2));
    wait_phase(&world, "Deleting machine", 1).await;
    let machine = world.get_object(MACHINES, "m-1").unwrap();
    let conditions = machine["status"]["conditions"].as_array().unwrap().clone();
    let asked = conditions.into_iter().find(|found| found["type"] == "OwnerRemediated").unwrap();
    assert_eq!((&asked["status"], &asked["reason"]), (&json!("False"), &json!("WaitingForRemediation")));
    assert_eq!(annotations(&world)["capi.metal3.io/unhealthy"], "capm3/UnhealthyNode");
    world
        .expect_why(
            "metal3remediation/m-1",
            Reason::RemediationExhausted,
            "did not become healthy within",
            "repair the host",
        )
        .await;
    world.advance_time(Duration::from_mins(30)).await;
    assert_eq!(reboots(&world), Some(first + 2), "no more");
    // Its owner deletes it.
    world.delete_metal3_machine("m-1").await;
    world.wait_until("the host is available", |world| world.host_state("bmh-host-1") == "available").await;
    world.check_invariants().await;
}

// Fault: the host of an unhealthy machine does not answer.
// Shown: condition `Ready` of the Metal3Remediation with `HostUnreachable` and what an operator does; after its tries the machine is given up.
#[tokio::test(start_paused = true)]
async fn machine_of_unreachable_host_is_given_up() {
    let mut world = with_node().await;
    world.host_mut("host-1").power_off();
    apply_remediation(&world).await;
    world
        .wait_until("it is said so", |world| {
            let text = status(world)["conditions"].to_string();
            text.contains("HostUnreachable") && text.contains("switch its power")
        })
        .await;
    world
        .expect_why(
            "metal3remediation/m-1",
            Reason::HostUnreachable,
            "no connection to the coordinator",
            "check power, network and console",
        )
        .await;
    wait_phase(&world, "Running", 1).await;
    wait_phase(&world, "Deleting machine", 1).await;
    let left = annotations(&world);
    assert_eq!(left["capi.metal3.io/unhealthy"], "capm3/UnhealthyNode");
    assert!(requests(&world).iter().all(|name| !name.starts_with("reboot.metal3.io/")), "{left}");
    world.host_mut("host-1").power_on();
    world.wait_until("the last request ends", |world| requests(world).is_empty()).await;
    world.check_invariants().await;
}

// Fault: the BareMetalHost of an unhealthy machine has `online: false`.
// Shown: phase `Failed` and the reason `RemediationRefused`; nothing is done to the host.
#[tokio::test(start_paused = true)]
async fn host_with_online_false_is_not_rebooted() {
    let world = with_node().await;
    let first = reboots(&world);
    world.patch("BareMetalHost", "bmh-host-1", json!({ "spec": { "online": false } })).await;
    apply_remediation(&world).await;
    wait_phase(&world, "Failed", 0).await;
    world.wait_idle().await;
    assert!(status(&world)["conditions"].to_string().contains("RemediationRefused"));
    world
        .expect_why(
            "metal3remediation/m-1",
            Reason::RemediationRefused,
            "spec.online of the BareMetalHost is false",
            "set spec.online",
        )
        .await;
    assert_eq!((reboots(&world), requests(&world)), (first, vec![]));
    world.check_invariants().await;
}

/// The reboot of an unhealthy machine.
pub(super) struct Remediation;

impl Scenario for Remediation {
    async fn begin() -> World {
        with_node().await
    }

    async fn play(world: &mut World) {
        let first = reboots(world).unwrap();
        apply_remediation(world).await;
        wait_phase(world, "Waiting", 0).await;
        world.wait_until("the request is withdrawn", |world| requests(world).is_empty()).await;
        world.advance_time(Duration::from_mins(4)).await;
        assert_eq!(reboots(world), Some(first + 1));
        world.expect_nothing("baremetalhost/bmh-host-1").await;
    }
}

// Fault: the coordinator is killed at any write of a remediation.
// Shown: nothing: the host is rebooted once.
#[tokio::test(start_paused = true)]
async fn a_killed_coordinator_reboots_an_unhealthy_machine_once() {
    kill_at_every_write::<Remediation>().await;
}

// Fault: the host of a deleted Metal3Machine does not answer, and an operator gives it up.
// Shown: condition of the BareMetalHost with the annotation that abandons it; then its state is available with an
// error, until it returns and is cleaned.
#[tokio::test(start_paused = true)]
async fn a_host_given_up_is_cleaned_later() {
    let mut world = with_node().await;
    world.host_mut("host-1").power_off();
    world.delete("Machine", "m-1").await;
    world.delete("Metal3Machine", "m-1").await;
    let way_out = "baremetal.cluster.io/release-without-clean";
    let error = |world: &World| {
        let host = world.get_object(HOSTS, "bmh-host-1").unwrap();
        host["status"]["errorMessage"].as_str().unwrap_or_default().to_owned()
    };
    let is_said = |world: &World| {
        let host = world.get_object(HOSTS, "bmh-host-1").unwrap();
        host["status"]["conditions"].to_string().contains(way_out)
    };
    world.wait_until("the way out is named", is_said).await;
    world.expect_why("baremetalhost/bmh-host-1", Reason::HostUnreachable, way_out, "check power").await;
    world.give_up_host("BareMetalHost", "bmh-host-1").await;
    world.wait_until("m-1 is gone", |world| world.metal3_machine("m-1").is_none()).await;
    world.finish_deletions();
    world.wait_idle().await;
    assert_eq!(world.host_state("bmh-host-1"), "available");
    assert!(error(&world).contains("host-1 was given up"), "{}", error(&world));
    // It is no host for the next machine before it was cleaned.
    world.apply_metal3_machine("m-2", json!({})).await;
    world.advance_time(Duration::from_mins(30)).await;
    assert_eq!(world.host_of("m-2"), None);
    let before = world.host("host-1").system().effects().len();
    world.host_mut("host-1").power_on();
    world.wait_metal3_ready("m-2").await;
    world.wait_idle().await;
    let kinds: Vec<_> = world.plans().into_iter().map(|(_, _, kind)| kind).collect();
    assert_eq!(kinds, ["reprovision", "clean", "reprovision"], "it was cleaned before it was used again");
    assert!(world.host("host-1").system().effects().len() > before);
    world.check_invariants().await;
}
