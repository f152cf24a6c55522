//! Hosts that cannot register or install yet, and what tells why.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::names::annotation;
use scenarios::{Scenario, World, kill_at_every_write};
use serde_json::json;

const IMAGES: &str = "seedimages.elemental.cattle.io";

// Fault: machineName of the MachineRegistration cannot be rendered.
// Shown: Event on the MachineRegistration and host console: `BadTemplate`; the host goes on when
// it is corrected.
#[tokio::test(start_paused = true)]
async fn broken_name_template_is_reported_and_correctable() {
    let mut world = World::new().await;
    world.apply_registration_of("hosts", "-", "/dev/vda").await;
    world.boot_host("host-1", "hosts");
    world.wait_until("it is refused", |world| world.log().contains("BadTemplate")).await;
    world
        .expect_why(
            "machineregistration/hosts",
            Reason::HostRefused,
            "BadTemplate",
            "correct spec.machineName",
        )
        .await;
    world.expect_event("MachineRegistration", "hosts", "BadTemplate", "add letters or digits");
    let name = json!({ "spec": { "machineName": "${System Information/Serial Number}" } });
    world.patch("MachineRegistration", "hosts", name).await;
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    world.check_invariants().await;
}

// Fault: a host does not report what its name is made of.
// Shown: Event on the MachineInventory, whose name is random: `TemplateUnresolved`.
#[tokio::test(start_paused = true)]
async fn name_is_random_where_the_host_reports_nothing() {
    let mut world = World::new().await;
    world.apply_registration_of("hosts", "${System Information/Topology}", "/dev/vda").await;
    let labels = json!({ "spec": { "machineInventoryLabels": { "serial": "${Product/SerialNumber}" } } });
    world.patch("MachineRegistration", "hosts", labels).await;
    world.wait_idle().await;
    world.boot_host("host-1", "hosts");
    let found = |world: &World| {
        let all = world.fake.look_at_all("machineinventories.elemental.cattle.io");
        all.first().map(|found| found["metadata"]["name"].as_str().unwrap().to_owned())
    };
    world
        .wait_until("it is available", |world| found(world).is_some_and(|name| world.is_available(&name)))
        .await;
    let name = found(&world).unwrap();
    assert!(name.starts_with("m-") && name.len() == 38, "{name}");
    world.expect_event("MachineInventory", &name, "TemplateUnresolved", "correct the MachineRegistration");
    assert_eq!(world.inventory(&name).unwrap().metadata.labels.unwrap()["serial"], "host-1");
    let label = json!({ "spec": { "machineInventoryLabels": { "disks": "${Storage/TotalDisks}" } } });
    world.patch("MachineRegistration", "hosts", label).await;
    world.wait_idle().await;
    world.host("host-1").kill_agent();
    let has_label = |world: &World| {
        world.inventory(&name).unwrap().metadata.labels.is_some_and(|labels| labels.contains_key("disks"))
    };
    world.wait_until("the label comes with the next attach", has_label).await;
    world.check_invariants().await;
}

// Fault: two hosts render the same name.
// Shown: Event on the MachineRegistration and console of the second host: `NameTaken`.
#[tokio::test(start_paused = true)]
async fn taken_name_is_rejected_for_another_key() {
    let mut world = World::new().await;
    world.apply_registration_of("hosts", "host", "/dev/vda").await;
    world.boot_host("host-1", "hosts");
    world.wait_until("the first is available", |world| world.is_available("host")).await;
    let first = world.inventory("host").unwrap();
    world.boot_host("host-2", "hosts");
    world.wait_until("the second is refused", |world| world.log().contains("NameTaken")).await;
    world
        .expect_why(
            "machineregistration/hosts",
            Reason::HostRefused,
            "NameTaken",
            "give the two hosts different names",
        )
        .await;
    world.expect_event("MachineRegistration", "hosts", "NameTaken", "give the two hosts different names");
    assert_eq!(world.inventory("host").unwrap().spec, first.spec);
    world.patch("MachineRegistration", "hosts", json!({ "spec": { "machineName": "second" } })).await;
    world.wait_until("the second is available", |world| world.is_available("second")).await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn rejected_host_costs_few_requests() {
    let mut world = World::new().await;
    world.apply_registration_of("hosts", "-", "/dev/vda").await;
    world.boot_host("host-1", "hosts");
    let mark = world.fake.journal().mark();
    world.advance_time(std::time::Duration::from_hours(1)).await;
    let cost = world.count_requests(mark);
    assert!(cost.requests <= 65, "{cost}");
    world.check_invariants().await;
}

// Fault: a host guesses the token.
// Shown: host console and log of the coordinator: `UnknownToken`; nothing is written.
// Seen: console
#[tokio::test(start_paused = true)]
async fn unknown_token_is_rejected() {
    let mut world = World::new().await;
    world.apply_registration().await;
    world.boot_host("host-1", "hosts");
    let right = world.seed_config("hosts");
    let token = world.get_object("machineregistrations.elemental.cattle.io", "hosts").unwrap();
    let token = token["status"]["registrationToken"].as_str().unwrap().to_owned();
    world.host("host-1").insert(&right.replace(&token, "guessed"));
    world.wait_until("it is refused", |world| world.log().contains("UnknownToken")).await;
    assert_eq!(world.fake.look_at_all("machineinventories.elemental.cattle.io").len(), 0);
    assert!(!world.log().contains("guessed"), "a token is never logged");
    world.host_mut("host-1").power_off();
    world.host("host-1").insert(&right);
    world.host_mut("host-1").power_on();
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    assert!(!world.log().contains(&token), "a token is never logged");
    world.check_invariants().await;
}

// Fault: a host comes with a copied ISO, and the registration has `spec.approval: Manual`.
// Shown: host console; condition `Approved` of the MachineInventory: `ApprovalPending`; nothing is
// installed until an operator approves it.
#[tokio::test(start_paused = true)]
async fn host_installs_nothing_before_it_is_approved() {
    let mut world = World::new().await;
    world.apply_registration().await;
    world.patch("MachineRegistration", "hosts", json!({ "spec": { "approval": "Manual" } })).await;
    world.wait_idle().await;
    world.boot_host("host-1", "hosts");
    let waits = |world: &World| {
        let approved = world.host_condition("host-1", Type::Approved);
        approved.is_some_and(|found| found.reason == Reason::ApprovalPending.as_str())
    };
    world.wait_until("it waits", waits).await;
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::ApprovalPending,
            "has spec.approval: Manual",
            "kubectl baremetal approve host-1",
        )
        .await;
    let mark = world.fake.journal().mark();
    world.advance_time(std::time::Duration::from_mins(3)).await;
    assert_eq!(world.count_requests(mark).writes, 0, "to wait costs nothing");
    assert_eq!(world.host("host-1").installs(), 0);
    let approved = json!({ "metadata": { "annotations": { annotation::APPROVAL: "Approved" } } });
    world.patch("MachineInventory", "host-1", approved).await;
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    world.check_invariants().await;
}

/// Two seed images whose base cannot be fetched: an operator deletes one, and asks for another build of the other.
pub(super) struct Images;

impl Scenario for Images {
    async fn begin() -> World {
        let world = World::new().await;
        world.apply_registration().await;
        world.wait_idle().await;
        world
    }

    async fn play(world: &mut World) {
        for name in ["kept", "deleted"] {
            let spec = json!({ "registrationRef": { "name": "hosts" }, "baseImage": "file:///base.iso" });
            world.create("SeedImage", name, json!({ "spec": spec })).await;
            world.wait_until("the build has failed", |world| has_failed(world, name)).await;
        }
        world.delete("SeedImage", "deleted").await;
        world.patch("SeedImage", "kept", json!({ "spec": { "retriggerBuild": true } })).await;
        let is_seen = |world: &World| {
            let image = world.get_object(IMAGES, "kept").unwrap();
            image["status"]["conditions"][0]["observedGeneration"] == image["metadata"]["generation"]
        };
        world.wait_until("the request is seen", is_seen).await;
        world.expect_why("seedimage/kept", Reason::BaseImageInvalid, "", "").await;
    }
}

fn has_failed(world: &World, name: &str) -> bool {
    world.get_object(IMAGES, name).is_some_and(|image| image["status"]["state"] == "Failed")
}

// Fault: the coordinator is killed before and after any write for seed images.
// Shown: condition `Ready` of the SeedImage: `BaseImageInvalid`.
#[tokio::test(start_paused = true)]
async fn a_killed_coordinator_shows_why_a_build_failed() {
    kill_at_every_write::<Images>().await;
}

// Fault: an object without `spec`, as other operators take it.
// Shown: nothing: it is reconciled with defaults.
#[tokio::test(start_paused = true)]
async fn objects_without_a_spec_break_nothing() {
    let mut world = World::new().await;
    for kind in ["MachineRegistration", "MachineInventory", "SeedImage"] {
        world.create(kind, "empty", json!({})).await;
    }
    let storage = json!({ "spec": { "storage": { "volumes": [] }, "tpmHash": "0a" } });
    world.create("MachineInventory", "stored", storage).await;
    world.apply_registration().await;
    world.register_hosts(&["host-1"]).await;
    assert!(!world.log().contains("does not parse"), "{}", world.log());
    world.expect_nothing("machineinventory/host-1").await;
    let empty = world.get_object("machineregistrations.elemental.cattle.io", "empty").unwrap();
    assert!(empty["status"]["registrationURL"].is_string(), "{empty}");
    let stored = world.get_object("machineinventories.elemental.cattle.io", "stored").unwrap();
    assert_eq!(stored["spec"]["storage"], json!({ "volumes": [] }), "nothing is pruned");
    world.check_invariants().await;
}

// Fault: the install device is not there yet.
// Shown: condition `Installed` of the MachineInventory: `InstallWaiting` with the disks that are
// there.
#[tokio::test(start_paused = true)]
async fn missing_install_device_is_awaited_or_named() {
    for by_link in [true, false] {
        let mut world = World::new().await;
        let device = "/dev/elemental-install-target";
        world.apply_registration_of("hosts", "${System Information/Serial Number}", device).await;
        world.boot_host("host-1", "hosts");
        let waits = |world: &World| {
            let installed = world.host_condition("host-1", Type::Installed);
            installed.is_some_and(|found| {
                found.reason == Reason::InstallWaiting.as_str()
                    && found.message.contains("is not there yet")
                    && found.message.contains(annotation::INSTALL_DEVICE)
            })
        };
        world.wait_until("it waits", waits).await;
        world
            .expect_why(
                "machineinventory/host-1",
                Reason::InstallWaiting,
                "is not there yet",
                annotation::INSTALL_DEVICE,
            )
            .await;
        if by_link {
            world.host("host-1").link_install_device();
        } else {
            let named = json!({ "metadata": { "annotations": { annotation::INSTALL_DEVICE: "/dev/vda" } } });
            world.patch("MachineInventory", "host-1", named).await;
        }
        world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
        world.check_invariants().await;
    }
}

// Fault: the install fails three times.
// Shown: condition `Installed`: `InstallFailed`, then `InstallWaiting` with the cause; another annotation
// starts it again.
#[tokio::test(start_paused = true)]
async fn failing_install_waits_for_another_annotation() {
    let mut world = World::new().await;
    let device = "/dev/elemental-install-target";
    world.apply_registration_of("hosts", "${System Information/Serial Number}", device).await;
    world.boot_host("host-1", "hosts");
    let shows = |reason: Reason, text: &'static str| {
        move |world: &World| {
            let installed = world.host_condition("host-1", Type::Installed);
            installed.is_some_and(|found| found.reason == reason.as_str() && found.message.contains(text))
        }
    };
    let waits_for = |text| shows(Reason::InstallWaiting, text);
    world.wait_until("it waits for its disk", waits_for("is not there yet")).await;
    let live = world.host("host-1").live_system();
    live.fail("install", 1).unwrap();
    world.host("host-1").link_install_device();
    world.wait_until("it fails", shows(Reason::InstallFailed, "exit code 1")).await;
    world.wait_until("it gives up", waits_for("the install failed 3 times")).await;
    world.wait_until("the cause is named", waits_for("exit code 1")).await;
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::InstallWaiting,
            "the install failed 3 times",
            annotation::INSTALL_DEVICE,
        )
        .await;
    world.host("host-1").kill_agent();
    world.advance_time(std::time::Duration::from_mins(2)).await;
    assert!(waits_for("the install failed 3 times")(&world));
    let attempts = world.host("host-1").errors();
    let is_attempt = |error: &&String| error.contains("the install on /dev/vda failed");
    assert_eq!(attempts.iter().filter(is_attempt).count(), 3, "{attempts:?}");
    live.succeed("install").unwrap();
    let named = json!({ "metadata": { "annotations": { annotation::INSTALL_DEVICE: "/dev/vda" } } });
    world.patch("MachineInventory", "host-1", named).await;
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn stages_and_further_files_reach_the_installer() {
    let mut world = World::new().await;
    world.apply_registration().await;
    let stages = json!({ "stages": { "boot": [{ "name": "lab" }] } });
    let install = json!({ "device": "/dev/vda", "config-urls": ["https://c.example/a.yaml"] });
    let config = json!({ "cloud-config": stages, "elemental": { "install": install } });
    world.patch("MachineRegistration", "hosts", json!({ "spec": { "config": config } })).await;
    world.wait_idle().await;
    world.register_hosts(&["host-1"]).await;
    let effects = world.host("host-1").live_system().effects();
    let install = effects.iter().find(|effect| effect.starts_with("install")).unwrap();
    assert!(install.contains("cloud-init stages:   boot:   - name: lab"), "{install}");
    assert!(install.ends_with("cloud-init https://c.example/a.yaml"), "{install}");
    world.check_invariants().await;
}

// Fault: an operator asks for a reinstall of a host that is a node, and of the wrong disk.
// Shown: condition `Installed`: `LiveBootAfterInstall`, `InstallWaiting`; the disk stays.
#[tokio::test(start_paused = true)]
async fn a_released_host_is_installed_again_on_request() {
    let mut world = World::with_hosts(&["host-1"]).await;
    let reported = |reason: Reason| {
        move |world: &World| {
            let installed = world.host_condition("host-1", Type::Installed);
            installed.is_some_and(|installed| installed.reason == reason.as_str())
        }
    };
    let ask = |device: &str| json!({ "metadata": { "annotations": { annotation::REINSTALL: device } } });
    let uid = world.inventory("host-1").unwrap().metadata.uid;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.patch("MachineInventory", "host-1", ask("/dev/vda")).await;
    world.boot_iso("host-1", "hosts");
    world.wait_until("a node is left alone", reported(Reason::LiveBootAfterInstall)).await;
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::LiveBootAfterInstall,
            "booted on an installed host",
            "remove the medium",
        )
        .await;
    world.wait_until("it is back", reported(Reason::InstallDone)).await;
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    assert_eq!(world.host("host-1").installs(), 1);

    world.patch("MachineInventory", "host-1", ask("/dev/vdz")).await;
    world.boot_iso("host-1", "hosts");
    world.wait_until("another disk is not taken", reported(Reason::InstallWaiting)).await;
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::InstallWaiting,
            "/dev/vdz, and vda carries the system of this host; next: correct or remove the annotation",
            "as the message says",
        )
        .await;
    assert_eq!(world.host("host-1").installs(), 1);

    world.patch("MachineInventory", "host-1", ask("/dev/vda")).await;
    world.boot_iso("host-1", "hosts");
    world.wait_until("host-1 is installed", |world| world.host("host-1").installs() == 2).await;
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    let inventory = world.inventory("host-1").unwrap();
    assert_eq!(inventory.metadata.uid, uid, "the host is who it was");
    assert!(!inventory.metadata.annotations.unwrap_or_default().contains_key(annotation::REINSTALL));
    world.apply_machine("m-2").await;
    world.wait_running("m-2").await;
    world.check_invariants().await;
}

// Fault: the seed ISO boots on an installed host.
// Shown: condition `Installed`: `LiveBootAfterInstall`; the host boots its disk.
#[tokio::test(start_paused = true)]
async fn rebooted_iso_does_not_reinstall_the_host() {
    let mut world = World::with_hosts(&["host-1"]).await;
    for _ in 0..2 {
        world.boot_iso("host-1", "hosts");
        let is_reported = |world: &World| {
            let installed = world.host_condition("host-1", Type::Installed).unwrap();
            installed.reason == Reason::LiveBootAfterInstall.as_str()
                && installed.message.contains("remove the medium")
        };
        world.wait_until("the report", is_reported).await;
        world
            .expect_why(
                "machineinventory/host-1",
                Reason::LiveBootAfterInstall,
                "its disk was left alone",
                "remove the medium, and switch it on",
            )
            .await;
        world
            .wait_until("host-1 is back", |world| {
                world.is_available("host-1")
                    && world.host_condition("host-1", Type::Installed).unwrap().reason
                        == Reason::InstallDone.as_str()
            })
            .await;
    }
    assert_eq!(world.host("host-1").installs(), 1);
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.check_invariants().await;
}

// Fault: a pool selects by a label that hosts of a registration with the token alone get.
// Shown: condition `AdmissionOpen` of the MachineInventoryPool: `TokenAdmitsMembers`, until the registration
// demands an approval.
#[tokio::test(start_paused = true)]
async fn pool_that_a_token_fills_is_warned_of() {
    let mut world = World::new().await;
    world.apply_registration().await;
    let labels = json!({ "spec": { "machineInventoryLabels": { "rack": "r1" } } });
    world.patch("MachineRegistration", "hosts", labels).await;
    world.wait_idle().await;
    let selector = json!({ "matchLabels": { "rack": "r1" } });
    let spec = json!({ "clusterName": "lab", "machineInventories": [], "selector": selector });
    world.create("MachineInventoryPool", "rack-1", json!({ "spec": spec })).await;
    world.boot_host("host-1", "hosts");
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    world
        .expect_why(
            "machineinventorypool/rack-1",
            Reason::TokenAdmitsMembers,
            "whoever has the registration URL of MachineRegistration hosts",
            "set spec.approval: Manual",
        )
        .await;
    world.wait_idle().await;
    let mark = world.fake.journal().mark();
    world.advance_time(std::time::Duration::from_mins(10)).await;
    assert_eq!(world.count_requests(mark).writes, 0, "what stays the same is not written again");
    world.patch("MachineRegistration", "hosts", json!({ "spec": { "approval": "Manual" } })).await;
    world.expect_nothing("machineinventorypool/rack-1").await;
    world.check_invariants().await;
}

// Fault: a registration gives another label to a host that had a plan.
// Shown: condition `LabelsStale` of the MachineInventory: `LabelsKept`, until an operator writes the label;
// the host stays in its pool.
#[tokio::test(start_paused = true)]
async fn labels_that_a_host_keeps_are_shown() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    let labels = json!({ "spec": { "machineInventoryLabels": { "rack": "r2" } } });
    world.patch("MachineRegistration", "hosts", labels).await;
    world.wait_idle().await;
    world.host("host-1").kill_agent();
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::LabelsKept,
            "give the host the labels rack=r2",
            "kubectl label",
        )
        .await;
    world.wait_idle().await;
    let mark = world.fake.journal().mark();
    world.advance_time(std::time::Duration::from_mins(10)).await;
    assert_eq!(world.count_requests(mark).writes, 0, "what stays the same is not written again");
    let labels = world.inventory("host-1").unwrap().metadata.labels.unwrap_or_default();
    assert!(!labels.contains_key("rack"), "{labels:?}");
    world.patch("MachineInventory", "host-1", json!({ "metadata": { "labels": { "rack": "r2" } } })).await;
    world.expect_nothing("machineinventory/host-1").await;
    world.check_invariants().await;
}
