use super::*;
use crate::pool::Availability;
use crate::problem::Severity;
use crate::samples;
use coordinator_api::capi::InfrastructureRef;
use coordinator_api::hardware::HardwareStatus;
use coordinator_api::inventory::AllocationState;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

/// The objects of a machine whose pool has one available host.
struct World {
    machine: BaremetalMachine,
    owner: Option<Machine>,
    cluster: Option<Cluster>,
    roster: Option<Roster>,
    catalog: BTreeMap<String, String>,
    inventory: MachineInventory,
}

fn world() -> World {
    let mut roster = Roster::new(samples::pool(&["host-1"]));
    roster.set_availability("host-1", Availability::Available);
    World {
        machine: samples::machine(),
        owner: Some(samples::owner()),
        cluster: Some(samples::cluster()),
        roster: Some(roster),
        catalog: BTreeMap::from([("v1.36.3".into(), "registry.example/os:v1".into())]),
        inventory: samples::inventory("host-1"),
    }
}

impl World {
    fn read(&self) -> Demand {
        let inputs = Inputs {
            machine: &self.machine,
            owner: self.owner.as_ref(),
            cluster: self.cluster.as_ref(),
            roster: self.roster.as_ref(),
            inventory: Some(&self.inventory),
            owned_hosts: &[],
            catalog: Some(&self.catalog),
            now: jiff::Timestamp::UNIX_EPOCH,
        };
        read_demand(&inputs, |_| false)
    }

    /// Deletes the machine, which has chosen a host.
    fn delete(&mut self) {
        choose_host(self);
        self.machine.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    }
}

fn choose_host(world: &mut World) {
    world.machine.annotations_mut().insert(annotation::MACHINE_INVENTORY.into(), "host-1".into());
}

#[test]
fn registry_secret_of_machine_overrides_cluster() {
    for (name, of_machine, of_cluster, want) in [
        ("none", None, None, None),
        ("the cluster", None, Some("site"), Some("site")),
        ("the machine", Some("own"), Some("site"), Some("own")),
    ] {
        let mut world = world();
        let key = annotation::REGISTRY_SECRET.to_owned();
        let annotated = |value: Option<&str>| value.map(|value| (key.clone(), value.to_owned()));
        world.machine.annotations_mut().extend(annotated(of_machine));
        world.cluster.as_mut().unwrap().annotations_mut().extend(annotated(of_cluster));
        assert_eq!(node(&world.read()).registry_secret.as_deref(), want, "{name}");
    }
}

fn node(demand: &Demand) -> &NodeDemand {
    match &demand.want {
        Want::Node(node) => node,
        Want::Release => panic!("{demand:?}"),
    }
}

fn candidate(node: &NodeDemand) -> &Result<HostName, Blocker> {
    node.candidate.as_ref().unwrap()
}

#[test]
fn machine_with_a_host_seeks_no_other() {
    type Change = fn(&mut World);
    let cases: [(&str, Change, bool); 5] = [
        ("chosen, not claimed", choose_host, true),
        (
            "claimed by another machine",
            |w| {
                choose_host(w);
                samples::annotate(&mut w.inventory, annotation::OWNER_BAREMETAL_MACHINE, "worker-2");
            },
            true,
        ),
        (
            "claimed, and another host named",
            |w| samples::claim(&mut w.inventory, AllocationState::Allocated, 0),
            true,
        ),
        (
            "claimed",
            |w| {
                choose_host(w);
                samples::claim(&mut w.inventory, AllocationState::Allocated, 0);
            },
            false,
        ),
        ("with a node", |w| w.machine.spec.provider_id = Some("baremetal:///host-1".into()), false),
    ];
    for (name, change, want) in cases {
        let mut world = world();
        change(&mut world);
        assert_eq!(node(&world.read()).candidate.is_some(), want, "{name}");
    }
}

#[test]
fn demand_names_everything_of_a_node() {
    let demand = world().read();
    let node = node(&demand);
    assert_eq!(
        (node.machine.as_str(), node.cluster.as_str(), node.pool.as_str()),
        ("worker-1", "c1", "workers")
    );
    assert_eq!(candidate(node).as_ref().map(HostName::as_str), Ok("host-1"));
    assert_eq!(node.image.as_ref().map(proto::plan::Image::as_str), Ok("registry.example/os:v1"));
    let names = node.names.as_ref().unwrap();
    assert_eq!((names.hostname.as_str(), names.provider_id.as_str()), ("host-1", "baremetal:///host-1"));
    assert_eq!(demand.hold, None);
}

#[test]
fn image_is_for_the_architecture_of_the_host() {
    for (reported, want) in [("aarch64", "a.b/os:arm"), ("x86_64", "registry.example/os:v1")] {
        let mut world = world();
        world.catalog.insert("v1.36.3_arm64".into(), "a.b/os:arm".into());
        let hardware = HardwareStatus { architecture: reported.into(), ..HardwareStatus::default() };
        let status = world.inventory.status.get_or_insert_default();
        status.host.get_or_insert_default().hardware = Some(hardware);
        let demand = world.read();
        assert_eq!(node(&demand).image.as_ref().map(proto::plan::Image::as_str), Ok(want), "{reported}");
    }
}

#[test]
fn blockers_name_cause_and_reason() {
    type Change = fn(&mut World);
    let cases: [(&str, Change, Reason, Severity); 4] = [
        ("no pool", |w| w.roster = None, Reason::PoolMissing, Severity::NeedsOperator),
        (
            "another cluster's pool",
            |w| w.owner.as_mut().unwrap().spec.cluster_name = "c2".into(),
            Reason::PoolOfOtherCluster,
            Severity::Failed,
        ),
        (
            "no free member",
            |w| {
                w.roster.as_mut().unwrap().set_availability("host-1", Availability::Allocated);
            },
            Reason::PoolExhausted,
            Severity::NeedsOperator,
        ),
        (
            "no members",
            |w| w.roster = Some(Roster::new(samples::pool(&[]))),
            Reason::PoolExhausted,
            Severity::NeedsOperator,
        ),
    ];
    for (name, change, reason, severity) in cases {
        let mut world = world();
        change(&mut world);
        let blocker = candidate(node(&world.read())).clone().unwrap_err();
        assert_eq!((blocker.problem.reason, blocker.severity), (reason, severity), "{name}");
    }
    for (name, version, reason) in [
        ("no version", None, Reason::VersionMissing),
        ("not in the catalog", Some("v9"), Reason::ImageCatalogMiss),
    ] {
        let mut world = world();
        world.owner.as_mut().unwrap().spec.version = version.map(str::to_owned);
        assert_eq!(node(&world.read()).image.clone().unwrap_err().problem.reason, reason, "{name}");
    }
}

#[test]
fn hold_without_owner_names_what_makes_machines() {
    let mut world = world();
    world.owner = None;
    let message = world.read().hold.unwrap().problem.text();
    assert!(message.contains("Machine worker-1, which the owner reference names"), "{message}");
    world.machine.metadata.owner_references = None;
    let message = world.read().hold.unwrap().problem.text();
    assert!(message.contains("a MachineDeployment or a control plane"), "{message}");
}

#[test]
fn holds_stop_every_decision() {
    type Change = fn(&mut World);
    let cases: [(&str, Change, Option<Reason>); 10] = [
        ("nothing", |_| {}, None),
        ("paused cluster", |w| w.cluster.as_mut().unwrap().spec.paused = Some(true), Some(Reason::Paused)),
        ("no cluster", |w| w.cluster = None, Some(Reason::OwnerWaiting)),
        ("no owner", |w| w.owner = None, Some(Reason::OwnerWaiting)),
        ("deleted, the Machine is not", World::delete, Some(Reason::OwnerMismatch)),
        (
            "deleted with its Machine",
            |w| {
                w.delete();
                let deleted = Some(Time(jiff::Timestamp::UNIX_EPOCH));
                w.owner.as_mut().unwrap().metadata.deletion_timestamp = deleted;
            },
            None,
        ),
        (
            "deleted by the garbage collector after a restore",
            |w| {
                w.delete();
                let owner = &mut w.owner.as_mut().unwrap().metadata;
                owner.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
                owner.uid = Some("uid-of-after".into());
            },
            Some(Reason::OwnerMismatch),
        ),
        (
            "deleted, the Machine is not restored yet",
            |w| {
                w.delete();
                w.owner = None;
            },
            Some(Reason::OwnerMismatch),
        ),
        (
            "deleted before it chose a host",
            |w| {
                w.delete();
                w.machine.annotations_mut().remove(annotation::MACHINE_INVENTORY);
            },
            None,
        ),
        (
            "deleted without owner reference",
            |w| {
                w.delete();
                w.owner = None;
                w.machine.metadata.owner_references = None;
            },
            None,
        ),
    ];
    for (name, change, want) in cases {
        let mut world = world();
        change(&mut world);
        assert_eq!(world.read().hold.map(|hold| hold.problem.reason), want, "{name}");
    }
}

#[test]
fn host_is_named_by_choice_or_provider_id() {
    let mut machine = samples::machine();
    assert_eq!(named_host(&machine), None);
    machine.spec.provider_id = Some("baremetal:///host-7".into());
    assert_eq!(named_host(&machine).unwrap().as_str(), "host-7");
    machine.annotations_mut().insert(annotation::MACHINE_INVENTORY.into(), "host-8".into());
    assert_eq!(named_host(&machine).unwrap().as_str(), "host-8");
}

#[test]
fn node_is_expected_as_its_host_carries_it() {
    let mut world = world();
    world.inventory.metadata.uid = Some("restored".into());
    let host = |hostname: &str| {
        let carried = json!({ "node": { "providerID": "elemental://host-1", "uuid": "of-the-plan" } });
        Some(serde_json::from_value(json!({ "hostname": hostname, "carried": carried })).unwrap())
    };
    world.inventory.status.get_or_insert_default().host = host("node-1");
    let expected = |world: &World| node(&world.read()).link.as_ref().unwrap().expected.clone();
    let by_host = expected(&world);
    assert_eq!(by_host.label_values, ["of-the-plan", "restored"], "a restore changes UIDs");
    assert_eq!(by_host.hostnames, ["node-1", "host-1"]);
    assert_eq!((by_host.provider_ids.len(), by_host.may_use_hostname), (0, true));
    world.inventory.status.get_or_insert_default().host = host("");
    world.machine.spec.provider_id = Some("elemental://host-1".into());
    let made = InfrastructureRef { kind: "KubeadmConfig".into(), name: "m-1".into() };
    world.owner.as_mut().unwrap().spec.bootstrap.config_ref = Some(made);
    let by_id = expected(&world);
    assert_eq!(by_id.hostnames, ["host-1"], "no name is no name of a Node");
    assert_eq!(by_id.provider_ids, ["elemental://host-1"]);
    assert!(!by_id.may_use_hostname, "the bootstrap provider's data sets the label");
}
