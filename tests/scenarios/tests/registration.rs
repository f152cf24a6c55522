//! Hosts that cannot register or install yet, and what tells why.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::names::annotation;
use scenarios::World;
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn a_template_that_cannot_be_rendered_is_said_and_corrected_in_place() {
    let mut world = World::new().await;
    world.apply_registration_of("hosts", "${System Information/Room}", "/dev/vda").await;
    world.rack("host-1", "hosts");
    world.until("it is refused", |world| world.log().contains("BadTemplate")).await;
    let events = world.fake.look_at_all("events.events.k8s.io");
    let told = events.iter().find(|event| event["reason"] == "BadTemplate").cloned().unwrap_or_default();
    assert_eq!(told["regarding"]["kind"], "MachineRegistration", "{told}");
    assert!(told["note"].as_str().unwrap().contains("use another key"), "{told}");
    let name = json!({ "spec": { "machineName": "${System Information/Serial Number}" } });
    world.patch("MachineRegistration", "hosts", name).await;
    world.until("host-1 is available", |world| world.is_available("host-1")).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_another_key_has_is_told_and_the_first_host_keeps_it() {
    let mut world = World::new().await;
    world.apply_registration_of("hosts", "host", "/dev/vda").await;
    world.rack("host-1", "hosts");
    world.until("the first is available", |world| world.is_available("host")).await;
    let first = world.inventory("host").unwrap();
    world.rack("host-2", "hosts");
    world.until("the second is refused", |world| world.log().contains("NameTaken")).await;
    let events = world.fake.look_at_all("events.events.k8s.io");
    let told = events.iter().find(|event| event["reason"] == "NameTaken").cloned().unwrap_or_default();
    assert!(
        told["note"].as_str().unwrap_or_default().contains("give the two hosts different names"),
        "{told}"
    );
    assert_eq!(world.inventory("host").unwrap().spec, first.spec);
    world.patch("MachineRegistration", "hosts", json!({ "spec": { "machineName": "second" } })).await;
    world.until("the second is available", |world| world.is_available("second")).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_refused_for_an_hour_costs_next_to_nothing() {
    let mut world = World::new().await;
    world.apply_registration_of("hosts", "${System Information/Room}", "/dev/vda").await;
    world.rack("host-1", "hosts");
    let mark = world.fake.journal().mark();
    world.pass(std::time::Duration::from_hours(1)).await;
    let cost = world.cost(mark);
    assert!(cost.requests <= 65, "{cost}");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_nobody_knows_opens_nothing() {
    let mut world = World::new().await;
    world.apply_registration().await;
    world.rack("host-1", "hosts");
    let right = world.seed("hosts");
    let token = world.look("machineregistrations.elemental.cattle.io", "hosts").unwrap();
    let token = token["status"]["registrationToken"].as_str().unwrap().to_owned();
    world.host("host-1").insert(&right.replace(&token, "guessed"));
    world.until("it is refused", |world| world.log().contains("UnknownToken")).await;
    assert_eq!(world.fake.look_at_all("machineinventories.elemental.cattle.io").len(), 0);
    assert!(!world.log().contains("guessed"), "a token is never logged");
    world.host_mut("host-1").power_off();
    world.host("host-1").insert(&right);
    world.host_mut("host-1").power_on();
    world.until("host-1 is available", |world| world.is_available("host-1")).await;
    assert!(!world.log().contains(&token), "a token is never logged");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_install_device_that_is_not_there_yet_is_waited_for_or_named() {
    for by_link in [true, false] {
        let mut world = World::new().await;
        let device = "/dev/elemental-install-target";
        world.apply_registration_of("hosts", "${System Information/Serial Number}", device).await;
        world.rack("host-1", "hosts");
        let waits = |world: &World| {
            let installed = world.host_condition("host-1", Type::Installed);
            installed.is_some_and(|found| {
                found.reason == Reason::InstallWaiting.as_str()
                    && found.message.contains("is not there yet")
                    && found.message.contains(annotation::INSTALL_DEVICE)
            })
        };
        world.until("it waits", waits).await;
        if by_link {
            world.host("host-1").link_install_device();
        } else {
            let named = json!({ "metadata": { "annotations": { annotation::INSTALL_DEVICE: "/dev/vda" } } });
            world.patch("MachineInventory", "host-1", named).await;
        }
        world.until("host-1 is available", |world| world.is_available("host-1")).await;
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_boots_the_iso_again_is_not_installed_again() {
    let mut world = World::with_hosts(&["host-1"]).await;
    let seed = world.seed("hosts");
    for _ in 0..2 {
        world.host_mut("host-1").power_off();
        world.host("host-1").insert(&seed);
        world.host_mut("host-1").power_on();
        let told = |world: &World| {
            let installed = world.host_condition("host-1", Type::Installed).unwrap();
            installed.reason == Reason::LiveBootAfterInstall.as_str()
                && installed.message.contains("remove the medium")
        };
        world.until("it is told", told).await;
        world
            .until("host-1 is back", |world| {
                world.is_available("host-1")
                    && world.host_condition("host-1", Type::Installed).unwrap().reason
                        == Reason::InstallDone.as_str()
            })
            .await;
    }
    assert_eq!(world.host("host-1").installs(), 1);
    world.apply_machine("m-1").await;
    world.runs("m-1").await;
    world.end().await;
}
