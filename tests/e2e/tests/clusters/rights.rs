//! The rules of the coordinator and its requests are the same, on a real API
//! server and limited to one namespace.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use control_plane::apply;
use control_plane::audit::Mark;
use control_plane::etcd::Key;
use control_plane::parts::{Part, Parts, Provider};
use control_plane::{ControlPlane, Settings};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use e2e::host::Simulated;
use e2e::lifecycle::{Lifecycle, NAMESPACE};
use e2e::manifests::{METAL3_RIGHTS, RIGHTS, rights};
use e2e::replicas::{NAMESPACE as OWN, USER};
use e2e::watching::until;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::common::Setup;

const DEADLINE: Duration = Duration::from_mins(2);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The rules of the roles with the coordinator's name, as the audit log names what
/// they allow; a `ClusterRole` is bound in [`NAMESPACE`].
fn list_rights() -> BTreeSet<String> {
    let strings = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    let mut rights = BTreeSet::new();
    let roles = apply::parse_manifest(RIGHTS).unwrap();
    for role in roles.iter().filter(|role| role.name_any() == "baremetal-coordinator") {
        let namespace = role.namespace().unwrap_or_else(|| NAMESPACE.to_owned());
        for rule in role.data["rules"].as_array().into_iter().flatten() {
            for group in strings(&rule["apiGroups"]) {
                for resource in strings(&rule["resources"]) {
                    let verbs = strings(&rule["verbs"]);
                    rights.extend(verbs.iter().map(|verb| format!("{namespace} {verb} {group}/{resource}")));
                }
            }
        }
    }
    rights
}

async fn patch<K>(setup: &Setup, name: &str, patch: Value) -> anyhow::Result<()>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(setup.environment.management.admin.clone(), NAMESPACE);
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// What operators may ask for. The second token is a repetition of its Event.
async fn ask_for_rebuilds(setup: &Setup) -> anyhow::Result<()> {
    let registrations: Api<MachineRegistration> =
        Api::namespaced(setup.environment.management.admin.clone(), NAMESPACE);
    for _ in 0..2 {
        let rotate = json!({ "metadata": { "annotations": { annotation::ROTATE_TOKEN: "" } } });
        patch::<MachineRegistration>(setup, "lab", rotate).await?;
        let is_done = |registration: &MachineRegistration| {
            !registration.annotations().contains_key(annotation::ROTATE_TOKEN)
        };
        until(&registrations, "lab", DEADLINE, is_done).await?;
    }
    patch::<SeedImage>(setup, "lab", json!({ "spec": { "retriggerBuild": true } })).await
}

/// The Lease of a pod that ended long ago.
async fn leave_lease(setup: &Setup) -> anyhow::Result<()> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "baremetal-coordinator-replica-gone",
            "namespace": OWN,
            "labels": { "baremetal.cluster.io/replica": "true" },
        },
        "spec": {
            "holderIdentity": "gone-1",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    });
    setup.environment.management.apply(&lease.to_string()).await
}

/// A pool holds the host, and vanishes: the next one has to know that it is gone.
async fn lose_pool(setup: &Setup, host: &str) -> anyhow::Result<()> {
    let management = &setup.environment.management;
    let pool = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
        "kind": "MachineInventoryPool",
        "metadata": { "name": "former", "namespace": NAMESPACE },
        "spec": { "clusterName": "lab", "machineInventories": [{ "name": host }] },
    });
    management.apply(&pool.to_string()).await?;
    let inventories: Api<MachineInventory> = Api::namespaced(management.admin.clone(), NAMESPACE);
    let is_held = |inventory: &MachineInventory| {
        inventory.annotations().get(annotation::POOL).is_some_and(|pool| pool == "former")
    };
    until(&inventories, host, DEADLINE, is_held).await?;
    take_out(setup, "machineinventorypools", "former").await
}

async fn take_out(setup: &Setup, plural: &str, name: &str) -> anyhow::Result<()> {
    let key = Key::new(&format!("infrastructure.cluster.x-k8s.io/{plural}"), NAMESPACE, name);
    let missing = setup.environment.management.control_plane.take_out(&[key]).await?;
    ensure!(missing.is_empty(), "{plural} {name} was not there");
    Ok(())
}

async fn use_rights(setup: &Setup) -> anyhow::Result<()> {
    let mut host = Simulated::new(setup.environment.workload.clone(), 1)?;
    let mut lifecycle = Lifecycle::new(&setup.environment, &mut host, setup.progress.clone());
    let iso = lifecycle.create_seed(&setup.base).await?;
    let inventory = lifecycle.register(&iso).await?;
    leave_lease(setup).await?;
    setup.progress.step("tokens and ISO are made again, and a pool vanishes");
    ask_for_rebuilds(setup).await?;
    lose_pool(setup, &inventory.name_any()).await?;
    lifecycle.apply_cluster(&[inventory.name_any()], 1).await?;
    lifecycle.await_node(&inventory, 0).await?;
    setup.progress.step("the machine of a host vanishes");
    let machine = lifecycle.await_machine().await?;
    take_out(setup, "baremetalmachines", &machine.name_any()).await?;
    await_rights(setup).await?;
    check_events(setup).await?;
    check_metrics(setup).await
}

/// The metrics of all replicas.
async fn read_metrics(setup: &Setup) -> anyhow::Result<String> {
    let mut text = String::new();
    for replica in &setup.environment.management.replicas {
        text += &replica.metrics().await?;
    }
    Ok(text)
}

fn sum_series(text: &str, series: &str) -> f64 {
    let name = format!("baremetal_coordinator_{series} ");
    text.lines().filter_map(|line| line.strip_prefix(&name)?.parse::<f64>().ok()).sum()
}

/// The replicas together export every metric that a lifecycle changes.
async fn check_metrics(setup: &Setup) -> anyhow::Result<()> {
    setup.progress.step("the metrics tell of the lifecycle");
    let deadline = Instant::now() + DEADLINE;
    // A busy machine may change the leader: none leads for a moment.
    let text = loop {
        let text = read_metrics(setup).await?;
        if (sum_series(&text, "leader") - 1.0).abs() < f64::EPSILON {
            break text;
        }
        ensure!(Instant::now() < deadline, "one replica leads:\n{text}");
        sleep(POLL_INTERVAL).await;
    };
    for series in [
        "sessions",
        "plans_total{kind=\"reprovision\",result=\"applied\",reason=\"\"}",
        "step_duration_seconds_count{step=\"write-seed\",result=\"done\"}",
        "reconcile_duration_seconds_count{kind=\"BaremetalMachine\",result=\"done\"}",
        "api_requests_total{verb=\"patch\",resource=\"machineinventories/status\",code=\"200\"}",
        "api_requests_total{verb=\"create\",resource=\"events\",code=\"201\"}",
        "authority_expiry_timestamp_seconds",
    ] {
        ensure!(sum_series(&text, series) > 0.0, "{series} is not counted:\n{text}");
    }
    ensure!(text.contains("_hosts{state="), "no host is counted:\n{text}");
    ensure!(text.contains("_queue_depth{kind=\"MachineInventory\"}"), "no queue is shown:\n{text}");
    Ok(())
}

/// The Events as kubectl sorts them: the newest last, a repetition at its last time.
async fn check_events(setup: &Setup) -> anyhow::Result<()> {
    setup.progress.step("kubectl sorts the Events by their last time");
    let environment = &setup.environment;
    let output = Command::new(environment.parts.path(Part::Kubectl)?)
        .arg("--kubeconfig")
        .arg(environment.management.control_plane.admin_kubeconfig())
        .args(["--namespace", NAMESPACE, "get", "events", "--sort-by=.lastTimestamp", "--output=json"])
        .output()
        .await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout)?;
    let items = list["items"].as_array().context("no list")?;
    let ours: Vec<_> =
        items.iter().filter(|event| event["reportingComponent"] == "baremetal-coordinator").collect();
    let times: Vec<_> = ours.iter().filter_map(|event| event["lastTimestamp"].as_str()).collect();
    ensure!(times.len() == ours.len() && times.is_sorted(), "not by their last time: {ours:#?}");
    let position = |reason: &str| {
        ours.iter().position(|event| event["reason"] == reason).with_context(|| format!("no {reason}"))
    };
    ensure!(position("TokenRotated")? < position("Provisioned")?, "a wrong order: {ours:#?}");
    // Each replica counts its own.
    let rotations = ours.iter().filter(|event| event["reason"] == "TokenRotated");
    let count: u64 = rotations.filter_map(|event| event["count"].as_u64()).sum();
    ensure!(count == 2, "the repetition is not counted: {ours:#?}");
    Ok(())
}

/// Every rule is used, and every request has a rule.
async fn await_rights(setup: &Setup) -> anyhow::Result<()> {
    let audit = setup.environment.management.control_plane.audit();
    let (rights, deadline) = (list_rights(), Instant::now() + DEADLINE);
    ensure!(rights.iter().any(|right| right.starts_with(OWN)) && rights.len() > 40, "{rights:?}");
    loop {
        let seen = audit.rights(USER, Mark::default())?;
        ensure!(seen.forbidden.is_empty(), "rules are missing: {:?}", seen.forbidden);
        let beyond: Vec<_> = seen.used.difference(&rights).collect();
        ensure!(beyond.is_empty(), "requests that no rule of the manifest names: {beyond:?}");
        let unused: Vec<_> = rights.difference(&seen.used).collect();
        if unused.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "rules that no request uses: {unused:?}");
        sleep(POLL_INTERVAL).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limited_coordinator_uses_each_of_its_rights() {
    let setup = Setup::start_limited(&[NAMESPACE]).await;
    setup.check(use_rights(&setup).await);
}

/// The Machines of Cluster API; its managers do not run.
async fn define_machines(parts: &Parts, client: &Client) -> ApiResource {
    let components = std::fs::read_to_string(parts.cluster_api_components(Provider::Core).unwrap()).unwrap();
    let objects = apply::parse_manifest(&components).unwrap();
    let is_machine = |object: &DynamicObject| object.name_any() == "machines.cluster.x-k8s.io";
    let mut definition = objects.into_iter().find(is_machine).unwrap();
    definition.data["spec"]["conversion"] = json!({ "strategy": "None" });
    apply::manifest(client, &serde_json::to_string(&definition).unwrap()).await.unwrap();
    coordinator_api::capi::machine("v1beta2")
}

/// A patch of the status by the coordinator's account: the message of its refusal.
async fn change_status(api: &Api<DynamicObject>, status: Value) -> Result<(), String> {
    let patch = Patch::Merge(json!({ "status": status }));
    match api.patch_status("worker", &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

fn condition(kind: &str, status: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": "Tested", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

/// What Cluster API writes to the status of a Machine, and another value of each field.
fn fields_of_machines() -> Vec<(&'static str, Value, Value)> {
    let node = |id: &str| {
        let names = [
            "architecture",
            "bootID",
            "containerRuntimeVersion",
            "kernelVersion",
            "kubeProxyVersion",
            "kubeletVersion",
            "machineID",
            "operatingSystem",
            "osImage",
            "systemUUID",
        ];
        names.iter().map(|name| ((*name).to_owned(), json!(id))).collect::<serde_json::Map<_, _>>()
    };
    let address = |address: &str| json!([{ "type": "InternalIP", "address": address }]);
    let deprecated = |reason: &str| json!({ "v1beta1": { "failureReason": reason } });
    let drain = |time: &str| json!({ "nodeDrainStartTime": time });
    vec![
        ("addresses", address("10.0.0.1"), address("10.0.0.2")),
        ("certificatesExpiryDate", json!("2027-01-01T00:00:00Z"), json!("2028-01-01T00:00:00Z")),
        ("deletion", drain("2026-01-01T00:00:00Z"), drain("2026-01-01T00:00:01Z")),
        ("deprecated", deprecated("UpdateError"), deprecated("DeleteError")),
        ("failureDomain", json!("rack-1"), json!("rack-2")),
        (
            "initialization",
            json!({ "infrastructureProvisioned": true, "bootstrapDataSecretCreated": false }),
            json!({ "infrastructureProvisioned": true, "bootstrapDataSecretCreated": true }),
        ),
        ("lastUpdated", json!("2026-01-01T00:00:00Z"), json!("2026-01-01T00:00:01Z")),
        ("nodeInfo", json!(node("a")), json!(node("b"))),
        ("nodeRef", json!({ "name": "node-1" }), json!({ "name": "node-2" })),
        ("observedGeneration", json!(1), json!(2)),
        ("phase", json!("Running"), json!("Failed")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn coordinator_changes_one_condition_of_machines_alone() {
    let parts = Parts::from_environment().unwrap();
    let management = ControlPlane::start(&parts, &Settings::management()).await.unwrap();
    let admin = management.admin().await.unwrap();
    let resource = define_machines(&parts, &admin).await;
    for manifest in METAL3_RIGHTS {
        apply::manifest(&admin, manifest).await.unwrap();
    }
    let machines: Api<DynamicObject> = Api::namespaced_with(admin, "default", &resource);
    let infrastructure =
        json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Machine", "name": "worker" });
    let spec = json!({ "clusterName": "lab", "bootstrap": { "dataSecretName": "b" }, "infrastructureRef": infrastructure });
    let machine = DynamicObject::new("worker", &resource).data(json!({ "spec": spec }));
    machines.create(&PostParams::default(), &machine).await.unwrap();
    let fields = fields_of_machines();
    let mut status: serde_json::Map<_, _> =
        fields.iter().map(|(field, value, _)| ((*field).to_owned(), value.clone())).collect();
    status.insert("conditions".to_owned(), json!([condition("Ready", "True")]));
    change_status(&machines, json!(status)).await.unwrap();
    let schema = machines.get("worker").await.unwrap().data["status"].clone();
    assert_eq!(
        schema.as_object().unwrap().len(),
        fields.len() + 1,
        "a field is not of the definition: {schema}"
    );

    let own: Api<DynamicObject> = Api::namespaced_with(
        management.client(USER, "system:serviceaccounts").await.unwrap(),
        "default",
        &resource,
    );
    let refusal = "the coordinator writes the condition OwnerRemediated alone";
    let is_refused = |answer: &Result<(), String>| answer.as_ref().is_err_and(|text| text.contains(refusal));
    let end = Instant::now() + DEADLINE;
    while !is_refused(&change_status(&own, json!({ "observedGeneration": 7 })).await) {
        assert!(Instant::now() < end, "the policy does not act");
        change_status(&machines, json!({ "observedGeneration": 1 })).await.unwrap();
        sleep(POLL_INTERVAL).await;
    }
    for (field, _, other) in &fields {
        for (what, value) in [("changed", other), ("removed", &Value::Null)] {
            let answer = change_status(&own, json!({ *field: value })).await;
            assert!(is_refused(&answer), "{field} {what}: {answer:?}");
        }
    }
    let both = json!([condition("Ready", "True"), condition("OwnerRemediated", "False")]);
    for (what, conditions, is_allowed) in [
        ("another condition", json!([condition("Ready", "False")]), false),
        ("none", Value::Null, false),
        ("its own", both, true),
    ] {
        let answer = change_status(&own, json!({ "conditions": conditions })).await;
        assert_eq!(answer.is_ok(), is_allowed, "{what}: {answer:?}");
    }
}

/// Secrets that the account may not create, wherever the coordinator is installed.
fn forbidden_secrets() -> [(&'static str, Value); 3] {
    [
        ("default", json!({ "metadata": { "name": "stolen" }, "type": "Opaque" })),
        (
            "kube-system",
            json!({
                "metadata": { "name": "bootstrap-token-abcdef" },
                "type": "bootstrap.kubernetes.io/token",
                "stringData": { "token-id": "abcdef", "token-secret": "0123456789abcdef" },
            }),
        ),
        // The authority is created in the namespace of the coordinator alone.
        (
            "default",
            json!({ "metadata": { "name": "baremetal-coordinator-ca" }, "type": "Opaque", "immutable": true }),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_policy_holds_in_any_namespace() {
    let parts = Parts::from_environment().unwrap();
    let management = ControlPlane::start(&parts, &Settings::management()).await.unwrap();
    let admin = management.admin().await.unwrap();
    // As clusterctl moves a provider: it changes fields and no expressions.
    for manifest in rights(&[]) {
        let moved = manifest
            .replace("namespace: baremetal-system", "namespace: elsewhere")
            .replace("name: baremetal-system", "name: elsewhere");
        apply::manifest(&admin, &moved).await.unwrap();
    }
    let user = "system:serviceaccount:elsewhere:baremetal-coordinator";
    let client = management.client(user, "system:serviceaccounts").await.unwrap();
    let create = async |namespace: &str, secret: &Value| {
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client.clone(), namespace);
        let secret = serde_json::from_value(secret.clone()).unwrap();
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        secrets.create(&dry, &secret).await.map(drop).map_err(|error| error.to_string())
    };
    let is_denied = |answer: &Result<(), String>| {
        answer.as_ref().is_err_and(|text| text.contains("the coordinator creates Secrets with plans"))
    };
    let end = Instant::now() + DEADLINE;
    for (namespace, secret) in &forbidden_secrets() {
        let mut answer = create(namespace, secret).await;
        while !is_denied(&answer) {
            assert!(Instant::now() < end, "{namespace} {secret}: {answer:?}");
            sleep(POLL_INTERVAL).await;
            answer = create(namespace, secret).await;
        }
    }
    let authority =
        json!({ "metadata": { "name": "baremetal-coordinator-ca" }, "type": "Opaque", "immutable": true });
    create("elsewhere", &authority).await.unwrap();
}
