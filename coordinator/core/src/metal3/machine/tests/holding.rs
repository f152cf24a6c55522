//! A machine has one host, whichever name of the other one is lost.

use coordinator_api::inventory::MachineInventory;

use super::super::holding::{Stated, recorded_machine};
use super::*;

/// Provisioned for the machine, with the bootstrap data of that name.
fn orphan(user_data: &str) -> BareMetalHost {
    let image = json!({ "url": "oci://registry.example/os:v1" });
    host(json!({ "image": image, "userData": { "name": user_data } }), "provisioning")
}

fn of_another() -> BareMetalHost {
    let mut host = orphan("data");
    let consumer = json!({ "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine", "name": "m2" });
    host.spec.consumer_ref = serde_json::from_value(consumer).unwrap();
    host
}

fn free() -> BareMetalHost {
    host(json!({}), "available")
}

fn provided(mut machine: Metal3Machine) -> Metal3Machine {
    machine.spec.provider_id = Some("metal3://fleet/bmh-1/m3m".into());
    machine
}

type Case = (&'static str, Metal3Machine, Option<BareMetalHost>, &'static [&'static str], &'static str);

fn check<const N: usize>(cases: [Case; N], change: impl Fn(&mut World)) {
    for (what, machine, host, owned, want) in cases {
        let mut world = world(machine, host);
        world.owned = owned.iter().map(|name| (*name).to_owned()).collect();
        change(&mut world);
        assert_eq!(name(&decide(&world)), want, "{what}");
    }
}

fn delete_machine(world: &mut World) {
    world.machine = deleted(owned(world.machine.clone()));
    world.owner = Some(deleted_owner());
}

const NAMED: &str = "NameHost(\"bmh-1\")";

#[test]
fn lost_names_come_back() {
    let cases = || -> [Case; 6] {
        [
            ("the machine lost it", machine(), None, &["bmh-1"], NAMED),
            ("the host lost it", chosen(), Some(orphan("x")), &["bmh-1"], "HostAssociated"),
            (
                "a host without image",
                chosen(),
                Some(host(json!({}), "deprovisioning")),
                &["bmh-1"],
                "HostAssociated",
            ),
            ("no inventory tells", chosen(), Some(orphan("data")), &[], "HostAssociated"),
            ("two hosts, none is named", machine(), None, &["bmh-1", "bmh-2"], "SeveralHosts"),
            (
                "another than the named one",
                chosen(),
                Some(used(true, "provisioned")),
                &["bmh-1", "bmh-2"],
                "SeveralHosts",
            ),
        ]
    };
    check(cases(), |_| {});
    check(cases(), |world| world.machine = provided(world.machine.clone()));
    check(cases(), delete_machine);
    // The name would be lost again, because nothing holds the machine.
    check(cases().map(|(what, machine, host, owned, _)| (what, machine, host, owned, "Rest")), |world| {
        delete_machine(world);
        world.machine.metadata.finalizers = None;
    });
}

#[test]
fn no_second_host_is_taken() {
    check(
        [
            ("an operator named a free one", pinned(), Some(free()), &["bmh-2"], "SeveralHosts"),
            ("a replica chose a free one late", chosen(), Some(free()), &["bmh-2"], "NameHost(\"bmh-2\")"),
            (
                "it runs, and a free one is named",
                provided(chosen()),
                Some(free()),
                &["bmh-2"],
                "SeveralHosts",
            ),
            ("the chosen one has its data", chosen(), Some(orphan("data")), &["bmh-2"], "SeveralHosts"),
            ("another machine uses it", chosen(), Some(of_another()), &["bmh-1"], "HostCarriesNode"),
            ("it never was its own", chosen(), Some(of_another()), &[], "Unchoose"),
            ("provisioned by hand", chosen(), Some(orphan("x")), &[], "Unchoose"),
            ("pinned, provisioned by hand", pinned(), Some(orphan("data")), &[], "HostNotAvailable"),
            ("it vanished", chosen(), None, &["bmh-1"], "InventoryMissing"),
            (
                "its host is cleaned",
                chosen(),
                Some(used(false, "deprovisioning")),
                &["bmh-1"],
                "HostNotProvisioned",
            ),
            ("it runs, unnamed", provided(machine()), None, &[], "InventoryMissing"),
            ("it runs, and its host vanished", provided(chosen()), None, &[], "InventoryMissing"),
            ("it runs, and its host is free", provided(chosen()), Some(free()), &[], "HostCarriesNoNode"),
            (
                "it runs, and its host has another consumer",
                provided(chosen()),
                Some(of_another()),
                &["bmh-1"],
                "HostCarriesNode",
            ),
        ],
        |_| {},
    );
    check([("its Node is known", provided(machine()), None, &[], "InventoryMissing")], |world| {
        let node_ref = Some(capi::NodeRef { name: "n1".into() });
        world.owner.as_mut().unwrap().status = Some(capi::MachineStatus { node_ref });
    });
}

#[test]
fn deletion_releases_the_host_of_the_machine() {
    check(
        [
            ("a free one is named", chosen(), Some(free()), &["bmh-2"], "NameHost(\"bmh-2\")"),
            ("another machine uses it", chosen(), Some(of_another()), &["bmh-1"], "RemoveFinalizer"),
        ],
        delete_machine,
    );
    check([("its Machine is not in deletion", machine(), None, &["bmh-1"], "OwnerMismatch")], |world| {
        delete_machine(world);
        world.owner = Some(owner());
    });
}

fn inventory(annotations: &Value, provider_id: &str) -> MachineInventory {
    serde_json::from_value(json!({
        "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineInventory",
        "metadata": { "name": "host-1", "namespace": "fleet", "annotations": annotations },
        "spec": {},
        "status": { "host": { "carried": { "node": { "providerID": provider_id, "uuid": "u" } } } },
    }))
    .unwrap()
}

#[test]
fn host_states_its_machine() {
    let claim = |kind: &str, machine: &str| {
        json!({
            annotation::OWNER_KIND: kind, annotation::OWNER_BAREMETAL_MACHINE: "bmh-1",
            annotation::OWNER_MACHINE: machine, annotation::CLAIM_GENERATION: "0",
        })
    };
    let of_host = || claim("BareMetalHost", "m3m");
    let mut abandoned = of_host();
    abandoned[annotation::ABANDONED] = json!("");
    for (what, annotations, provider_id, want) in [
        ("its node", json!({}), "metal3://fleet/bmh-1/m3m", Some("m3m")),
        ("its claim", of_host(), "", Some("m3m")),
        ("its node is newer than its claim", of_host(), "metal3://fleet/bmh-1/m2", Some("m2")),
        ("a node in the older form", of_host(), "metal3://uid", Some("m3m")),
        ("a node of another namespace", json!({}), "metal3://other/bmh-1/m3m", None),
        ("provisioned by hand", claim("BareMetalHost", "bmh-1"), "", None),
        ("of a pool", claim("BaremetalMachine", "m3m"), "", None),
        ("abandoned", abandoned, "metal3://fleet/bmh-1/m3m", None),
    ] {
        let stated = Stated::of_inventory(&inventory(&annotations, provider_id));
        let want = want.map(|machine| Stated { host: "bmh-1".into(), machine: machine.into() });
        assert_eq!(stated, want, "{what}");
    }
}

#[test]
fn host_records_its_machine() {
    let recorded = |mut host: BareMetalHost, provider_id: &str| {
        host.annotations_mut().insert(names::PROVIDER_ID.into(), provider_id.into());
        recorded_machine(&host)
    };
    let own = "metal3://fleet/bmh-1/m3m";
    assert_eq!(recorded(orphan("data"), own).as_deref(), Some("m3m"));
    assert_eq!(recorded(of_another(), own), None, "the consumer decides");
    assert_eq!(recorded(orphan("data"), "metal3://fleet/bmh-9/m3m"), None, "copied from another host");
    assert_eq!(recorded_machine(&orphan("data")), None);
}
