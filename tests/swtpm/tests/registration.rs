//! Hosts with real TPMs register with a real coordinator.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use agent::ground::paths::StateDir;
use agent::identity::Identity;
use base64::Engine as _;
use coordinator_api::conditions::{Type, find_condition};
use coordinator_api::registration::MachineRegistration;
use scenarios::{FittedTpm, World};
use serde_json::json;
use swtpm::{Swtpm, Vendor};

const HOST: &str = "host-1";

/// A registration that takes software keys or not.
async fn registered(emulate_tpm: bool) -> World {
    let world = World::new().await;
    world.apply_registration().await;
    allow_software_keys(&world, emulate_tpm).await;
    world
}

async fn allow_software_keys(world: &World, emulate_tpm: bool) {
    let registration = json!({ "elemental": { "registration": { "emulate-tpm": emulate_tpm } } });
    world.patch("MachineRegistration", "hosts", json!({ "spec": { "config": registration } })).await;
    world.wait_idle().await;
}

async fn name_vendor(world: &World, vendor: &Vendor) {
    let data = base64::engine::general_purpose::STANDARD.encode(&vendor.authority);
    world.create("Secret", "tpm-ca", json!({ "type": "Opaque", "data": { "tls.crt": data } })).await;
}

fn fitted(tpm: &Swtpm) -> FittedTpm {
    FittedTpm { socket: tpm.socket(), reset: Arc::new(tpm.resetter()) }
}

/// Boots a host from the seed ISO, with a TPM or without.
fn boot(world: &mut World, name: &str, tpm: Option<&Swtpm>) {
    world.boot_host(name, "hosts");
    world.host(name).fit_tpm(tpm.map(fitted));
}

fn reboot(world: &mut World, name: &str, tpm: Option<&Swtpm>) {
    world.host_mut(name).power_off();
    world.host(name).fit_tpm(tpm.map(fitted));
    world.host_mut(name).power_on();
}

async fn wait_available(world: &World) {
    world.wait_until("the host is available", |world| world.is_available(HOST)).await;
}

fn refused_hosts(world: &World) -> Option<(String, String, String)> {
    let object = world.get_object("machineregistrations.elemental.cattle.io", "hosts").unwrap();
    let registration: MachineRegistration = serde_json::from_value(object).unwrap();
    let status = registration.status?;
    let found = find_condition(&status.conditions, Type::HostsRefused)?;
    Some((found.status.clone(), found.reason.clone(), found.message.clone()))
}

fn class(world: &World) -> (String, String) {
    let shown = world.host_condition(HOST, Type::IdentityVerified).unwrap();
    let label =
        world.inventory(HOST).unwrap().metadata.labels.unwrap()["baremetal.cluster.io/identity-class"]
            .clone();
    assert_eq!(label, shown.reason);
    (shown.status, shown.reason)
}

fn key_of_disk(world: &World) -> Identity {
    let state: StateDir = world.host(HOST).disk().state();
    Identity::load(&state.identity()).unwrap().unwrap()
}

async fn hash_of(tpm: &Swtpm) -> String {
    proto::proof::identity(&agent::identity::tpm::read_identity(&tpm.host_root()).await.unwrap().unwrap())
}

// Fault: a host has no TPM where one is wanted.
// Shown: host console, Event and condition `HostsRefused` of the MachineRegistration:
// `TpmRequired`.
#[tokio::test(start_paused = true)]
async fn host_without_tpm_is_refused_visibly() {
    let mut world = registered(false).await;
    boot(&mut world, HOST, None);
    let is_shown = |world: &World| refused_hosts(world).is_some_and(|shown| shown.0 == "True");
    world.wait_until("the refusal is shown", is_shown).await;
    let (_, reason, message) = refused_hosts(&world).unwrap();
    assert_eq!(reason, "HostRefused");
    assert!(message.starts_with("TpmRequired: "), "{message}");
    assert!(message.contains("firmware setup") && message.contains("emulate-tpm: true"), "{message}");
    world.expect_event(
        "MachineRegistration",
        "hosts",
        "TpmRequired",
        "switch the TPM 2.0 on in the host's firmware setup",
    );
    assert!(world.inventory(HOST).is_none());
    let tpm = Swtpm::start();
    reboot(&mut world, HOST, Some(&tpm));
    wait_available(&world).await;
    assert_eq!(world.inventory(HOST).unwrap().spec.tpm_hash, Some(hash_of(&tpm).await));
    assert_eq!(class(&world), ("False".to_owned(), "Unverified".to_owned()));
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn tpm_is_used_though_software_keys_are_allowed() {
    let mut world = registered(true).await;
    let tpm = Swtpm::start();
    boot(&mut world, HOST, Some(&tpm));
    wait_available(&world).await;
    assert_eq!(world.inventory(HOST).unwrap().spec.tpm_hash, Some(hash_of(&tpm).await));
    let key = key_of_disk(&world);
    assert_ne!(proto::proof::identity(&key.public_key()), key.hash(), "the key of TLS is another one");
    world.check_invariants().await;
}

// Fault: the vendor of a host's TPM is not among those that the operator trusts.
// Shown: host console, Event and condition `HostsRefused` of the MachineRegistration:
// `TpmUntrusted`.
#[tokio::test(start_paused = true)]
async fn only_certified_tpms_register_where_vendors_are_named() {
    let mut world = registered(false).await;
    let (tpm, vendor) = (Swtpm::start(), Vendor::new("vendor"));
    name_vendor(&world, &vendor).await;
    boot(&mut world, HOST, Some(&tpm));
    let is_shown =
        |world: &World| refused_hosts(world).is_some_and(|shown| shown.2.starts_with("TpmUntrusted: "));
    world.wait_until("the refusal is shown", is_shown).await;
    assert!(
        refused_hosts(&world).unwrap().2.contains("is missing in the TPM"),
        "{:?}",
        refused_hosts(&world)
    );
    assert!(world.inventory(HOST).is_none());
    let key = agent::identity::tpm::read_identity(&tpm.host_root()).await.unwrap().unwrap();
    world.host_mut(HOST).power_off();
    tpm.write_certificate(&vendor.certify(&key, |_| {}), &[]);
    reboot(&mut world, HOST, Some(&tpm));
    wait_available(&world).await;
    assert_eq!(class(&world), ("True".to_owned(), "Hardware".to_owned()));
    world.check_invariants().await;
}

// Fault: a TPM is switched on in an installed host with a software key.
// Shown: nothing: the host stays who it is until it is installed again.
#[tokio::test(start_paused = true)]
async fn installed_software_key_stays() {
    let mut world = registered(true).await;
    boot(&mut world, HOST, None);
    wait_available(&world).await;
    let first = world.inventory(HOST).unwrap().spec.tpm_hash;
    assert_eq!(class(&world), ("False".to_owned(), "Emulated".to_owned()));
    allow_software_keys(&world, false).await;
    let tpm = Swtpm::start();
    let seed = world.seed_config("hosts");
    world.host_mut(HOST).power_off();
    world.host(HOST).insert(&seed);
    reboot(&mut world, HOST, Some(&tpm));
    let is_reported =
        |world: &World| world.host_condition(HOST, Type::Installed).unwrap().reason == "LiveBootAfterInstall";
    world.wait_until("the seed ISO was booted", is_reported).await;
    wait_available(&world).await;
    assert_eq!(world.inventory(HOST).unwrap().spec.tpm_hash, first);
    assert_eq!(key_of_disk(&world).endorsement_key(), None);
    world.check_invariants().await;
}

// Fault: the TPM of an installed host shows no boot since the live system registered, or the installed system has no
// driver for it.
// Shown: host console and Event of the MachineInventory: `BadProof`; the host gets no plan until its TPM was reset.
#[tokio::test(start_paused = true)]
async fn installed_system_proves_its_boot_by_the_tpm() {
    let mut world = registered(false).await;
    let tpm = Swtpm::start();
    let stuck = FittedTpm { reset: Arc::new(|| {}), ..fitted(&tpm) };
    world.boot_host(HOST, "hosts");
    world.host(HOST).fit_tpm(Some(stuck));
    for (name, tpm, want) in [
        ("not reset", None, "the TPM was not reset since the live system registered"),
        ("no driver", Some(None), "the host sent no quote of its TPM"),
    ] {
        if let Some(tpm) = tpm {
            reboot(&mut world, HOST, tpm);
        }
        world.advance_time(Duration::from_mins(2)).await;
        world.expect_event("MachineInventory", HOST, "BadProof", want);
        assert!(!world.is_available(HOST), "{name}");
    }
    reboot(&mut world, HOST, Some(&tpm));
    wait_available(&world).await;
    world.check_invariants().await;
}

// Fault: a host whose identity is in a TPM has none when a clean ends, for which it needs the next key.
// Shown: host console and Event of the MachineInventory: `BadProof`; the host is not free until it has its TPM.
#[tokio::test(start_paused = true)]
async fn next_key_of_a_clean_needs_a_quote() {
    let mut world = registered(false).await;
    let tpm = Swtpm::start();
    boot(&mut world, HOST, Some(&tpm));
    wait_available(&world).await;
    world.apply_catalog().await;
    world.apply_cluster("c1").await;
    world.apply_pool("pool", &[HOST]).await;
    let installed = certified_key(&world);
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.delete_machine("m-1").await;
    world.wait_released("m-1", HOST).await;
    let second = certified_key(&world);
    assert_ne!(second, installed, "the quote renewed the key");
    world.apply_machine("m-2").await;
    world.wait_running("m-2").await;
    reboot(&mut world, HOST, None);
    world.advance_time(Duration::from_mins(2)).await;
    world.delete_machine("m-2").await;
    world.advance_time(Duration::from_mins(10)).await;
    world.expect_event("MachineInventory", HOST, "BadProof", "the host sent no quote of its TPM");
    assert!(!world.is_available(HOST), "no clean ends by the key of the tenancy");
    reboot(&mut world, HOST, Some(&tpm));
    world.wait_released("m-2", HOST).await;
    assert_ne!(certified_key(&world), second);
    world.check_invariants().await;
}

/// Hash of the key whose certificate the host used last.
fn certified_key(world: &World) -> String {
    let object = world.get_object("machineinventories.elemental.cattle.io", HOST).unwrap();
    object["status"]["host"]["certifiedKey"]["hash"].as_str().unwrap_or_default().to_owned()
}

// Fault: the disk of a host with TPM is copied, or its TPM is replaced.
// Shown: host console: the TPM is gone, or another one; the host cannot register.
#[tokio::test(start_paused = true)]
async fn copied_key_cannot_register_without_its_tpm() {
    let mut world = registered(true).await;
    let tpm = Swtpm::start();
    boot(&mut world, HOST, Some(&tpm));
    wait_available(&world).await;
    // Certificates are verified by the real clock: the virtual one must not be far ahead.
    let before = lose_certificates(&mut world);
    reboot(&mut world, HOST, Some(&tpm));
    let has_registered = |world: &World| world.log()[before..].contains("host registered");
    world.wait_until("it registers again", has_registered).await;
    let other = Swtpm::start();
    for (name, fitted, want) in [
        ("taken out", None, "there is none now"),
        ("another one", Some(&other), "another TPM than it has now"),
    ] {
        let before = lose_certificates(&mut world);
        reboot(&mut world, HOST, fitted);
        world.advance_time(Duration::from_mins(2)).await;
        let key = key_of_disk(&world);
        let root = world.host(HOST).disk();
        let refused =
            agent::identity::tpm::Attestor::load(&root, key.endorsement_key().unwrap()).await.unwrap_err();
        assert!(refused.to_string().contains(want), "{name}: {refused}");
        assert_eq!(key.kept_certificates().count(), 0, "{name}");
        assert!(!world.log()[before..].contains("host registered"), "{name}");
    }
    world.check_invariants().await;
}

/// The host is off and must register again. Returns the length of the log.
fn lose_certificates(world: &mut World) -> usize {
    world.host_mut(HOST).power_off();
    let identity = world.host(HOST).disk().state().identity();
    for file in ["live.pem", "installed.pem"] {
        let _ = std::fs::remove_file(identity.join(file));
    }
    world.log().len()
}
