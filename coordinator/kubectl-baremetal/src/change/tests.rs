use serde_json::{Value, json};

use super::*;
use crate::samples::{attached, cluster_of_one, fleet, held_by, id, machine_with, object, ready};

fn host(body: Value) -> Object {
    object(Kind::MachineInventory, "h", body)
}

fn described(decision: Result<Decision, String>) -> Result<Vec<String>, String> {
    decision.map(|decision| decision.requests.iter().map(Request::describe).collect())
}

fn refused<T: std::fmt::Debug>(answer: Result<T, String>, part: &str) {
    let error = answer.unwrap_err();
    assert!(error.contains(part), "{error} lacks {part}");
}

#[test]
fn pending_and_revoked_hosts_are_approved() {
    for state in ["Pending", "Revoked"] {
        let mut body = attached();
        body["metadata"]["annotations"]["baremetal.cluster.io/approval"] = json!(state);
        let object = host(body);
        let inventory = object.inventory().unwrap();
        let want = "annotate machineinventory/h baremetal.cluster.io/approval=Approved".to_owned();
        assert_eq!(described(approve(inventory, Some("ab12"))), Ok(vec![want]));
        refused(approve(inventory, Some("ff")), "another host has registered under its name");
        refused(approve(inventory, Some("")), "another host");
    }
    refused(approve(host(attached()).inventory().unwrap(), None), "admitted already");
}

#[test]
fn free_hosts_alone_are_installed_again() {
    let annotate =
        |device| Ok(vec![format!("annotate machineinventory/h baremetal.cluster.io/reinstall={device}")]);
    assert_eq!(described(reinstall(&host(attached()), None)), annotate("/dev/disk/by-id/one"));
    assert_eq!(described(reinstall(&host(attached()), Some("/dev/sdb"))), annotate("/dev/sdb"));
    refused(reinstall(&host(attached()), Some("sdb")), "no path");
    refused(reinstall(&host(held_by("m")), None), "drain-and-release h");
    let mut carrying = attached();
    carrying["status"]["host"]["carried"] =
        json!({ "node": { "uuid": "u", "providerID": "baremetal:///h" } });
    refused(reinstall(&host(carrying), None), "carries a node");
    let mut unknown = attached();
    unknown["status"]["host"]["install"] = json!({ "state": "Installed" });
    refused(reinstall(&host(unknown), None), "--device");
}

#[test]
fn waiting_hosts_get_the_disk_that_is_named() {
    let mut waiting = attached();
    waiting["status"]["host"] = json!({ "install": { "state": "Waiting" } });
    let waiting = host(waiting);
    let annotate =
        |value| Ok(vec![format!("annotate machineinventory/h baremetal.cluster.io/install-device={value}")]);
    assert_eq!(described(install_on(&waiting, "/dev/disk/by-id/a", &[])), annotate("/dev/disk/by-id/a"));
    let mirror = install_on(&waiting, "/dev/sda", &["/dev/sdb".to_owned()]);
    assert!(mirror.as_ref().unwrap().consequence.contains("/dev/sda and /dev/sdb"), "{mirror:?}");
    assert_eq!(described(mirror), annotate("/dev/sda,/dev/sdb"));
    refused(install_on(&waiting, "sda", &[]), "no path");
    refused(install_on(&waiting, "/dev/sda", &["sdb".to_owned()]), "no path");
    refused(install_on(&host(attached()), "/dev/sda", &[]), "kubectl baremetal reinstall h");
}

#[test]
fn keys_are_taken_away_and_accepted() {
    let (known, offered) = ("a".repeat(64), "b".repeat(64));
    let with_key = |class: &str| {
        let mut object = attached();
        object["metadata"]["labels"]["baremetal.cluster.io/identity-class"] = json!(class);
        object["status"]["host"]["certifiedKey"] = json!({ "hash": known, "since": "2026-01-01T00:00:00Z" });
        host(object)
    };
    let taken = format!("annotate machineinventory/h baremetal.cluster.io/replaced-key={known}");
    let accepted = format!("annotate machineinventory/h baremetal.cluster.io/accepted-key={offered}");
    assert_eq!(described(replace_key(&with_key("Hardware"), None)), Ok(vec![taken.clone()]));
    assert_eq!(
        described(replace_key(&with_key("Emulated"), Some(&offered))),
        Ok(vec![taken, accepted.clone()])
    );
    assert_eq!(described(replace_key(&host(attached()), Some(&offered))), Ok(vec![accepted]));
    refused(replace_key(&host(attached()), None), "no certified key");
    refused(replace_key(&with_key("Hardware"), Some(&offered)), "without --key");
    refused(replace_key(&with_key("Emulated"), Some(&known)), "already");
    refused(replace_key(&with_key("Emulated"), Some("B")), "no SHA-256");
}

#[test]
fn released_hosts_lose_their_machine() {
    let machine = json!({ "status": { "conditions": [ready()] } });
    let mut objects = cluster_of_one(machine, machine_with(&[ready()]));
    objects.push(host(held_by("m")));
    let known = fleet(objects);
    let host = host(held_by("m"));
    let delete = "delete machine/m".to_owned();
    let undrained = "annotate machine/m machine.cluster.x-k8s.io/exclude-node-draining=".to_owned();
    let chosen = "annotate machine/m cluster.x-k8s.io/delete-machine=".to_owned();
    let scale = "scale machinedeployment/workers to 0".to_owned();
    for (removal, want) in [
        (Removal::Drained { scale_down: false }, vec![delete.clone()]),
        (Removal::Drained { scale_down: true }, vec![chosen.clone(), scale.clone()]),
        (Removal::Undrained { scale_down: false }, vec![undrained.clone(), delete]),
        (Removal::Undrained { scale_down: true }, vec![undrained, chosen, scale]),
    ] {
        assert_eq!(described(release(&known, &host, removal)), Ok(want), "{removal:?}");
    }
    let patched = release(&known, &host, Removal::Drained { scale_down: true }).unwrap().requests.pop();
    assert_eq!(
        patched,
        Some(Request::Scale { object: id(Kind::MachineDeployment, "workers"), from: 1, to: 0 })
    );
    refused(release(&known, &host, Removal::WithoutClean), "is not in deletion");
    refused(release(&fleet([]), &host, Removal::Drained { scale_down: false }), "does not exist");
    let free = object(Kind::MachineInventory, "h", attached());
    refused(release(&known, &free, Removal::Drained { scale_down: false }), "is free");
}

/// The objects of a host that the Machine `m` of the deployment `workers` holds.
fn held_with(machine: Value, group: &Value) -> Fleet {
    let mut objects = cluster_of_one(machine, machine_with(&[ready()]));
    let known = objects.iter_mut().find(|object| object.id.kind == Kind::MachineDeployment).unwrap();
    let mut body = group.clone();
    body["spec"]["clusterName"] = json!("lab");
    *known = object(Kind::MachineDeployment, "workers", body);
    fleet(objects)
}

#[test]
fn replicas_of_a_topology_are_refused() {
    let labels = json!({ "topology.cluster.x-k8s.io/owned": "" });
    let group = json!({ "metadata": { "labels": labels }, "spec": { "replicas": 3 } });
    let answer =
        release(&held_with(json!({}), &group), &host(held_by("m")), Removal::Drained { scale_down: true });
    for part in ["spec.topology.workers of cluster/lab", "annotate machine m", "delete-machine="] {
        refused(answer.clone(), part);
    }
    let none = json!({ "spec": { "replicas": 0 } });
    let answer =
        release(&held_with(json!({}), &none), &host(held_by("m")), Removal::Drained { scale_down: true });
    refused(answer, "has no replicas");
}

#[test]
fn machines_to_be_deleted_give_hosts_back() {
    let deleting = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:30:00Z" } });
    let chosen = json!({ "metadata": { "annotations": { "cluster.x-k8s.io/delete-machine": "" } } });
    let shrinking = json!({ "spec": { "replicas": 1 }, "status": { "replicas": 2 } });
    let steady = json!({ "spec": { "replicas": 2 }, "status": { "replicas": 2 } });
    for (name, machine, group, want) in [
        ("in deletion", &deleting, &steady, true),
        ("chosen of too many", &chosen, &shrinking, true),
        ("chosen, and none is too many", &chosen, &steady, false),
        ("another one is chosen", &json!({}), &shrinking, false),
    ] {
        let found = find_ending_holder(&held_with(machine.clone(), group), &host(held_by("m")));
        assert_eq!(found, want.then(|| id(Kind::Machine, "m")), "{name}");
    }
    let deleting = object(Kind::BaremetalMachine, "m", deleting);
    let found = find_ending_holder(&fleet([deleting]), &host(held_by("m")));
    assert_eq!(found, Some(id(Kind::BaremetalMachine, "m")), "its Machine cannot be read");
    assert_eq!(find_ending_holder(&fleet([]), &host(attached())), None);
}

#[test]
fn machines_in_deletion_are_ended() {
    let mut deleting = machine_with(&[ready()]);
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:30:00Z");
    let known = fleet([object(Kind::BaremetalMachine, "m", deleting.clone())]);
    let host = host(held_by("m"));
    for (removal, key) in
        [(Removal::RetryClean, "retry-plan"), (Removal::WithoutClean, "release-without-clean")]
    {
        let want = format!("annotate baremetalmachine/m baremetal.cluster.io/{key}=");
        assert_eq!(described(release(&known, &host, removal)), Ok(vec![want]));
    }
    let mut abandoned = held_by("m");
    abandoned["metadata"]["annotations"]["baremetal.cluster.io/abandoned"] = json!("2026-01-01T00:30:00Z");
    refused(release(&fleet([]), &self::host(abandoned.clone()), Removal::RetryClean), "no clean of");
    abandoned["status"]["plan"] = json!({
        "secretRef": { "name": "h" }, "id": "clean-1", "generation": 1, "type": "clean", "state": "Failed",
        "checksum": "0".repeat(64),
    });
    assert_eq!(
        described(release(&fleet([]), &self::host(abandoned), Removal::RetryClean)),
        Ok(vec!["annotate machineinventory/h baremetal.cluster.io/retry-plan=".to_owned()])
    );
    let machine = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:30:00Z" } });
    let both = fleet(cluster_of_one(machine, deleting));
    refused(release(&both, &host, Removal::Drained { scale_down: false }), "in deletion already");
}

#[test]
fn lost_owner_is_named_to_clean_a_host() {
    let now = Timestamp::UNIX_EPOCH;
    let stating = |mut body: Value, owner: &str| {
        body["status"]["host"]["carried"] =
            json!({ "node": { "uuid": "u", "providerID": "baremetal:///h", "owner": owner } });
        host(body)
    };
    let orphan = stating(held_by("m"), "BaremetalMachine/m");
    let none = fleet(vec![]);
    let abandon =
        "annotate machineinventory/h baremetal.cluster.io/abandoned=1970-01-01T00:00:00Z".to_owned();
    assert_eq!(described(clean(&none, &orphan, "m", now)), Ok(vec![abandon.clone()]));
    assert_eq!(described(clean(&none, &orphan, "BaremetalMachine/m", now)), Ok(vec![abandon.clone()]));
    let unclaimed = stating(attached(), "BaremetalMachine/m");
    let claim = format!("annotate machineinventory/h {}=m", annotation::OWNER_BAREMETAL_MACHINE);
    assert_eq!(described(clean(&none, &unclaimed, "m", now)), Ok(vec![claim, abandon.clone()]));
    refused(clean(&none, &orphan, "other", now), "states the node of BaremetalMachine/m");
    refused(clean(&none, &host(attached()), "m", now), "states no node");
    refused(clean(&none, &stating(held_by("x"), "BaremetalMachine/m"), "m", now), "held by");
    let known = fleet(vec![object(Kind::BaremetalMachine, "m", json!({}))]);
    refused(clean(&known, &orphan, "m", now), "exists: delete its Machine");
    let named = |host: &str| {
        let body = json!({ "metadata": { "annotations": { annotation::MACHINE_INVENTORY: host } } });
        fleet(vec![object(Kind::BaremetalMachine, "m", body)])
    };
    refused(clean(&named("h"), &orphan, "m", now), "exists: delete its Machine");
    assert_eq!(
        described(clean(&named("other"), &orphan, "m", now)),
        Ok(vec![abandon]),
        "it keeps the other host"
    );
}
