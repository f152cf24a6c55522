//! Tables are named after the rules of CAPM3: a3 to a9 the machine, b2 to b8 choice, claim and
//! release of its host, c1 its data.

mod choice;
mod holding;
mod labels;
mod pause;
mod release;

use super::*;
use coordinator_api::capi::{self, Bootstrap, ClusterSpec, MachineSpec};
use coordinator_api::metal3::data::Metal3DataClaimSpec;
use coordinator_api::metal3::host::CleaningMode;
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
    for key in [names::HOST_OF_MACHINE, names::CHOSEN_HOST] {
        machine.annotations_mut().insert(key.into(), "fleet/bmh-1".into());
    }
    machine
}

/// An operator named the host.
fn pinned() -> Metal3Machine {
    let mut machine = chosen();
    machine.annotations_mut().remove(names::CHOSEN_HOST);
    machine
}

fn deleted(mut machine: Metal3Machine) -> Metal3Machine {
    machine.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    machine
}

/// With the owner reference that Cluster API writes.
fn owned(mut machine: Metal3Machine) -> Metal3Machine {
    machine.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "cluster.x-k8s.io/v1beta2".into(),
        kind: "Machine".into(),
        name: "m-1".into(),
        uid: "u".into(),
        ..Default::default()
    }]);
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
    owner.metadata.uid = Some("u".into());
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
    owned: Vec<String>,
    data_claim: Option<Metal3DataClaim>,
    data: Option<Metal3Data>,
    nodes: NodesRead,
    now: Timestamp,
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
        owned: vec![],
        data_claim: None,
        data: None,
        nodes: NodesRead::NotRead,
        now: Timestamp::UNIX_EPOCH,
    }
}

impl World {
    fn situation(&self) -> Situation<'_> {
        Situation {
            machine: &self.machine,
            owner: self.owner.as_ref(),
            cluster: self.cluster.as_ref(),
            infrastructure: self.infrastructure.as_ref(),
            template: self.template.as_ref(),
            host: self.host.as_ref(),
            owned: &self.owned,
            catalog: None,
            data_claim: self.data_claim.as_ref(),
            data: self.data.as_ref(),
            carried: None,
            nodes: &self.nodes,
            now: self.now,
        }
    }
}

fn decide(world: &World) -> Outcome {
    decide_machine(&world.situation())
}

fn name(outcome: &Outcome) -> String {
    match (&outcome.step, &outcome.blocker) {
        (Step::Rest, Some(blocker)) => blocker.problem.reason.as_str().to_owned(),
        (Step::ChangeHost { event, .. }, None) => event.as_str().to_owned(),
        (step, None) => format!("{step:?}"),
        (step, Some(blocker)) => panic!("{step:?} with {blocker:?}"),
    }
}

#[test]
fn a4_machine_goes_from_choice_to_provider_id() {
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
        ("pinned, not available", pinned(), Some(host(json!({}), "inspecting")), "HostNotAvailable"),
        ("pinned", pinned(), Some(host(json!({}), "available")), "HostAssociated"),
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
            "FindNodes(NodeSearch { cluster: \"c1\", selector: None, node: None })",
        ),
    ] {
        assert_eq!(name(&decide(&world(machine, host))), want, "{what}");
    }
    for mut machine in [pinned(), chosen()] {
        machine.metadata.finalizers = None;
        assert_eq!(
            name(&decide(&world(machine.clone(), Some(host(json!({}), "available"))))),
            "Hold",
            "first of all"
        );
        let mut world = world(machine, None);
        world.owner = None;
        assert_eq!(name(&decide(&world)), "Hold", "before its Machine is there");
        (world.owner, world.cluster) = (Some(owner()), None);
        assert_eq!(name(&decide(&world)), "Hold", "before its Cluster is there");
        world.machine.annotations_mut().insert(annotation::PAUSED.into(), String::new());
        assert_eq!(name(&decide(&world)), "Paused");
    }
    let mut provided = chosen();
    provided.spec.provider_id = Some("metal3://uid".into());
    let mut world = world(provided, Some(used(true, "provisioned")));
    let node_ref = Some(capi::NodeRef { name: "n1".into() });
    world.owner.as_mut().unwrap().status = Some(capi::MachineStatus { node_ref });
    assert_eq!(name(&decide(&world)), "Rest", "a legacy providerID stays");
}

#[test]
fn a3_a_machine_waits_for_what_it_needs() {
    type Change = fn(&mut World);
    let cases: [(&str, Change); 14] = [
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
            world.machine.spec.image.as_mut().unwrap().url = "http://images.example/os.raw".into();
        }),
        ("FieldUnsupported", |world| {
            world.machine.spec.image.as_mut().unwrap().oci_auth_secret_name = Some("registry".into());
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
        assert!(outcome.blocker.unwrap().problem.text().contains(' '), "{want} says what to do");
        if want == "FieldUnsupported" {
            world.infrastructure.as_mut().unwrap().status = None;
            world.owner.as_mut().unwrap().spec.bootstrap.data_secret_name = None;
            assert_eq!(name(&decide(&world)), want, "before the control plane is up");
        }
    }
}

#[test]
fn b6_a_claimed_host_gets_image_and_data() {
    let mut world = world(chosen(), Some(used(false, "available")));
    world.machine.spec.network_data = Some(SecretRef { name: Some("net".into()), namespace: None });
    world.machine.spec.automated_cleaning_mode = Some(CleaningMode::Disabled);
    let Step::ChangeHost { change, .. } = decide(&world).step else { panic!("no change") };
    assert_eq!(
        change,
        json!({ "spec": {
            "image": { "url": "oci://registry.example/os:v1" },
            "userData": { "name": "data", "namespace": "fleet" },
            "networkData": { "name": "net", "namespace": "fleet" },
            "online": true,
            "automatedCleaningMode": "disabled",
        } })
    );
}

#[test]
fn b9_host_gets_cleaning_mode_of_machine() {
    use CleaningMode::{Disabled, Metadata};
    for (what, image, on_machine, on_host, want) in [
        ("changed", true, Some(Disabled), Some(Metadata), "CleaningModeSet"),
        ("new", true, Some(Disabled), None, "CleaningModeSet"),
        ("the same", true, Some(Disabled), Some(Disabled), "HostNotProvisioned"),
        ("not asked for", true, None, Some(Disabled), "HostNotProvisioned"),
        ("comes with the image", false, Some(Disabled), None, "ImageSet"),
    ] {
        let mut host = used(image, if image { "provisioning" } else { "available" });
        host.spec.automated_cleaning_mode = on_host;
        let mut world = world(chosen(), Some(host));
        world.machine.spec.automated_cleaning_mode = on_machine;
        assert_eq!(name(&decide(&world)), want, "{what}");
    }
}

#[test]
fn b9_machine_gets_cleaning_mode_of_template() {
    use CleaningMode::{Disabled, Metadata};
    for (what, on_template, is_paused, on_machine, want) in [
        ("changed", Some(Disabled), false, Some(Metadata), "SetCleaningMode(Disabled)"),
        ("new", Some(Disabled), false, None, "SetCleaningMode(Disabled)"),
        ("the same", Some(Disabled), false, Some(Disabled), "CleaningModeSet"),
        ("unset", None, false, Some(Disabled), "CleaningModeSet"),
        ("paused", Some(Disabled), true, Some(Metadata), "CleaningModeSet"),
    ] {
        let mut world = world(chosen(), Some(used(true, "provisioning")));
        let spec = json!({ "template": { "spec": { "automatedCleaningMode": on_template } } });
        let mut template = Metal3MachineTemplate::new("t", serde_json::from_value(spec).unwrap());
        if is_paused {
            template.annotations_mut().insert(annotation::PAUSED.into(), String::new());
        }
        world.template = Some(template);
        world.machine.spec.automated_cleaning_mode = on_machine;
        assert_eq!(name(&decide(&world)), want, "{what}");
    }
}

#[test]
fn a9_the_status_shows_the_host() {
    let mut world = world(chosen(), Some(used(true, "provisioned")));
    world.host.as_mut().unwrap().status.as_mut().unwrap().hardware = serde_json::from_value(json!({
        "hostname": "bmh-1", "nics": [{ "name": "eth0", "mac": "x", "ip": "10.0.0.5" }, { "name": "eth1", "mac": "y" }],
    }))
    .unwrap();
    world.machine.spec.provider_id = Some("metal3://fleet/bmh-1/m3m".into());
    world.host.as_mut().unwrap().labels_mut().insert(names::FAILURE_DOMAIN.into(), "rack-1".into());
    let node_ref = Some(capi::NodeRef { name: "n1".into() });
    world.owner.as_mut().unwrap().status = Some(capi::MachineStatus { node_ref });
    let status = project_status(&world.situation(), None, None, Timestamp::UNIX_EPOCH);
    let addresses: Vec<_> =
        status.addresses.iter().map(|address| format!("{} {}", address.kind, address.address)).collect();
    assert_eq!(addresses, ["InternalIP 10.0.0.5", "Hostname bmh-1", "InternalDNS bmh-1"]);
    assert!(status.ready && status.initialization.is_some());
    assert_eq!(status.phase.as_deref(), Some("provisioned"));
    assert_eq!(status.failure_domain.as_deref(), Some("rack-1"));
    let mut shown: Vec<_> =
        status.conditions.iter().map(|it| format!("{} {}", it.type_, it.reason)).collect();
    shown.sort();
    let want = [
        "AssociateBMH AssociateBareMetalHostSuccess",
        "AssociateBareMetalHost AssociateBareMetalHostSuccess",
        "AssociateMetal3MachineMetaData AssociateMetal3MachineMetaDataSuccess",
        "HostProvisioned Running",
        "KubernetesNodeReady NodeFound",
        "Metal3DataReady SecretsSetExternally",
        "NodeLinked NodeFound",
        "Paused NotPaused",
        "Ready Running",
    ];
    assert_eq!(shown, want);
}

#[test]
fn conditions_of_a_new_machine_have_the_cause() {
    let world = world(machine(), None);
    let shown = |blocker: &Blocker, kind: Type| {
        let status = project_status(&world.situation(), Some(blocker), None, Timestamp::UNIX_EPOCH);
        let found = status.conditions.into_iter().find(|found| found.type_ == kind.as_str());
        found.map(|found| format!("{} {}", found.status, found.reason))
    };
    let paused = Blocker::waiting_for(Type::Paused, Problem::of_cause(Reason::Paused, "paused"));
    assert_eq!(shown(&paused, Type::Ready).as_deref(), Some("False Paused"));
    assert_eq!(shown(&paused, Type::AssociateBareMetalHost), None);
    let waiting = Problem::of_cause(Reason::WaitingForBootstrapData, "no data yet");
    let waiting = Blocker::waiting_for(Type::Ready, waiting);
    for kind in [Type::Ready, Type::AssociateBareMetalHost] {
        assert_eq!(shown(&waiting, kind).as_deref(), Some("False WaitingForBootstrapData"));
    }
}

#[test]
fn c1_data_comes_before_the_image() {
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
    let message = decide(&world).blocker.unwrap().problem.text();
    assert!(message.contains("no pool"), "{message}");
    data.status = Some(coordinator_api::metal3::data::Metal3DataStatus { ready: true, error_message: None });
    world.data = Some(data);
    world.machine.spec.meta_data = Some(SecretRef { name: Some("mine".into()), namespace: None });
    let Step::ChangeHost { change, .. } = decide(&world).step else { panic!("no change") };
    assert_eq!(change["spec"]["metaData"]["name"], "mine", "what the operator gives wins");
    assert_eq!(change["spec"]["networkData"]["name"], "m3m-networkdata");
}
