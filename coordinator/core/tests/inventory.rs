//! Hosts that register: who they are, what they are called, how they are
//! installed.

use coordinator_api::inventory::{KeyClass, MachineInventory, MachineInventorySpec};
use coordinator_api::names::annotation;
use coordinator_api::registration::{MachineRegistration, MachineRegistrationSpec};
use coordinator_core::inventory::{
    Draft, Existing, Hardware, Identified, Identity, InstallError, Skipped, TemplateError, draft_inventory,
    identify_host, install_message,
};
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use serde_json::{Value, json};

fn registration(spec: Value) -> MachineRegistration {
    let spec: MachineRegistrationSpec = serde_json::from_value(spec).unwrap();
    MachineRegistration::new("rack", spec)
}

fn inventory(name: &str, key: Option<&str>) -> MachineInventory {
    MachineInventory::new(
        name,
        MachineInventorySpec { tpm_hash: key.map(str::to_owned), ..Default::default() },
    )
}

const ME: Identity<'_> = Identity { hash: "mine", class: KeyClass::Emulated };

#[test]
fn a_host_is_who_its_key_says() {
    let emulated = registration(json!({"config": {"elemental": {"registration": {"emulate-tpm": true}}}}));
    let strict = registration(json!({}));
    let (mine, others, empty) =
        (inventory("a", Some("mine")), inventory("a", Some("other")), inventory("a", None));
    let mut doubted = mine.clone();
    doubted.metadata.annotations = Some([(annotation::QUARANTINED.to_owned(), String::new())].into());
    let tpm = Identity { class: KeyClass::Hardware, ..ME };
    let found = |by_key, by_name| Existing { by_key, by_name };
    let cases = [
        ("no inventory yet", found(None, None), ME, &emulated, Identified::Create),
        ("its key is known", found(Some(&mine), None), ME, &emulated, Identified::Known(&mine)),
        (
            "known, and the name renders otherwise now",
            found(Some(&mine), Some(&others)),
            ME,
            &emulated,
            Identified::Known(&mine),
        ),
        (
            "known by name before the index knows",
            found(None, Some(&mine)),
            ME,
            &emulated,
            Identified::Known(&mine),
        ),
        (
            "the name is another's",
            found(None, Some(&others)),
            ME,
            &emulated,
            Identified::Refused(Refusal::NameTaken),
        ),
        (
            "the name is not taken",
            found(None, Some(&empty)),
            ME,
            &emulated,
            Identified::Refused(Refusal::NameTaken),
        ),
        (
            "in quarantine",
            found(Some(&doubted), Some(&doubted)),
            ME,
            &emulated,
            Identified::Refused(Refusal::Quarantined),
        ),
        (
            "a software key where a TPM is asked for",
            found(None, None),
            ME,
            &strict,
            Identified::Refused(Refusal::TpmRequired),
        ),
        ("a known software key stays", found(Some(&mine), None), ME, &strict, Identified::Known(&mine)),
        ("a TPM", found(None, None), tpm, &strict, Identified::Create),
        ("a TPM where none is needed", found(Some(&mine), None), tpm, &emulated, Identified::Known(&mine)),
    ];
    for (name, existing, identity, registration, want) in cases {
        let hardware = &Hardware::default();
        assert_eq!(identify_host(existing, identity, hardware, registration), want, "{name}");
    }
}

const UUID: &str = "4C4C4544-0032-4B10-8035-C4C04F4E3332";

/// The host with its first key, as its registration left it.
fn interrupted() -> MachineInventory {
    let interface = json!({ "name": "eth0", "permanentMac": "52:54:00:00:00:01" });
    serde_json::from_value(json!({
        "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineInventory",
        "metadata": { "name": "a" },
        "spec": { "tpmHash": "former", "observedNetwork": { "interfaces": [interface] } },
        "status": { "host": { "systemUUID": UUID, "install": { "state": "Installing" } } },
    }))
    .unwrap()
}

#[test]
fn name_gets_new_key_only_before_install() {
    type Edit = fn(&mut Value, &mut Hardware);
    let registration =
        registration(json!({"config": {"elemental": {"registration": {"emulate-tpm": true}}}}));
    let cases: [(&str, Edit, bool); 15] = [
        ("interrupted", |_, _| {}, true),
        (
            "an operator is awaited",
            |host, _| host["status"]["host"]["install"]["state"] = json!("Waiting"),
            true,
        ),
        ("the install failed", |host, _| host["status"]["host"]["install"]["state"] = json!("Failed"), true),
        ("installed", |host, _| host["status"]["host"]["install"]["state"] = json!("Installed"), false),
        (
            "found installed",
            |host, _| host["status"]["host"]["install"]["state"] = json!("LiveBootAfterInstall"),
            false,
        ),
        ("the status was lost", |host, _| host["status"] = json!(null), false),
        ("it has attached", |host, _| host["status"]["host"]["carried"] = json!({}), false),
        (
            "it is attached",
            |host, _| {
                let since = "2026-01-01T00:00:00Z";
                host["status"]["host"]["session"] = json!({ "replica": "r", "bootId": "b", "since": since });
            },
            false,
        ),
        (
            "it is claimed",
            |host, _| {
                let owner = json!({ annotation::OWNER_BAREMETAL_MACHINE: "m" });
                host["metadata"]["annotations"] = owner;
            },
            false,
        ),
        (
            "in quarantine",
            |host, _| host["metadata"]["annotations"] = json!({ annotation::QUARANTINED: "b" }),
            false,
        ),
        ("another board", |_, seen| seen.system_uuid = Some("other".into()), false),
        ("no UUID", |_, seen| seen.system_uuid = None, false),
        (
            "no UUID then, no UUID now",
            |host, seen| {
                host["status"]["host"]["systemUUID"] = json!(null);
                seen.system_uuid = None;
            },
            false,
        ),
        ("another interface", |_, seen| seen.macs = [String::from("52:54:00:00:00:02")].into(), false),
        (
            "no interfaces",
            |host, seen| {
                host["spec"]["observedNetwork"] = json!(null);
                seen.macs.clear();
            },
            false,
        ),
    ];
    for (name, edit, is_replaced) in cases {
        let mut host = serde_json::to_value(interrupted()).unwrap();
        let mut seen =
            Hardware { system_uuid: Some(UUID.into()), macs: [String::from("52:54:00:00:00:01")].into() };
        edit(&mut host, &mut seen);
        let host: MachineInventory = serde_json::from_value(host).unwrap();
        let existing = Existing { by_key: None, by_name: Some(&host) };
        let want =
            if is_replaced { Identified::Replaced(&host) } else { Identified::Refused(Refusal::NameTaken) };
        assert_eq!(identify_host(existing, ME, &seen, &registration), want, "{name}");
    }
}

#[test]
fn hardware_is_as_reported_unless_smbios_hidden() {
    let network = interrupted().spec.observed_network;
    let macs = [String::from("52:54:00:00:00:01")].into();
    let seen = Hardware::reported(&registration(json!({})), &facts(), network.as_ref());
    assert_eq!(seen, Hardware { system_uuid: Some(UUID.into()), macs });
    let hidden = registration(json!({"config": {"elemental": {"registration": {"no-smbios": true}}}}));
    assert_eq!(Hardware::reported(&hidden, &facts(), None), Hardware::default());
}

fn facts() -> wire::HostFacts {
    let section = |title: &str, values: &[(&str, &str)]| wire::SmbiosSection {
        title: title.to_owned(),
        values: values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    };
    wire::HostFacts {
        smbios: vec![
            section("System Information", &[("UUID", "old"), ("Family", "gone with its section")]),
            section(
                "System Information",
                &[
                    ("UUID", "4C4C4544-0032-4B10-8035-C4C04F4E3332"),
                    ("Manufacturer", "QEMU "),
                    ("Serial Number", "Not Specified"),
                ],
            ),
            section("Base Board Information", &[("Serial Number", "To Be Filled By O.E.M.")]),
        ],
        cpu_threads: 8,
        memory_bytes: 4096,
        hostname: "live-1".into(),
        nics: vec![wire::Nic {
            name: "eno1".into(),
            mac: "02:00:00:00:00:01".into(),
            speed_mbit: 1000,
            ..Default::default()
        }],
        disks: vec![wire::Disk {
            name: "vda".into(),
            size_bytes: 10,
            rotational: true,
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn map(entries: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn inventory_is_drafted_from_reported_facts() {
    let registration = registration(json!({
        "machineName": "Cluster-A-${System Information/UUID}",
        "machineInventoryLabels": {
            "vendor": "${Product/Vendor}", "mac": "${Network/NICs/eno1/MacAddress}", "serial": "${Product/SerialNumber}",
            "two words": "a", "disk": "${Storage/Disks/0/Name} ${Storage/Disks/vda/DriveType}",
        },
        "machineInventoryAnnotations": {
            "example.com/memory": "${Memory/TotalPhysicalBytes} bytes, ${CPU/TotalThreads} threads",
            "example.com/family": "${Product/Family}",
            "host": "${Runtime/Hostname}/${System Data/Runtime/Hostname}",
        },
    }));
    let skipped = |key: &str, why: &str| Skipped { key: key.to_owned(), why: why.to_owned() };
    let want = Draft {
        name: "cluster-a-4c4c4544-0032-4b10-8035-c4c04f4e3332".into(),
        labels: map(&[
            ("baremetal.cluster.io/identity-class", "Emulated"),
            ("disk", "vda-HDD"),
            ("elemental.cattle.io/managed", "true"),
            ("mac", "02-00-00-00-00-01"),
            ("vendor", "QEMU"),
        ]),
        annotations: map(&[
            (annotation::REGISTRATION, "rack"),
            ("example.com/memory", "4096 bytes, 8 threads"),
            ("host", "live-1/live-1"),
        ]),
        skipped: vec![
            skipped("serial", "the host does not report Product/SerialNumber"),
            skipped("two words", "the key is not valid for a label or annotation"),
            skipped("example.com/family", "the host does not report Product/Family"),
        ],
        ..Draft::default()
    };
    assert_eq!(draft_inventory(&registration, &facts(), ME, &[0; 32]), Ok(want));
}

#[test]
fn a_name_that_cannot_be_rendered_is_random() {
    let no_smbios = json!({"elemental": {"registration": {"no-smbios": true}}});
    let name_of =
        |spec: Value| draft_inventory(&registration(spec), &facts(), ME, &[0; 32]).map(|draft| draft.name);
    let drawn = |template: &str| name_of(json!({ "machineName": template })).unwrap();
    let random = drawn("m-${Random/UUID}");
    let cases = [
        ("no template", json!({}), Ok("m-4c4c4544-0032-4b10-8035-c4c04f4e3332".to_owned())),
        ("fixed", json!({"machineName": "rack-1"}), Ok("rack-1".to_owned())),
        (
            "several keys are missing",
            json!({"machineName": "${A/B}${Base Board Information/Serial Number}${C}"}),
            Ok(random.clone()),
        ),
        (
            "SMBIOS is hidden",
            json!({"machineName": "${System Information/UUID}", "config": no_smbios}),
            Ok(random.clone()),
        ),
        (
            "random where SMBIOS is hidden",
            json!({"machineName": "m-${Random/Hex/8}", "config": no_smbios}),
            Ok(drawn("m-${Random/Hex/8}")),
        ),
        (
            "nothing is left",
            json!({"machineName": "--é--"}),
            Err(TemplateError::Name { name: String::new() }),
        ),
        ("dots", json!({"machineName": "a..b"}), Ok("a.b".to_owned())),
    ];
    for (name, spec, want) in cases {
        assert_eq!(name_of(spec), want, "{name}");
    }
    let draft =
        draft_inventory(&registration(json!({"machineName": "${A/B}"})), &facts(), ME, &[0; 32]).unwrap();
    assert_eq!(draft.skipped.len(), 1, "it is said why");
    assert_ne!(
        draft_inventory(&registration(json!({"machineName": "${A/B}"})), &facts(), ME, &[1; 32])
            .unwrap()
            .name,
        random
    );
}

#[test]
fn uuid_shared_by_boards_names_no_host() {
    for uuid in [
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "03000200-0400-0500-0006-000700080009",
    ] {
        let mut facts = facts();
        facts.smbios[1].values.insert("UUID".into(), uuid.into());
        let draft = draft_inventory(&registration(json!({})), &facts, ME, &[0; 32]).unwrap();
        assert_eq!(draft.skipped.len(), 1, "{uuid}: the name is random");
    }
}

#[test]
fn install_follows_registration_and_device_annotation() {
    let given = registration(json!({"config": {
        "cloud-config": {"users": [{"name": "root"}]},
        "elemental": {"install": {
            "device": "/dev/elemental-install-target", "poweroff": true, "reboot": true, "debug": true, "eject-cd": true, "allow-erase": true,
            "system-uri": "dir:/x", "no-format": true, "disable-boot-entry": true,
            "snapshotter": {"type": "btrfs", "maxSnaps": 4},
            "device-selector": [{"key": "WWN", "operator": "In", "values": ["0x5"]}, {"key": "Size", "operator": "Gt", "values": ["10Gi"]}],
        }},
    }}));
    let mut host = inventory("a", Some("mine"));
    host.metadata.uid = Some("0011".into());
    host.metadata.annotations = Some([(annotation::INSTALL_DEVICE.to_owned(), "/dev/vda".to_owned())].into());
    host.spec.observed_network = serde_json::from_value(
        json!({"interfaces": [{"name": "eno1", "mac": "52:54:00:00:00:01", "dhcp4": true}]}),
    )
    .unwrap();
    let requirement = |key: &str, operator: &str, value: &str| wire::DeviceRequirement {
        key: key.into(),
        operator: operator.into(),
        values: vec![value.into()],
    };
    let full = wire::Install {
        device: "/dev/vda".into(),
        device_selector: vec![requirement("WWN", "In", "0x5"), requirement("Size", "Gt", "10Gi")],
        allow_erase: true,
        system_uri: "dir:/x".into(),
        snapshotter_type: "btrfs".into(),
        snapshotter_max_snaps: 4,
        debug: true,
        eject_cd: true,
        no_format: true,
        disable_boot_entry: true,
        power_action: wire::PowerAction::Poweroff.into(),
        seed: Some(wire::Seed {
            user_data: Some(b"#cloud-config\nusers:\n- name: root\n".to_vec()),
            meta_data: "instance-id: install-0011\n".into(),
            network_config: Some(
                "version: 2\nethernets:\n  eno1:\n    match:\n      macaddress: \"52:54:00:00:00:01\"\n    set-name: eno1\n    dhcp4: true\n".into(),
            ),
            connections: vec![wire::Keyfile {
                name: "eno1".into(),
                content: b"[connection]\nid=eno1\nuuid=6aafa98a-8199-817e-a426-0b6c3bdf145d\ntype=ethernet\n\n[ethernet]\nmac-address=52:54:00:00:00:01\n\n[ipv4]\nmethod=auto\n\n[ipv6]\nmethod=disabled\n".to_vec(),
            }],
            network_data: None,
        }),
        ..Default::default()
    };
    let nothing = wire::Install {
        snapshotter_type: "loopdevice".into(),
        snapshotter_max_snaps: 2,
        power_action: wire::PowerAction::Reboot.into(),
        seed: Some(wire::Seed {
            user_data: None,
            meta_data: "instance-id: install-b\n".into(),
            network_config: None,
            connections: vec![],
            network_data: None,
        }),
        ..Default::default()
    };
    let config = |config: Value| registration(json!({"config": config}));
    let with_device = wire::Install { device: "/dev/x".into(), ..nothing.clone() };
    let staying = wire::Install { power_action: wire::PowerAction::Stay.into(), ..nothing.clone() };
    let staged = wire::Install { stages: b"stages:\n  boot: []\n".to_vec(), ..nothing.clone() };
    let with_urls = wire::Install { config_urls: vec!["https://c.example/a.yaml".into()], ..nothing.clone() };
    let bare = inventory("b", None);
    let cases: [(&str, MachineRegistration, &MachineInventory, Result<wire::Install, InstallError>); 6] = [
        ("everything", given, &host, Ok(full)),
        ("nothing", registration(json!({})), &bare, Ok(nothing)),
        (
            "a device for all",
            config(json!({"elemental": {"install": {"device": "/dev/x"}}})),
            &bare,
            Ok(with_device),
        ),
        ("no reboot", config(json!({"elemental": {"install": {"reboot": false}}})), &bare, Ok(staying)),
        ("stages of yip", config(json!({"cloud-config": {"stages": {"boot": []}}})), &bare, Ok(staged)),
        (
            "further files",
            config(json!({"elemental": {"install": {"config-urls": ["https://c.example/a.yaml"]}}})),
            &bare,
            Ok(with_urls),
        ),
    ];
    for (name, registration, inventory, want) in cases {
        assert_eq!(install_message(&registration, inventory, None), want, "{name}");
    }
}
