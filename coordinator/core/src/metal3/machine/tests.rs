use super::*;
use coordinator_api::capi::{self, Bootstrap, ClusterSpec, MachineSpec};
use coordinator_api::metal3::data::Metal3DataClaimSpec;
use coordinator_api::metal3::{Consumer, ObjectRef, SecretRef};
use coordinator_api::names::annotation;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde_json::json;

fn machine() -> Metal3Machine {
    serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
        "metadata": { "name": "m3m", "namespace": "fleet", "finalizers": [names::MACHINE_FINALIZER] },
        "spec": { "image": { "url": "oci://registry.example/os:v1" } },
    }))
    .unwrap()
}

fn chosen() -> Metal3Machine {
    let mut machine = machine();
    machine.annotations_mut().insert(names::HOST_OF_MACHINE.into(), "fleet/bmh-1".into());
    machine
}

fn deleted(mut machine: Metal3Machine) -> Metal3Machine {
    machine.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    machine
}

fn owner() -> Machine {
    let spec = MachineSpec {
        cluster_name: "c1".into(),
        bootstrap: Bootstrap { data_secret_name: Some("data".into()), config_ref: None },
        version: Some("v1".into()),
        ..MachineSpec::default()
    };
    let mut owner = Machine::new("m-1", &capi::machine("v1beta2"), spec);
    owner.labels_mut().insert("cluster.x-k8s.io/deployment-name".into(), "workers".into());
    owner
}

fn deleted_owner() -> Machine {
    let mut owner = owner();
    owner.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    owner
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::new("c1", &capi::cluster_resource("v1beta2"), ClusterSpec::default());
    cluster.metadata.namespace = Some("fleet".into());
    cluster
}

fn infrastructure() -> Metal3Cluster {
    let mut cluster =
        Metal3Cluster::new("c1", coordinator_api::metal3::cluster::Metal3ClusterSpec::default());
    cluster.status =
        Some(coordinator_api::metal3::cluster::Metal3ClusterStatus { ready: true, ..Default::default() });
    cluster
}

#[allow(clippy::needless_pass_by_value, reason = "literals of tests")]
fn host(spec: Value, state: &str) -> BareMetalHost {
    serde_json::from_value(json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": { "name": "bmh-1", "namespace": "fleet" },
        "spec": spec,
        "status": { "provisioning": { "state": state } },
    }))
    .unwrap()
}

fn consumer() -> Value {
    json!({ "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "Metal3Machine", "name": "m3m", "namespace": "fleet" })
}

fn used(image: bool, state: &str) -> BareMetalHost {
    let image = image.then(|| json!({ "url": "oci://registry.example/os:v1" }));
    host(json!({ "consumerRef": consumer(), "image": image }), state)
}

struct World {
    machine: Metal3Machine,
    owner: Option<Machine>,
    cluster: Option<Cluster>,
    infrastructure: Option<Metal3Cluster>,
    template: Option<Metal3MachineTemplate>,
    host: Option<BareMetalHost>,
    data_claim: Option<Metal3DataClaim>,
    data: Option<Metal3Data>,
    nodes: NodesRead,
}

fn world(machine: Metal3Machine, host: Option<BareMetalHost>) -> World {
    let (owner, cluster, infrastructure) = (Some(owner()), Some(cluster()), Some(infrastructure()));
    World {
        machine,
        owner,
        cluster,
        infrastructure,
        template: None,
        host,
        data_claim: None,
        data: None,
        nodes: NodesRead::NotRead,
    }
}

fn decide(world: &World) -> Outcome {
    decide_machine(&Situation {
        machine: &world.machine,
        owner: world.owner.as_ref(),
        cluster: world.cluster.as_ref(),
        infrastructure: world.infrastructure.as_ref(),
        template: world.template.as_ref(),
        host: world.host.as_ref(),
        catalog: None,
        data_claim: world.data_claim.as_ref(),
        data: world.data.as_ref(),
        carried: None,
        nodes: &world.nodes,
    })
}

fn name(outcome: &Outcome) -> String {
    match (&outcome.step, &outcome.blocker) {
        (Step::Rest, Some(blocker)) => blocker.reason.as_str().to_owned(),
        (Step::ChangeHost { event, .. }, None) => (*event).to_owned(),
        (step, None) => format!("{step:?}"),
        (step, Some(blocker)) => panic!("{step:?} with {blocker:?}"),
    }
}

#[test]
fn a_machine_goes_from_choice_to_provider_id() {
    for (what, machine, host, want) in vec![
        ("new", machine(), None, "Choose"),
        ("chosen", chosen(), Some(host(json!({}), "available")), "HostAssociated"),
        ("chosen, no host", chosen(), None, "InventoryMissing"),
        (
            "chosen, in use",
            chosen(),
            Some(host(json!({ "consumerRef": { "kind": "Metal3Machine", "name": "other" } }), "provisioned")),
            "Unchoose",
        ),
        ("chosen, not available", chosen(), Some(host(json!({}), "inspecting")), "Unchoose"),
        ("claimed", chosen(), Some(used(false, "available")), "ImageSet"),
        ("being written", chosen(), Some(used(true, "provisioning")), "HostNotProvisioned"),
        (
            "externally provisioned",
            chosen(),
            Some(used(true, "externally provisioned")),
            "HostNotProvisioned",
        ),
        (
            "written",
            chosen(),
            Some(used(true, "provisioned")),
            "FindNodes(NodeSearch { cluster: \"c1\", selector: None })",
        ),
    ] {
        assert_eq!(name(&decide(&world(machine, host))), want, "{what}");
    }
    let mut provided = chosen();
    provided.spec.provider_id = Some("metal3://uid".into());
    let mut world = world(provided, Some(used(true, "provisioned")));
    let node_ref = Some(capi::NodeRef { name: "n1".into() });
    world.owner.as_mut().unwrap().status = Some(capi::MachineStatus { node_ref });
    assert_eq!(name(&decide(&world)), "Rest", "a legacy providerID stays");
}

#[test]
fn a_machine_waits_for_what_it_is_made_of() {
    type Change = fn(&mut World);
    let cases: [(&str, Change); 12] = [
        ("WaitingForMetal3MachineOwnerRef", |world| world.owner = None),
        ("OwnerWaiting", |world| world.cluster = None),
        ("WaitingforMetal3Cluster", |world| world.infrastructure = None),
        ("WaitingForClusterInfrastructureReady", |world| {
            world.infrastructure.as_mut().unwrap().status = None;
        }),
        ("WaitingForBootstrapData", |world| {
            world.owner.as_mut().unwrap().spec.bootstrap.data_secret_name = None;
        }),
        ("Paused", |world| world.cluster.as_mut().unwrap().spec.paused = Some(true)),
        ("Paused", |world| {
            world.machine.annotations_mut().insert(annotation::PAUSED.into(), String::new());
        }),
        ("FieldUnsupported", |world| world.machine.spec.image = None),
        ("FieldUnsupported", |world| {
            world.machine.spec.image.as_mut().unwrap().format = Some("qcow2".into());
        }),
        ("FieldUnsupported", |world| {
            world.machine.spec.custom_deploy =
                Some(coordinator_api::metal3::host::CustomDeploy { method: "x".into() });
        }),
        ("FieldUnsupported", |world| {
            world.machine.spec.meta_data =
                Some(SecretRef { name: Some("x".into()), namespace: Some("other".into()) });
        }),
        ("ImageCatalogMiss", |world| {
            world.machine.annotations_mut().insert(names::IMAGE_FROM_CATALOG.into(), String::new());
        }),
    ];
    for (want, change) in cases {
        let mut world = world(machine(), None);
        change(&mut world);
        let outcome = decide(&world);
        assert_eq!(name(&outcome), want);
        assert!(outcome.blocker.unwrap().message.contains(' '), "{want} says what to do");
    }
}

#[test]
fn a_claimed_host_gets_image_and_data() {
    let mut world = world(chosen(), Some(used(false, "available")));
    world.machine.spec.network_data = Some(SecretRef { name: Some("net".into()), namespace: None });
    let Step::ChangeHost { change, .. } = decide(&world).step else { panic!("no change") };
    assert_eq!(
        change,
        json!({ "spec": {
            "image": { "url": "oci://registry.example/os:v1" },
            "userData": { "name": "data", "namespace": "fleet" },
            "networkData": { "name": "net", "namespace": "fleet" },
            "online": true,
        } })
    );
}

#[test]
fn a_deleted_machine_gives_its_host_back() {
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
        let mut world = world(deleted(chosen()), host);
        world.owner = Some(deleted_owner());
        assert_eq!(name(&decide(&world)), want, "{what}");
    }
    let world = world(deleted(chosen()), Some(used(true, "provisioned")));
    assert_eq!(name(&decide(&world)), "OwnerMismatch", "its Machine is not in deletion");
}

#[test]
fn hosts_are_kept_for_successors_with_node_reuse() {
    let mut world = world(deleted(chosen()), Some(used(false, "available")));
    world.owner = Some(deleted_owner());
    let released = |world: &World| match decide(world).step {
        Step::ChangeHost { change, .. } => change,
        step => panic!("{step:?}"),
    };
    assert_eq!(released(&world)["spec"]["consumerRef"], Value::Null);
    let template = json!({ "nodeReuse": true, "template": { "spec": {} } });
    world.template = Some(Metal3MachineTemplate::new("t", serde_json::from_value(template).unwrap()));
    let change = released(&world);
    assert_eq!(change["metadata"]["labels"][names::NODE_REUSE], "md-workers");
    assert_eq!(change["spec"]["consumerRef"]["kind"], "Cluster");
    world.cluster.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert_eq!(released(&world)["spec"]["consumerRef"], Value::Null, "the cluster is in deletion");
}

fn named(name: &str, change: impl FnOnce(&mut BareMetalHost)) -> BareMetalHost {
    let mut host = host(json!({}), "available");
    host.metadata.name = Some(name.into());
    change(&mut host);
    host
}

fn label_host(host: &mut BareMetalHost, key: &str, value: &str) {
    host.labels_mut().insert(key.into(), value.into());
}

type Case =
    (&'static str, Metal3Machine, Vec<BareMetalHost>, &'static str, Result<&'static str, &'static str>);

fn free(name: &str) -> BareMetalHost {
    named(name, |_| {})
}

fn kept(name: &str, value: &str, state: &str) -> BareMetalHost {
    named(name, |host| {
        label_host(host, names::NODE_REUSE, value);
        host.spec.consumer_ref = Some(Consumer { kind: "Cluster".into(), ..Consumer::default() });
        host.status.as_mut().unwrap().provisioning.state = state.into();
    })
}

fn rack() -> BareMetalHost {
    named("rack", |host| label_host(host, names::FAILURE_DOMAIN, "rack-1"))
}

fn selecting() -> Metal3Machine {
    let mut machine = machine();
    machine.spec.host_selector.match_labels.insert(names::FAILURE_DOMAIN.into(), "rack-1".into());
    machine
}

fn preferring(domain: &str) -> Metal3Machine {
    let mut machine = machine();
    machine.spec.failure_domain = Some(domain.into());
    machine
}

fn check_choices(cases: Vec<Case>) {
    for (what, machine, hosts, reserved, want) in cases {
        let mut roster = HostRoster::default();
        for host in &hosts {
            // Whatever it was before is forgotten.
            roster.set_host(&host.name_any(), Some(&kept(&host.name_any(), "md-workers", "ready")));
            roster.set_host(&host.name_any(), Some(host));
        }
        let found = roster.choose_host(&machine, &owner(), &|name| name == reserved);
        match (found, want) {
            (Ok(found), Ok(want)) => assert_eq!(found, want, "{what}"),
            (Err(blocker), Err(want)) => {
                assert!(blocker.message.contains(want), "{what}: {}", blocker.message);
            }
            (found, want) => panic!("{what}: {found:?}, {want:?}"),
        }
    }
}

#[test]
fn hosts_are_chosen_in_the_order_of_capm3() {
    let own = named("own", |host| host.spec.consumer_ref = serde_json::from_value(consumer()).unwrap());
    check_choices(vec![
        ("the first free one", machine(), vec![free("a"), free("b")], "", Ok("a")),
        ("not what is reserved", machine(), vec![free("a"), free("b")], "a", Ok("b")),
        ("its own", machine(), vec![free("a"), own], "", Ok("own")),
        ("kept for it", machine(), vec![free("a"), kept("b", "md-workers", "available")], "", Ok("b")),
        ("of its failure domain", preferring("rack-1"), vec![free("a"), rack()], "", Ok("rack")),
        ("of another failure domain", preferring("rack-9"), vec![free("a")], "", Ok("a")),
        ("selected", selecting(), vec![free("a"), rack()], "", Ok("rack")),
    ]);
}

#[test]
fn hosts_that_cannot_be_chosen_are_counted_by_cause() {
    check_choices(vec![
        (
            "kept for others",
            machine(),
            vec![kept("b", "md-other", "available")],
            "",
            Err("1 kept for other machines"),
        ),
        (
            "kept and busy",
            machine(),
            vec![free("a"), kept("b", "md-workers", "deprovisioning")],
            "",
            Err("not available yet"),
        ),
        ("not selected", selecting(), vec![free("a")], "", Err("1 not selected")),
        (
            "some are selected",
            selecting(),
            vec![free("a"), free("b"), rack()],
            "rack",
            Err("1 about to be claimed, 2 not selected"),
        ),
        (
            "by what no label leads to",
            {
                let mut machine = machine();
                let absent = json!({ "matchExpressions": [{ "key": "a", "operator": "exists" }] });
                machine.spec.host_selector = serde_json::from_value(absent).unwrap();
                machine
            },
            vec![free("a"), rack()],
            "",
            Err("2 not selected"),
        ),
        ("about to be claimed", machine(), vec![free("a")], "a", Err("chosen: 1 about to be claimed")),
        ("none", machine(), vec![], "", Err("there is none")),
    ]);
}

#[test]
fn states_and_marks_of_hosts_exclude_them() {
    check_choices(vec![
        (
            "in use",
            machine(),
            vec![named("a", |host| host.spec.consumer_ref = Some(Consumer::default()))],
            "",
            Err("1 in use"),
        ),
        (
            "with an error",
            machine(),
            vec![named("a", |host| host.status.as_mut().unwrap().error_message = "x".into())],
            "",
            Err("1 with an error"),
        ),
        (
            "unhealthy",
            machine(),
            vec![named("a", |host| {
                host.annotations_mut().insert(names::HOST_UNHEALTHY[1].into(), String::new());
            })],
            "",
            Err("1 marked unhealthy"),
        ),
        (
            "paused",
            machine(),
            vec![named("a", |host| {
                host.annotations_mut().insert(names::HOST_PAUSES[0].into(), String::new());
            })],
            "",
            Err("1 paused"),
        ),
        (
            "in another state",
            machine(),
            vec![named("a", |host| {
                host.status.as_mut().unwrap().provisioning.state = "inspecting".into();
            })],
            "",
            Err("1 not available"),
        ),
    ]);
}

#[test]
fn a_host_that_is_gone_leaves_nothing() {
    let mut roster = HostRoster::default();
    for host in [free("a"), rack(), kept("b", "md-other", "ready")] {
        roster.set_host(&host.name_any(), Some(&host));
        roster.set_host(&host.name_any(), None);
    }
    assert!(roster.is_empty());
    for machine in [machine(), selecting(), preferring("rack-1")] {
        let blocker = roster.choose_host(&machine, &owner(), &|_| false).unwrap_err();
        assert!(blocker.message.contains("there is none"), "{}", blocker.message);
    }
}

#[test]
fn machines_of_a_control_plane_share_their_hosts() {
    let mut owner = owner();
    owner.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "controlplane.cluster.x-k8s.io/v1beta2".into(),
        kind: "KubeadmControlPlane".into(),
        name: "cp".into(),
        ..OwnerReference::default()
    }]);
    assert_eq!(choice::reuse_value(&owner).as_deref(), Some("cp-cp"));
}

#[test]
fn the_status_shows_the_host() {
    let mut world = world(chosen(), Some(used(true, "provisioned")));
    world.host.as_mut().unwrap().status.as_mut().unwrap().hardware = serde_json::from_value(json!({
        "hostname": "bmh-1", "nics": [{ "name": "eth0", "mac": "x", "ip": "10.0.0.5" }, { "name": "eth1", "mac": "y" }],
    }))
    .unwrap();
    world.machine.spec.provider_id = Some("metal3://fleet/bmh-1/m3m".into());
    let situation = Situation {
        machine: &world.machine,
        owner: world.owner.as_ref(),
        cluster: world.cluster.as_ref(),
        infrastructure: world.infrastructure.as_ref(),
        template: None,
        host: world.host.as_ref(),
        catalog: None,
        data_claim: None,
        data: None,
        carried: None,
        nodes: &world.nodes,
    };
    let status = project_status(&situation, None, None, Timestamp::UNIX_EPOCH);
    let addresses: Vec<_> =
        status.addresses.iter().map(|address| format!("{} {}", address.kind, address.address)).collect();
    assert_eq!(addresses, ["InternalIP 10.0.0.5", "Hostname bmh-1", "InternalDNS bmh-1"]);
    assert!(status.ready && status.initialization.is_some());
    assert_eq!(status.phase.as_deref(), Some("provisioned"));
}

#[test]
fn data_of_the_template_comes_before_the_image() {
    let mut world = world(chosen(), Some(used(false, "available")));
    world.machine.spec.data_template = Some(ObjectRef { name: "t".into(), ..ObjectRef::default() });
    let Step::ClaimData(claim) = decide(&world).step else { panic!("no claim") };
    assert_eq!((claim.name_any().as_str(), claim.spec.template.name.as_str()), ("m3m", "t"));
    world.data_claim = Some(*claim);
    assert_eq!(name(&decide(&world)), "WaitingForMetal3Data");
    let spec = json!({
        "index": 0, "claim": { "name": "m3m" }, "template": { "name": "t" },
        "metaData": { "name": "m3m-metadata" }, "networkData": { "name": "m3m-networkdata" },
    });
    let mut data = Metal3Data::new("t-0", serde_json::from_value(spec).unwrap());
    let failed = coordinator_api::metal3::data::Metal3DataStatus {
        ready: false,
        error_message: Some("no pool".into()),
    };
    data.status = Some(failed.clone());
    world.data = Some(data.clone());
    let message = decide(&world).blocker.unwrap().message;
    assert!(message.contains("no pool"), "{message}");
    data.status = Some(coordinator_api::metal3::data::Metal3DataStatus { ready: true, error_message: None });
    world.data = Some(data);
    world.machine.spec.meta_data = Some(SecretRef { name: Some("mine".into()), namespace: None });
    let Step::ChangeHost { change, .. } = decide(&world).step else { panic!("no change") };
    assert_eq!(change["spec"]["metaData"]["name"], "mine", "what the operator gives wins");
    assert_eq!(change["spec"]["networkData"]["name"], "m3m-networkdata");
}

#[test]
fn addresses_are_given_back_after_the_node_is_gone() {
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
