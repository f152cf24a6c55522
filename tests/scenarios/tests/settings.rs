//! Where hosts reach the coordinator, with which token and by which certificate: told to those that are attached.

use std::collections::BTreeSet;
use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::names::annotation;
use scenarios::{UNREACHABLE_COORDINATOR, World};
use serde_json::json;

fn shows(reason: Reason) -> impl Fn(&World) -> bool {
    move |world| {
        let known = world.host_condition("host-1", Type::CoordinatorKnown);
        known.is_some_and(|known| known.reason == reason.as_str())
    }
}

// Fault: the token is rotated, then a coordinator with the former one is restored, while a host is attached.
// Shown: condition `CoordinatorKnown` of the MachineInventory; the host takes either, and is not visited.
#[tokio::test(start_paused = true)]
async fn attached_hosts_follow_a_rotated_token() {
    let world = World::with_hosts(&["host-1"]).await;
    let token = |world: &World| {
        let object = world.get_object("machineregistrations.elemental.cattle.io", "hosts").unwrap();
        object["status"]["registrationToken"].as_str().unwrap_or_default().to_owned()
    };
    let has = |token: &str| {
        let token = token.to_owned();
        move |world: &World| {
            let config = std::fs::read_to_string(world.host("host-1").disk().state().config()).unwrap();
            config.contains(&token) && shows(Reason::SettingsCurrent)(world)
        }
    };
    let former = token(&world);
    world.wait_until("the host has the token of its ISO", has(&former)).await;
    let rotate = json!({ "metadata": { "annotations": { annotation::ROTATE_TOKEN: "" } } });
    world.patch("MachineRegistration", "hosts", rotate).await;
    world
        .wait_until("there is another token", |world| {
            ![String::new(), former.clone()].contains(&token(world))
        })
        .await;
    let rotated = token(&world);
    world.wait_until("the host has it", has(&rotated)).await;
    world.restart_coordinator();
    world.wait_until("it keeps it", has(&rotated)).await;
    world.patch("MachineRegistration", "hosts", json!({ "spec": { "token": former } })).await;
    world.wait_until("the host has the former one", has(&former)).await;
    world.expect_nothing("machineinventory/host-1").await;
    assert!(!world.log().contains(&rotated) && !world.log().contains(&former), "a token is never logged");
    world.check_invariants().await;
}

// Fault: the coordinator is given a URL that hosts do not reach.
// Shown: condition `CoordinatorKnown` of the MachineInventory: `SettingsAnnounced`, then `SettingsRefused`; the host
// stays attached by the former URL.
#[tokio::test(start_paused = true)]
async fn unreachable_url_is_refused_by_attached_hosts() {
    let mut world = World::with_hosts(&["host-1"]).await;
    world.wait_until("the host has the URL of its ISO", shows(Reason::SettingsCurrent)).await;
    let config = world.host("host-1").disk().state().config();
    let former = std::fs::read_to_string(&config).unwrap();
    world.move_coordinator(&format!("https://{UNREACHABLE_COORDINATOR}:8443"));
    world.wait_until("the host has the other URL", shows(Reason::SettingsAnnounced)).await;
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::SettingsAnnounced,
            "newer URL, token or authorities were sent",
            "the host confirms them when it attaches again",
        )
        .await;
    world.wait_until("the host is back", shows(Reason::SettingsRefused)).await;
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::SettingsRefused,
            "did not attach by them 5 times, and went back to the former ones; next: check that the host reaches",
            "make the new URL reachable from the host",
        )
        .await;
    assert_eq!(std::fs::read_to_string(&config).unwrap(), former);
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.move_coordinator("https://coordinator.example:8443");
    world.wait_until("the host has the former URL", shows(Reason::SettingsCurrent)).await;
    world.expect_nothing("machineinventory/host-1").await;
    world.check_invariants().await;
}

/// A certificate is valid for a day, and is renewed after two thirds of that: three times in 50 hours.
#[tokio::test(start_paused = true)]
async fn certificate_is_renewed_while_its_host_stays_attached() {
    let world = World::with_hosts(&["host-1"]).await;
    let path = world.host("host-1").disk().state().identity().join("installed.pem");
    let read_certificate = || std::fs::read_to_string(&path).unwrap();
    let ready_since = |world: &World| {
        let ready = world.host_condition("host-1", Type::Ready).unwrap();
        (ready.status, ready.last_transition_time)
    };
    let (registered, before) = (world.log().len(), ready_since(&world));
    let mut certificates = BTreeSet::from([read_certificate()]);
    for hour in 1..=50 {
        world.advance_time(Duration::from_hours(1)).await;
        assert!(world.is_available("host-1"), "after {hour} hours:\n{}", world.dump());
        certificates.insert(read_certificate());
    }
    assert_eq!(certificates.len(), 4, "the first one and three more");
    assert_eq!(ready_since(&world), before, "it was never unreachable");
    assert!(!world.log()[registered..].contains("host registered"), "it never registered again");
    world.check_invariants().await;
}
