use coordinator_api::explain::Attention::{self, Act, None, Wait};
use serde_json::{Value, json};

use super::*;
use crate::samples::{
    NAMESPACE, attached, clean_plan, cluster_of_one, condition, fleet, held_by, id, machine_with, now,
    object, ready, set_plan,
};
use crate::view::format_chain;

/// Objects, what is asked for, the links, attention and a part of the action.
type Row = (&'static str, Vec<Object>, Id, Vec<&'static str>, (Attention, &'static str, &'static str));

fn blocked(reason: &str) -> Value {
    machine_with(&[condition("Ready", "False", reason, "told")])
}

fn waiting_machine() -> Value {
    json!({ "status": { "conditions": [condition("Ready", "False", "NotReady", "waits for infrastructure")] } })
}

fn host(body: Value) -> Object {
    object(Kind::MachineInventory, "h", body)
}

fn pool(members: &[&str]) -> Object {
    pool_with(members, &[ready()])
}

fn pool_with(members: &[&str], conditions: &[Value]) -> Object {
    let members: Vec<_> = members.iter().map(|name| json!({ "name": name })).collect();
    let spec = json!({ "clusterName": "lab", "machineInventories": members });
    let body = json!({ "spec": spec, "status": { "conditions": conditions } });
    object(Kind::MachineInventoryPool, "workers", body)
}

fn with_annotation(mut body: Value, key: &str, value: &str) -> Value {
    body["metadata"]["annotations"][key] = json!(value);
    body
}

fn with_host_field(mut body: Value, field: &str, value: Value) -> Value {
    body["status"]["host"][field] = value;
    body
}

fn cluster_with(reason: &str, others: Vec<Object>) -> Vec<Object> {
    [cluster_of_one(waiting_machine(), blocked(reason)), others].concat()
}

fn running_plan(step: &Value) -> Value {
    let mut body = held_by("m");
    set_plan(&mut body, &clean_plan(), &json!({ "step": step }));
    body
}

fn check(rows: Vec<Row>) {
    for (name, objects, asked, links, (attention, reason, action)) in rows {
        let fleet = fleet(objects);
        let chain = follow_causes(&fleet, fleet.get(&asked).unwrap(), now());
        let found: Vec<_> = chain.links.iter().map(|link| link.object.short()).collect();
        assert_eq!(found, links, "{name}: {chain:#?}");
        let last = &chain.last().unwrap().finding;
        assert_eq!((chain.attention(), last.reason.as_str()), (attention, reason), "{name}: {chain:#?}");
        assert!(chain.action.contains(action), "{name}: {} lacks {action}", chain.action);
    }
}

const DOWN: [&str; 4] = ["cluster/lab", "machinedeployment/workers", "machine/m", "baremetalmachine/m"];

fn down_to(more: &[&'static str]) -> Vec<&'static str> {
    [&DOWN[..], more].concat()
}

#[test]
fn causes_of_a_cluster_lead_through_its_pool() {
    let unapproved = with_annotation(attached(), "baremetal.cluster.io/approval", "Pending");
    let asked = || id(Kind::Cluster, "lab");
    let open = condition("AdmissionOpen", "True", "TokenAdmitsMembers", "by token alone");
    let open = pool_with(&["h"], &[ready(), open]);
    check(vec![
        (
            "a pool without host",
            cluster_with("PoolExhausted", vec![pool(&[])]),
            asked(),
            down_to(&["machineinventorypool/workers"]),
            (Act, "PoolExhausted", "add a host"),
        ),
        (
            "a pool whose host is not approved",
            cluster_with("PoolExhausted", vec![pool(&["h"]), host(unapproved)]),
            asked(),
            down_to(&["machineinventorypool/workers", "machineinventory/h"]),
            (Act, "ApprovalPending", "kubectl baremetal approve h"),
        ),
        (
            "a pool whose hosts are held",
            cluster_with("PoolExhausted", vec![pool(&["h"]), host(held_by("other"))]),
            asked(),
            down_to(&["machineinventorypool/workers"]),
            (Act, "PoolExhausted", "free one"),
        ),
        (
            "a pool whose hosts are held, and that a token fills",
            cluster_with("PoolExhausted", vec![open, host(held_by("other"))]),
            asked(),
            down_to(&["machineinventorypool/workers"]),
            (Act, "PoolExhausted", "free one"),
        ),
        (
            "a member that does not exist",
            cluster_with("PoolExhausted", vec![pool(&["gone"])]),
            asked(),
            down_to(&["machineinventorypool/workers", "machineinventory/gone"]),
            (Act, "MemberMissing", "create or restore machineinventory/gone"),
        ),
    ]);
}

#[test]
fn causes_of_a_cluster_lead_to_its_host() {
    let open = json!({ "replica": "r", "bootId": "b", "since": "2026-01-01T00:00:00Z" });
    let mut ended = open.clone();
    ended["ended"] = json!("2026-01-01T00:10:00Z");
    let mut failed = held_by("m");
    let failure = json!({ "state": "Failed", "reason": "NoSpace", "message": "step write-seed: full", "nextAction": "free it" });
    set_plan(&mut failed, &clean_plan(), &failure);
    let asked = || id(Kind::Cluster, "lab");
    check(vec![
        (
            "a host that is away",
            cluster_with("HostUnreachable", vec![host(with_host_field(held_by("m"), "session", ended))]),
            asked(),
            down_to(&["machineinventory/h"]),
            (Act, "HostUnreachable", "check power"),
        ),
        (
            "a plan that failed",
            cluster_with("NoSpace", vec![host(failed)]),
            asked(),
            down_to(&["machineinventory/h"]),
            (Act, "NoSpace", "free it"),
        ),
        (
            "a plan that runs",
            cluster_with(
                "PlanRunning",
                vec![host(running_plan(&json!({ "name": "stop-kubelet", "attempt": 1 })))],
            ),
            asked(),
            down_to(&["machineinventory/h"]),
            (Wait, "PlanRunning", "logs h --follow"),
        ),
        (
            "an image that is missing",
            cluster_with("ImageCatalogMiss", vec![host(attached())]),
            asked(),
            down_to(&[]),
            (Act, "ImageCatalogMiss", "elemental-image-catalog"),
        ),
        (
            "a node that does not join",
            cluster_with("NodeOverdue", vec![host(held_by("m"))]),
            asked(),
            down_to(&[]),
            (Act, "NodeOverdue", "console"),
        ),
    ]);
}

#[test]
fn causes_of_single_objects() {
    let installing = |state: &str, reason: &str| {
        let mut body = attached();
        body["status"]["host"] = json!({ "install": { "state": state, "message": "two disks fit" } });
        body["status"]["conditions"] = json!([
            condition("Ready", "False", "WaitingForPlan", "being installed"),
            condition("Installed", "False", reason, "two disks fit"),
        ]);
        body
    };
    let drifted = {
        let mut body = attached();
        let drift = condition("NetworkDrift", "True", "NetworkChanged", "ens3 has another address");
        body["status"]["conditions"] = json!([ready(), drift]);
        body
    };
    let of_host = || id(Kind::MachineInventory, "h");
    check(vec![
        ("a free host", vec![host(attached())], of_host(), vec!["machineinventory/h"], (None, "", "none")),
        (
            "an install that waits",
            vec![host(installing("Waiting", "InstallWaiting"))],
            of_host(),
            vec!["machineinventory/h"],
            (Act, "InstallWaiting", "kubectl baremetal install-on h"),
        ),
        (
            "an install that runs",
            vec![host(installing("Installing", "Installing"))],
            of_host(),
            vec!["machineinventory/h"],
            (Wait, "Installing", "none"),
        ),
        (
            "a network that differs",
            vec![host(drifted)],
            of_host(),
            vec!["machineinventory/h"],
            (Act, "NetworkChanged", "accept-observed-network"),
        ),
    ]);
}

#[test]
fn causes_of_images() {
    let image = json!({
        "spec": { "registrationRef": { "name": "r" } },
        "status": { "conditions": [condition("Ready", "False", "RegistrationNotFound", "r is not ready")] },
    });
    let registration = json!({
        "status": { "conditions": [condition("Ready", "False", "DuplicateToken", "two have it")] },
    });
    let expired = ["Ready", "SeedImageReady"]
        .map(|kind| condition(kind, "False", "SeedImageBuildDeadline", "it is over: set retriggerBuild"));
    let expired = json!({ "status": { "conditions": expired } });
    check(vec![
        (
            "an ISO of a registration with the token of another",
            vec![object(Kind::SeedImage, "i", image), object(Kind::MachineRegistration, "r", registration)],
            id(Kind::SeedImage, "i"),
            vec!["seedimage/i", "machineregistration/r"],
            (Act, "DuplicateToken", "spec.token"),
        ),
        (
            "an ISO whose download is closed",
            vec![object(Kind::SeedImage, "i", expired)],
            id(Kind::SeedImage, "i"),
            vec!["seedimage/i"],
            (None, "SeedImageBuildDeadline", "none"),
        ),
    ]);
}

#[test]
fn causes_of_metal3_machines_lead_to_the_inventory() {
    let mut machine = machine_with(&[condition("Ready", "False", "HostNotProvisioned", "executes its plan")]);
    machine["metadata"]["annotations"] = json!({ "metal3.io/BareMetalHost": format!("{NAMESPACE}/b") });
    let front = machine_with(&[condition("Ready", "False", "PlanRunning", "executes its plan")]);
    let objects = vec![
        object(Kind::Metal3Machine, "m", machine),
        object(Kind::BareMetalHost, "b", front),
        host(running_plan(&json!({ "name": "stop-kubelet", "attempt": 2, "lastFailure": "busy" }))),
    ];
    check(vec![(
        "a host that is provisioned",
        objects,
        id(Kind::Metal3Machine, "m"),
        vec!["metal3machine/m", "baremetalhost/b", "machineinventory/h"],
        (Wait, "PlanRunning", "logs h"),
    )]);
}

#[test]
fn causes_of_missing_data_reach_address_pool() {
    let waits = condition("Ready", "False", "WaitingForMetal3Data", "no data yet");
    let failed = |spec: Value| json!({ "spec": spec, "status": { "errorMessage": "no address" } });
    let mut claim = failed(json!({ "pool": { "name": "net" } }));
    claim["metadata"]["labels"] = json!({ "infrastructure.cluster.x-k8s.io/data-name": "t-0" });
    let mut exhausted = claim.clone();
    exhausted["status"]["errorMessage"] = json!("Exhausted IP Pools: no free address");
    let objects = |claim: Value| {
        vec![
            object(Kind::Metal3Machine, "m", machine_with(std::slice::from_ref(&waits))),
            object(Kind::Metal3DataClaim, "m", failed(json!({}))),
            object(Kind::Metal3Data, "t-0", failed(json!({ "claim": { "name": "m" } }))),
            object(Kind::IPClaim, "t-0-net", claim),
        ]
    };
    let pool = object(Kind::IPPool, "net", json!({ "status": { "conditions": [ready()] } }));
    let path = ["metal3machine/m", "metal3dataclaim/m", "metal3data/t-0", "ipclaim/t-0-net"];
    let asked = || id(Kind::Metal3Machine, "m");
    check(vec![
        (
            "a pool without a free address",
            [objects(exhausted), vec![pool]].concat(),
            asked(),
            path.to_vec(),
            (Act, "PoolExhausted", "a range to the IPPool"),
        ),
        (
            "a pool that does not exist",
            objects(claim),
            asked(),
            [&path[..], &["ippool/net"]].concat(),
            (Act, "Missing", "create or restore ippool/net"),
        ),
    ]);
}

#[test]
fn causes_of_addresses_and_remediations() {
    let paused = json!({ "spec": { "paused": true } });
    let claim = json!({ "spec": { "clusterName": "lab", "poolRef": { "name": "net" } } });
    let pool = object(Kind::IPPool, "net", json!({ "status": { "conditions": [ready()] } }));
    let unreachable = || json!({ "conditions": [condition("Ready", "False", "HostUnreachable", "away")] });
    let owner = json!({ "apiVersion": "v1", "kind": "Machine", "name": "m", "uid": "u" });
    let remediation = json!({ "metadata": { "ownerReferences": [owner] }, "status": unreachable() });
    let machine = json!({ "spec": { "infrastructureRef": { "kind": "Metal3Machine", "name": "m" } } });
    let mut metal3 = machine_with(&[ready()]);
    metal3["metadata"]["annotations"] = json!({ "metal3.io/BareMetalHost": format!("{NAMESPACE}/b") });
    check(vec![
        (
            "a claim of a cluster that is paused",
            vec![object(Kind::Cluster, "lab", paused), object(Kind::IPAddressClaim, "a", claim), pool],
            id(Kind::IPAddressClaim, "a"),
            vec!["ipaddressclaim/a", "cluster/lab"],
            (Act, "Paused", "set spec.paused of the Cluster to false"),
        ),
        (
            "a remediation of a host that is away",
            vec![
                object(Kind::Metal3Remediation, "r", remediation),
                object(Kind::Machine, "m", machine),
                object(Kind::Metal3Machine, "m", metal3),
                object(Kind::BareMetalHost, "b", json!({ "status": unreachable() })),
            ],
            id(Kind::Metal3Remediation, "r"),
            vec!["metal3remediation/r", "baremetalhost/b"],
            (Act, "HostUnreachable", "check power"),
        ),
    ]);
}

#[test]
fn causes_of_hosts_in_deletion_and_of_registrations() {
    let mut deleted = held_by("m");
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:30:00Z");
    let paused = condition("Paused", "True", "Paused", "the annotation is set");
    let paused = machine_with(&[condition("Ready", "Unknown", "NotDecided", "see Ready"), paused]);
    let mut booted = attached();
    let seen = condition("Installed", "True", "LiveBootAfterInstall", "booted the seed ISO");
    booted["status"]["conditions"] = json!([ready(), seen]);
    let mut unclean = held_by("m");
    let failure =
        json!({ "state": "Failed", "reason": "NoSpace", "message": "full", "nextAction": "free it" });
    set_plan(&mut unclean, &clean_plan(), &failure);
    let conditions = [
        ready(),
        condition("AdmissionOpen", "True", "SoftwareKeysApproved", "by token alone"),
        condition("HostsRefused", "True", "HostRefused", "NameTaken: of h"),
    ];
    let registration =
        json!({ "status": { "conditions": conditions, "lastRefusal": { "reason": "NameTaken" } } });
    check(vec![
        (
            "a host in deletion that a machine holds",
            vec![host(deleted)],
            id(Kind::MachineInventory, "h"),
            vec!["machineinventory/h"],
            (Act, "InUse", "delete "),
        ),
        (
            "a clean that failed",
            vec![host(unclean)],
            id(Kind::MachineInventory, "h"),
            vec!["machineinventory/h"],
            (Act, "NoSpace", "free it, then `kubectl baremetal release h --retry-clean`"),
        ),
        (
            "an installed host that booted its medium",
            vec![host(booted)],
            id(Kind::MachineInventory, "h"),
            vec!["machineinventory/h"],
            (Act, "LiveBootAfterInstall", "remove the medium"),
        ),
        (
            "a machine that is paused",
            vec![object(Kind::BaremetalMachine, "m", paused)],
            id(Kind::BaremetalMachine, "m"),
            vec!["baremetalmachine/m"],
            (Act, "Paused", "remove the annotation"),
        ),
        (
            "a refusal counts before advice",
            vec![object(Kind::MachineRegistration, "r", registration)],
            id(Kind::MachineRegistration, "r"),
            vec!["machineregistration/r"],
            (Act, "HostRefused", "give the two hosts different names"),
        ),
    ]);
}

#[test]
fn a_refused_boot_order_is_a_cause() {
    let mut refused = attached();
    let order = condition("BootOrderSet", "False", "BootOrderRefused", "the firmware has no room");
    refused["status"]["conditions"] = json!([ready(), order]);
    check(vec![(
        "a firmware that takes no variables",
        vec![host(refused)],
        id(Kind::MachineInventory, "h"),
        vec!["machineinventory/h"],
        (Act, "BootOrderRefused", "take the seed ISO out"),
    )]);
}

#[test]
fn open_registration_is_a_cause() {
    let open = condition("AdmissionOpen", "True", "UnverifiedTpmsApproved", "by token alone");
    let registration = json!({ "status": { "conditions": [ready(), open] } });
    check(vec![(
        "a registration that any program can answer",
        vec![object(Kind::MachineRegistration, "r", registration)],
        id(Kind::MachineRegistration, "r"),
        vec!["machineregistration/r"],
        (Act, "UnverifiedTpmsApproved", "put the CAs of the TPM vendors"),
    )]);
}

#[test]
fn circular_references_end_cause_search() {
    let mut worker = blocked("BootstrapWaiting");
    worker["spec"]["clusterName"] = json!("lab");
    let objects = cluster_of_one(waiting_machine(), worker);
    let fleet = fleet(objects);
    let chain = follow_causes(&fleet, fleet.get(&id(Kind::Cluster, "lab")).unwrap(), now());
    assert_eq!(chain.last().unwrap().finding.reason, "BootstrapWaiting");
}

#[test]
fn fine_object_says_what_it_says() {
    let over = condition("Ready", "False", "SeedImageBuildDeadline", "over: set spec.retriggerBuild");
    let fleet = fleet([object(Kind::SeedImage, "i", json!({ "status": { "conditions": [over] } }))]);
    let chain = follow_causes(&fleet, fleet.get(&id(Kind::SeedImage, "i")).unwrap(), now());
    let text = anstream::adapter::strip_str(&format_chain(&chain, now())).to_string();
    let want = "seedimage/i  as intended: over: set spec.retriggerBuild\n\nnothing is in the way\n";
    assert_eq!(text, want);
}

#[test]
fn chain_reads_from_top_to_bottom() {
    let fleet = fleet(cluster_with("PoolMissing", vec![]));
    let chain = follow_causes(&fleet, fleet.get(&id(Kind::Machine, "m")).unwrap(), now());
    let text = format_chain(&chain, now());
    let text = anstream::adapter::strip_str(&text).to_string();
    let want = "\
machine/m  Ready=False NotReady (30m): waits for infrastructure
└─ baremetalmachine/m  Ready=False PoolMissing (30m): told

act on baremetalmachine/m in namespace site
  cause    spec.machineInventoryPoolRef of the machine names a pool that its namespace does not have
  next     create the MachineInventoryPool, or correct the name in the BaremetalMachineTemplate
";
    assert_eq!(text, want);
}
