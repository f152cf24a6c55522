//! Faults on a real host, one after the other, on one disk.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use ::guest::{PowerState, Stop};
use coordinator_api::conditions::{Type, find_condition};
use coordinator_api::inventory::{MachineInventory, PlanState};
use coordinator_api::machine::{BaremetalMachine, Phase};
use e2e::environment::Environment;
use e2e::guest_site::GuestSite;
use e2e::host::disk_hash::hash_around;
use e2e::host::{GuestHost, Host as _};
use e2e::lifecycle::Lifecycle;
use e2e::watching::until;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

const LONG: Duration = Duration::from_mins(12);
/// Two boots, and ten minutes of silence between them.
const TRIAL: Duration = Duration::from_mins(45);

async fn install_host(lifecycle: &mut Lifecycle<'_>, base: &str) -> MachineInventory {
    let iso = lifecycle.create_seed(base).await.unwrap();
    lifecycle.register(&iso).await.unwrap()
}

/// The plug is pulled while the system is written to the disk.
async fn power_cut_in_the_install(lifecycle: &mut Lifecycle<'_>, iso: &Path) {
    let host = lifecycle.guest().unwrap();
    host.boot(iso).await.unwrap();
    let is_written = "test -e /dev/disk/by-label/COS_STATE && pgrep -x elemental";
    let seen = async || host.inside(is_written).await.map_err(|error| error.to_string());
    host.running().unwrap().wait_until("an install in progress", LONG, seen).await.unwrap();
    host.running_mut().unwrap().power_cut().await;
}

/// Puts a window behind the OS switch, before the agent flushes it: `then` runs
/// in it.
async fn hold_upgrades(host: &GuestHost, then: &str) {
    let script = format!(
        "mv -n /usr/bin/elemental /usr/bin/elemental.held; cat > /usr/bin/elemental <<'END'\n\
         #!/bin/sh\n\
         /usr/bin/elemental.held \"$@\" || exit\n\
         [ \"$1\" != upgrade ] || {{ touch /run/switched; {then}; }}\n\
         END\nchmod 0755 /usr/bin/elemental; rm -f /run/switched"
    );
    host.inside(&script).await.unwrap();
}

async fn switched(host: &GuestHost) {
    let seen = async || host.inside("test -e /run/switched").await.map_err(|error| error.to_string());
    host.running().unwrap().wait_until("the OS switch", LONG, seen).await.unwrap();
}

fn inventories(environment: &Environment) -> Api<MachineInventory> {
    Api::namespaced(environment.management.admin.clone(), "default")
}

async fn install_record(host: &GuestHost) -> String {
    let files = "/var/lib/baremetal-agent/install.json /var/lib/baremetal-agent/identity/key.pem /run/initramfs/elemental-state/.snapshots/*/snapshot.img";
    host.inside(&format!("sha256sum {files}; cat /etc/machine-id")).await.unwrap()
}

/// Entries of the firmware in their order, by name.
async fn boot_order(host: &GuestHost) -> String {
    let names = "efibootmgr | sed -n 's/^BootOrder: //p' | tr , '\\n' | while read -r n; do efibootmgr | sed -n \"s/^Boot$n[* ] *//p\"; done";
    host.inside(names).await.unwrap()
}

/// An operator puts the CD first in the firmware while the ISO is in the drive:
/// nothing is installed over, and the disk comes first again. What the live system
/// leaves for the agent of the disk is all that it writes.
async fn the_iso_boots_again(lifecycle: &mut Lifecycle<'_>) {
    let host = lifecycle.guest().unwrap();
    let before = install_record(host).await;
    assert!(boot_order(host).await.starts_with("elemental-shim"));
    let cd_first = "cd=$(efibootmgr | sed -n 's/^Boot\\(....\\)[* ] .*DVD.*/\\1/p'); \
        efibootmgr -q -o $cd,$(efibootmgr | sed -n 's/^BootOrder: //p' | sed \"s/,$cd\\|$cd,//\")";
    host.inside(cd_first).await.unwrap();
    assert!(boot_order(host).await.contains("DVD"));
    let disk = host.hardware().system_disk();
    let machine = host.running_mut().unwrap();
    machine.power_cut().await;
    let installed = hash_around(&disk, "persistent").unwrap();
    machine.stay_off_after_reset(true);
    machine.power_on().await.unwrap();
    let PowerState::On(live) = machine.state() else { panic!("{:?}", machine.state()) };
    assert_eq!(machine.wait_for_off(LONG).await.unwrap(), Stop::Reset);
    let said = machine.console_of_this_boot();
    assert!(said.contains("the boot order was changed"), "{said}");
    assert_eq!(hash_around(&disk, "persistent").unwrap(), installed, "the ISO has written to the disk");
    machine.stay_off_after_reset(false);
    machine.power_on().await.unwrap();
    machine.wait_for_boot(live + 1, LONG).await.unwrap();
    assert_eq!(install_record(host).await, before, "the ISO has changed an installed host");
    assert!(boot_order(host).await.starts_with("elemental-shim"));
}

/// The agent dies after the OS switch and before it has flushed that, and the plug is
/// pulled at once: what the kernel has not written by itself is lost.
async fn power_cut_after_the_os_switch(lifecycle: &mut Lifecycle<'_>, inventory: &MachineInventory) {
    hold_upgrades(lifecycle.guest().unwrap(), "sleep 60").await;
    lifecycle.apply_cluster(&[inventory.name_any()], 1).await.unwrap();
    let host = lifecycle.guest().unwrap();
    switched(host).await;
    host.inside("pkill -9 -x baremetal-agent").await.unwrap();
    // Without a wait: ext4 commits every five seconds.
    let machine = host.running_mut().unwrap();
    machine.power_cut().await;
    machine.power_on().await.unwrap();
    let node = lifecycle.await_node(inventory, 0).await.unwrap();
    lifecycle.scale_down(inventory).await.unwrap();
    lifecycle.check_node_is_gone(&node).await.unwrap();
}

/// The new image does not boot: the old one does, the plan fails, and nothing joins.
async fn a_new_image_that_does_not_boot(
    lifecycle: &mut Lifecycle<'_>,
    environment: &Environment,
    inventory: &MachineInventory,
) {
    let damage = "mkdir -p /tmp/s; mount LABEL=COS_STATE /tmp/s; dd if=/dev/zero of=/tmp/s/.snapshots/active/snapshot.img bs=4096 count=1 conv=notrunc; umount /tmp/s";
    hold_upgrades(lifecycle.guest().unwrap(), damage).await;
    fail_upgrade(lifecycle, environment, inventory).await;
    lifecycle.scale_down(inventory).await.unwrap();
}

/// A power cut in the first boot of the new image, which is good: the old one
/// comes up, the plan fails, and when the boot loader tries the new one again,
/// that wipes nothing, starts no node and attaches.
async fn a_new_image_that_boots_too_late(
    lifecycle: &mut Lifecycle<'_>,
    environment: &Environment,
    inventory: &MachineInventory,
) {
    // What such a power cut leaves for the boot loader.
    hold_upgrades(lifecycle.guest().unwrap(), "grub-editenv /oem/grubenv set last_boot_attempt=active").await;
    fail_upgrade(lifecycle, environment, inventory).await;
    let host = lifecycle.guest().unwrap();
    // Later: the answer of the command comes first.
    let reboot = "systemd-run --on-active=5 systemctl reboot";
    host.inside(&format!("echo witness > /var/lib/kubelet/witness && {reboot}")).await.unwrap();
    let is_v2 = |inventory: &MachineInventory| {
        let system = inventory.status.as_ref().and_then(|status| status.host.as_ref());
        system.is_some_and(|host| host.image.ends_with(":v2"))
    };
    let seen = until(&inventories(environment), &inventory.name_any(), LONG, is_v2).await.unwrap();
    assert_eq!(seen.plan().and_then(|plan| plan.state), Some(PlanState::Failed));
    let host = lifecycle.guest().unwrap();
    let state = "cat /var/lib/kubelet/witness; wc -c </var/lib/cloud/seed/nocloud/user-data; \
        systemctl is-active kubelet containerd; ls /run/baremetal-agent/node-may-start 2>&1 | grep -c 'No such'";
    assert_eq!(host.inside(state).await.unwrap().trim(), "witness\n0\ninactive\ninactive\n1");
    lifecycle.scale_down(inventory).await.unwrap();
}

/// A machine with the second image, whose plan fails.
async fn fail_upgrade(
    lifecycle: &mut Lifecycle<'_>,
    environment: &Environment,
    inventory: &MachineInventory,
) {
    let version = json!({ "spec": { "replicas": 1, "template": { "spec": { "version": "v1.36.3-2" } } } });
    lifecycle.scale(version).await.unwrap();
    let failed = |inventory: &MachineInventory| {
        inventory.plan().is_some_and(|plan| plan.state == Some(PlanState::Failed))
    };
    let seen = until(&inventories(environment), &inventory.name_any(), LONG, failed).await.unwrap();
    let message = seen.plan().and_then(|plan| plan.message.clone()).unwrap_or_default();
    assert!(message.contains("verify-system") && message.contains("lab.example/os:v1"), "{message}");
    let machines: Api<BaremetalMachine> = Api::namespaced(environment.management.admin.clone(), "default");
    let name = machines.list(&ListParams::default()).await.unwrap().items[0].name_any();
    let is_failed = |machine: &BaremetalMachine| {
        machine.status.as_ref().is_some_and(|status| status.phase == Some(Phase::Failed))
    };
    let machine = until(&machines, &name, LONG, is_failed).await.unwrap();
    let conditions = machine.status.unwrap_or_default().conditions;
    assert_eq!(
        find_condition(&conditions, Type::PlanApplied).map(|c| c.reason.as_str()),
        Some("BootFallback")
    );
    assert_eq!(machine.spec.provider_id, None, "a failed plan must not provide");
}

// Fault: power is lost while the system is installed.
// Shown: nothing: the ISO boots again and installs it.
// Fault: the firmware boots the ISO on an installed host.
// Shown: host console: the boot order is changed, the disk boots.
// Fault: the agent is killed after the OS switch, before its flush, and the power is cut at once.
// Shown: nothing: the plan goes on.
// Fault: the new image does not boot.
// Shown: condition `PlanApplied` of the machine: `BootFallback`; no providerID.
// Fault: the new image boots after its plan has failed.
// Shown: the plan stays failed; nothing is wiped, no unit of a node starts, the host is attached.
#[tokio::test(flavor = "multi_thread")]
async fn real_host_survives_faults() {
    let site = GuestSite::start().await.unwrap();
    let GuestSite { environment, mut host, base, progress, watching: _watching, .. } = site;
    let mut lifecycle = Lifecycle::new(&environment, &mut host, progress.clone());
    let iso = lifecycle.create_seed(&base).await.unwrap();
    progress.step("fault: a power cut while the system is installed");
    power_cut_in_the_install(&mut lifecycle, &iso).await;
    let inventory = lifecycle.register(&iso).await.unwrap();
    progress.step("fault: the ISO boots again on an installed host");
    the_iso_boots_again(&mut lifecycle).await;
    progress.step("fault: agent killed, then power cut, after the OS switch");
    power_cut_after_the_os_switch(&mut lifecycle, &inventory).await;
    progress.step("fault: the new image does not boot");
    a_new_image_that_does_not_boot(&mut lifecycle, &environment, &inventory).await;
    progress.step("fault: the new image boots after its plan has failed");
    a_new_image_that_boots_too_late(&mut lifecycle, &environment, &inventory).await;
    progress.end();
}

// Fault: the network of a plan does not reach the coordinator.
// Shown: `PlanApplied`: `NetworkReverted`; the host is attached with its former network.
#[tokio::test(flavor = "multi_thread")]
async fn real_host_returns_from_a_silent_network() {
    let site = GuestSite::start().await.unwrap();
    let GuestSite { environment, mut host, base, progress, watching: _watching, .. } = site;
    let mut lifecycle = Lifecycle::new(&environment, &mut host, progress.clone());
    let inventory = install_host(&mut lifecycle, &base).await;
    progress.step("fault: the network of a plan does not reach the coordinator");
    let card = |mac: &str, address: &str| json!({ "match": { "macaddress": mac }, "addresses": [address] });
    let cards = json!({
        "first": card("52:54:00:4c:01:01", "192.0.2.66/24"),
        "second": card("52:54:00:4c:01:02", "198.51.100.66/24"),
    });
    let set_network = async |network: serde_json::Value| {
        let patch = Patch::Merge(json!({ "spec": { "network": network } }));
        let name = inventory.name_any();
        inventories(&environment).patch(&name, &PatchParams::default(), &patch).await.unwrap();
    };
    set_network(json!({ "configurator": "none", "config": { "version": 2, "ethernets": cards } })).await;
    lifecycle.apply_cluster(&[inventory.name_any()], 1).await.unwrap();
    let is_reverted = |inventory: &MachineInventory| {
        inventory.plan().is_some_and(|plan| plan.reason.as_deref() == Some("NetworkReverted"))
    };
    let seen = until(&inventories(&environment), &inventory.name_any(), TRIAL, is_reverted).await.unwrap();
    let message = seen.plan().and_then(|plan| plan.message.clone()).unwrap_or_default();
    assert!(message.contains("no coordinator for 1"), "{message}");
    let host = lifecycle.guest().unwrap();
    let addresses = host.inside("ip -o -4 address show scope global").await.unwrap();
    for (address, want) in [("10.0.2.15/24", true), ("10.77.0.10/24", true), ("66/24", false)] {
        assert_eq!(addresses.contains(address), want, "{address}: {addresses}");
    }
    let joined = host.inside("ls /etc/kubernetes/kubelet.conf 2>&1 | grep -c 'No such'").await.unwrap();
    assert_eq!(joined.trim(), "1", "a node runs with a network that is not its own");
    set_network(serde_json::Value::Null).await;
    lifecycle.scale_down(&inventory).await.unwrap();
    progress.end();
}
