//! Where hosts reach the coordinator, with which token and by which certificate: told to those that are attached.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::names::annotation;
use scenarios::{UNREACHABLE_COORDINATOR, World};
use serde_json::json;

/// No file.
const NONE: [PathBuf; 0] = [];

fn shows(reason: Reason) -> impl Fn(&World) -> bool {
    move |world| {
        let known = world.host_condition("host-1", Type::CoordinatorKnown);
        known.is_some_and(|known| known.reason == reason.as_str())
    }
}

/// The configuration on the installed disk.
fn read_config(world: &World) -> String {
    std::fs::read_to_string(world.host("host-1").disk().state().config()).unwrap()
}

/// The last part of the URL in a configuration.
fn token_in(config: &str) -> String {
    let (_, rest) = config.split_once("/elemental/registration/").unwrap();
    rest.lines().next().unwrap().trim().to_owned()
}

/// The token of the registration, which admits any host.
fn registration_token(world: &World) -> String {
    let object = world.get_object("machineregistrations.elemental.cattle.io", "hosts").unwrap();
    object["status"]["registrationToken"].as_str().unwrap_or_default().to_owned()
}

// Fault: the token is rotated, then a coordinator with the former one is restored, while a host is attached.
// Shown: condition `CoordinatorKnown` of the MachineInventory; the host takes the URL that follows from either, and
// never holds a token that admits another host.
#[tokio::test(start_paused = true)]
async fn attached_hosts_follow_a_rotated_token() {
    let world = World::with_hosts(&["host-1"]).await;
    world.wait_until("the host is known", shows(Reason::SettingsCurrent)).await;
    let (former, kept) = (registration_token(&world), read_config(&world));
    assert_eq!(world.find_on_disk("host-1", &former), NONE, "after the install");
    assert!(!world.find_on_disk("host-1", &token_in(&kept)).is_empty(), "the search finds what is there");
    let rotate = json!({ "metadata": { "annotations": { annotation::ROTATE_TOKEN: "" } } });
    world.patch("MachineRegistration", "hosts", rotate).await;
    let is_rotated = |world: &World| ![String::new(), former.clone()].contains(&registration_token(world));
    world.wait_until("there is another token", is_rotated).await;
    let has_other = |world: &World| read_config(world) != kept && shows(Reason::SettingsCurrent)(world);
    world.wait_until("the host has another URL", has_other).await;
    let (rotated, changed) = (registration_token(&world), read_config(&world));
    world.restart_coordinator();
    world.wait_idle().await;
    assert_eq!(read_config(&world), changed, "it keeps it");
    for token in [&rotated, &former] {
        assert_eq!(world.find_on_disk("host-1", token), NONE, "after the rotation");
    }
    world.patch("MachineRegistration", "hosts", json!({ "spec": { "token": former } })).await;
    let has_former = |world: &World| read_config(world) == kept && shows(Reason::SettingsCurrent)(world);
    world.wait_until("the host has the former URL", has_former).await;
    world.expect_nothing("machineinventory/host-1").await;
    let shown = [&rotated, &former, &token_in(&kept)].map(|token| world.log().contains(&**token));
    assert_eq!(shown, [false; 3], "a token is never logged");
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    for token in [&rotated, &former] {
        assert_eq!(world.find_on_disk("host-1", token), NONE, "after the clean");
    }
    world.check_invariants().await;
}

// Fault: root on an installed host copies what its disk holds, and another machine registers with it.
// Shown: host console and log of the coordinator: `UnknownToken`; nothing is written.
// Seen: console
#[tokio::test(start_paused = true)]
async fn an_installed_host_admits_no_other_one() {
    let mut world = World::with_hosts(&["host-1"]).await;
    let stolen = read_config(&world);
    world.boot_host("thief", "hosts");
    world.host("thief").insert(&stolen);
    world.wait_until("it is refused", |world| world.log().contains("UnknownToken")).await;
    world.advance_time(Duration::from_mins(10)).await;
    assert_eq!(world.fake.look_at_all("machineinventories.elemental.cattle.io").len(), 1);
    world.check_invariants().await;
}

// Fault: the MachineInventory of an attached host vanishes, as after the restore of a backup that is older.
// Shown: nothing: the host is registered again without its ISO, by the token that admits it alone.
#[tokio::test(start_paused = true)]
async fn a_lost_host_registers_again() {
    let mut world = World::with_hosts(&["host-1"]).await;
    world.fake.take_out("machineinventories.elemental.cattle.io", scenarios::NAMESPACE, "host-1");
    // The host registers when its certificates have ended, so that a restored inventory is taken until then.
    world.host_mut("host-1").power_off();
    for certificate in ["live.pem", "installed.pem"] {
        let path = world.host("host-1").disk().state().identity().join(certificate);
        let _ = std::fs::remove_file(path);
    }
    world.host_mut("host-1").power_on();
    // Its name is that of the template now.
    let is_back = |world: &World| {
        let found = world.fake.look_at_all("machineinventories.elemental.cattle.io");
        let conditions = found.iter().filter_map(|host| host["status"]["conditions"].as_array().cloned());
        let is_ready =
            |condition: serde_json::Value| condition["type"] == "Ready" && condition["status"] == "True";
        conditions.flatten().any(is_ready)
    };
    world.wait_until("the host is registered again", is_back).await;
    assert_eq!(world.host("host-1").installs(), 1);
    let found = world.fake.look_at_all("machineinventories.elemental.cattle.io");
    let name = found[0]["metadata"]["name"].as_str().unwrap();
    world.expect_nothing(&format!("machineinventory/{name}")).await;
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
            "newer URL or authorities were sent",
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
