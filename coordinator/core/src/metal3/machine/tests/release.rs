//! From a host in use to a free one.

use super::*;

#[test]
fn b8_a_deleted_machine_gives_its_host_back() {
    let other = host(json!({ "consumerRef": { "kind": "Metal3Machine", "name": "other" } }), "provisioned");
    for (what, host, want) in [
        ("never claimed", None, "RemoveFinalizer"),
        ("of another machine", Some(other), "RemoveFinalizer"),
        ("with an image", Some(used(true, "provisioned")), "ImageRemoved"),
        ("about to be cleaned", Some(used(false, "provisioned")), "Cleaning"),
        ("being cleaned", Some(used(false, "deprovisioning")), "Cleaning"),
        ("free", Some(used(false, "available")), "HostReleased"),
        ("without a state", Some(used(false, "")), "HostReleased"),
    ] {
        let mut world = world(deleted(owned(chosen())), host);
        world.owner = Some(deleted_owner());
        assert_eq!(name(&decide(&world)), want, "{what}");
    }
}

#[test]
fn a_garbage_collected_machine_is_held() {
    let mut restored = deleted_owner();
    restored.metadata.uid = Some("another".into());
    for (what, machine, owner, want) in [
        ("its Machine is not in deletion", owned(chosen()), Some(owner()), "OwnerMismatch"),
        ("its Machine is not there", owned(chosen()), None, "OwnerMismatch"),
        ("another Machine, in deletion", owned(chosen()), Some(restored), "OwnerMismatch"),
        ("its Machine is in deletion", owned(chosen()), Some(deleted_owner()), "ImageRemoved"),
        ("it never had a Machine", chosen(), None, "ImageRemoved"),
        ("no host belongs to it", owned(machine()), None, "RemoveFinalizer"),
    ] {
        let host = named_host(&machine).map(|_| used(true, "provisioned"));
        let mut world = world(deleted(machine), host);
        world.owner = owner;
        assert_eq!(name(&decide(&world)), want, "{what}");
    }
}

#[test]
fn b5_the_control_plane_names_the_template() {
    let reference = |kind: &str| json!({ "kind": kind, "name": "cp-2" });
    let named = reference("Metal3MachineTemplate");
    for (what, spec, want) in [
        ("v1beta2", json!({ "machineTemplate": { "spec": { "infrastructureRef": named } } }), Some("cp-2")),
        ("v1beta1", json!({ "machineTemplate": { "infrastructureRef": named } }), Some("cp-2")),
        (
            "another kind",
            json!({ "machineTemplate": { "infrastructureRef": reference("BaremetalMachineTemplate") } }),
            None,
        ),
        ("none", json!({}), None),
    ] {
        assert_eq!(template_of_control_plane(&json!({ "spec": spec })), want, "{what}");
    }
    let mut owner = deleted_owner();
    owner.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "controlplane.cluster.x-k8s.io/v1beta2".into(),
        name: "cp".into(),
        ..OwnerReference::default()
    }]);
    let mut world = world(deleted(chosen()), Some(used(false, "available")));
    let is_asked = |world: &World| deciding_control_plane(&world.situation()).is_some();
    assert!(!is_asked(&world), "a worker");
    world.owner = Some(owner);
    assert!(is_asked(&world));
    world.host = Some(used(true, "provisioned"));
    assert!(!is_asked(&world), "not yet");
    world.host = Some(used(false, "available"));
    world.machine.metadata.deletion_timestamp = None;
    assert!(!is_asked(&world), "not in deletion");
    world.machine = deleted(world.machine);
    world.cluster.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert!(!is_asked(&world), "the cluster is in deletion");
}

#[test]
fn b5_hosts_are_kept_for_successors() {
    let mut world = world(deleted(chosen()), Some(used(false, "available")));
    world.owner = Some(deleted_owner());
    let released = |world: &World| match decide(world).step {
        Step::ChangeHost { change, .. } => change,
        step => panic!("{step:?}"),
    };
    let change = released(&world);
    assert_eq!(change["spec"]["consumerRef"], Value::Null);
    let annotations = json!({ names::KEPT_UNTIL: null, annotation::BLOCK_MOVE: null });
    assert_eq!(change["metadata"]["annotations"], annotations);
    let template = json!({ "nodeReuse": true, "template": { "spec": {} } });
    world.template = Some(Metal3MachineTemplate::new("t", serde_json::from_value(template).unwrap()));
    let change = released(&world);
    assert_eq!(change["metadata"]["labels"][names::NODE_REUSE], "md-workers");
    assert_eq!(change["spec"]["consumerRef"]["kind"], "Cluster");
    assert_eq!(change["metadata"]["annotations"][names::KEPT_UNTIL], "1970-01-01T00:30:00Z");
    for (asked, want) in [("2h", "02:00:00"), ("0s", "00:00:00"), ("-1h", "00:30:00"), ("soon", "00:30:00")] {
        let template = world.template.as_mut().unwrap();
        template.annotations_mut().insert(names::KEEP_HOSTS_FOR.into(), asked.into());
        let want = format!("1970-01-01T{want}Z");
        assert_eq!(released(&world)["metadata"]["annotations"][names::KEPT_UNTIL], want, "{asked}");
    }
    world.cluster.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert_eq!(released(&world)["spec"]["consumerRef"], Value::Null, "the cluster is in deletion");
}

#[test]
fn b8_addresses_are_given_back_after_the_node() {
    let claim = || Metal3DataClaim::new("m3m", Metal3DataClaimSpec::default());
    for (what, host, deleted_claim, want) in [
        ("the node runs", Some(used(true, "provisioned")), false, "ImageRemoved"),
        ("the host is free", Some(used(false, "available")), false, "HostReleased"),
        ("the host is released", None, false, "ReleaseData"),
        ("the claim is in deletion", None, true, "WaitingForMetal3Data"),
    ] {
        let mut world = world(deleted(chosen()), host);
        world.owner = Some(deleted_owner());
        let mut claim = claim();
        claim.metadata.deletion_timestamp = deleted_claim.then_some(Time(Timestamp::UNIX_EPOCH));
        world.data_claim = Some(claim);
        assert_eq!(name(&decide(&world)), want, "{what}");
    }
}

/// With the Secrets of this name; its operator has set them where they are not the machine's.
fn with_data(meta_data: &str, network_data: &str) -> BareMetalHost {
    let mut host = used(true, "provisioned");
    let secret = |name: &str| Some(SecretRef { name: Some(name.into()), namespace: Some("fleet".into()) });
    (host.spec.meta_data, host.spec.network_data) = (secret(meta_data), secret(network_data));
    host
}

#[test]
fn b8_4_secrets_of_the_hosts_operator_stay() {
    type Change = fn(&mut World);
    let is_nothing: Change = |_| {};
    let given: Change = |world| {
        let secret = SecretRef { name: Some("mine".into()), namespace: None };
        world.machine.spec.meta_data = Some(secret.clone());
        world.machine.spec.network_data = Some(secret);
    };
    let is_rendered: Change = |world| {
        let data = json!({
            "index": 0, "claim": { "name": "m3m" }, "template": { "name": "t" },
            "metaData": { "name": "older-meta" }, "networkData": { "name": "older-net" },
        });
        world.data = Some(Metal3Data::new("t-0", serde_json::from_value(data).unwrap()));
    };
    for (what, host, change, (meta_data, network_data)) in [
        ("preset", with_data("preset", "preset-net"), is_nothing, (false, false)),
        (
            "rendered, its data is gone",
            with_data("m3m-metadata", "m3m-networkdata"),
            is_nothing,
            (true, true),
        ),
        ("rendered", with_data("older-meta", "older-net"), is_rendered, (true, true)),
        ("rendered beside a preset", with_data("older-meta", "preset-net"), is_rendered, (true, false)),
        ("given", with_data("mine", "mine"), given, (true, true)),
        ("given beside a preset", with_data("mine", "preset-net"), given, (true, false)),
        ("none", used(true, "provisioned"), given, (false, false)),
    ] {
        let mut world = world(chosen(), Some(host));
        change(&mut world);
        let status = project_status(&world.situation(), None, None, Timestamp::UNIX_EPOCH);
        let shown = (status.meta_data.is_some(), status.network_data.is_some());
        assert_eq!(shown, (meta_data, network_data), "{what}: shown");
        world.machine = deleted(world.machine);
        world.owner = Some(deleted_owner());
        let Step::ChangeHost { change, .. } = decide(&world).step else { panic!("{what}: no change") };
        let spec = change["spec"].as_object().unwrap();
        assert!(spec["image"].is_null() && spec["userData"].is_null(), "{what}: {spec:?}");
        assert_eq!(spec.contains_key("metaData"), meta_data, "{what}");
        assert_eq!(spec.contains_key("networkData"), network_data, "{what}");
    }
}
