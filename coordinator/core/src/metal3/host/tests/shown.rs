//! What the status of a host shows beside its state: fields without effect, errors, hardware.

use super::*;

#[test]
fn requests_needing_bmc_are_reported_as_ignored() {
    let named = |spec: serde_json::Value, annotation: &str| {
        let mut host = host();
        let mut changed = json!({ "online": true });
        changed.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        host.spec = serde_json::from_value(changed).unwrap();
        let hardware = json!({ "cpu": { "arch": "x86_64" }, "nics": [{ "mac": "52:54:00:00:00:0a" }] });
        host.status.get_or_insert_default().hardware = serde_json::from_value(hardware).unwrap();
        host.annotations_mut().insert(annotation.to_owned(), "oci://registry.example/os:v1".into());
        let status = project_status(&host, None, &[], Some(&owned("bmh-1")), Timestamp::UNIX_EPOCH);
        let found = status.conditions.into_iter().find(|found| found.type_ == "FieldsIgnored").unwrap();
        (found.status == "True").then_some(found.message)
    };
    let image = json!({ "image": { "url": "https://x/os.raw" } });
    for (spec, annotation) in [
        (json!({}), "none"),
        (json!({}), "reboot.metal3.io"),
        (json!({ "disablePowerOff": true }), "none"),
        (json!({ "architecture": "x86_64", "bootMACAddress": "52:54:00:00:00:0A" }), "none"),
        (json!({ "architecture": "", "bootMACAddress": "", "hardwareProfile": "" }), "none"),
        (json!({ "userData": { "name": "s", "namespace": "" }, "bmc": {} }), "none"),
        (image.clone(), "not-provisioned"),
    ] {
        assert_eq!(named(spec.clone(), annotation), None, "{spec} {annotation}");
    }
    for (spec, annotation, part) in [
        (json!({ "online": false }), "none", "spec.online: false;"),
        (json!({}), "inspect.metal3.io", "the annotation inspect.metal3.io;"),
        (
            json!({ "bootMode": "UEFI", "inspectionMode": "disabled" }),
            "none",
            "spec.bootMode, spec.inspectionMode;",
        ),
        (json!({ "raid": {}, "taints": [{}] }), "none", "spec.raid, spec.taints;"),
        (json!({ "networkInterfaces": [{}] }), "none", "spec.networkInterfaces;"),
        (json!({ "bmc": { "credentialsName": "s" } }), "none", "spec.bmc;"),
        (
            json!({ "hardwareProfile": "dell", "architecture": "aarch64", "bootMACAddress": "52:54:00:00:00:0b" }),
            "none",
            "spec.hardwareProfile, spec.architecture (the host is x86_64), \
             spec.bootMACAddress (no card of the host has 52:54:00:00:00:0b);",
        ),
        (
            json!({
                "userData": { "name": "s", "namespace": "other" },
                "metaData": { "name": "s", "namespace": "other" },
                "networkData": { "name": "s", "namespace": "other" },
            }),
            "none",
            "spec.userData.namespace, spec.metaData.namespace, spec.networkData.namespace;",
        ),
        (image, names::PROVISIONED_IMAGE, "the image (spec.image.url: only oci://"),
    ] {
        let message = named(spec, annotation).unwrap();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn dropped_conditions_cause_no_write() {
    let inventory = owned("bmh-1");
    let waiting =
        Blocker::waiting_for(Type::Ready, Problem::of_cause(Reason::BootstrapWaiting, "Secret s: create it"));
    let state = State { phase: Some(Phase::Allocated), blocker: Some(waiting), ..State::default() };
    let at = |seconds| Timestamp::from_second(seconds).unwrap();
    let project = |host: &BareMetalHost, state: &State, seconds| {
        project_status(host, Some(state), &[], Some(&inventory), at(seconds))
    };
    let mut host = provisioning();
    let first = project(&host, &state, 1);
    assert_eq!(
        (first.error_message.as_str(), first.conditions.is_empty()),
        ("", false),
        "conditions show it"
    );
    host.status = Some(BareMetalHostStatus { conditions: Vec::new(), ..first.clone() });
    let second = project(&host, &state, 2);
    assert_eq!((second.error_message.as_str(), second.error_type.as_deref()), ("Secret s: create it", None));
    assert_eq!((second.operational_status.as_str(), second.error_count), ("OK", 0));
    host.status = Some(BareMetalHostStatus { conditions: Vec::new(), ..second });
    assert_eq!(Some(project(&host, &state, 3)), host.status, "nothing to write");
    let runs = project(&host, &State { phase: Some(Phase::Running), ..State::default() }, 4);
    assert_eq!((runs.error_message.as_str(), runs.last_updated), ("", Some(Time(at(4)))));
    let paused = Blocker::waiting_for(Type::Paused, Problem::of_cause(Reason::Paused, "remove it"));
    let paused = State { blocker: Some(paused), ..State::default() };
    assert_eq!(Some(project(&host, &paused, 5)), host.status, "paused");
    host.status = Some(first.clone());
    assert_eq!(project(&host, &state, 6), first, "where they are kept");
}

#[test]
fn unusable_host_shows_error_counted_once() {
    let mut inventory = owned("bmh-1");
    inventory.status.as_mut().unwrap().plan.as_mut().unwrap().secret_ref = None;
    let mut host = host();
    for count in [1, 1] {
        let status = project_status(&host, None, &[], Some(&inventory), Timestamp::UNIX_EPOCH);
        assert!(status.error_message.contains("without plan Secret"), "{}", status.error_message);
        assert_eq!((status.error_count, status.operational_status.as_str()), (count, "error"));
        host.status = Some(status);
    }
    let status = project_status(&host, None, &[], Some(&owned("bmh-1")), Timestamp::UNIX_EPOCH);
    assert_eq!((status.error_message.as_str(), status.error_count), ("", 0));
}

#[test]
fn hardware_is_what_the_agent_reported() {
    let mut inventory = owned("bmh-1");
    let disk = DiskStatus { name: "/dev/nvme0n1".into(), size_bytes: 1 << 40, ..DiskStatus::default() };
    samples::host_status(&mut inventory).hardware = Some(HardwareStatus {
        architecture: "x86_64".into(),
        cpu_threads: 64,
        memory_bytes: 8 << 30,
        disks: vec![disk],
        ..HardwareStatus::default()
    });
    let interfaces = json!({ "interfaces": [
        { "name": "eth0", "mac": "52:54:00:00:00:01" }, { "name": "tun0", "addresses": ["10.0.0.1/24"] },
    ] });
    inventory.spec.observed_network = serde_json::from_value(interfaces).unwrap();
    let status = project_status(&host(), None, &[], Some(&inventory), Timestamp::UNIX_EPOCH);
    let hardware = serde_json::to_value(status.hardware.unwrap()).unwrap();
    assert_eq!(hardware["nics"][0]["mac"], "52:54:00:00:00:01");
    assert_eq!(hardware["nics"].as_array().map(Vec::len), Some(1), "no MAC address, no entry");
    assert_eq!(hardware["cpu"], json!({ "arch": "x86_64", "model": "", "count": 64 }));
    assert_eq!(hardware["ramMebibytes"], 8192);
    assert_eq!(
        hardware["storage"],
        json!([{ "name": "/dev/nvme0n1", "rotational": false, "sizeBytes": 1u64 << 40 }])
    );
}
