//! Each rule of Cluster API's contracts for infrastructure providers, v1beta2 and
//! v1beta1, as a test with the name of the rule.

#![allow(clippy::unwrap_used, clippy::panic)]

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::crds;
use coordinator_api::machine::Phase;
use coordinator_api::names::annotation;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use scenarios::World;
use serde::Deserialize as _;
use serde_json::{Value, json};

const RIGHTS: &str = include_str!("../../../coordinator/config/rbac.yaml");
const METADATA: &str = include_str!("../../../coordinator/config/metadata.yaml");
const CLUSTERS: &str = "baremetalclusters.infrastructure.cluster.x-k8s.io";
const DOMAIN: &str = "infrastructure.cluster.x-k8s.io/failure-domain";

fn infrastructure() -> Vec<CustomResourceDefinition> {
    let mut kinds = crds::all();
    kinds.retain(|crd| crd.spec.group == "infrastructure.cluster.x-k8s.io");
    kinds
}

fn schema(kind: &str, path: &str) -> Value {
    let crd = infrastructure().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = json!(crd.spec.versions[0].schema);
    let place = format!("/openAPIV3Schema/properties/{}", path.replace('/', "/properties/"));
    schema.pointer(&place).cloned().unwrap_or_else(|| panic!("{kind} has no {path}"))
}

fn documents(text: &str) -> Vec<Value> {
    serde_norway::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap()).collect()
}

async fn running() -> World {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world
}

fn baremetal_cluster(world: &World, name: &str) -> Value {
    world.get_object(CLUSTERS, name).unwrap()
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap()
}

fn ready(world: &World) -> (String, String) {
    let found = world.machine_condition("m-1", Type::Ready).unwrap();
    (found.status, found.reason)
}

// All resources

#[test]
fn all_resources_scope_and_naming() {
    for crd in infrastructure() {
        let names = &crd.spec.names;
        assert_eq!(crd.spec.scope, "Namespaced", "{}", names.kind);
        assert_eq!(crd.metadata.name, Some(format!("{}.{}", names.plural, crd.spec.group)));
        assert_eq!(names.plural, format!("{}s", names.kind.to_lowercase()), "Cluster API computes it");
    }
}

#[test]
fn all_resources_version_labels() {
    for crd in infrastructure() {
        let labels = crd.metadata.labels.unwrap_or_default();
        for contract in ["cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2"] {
            assert_eq!(labels.get(contract).map(String::as_str), Some("v1beta1"), "{}", crd.spec.names.kind);
        }
    }
}

#[test]
fn all_resources_categories() {
    for crd in infrastructure() {
        assert_eq!(
            crd.spec.names.categories,
            Some(vec!["cluster-api".to_owned()]),
            "{}",
            crd.spec.names.kind
        );
    }
}

// InfraCluster

#[tokio::test(start_paused = true)]
async fn infra_cluster_control_plane_endpoint() {
    let world = running().await;
    assert_eq!(baremetal_cluster(&world, "c1")["spec"]["controlPlaneEndpoint"]["host"], "10.0.2.2");
    let endpoint = schema("BaremetalCluster", "spec/controlPlaneEndpoint");
    assert_eq!(
        (&endpoint["properties"]["host"]["minLength"], &endpoint["properties"]["host"]["maxLength"]),
        (&json!(1), &json!(512))
    );
    assert_eq!(endpoint["properties"]["port"]["maximum"].as_f64(), Some(65535.0));
}

#[tokio::test(start_paused = true)]
async fn infra_cluster_initialization_completed() {
    let world = running().await;
    let status = &baremetal_cluster(&world, "c1")["status"];
    assert_eq!((&status["initialization"]["provisioned"], &status["ready"]), (&json!(true), &json!(true)));
}

#[tokio::test(start_paused = true)]
async fn infra_cluster_failure_domains() {
    let world = World::with_hosts(&["host-1", "host-2"]).await;
    for (host, domain) in [("host-1", "d1"), ("host-2", "d2")] {
        let labels = json!({ "metadata": { "labels": { DOMAIN: domain } } });
        world.patch("MachineInventory", host, labels).await;
    }
    let domains = |world: &World| baremetal_cluster(world, "c1")["status"]["failureDomains"].clone();
    let listed = |names: &[&str]| -> Value {
        names.iter().map(|name| json!({ "name": name, "controlPlane": true })).collect()
    };
    world.wait_until("two domains", |world| domains(world) == listed(&["d1", "d2"])).await;
    world.patch("MachineInventory", "host-1", json!({ "metadata": { "labels": { DOMAIN: "d2" } } })).await;
    world.wait_until("one domain", |world| domains(world) == listed(&["d2"])).await;
    world.delete("MachineInventoryPool", "pool").await;
    world.wait_until("no domain", |world| domains(world).is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn infra_cluster_conditions() {
    let world = running().await;
    let cluster = baremetal_cluster(&world, "c1");
    for kind in ["Ready", "Paused", "EndpointReady"] {
        assert!(!condition(&cluster, kind)["reason"].as_str().unwrap().is_empty(), "{kind}");
    }
}

#[test]
fn infra_cluster_terminal_failures_are_not_reported() {
    let status = schema("BaremetalCluster", "status");
    assert!(
        status["properties"]["failureReason"].is_null() && status["properties"]["failureMessage"].is_null()
    );
}

#[tokio::test(start_paused = true)]
async fn infra_cluster_externally_managed() {
    let world = World::with_hosts(&[]).await;
    let balancer = json!({ "type": "External", "host": "10.0.2.9", "port": 6443 });
    let owner = world.get_object("clusters.cluster.x-k8s.io", "c1").unwrap();
    let metadata = json!({
        "annotations": { "cluster.x-k8s.io/managed-by": "another" },
        "ownerReferences": [{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1",
            "uid": owner["metadata"]["uid"],
        }],
    });
    let object = json!({ "metadata": metadata, "spec": { "controlPlaneLoadBalancer": balancer } });
    world.create("BaremetalCluster", "external", object).await;
    world.wait_idle().await;
    let external = baremetal_cluster(&world, "external");
    assert!(external["status"].is_null() && external["spec"]["controlPlaneEndpoint"].is_null());
}

#[tokio::test(start_paused = true)]
async fn infra_cluster_pausing() {
    let world = running().await;
    for is_paused in [true, false] {
        world.patch("Cluster", "c1", json!({ "spec": { "paused": is_paused } })).await;
        let want = if is_paused { "True" } else { "False" };
        world
            .wait_until("Paused follows", |world| {
                condition(&baremetal_cluster(world, "c1"), "Paused")["status"] == want
            })
            .await;
    }
}

// InfraMachine

#[tokio::test(start_paused = true)]
async fn infra_machine_provider_id() {
    let world = running().await;
    let machine = world.machine("m-1").unwrap();
    assert_eq!(machine.spec.provider_id.as_deref(), Some("baremetal:///host-1"));
    let bounds = schema("BaremetalMachine", "spec/providerID");
    assert_eq!((&bounds["minLength"], &bounds["maxLength"]), (&json!(1), &json!(512)));
}

#[tokio::test(start_paused = true)]
async fn infra_machine_initialization_completed() {
    let world = running().await;
    let status = world.machine("m-1").unwrap().status.unwrap();
    assert!(status.ready && status.initialization.unwrap().provisioned == Some(true));
}

#[tokio::test(start_paused = true)]
async fn infra_machine_addresses() {
    let world = running().await;
    let addresses = world.machine("m-1").unwrap().status.unwrap().addresses;
    let known = ["Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS"];
    assert!(!addresses.is_empty() && addresses.iter().all(|address| known.contains(&address.kind.as_str())));
}

#[tokio::test(start_paused = true)]
async fn infra_machine_failure_domain() {
    let world = World::with_hosts(&["host-1", "host-2"]).await;
    world.patch("MachineInventory", "host-2", json!({ "metadata": { "labels": { DOMAIN: "d2" } } })).await;
    world.patch("Cluster", "c1", json!({ "spec": { "paused": true } })).await;
    for (machine, domain) in [("m-1", "d2"), ("m-2", "d3")] {
        world.apply_machine(machine).await;
        world.patch("Machine", machine, json!({ "spec": { "failureDomain": domain } })).await;
    }
    world.patch("Cluster", "c1", json!({ "spec": { "paused": false } })).await;
    world.wait_running("m-1").await;
    let machine = world.machine("m-1").unwrap();
    assert_eq!(machine.spec.provider_id.as_deref(), Some("baremetal:///host-2"));
    assert_eq!(machine.status.unwrap().failure_domain.as_deref(), Some("d2"));
    let action = "none of its members is in failure domain d3";
    world.wait_for_reason("m-2", Type::InventoryAllocated, Reason::PoolExhausted, action).await;
}

// Fault: the host of a running machine loses its power.
// Shown: condition of the machine: `HostUnreachable`, until it is back.
#[tokio::test(start_paused = true)]
async fn infra_machine_ready_during_the_entire_lifecycle() {
    let mut world = running().await;
    assert_eq!(ready(&world), ("True".to_owned(), "Running".to_owned()));
    world.host_mut("host-1").power_off();
    let unreachable = ("False".to_owned(), "HostUnreachable".to_owned());
    world.wait_until("it is not ready", |world| ready(world) == unreachable).await;
    world
        .expect_why(
            "machine/m-1",
            Reason::HostUnreachable,
            "no connection to the coordinator",
            "check power, network and console",
        )
        .await;
    assert!(world.machine("m-1").unwrap().status.unwrap().ready, "it stays provisioned");
    world.host_mut("host-1").power_on();
    world.wait_until("it is ready again", |world| ready(world).0 == "True").await;
}

#[tokio::test(start_paused = true)]
async fn infra_machine_conditions_are_unknown_at_first() {
    let world = World::with_hosts(&[]).await;
    world.apply_machine("m-1").await;
    world.wait_until("it has a status", |world| world.machine_condition("m-1", Type::Ready).is_some()).await;
    for kind in [Type::BootstrapReady, Type::ImageResolved, Type::PlanApplied, Type::NodeLinked] {
        let found = world.machine_condition("m-1", kind).unwrap();
        assert_eq!((found.status.as_str(), found.reason.as_str()), ("Unknown", "NotDecided"), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn infra_machine_terminal_failures_are_not_reported() {
    let world = World::with_hosts(&[]).await;
    world.apply_machine_of("m-1", "pool", "v9").await;
    world.wait_idle().await;
    let status = world.machine("m-1").unwrap().status.unwrap();
    assert_eq!((status.failure_reason, status.failure_message), (None, None));
}

#[tokio::test(start_paused = true)]
async fn infra_machine_waits_for_cluster_infrastructure() {
    let world = World::with_hosts(&["host-1"]).await;
    world.set_infrastructure_provisioned("c1", false);
    world.apply_machine("m-1").await;
    let waiting = ("False".to_owned(), "ClusterInfrastructureWaiting".to_owned());
    let is_waiting =
        |world: &World| world.machine_condition("m-1", Type::Ready).is_some() && ready(world) == waiting;
    world.wait_until("it waits", is_waiting).await;
    world.wait_idle().await;
    assert!(world.inventory("host-1").unwrap().claim().is_none());
    world.set_infrastructure_provisioned("c1", true);
    world.wait_running("m-1").await;
    world.set_infrastructure_provisioned("c1", false);
    world.wait_idle().await;
    assert_eq!(world.phase("m-1"), Some(Phase::Running), "what is provisioned stays so");
}

#[tokio::test(start_paused = true)]
async fn infra_machine_waits_for_bootstrap_data() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_bare_machine("m-1", "pool", "v1").await;
    world.wait_for_reason("m-1", Type::BootstrapReady, Reason::BootstrapWaiting, "create it").await;
    world.apply_bootstrap("m-1", &scenarios::bootstrap_data()).await;
    world.wait_running("m-1").await;
}

#[tokio::test(start_paused = true)]
async fn infra_machine_pausing() {
    let world = World::with_hosts(&["host-1"]).await;
    let pause = |is: Value| json!({ "spec": { "paused": is } });
    world.patch("Cluster", "c1", pause(json!(true))).await;
    world.apply_machine("m-1").await;
    let is_paused =
        |world: &World| world.machine_condition("m-1", Type::Paused).is_some_and(|c| c.status == "True");
    world.wait_until("it is paused", is_paused).await;
    world.wait_idle().await;
    assert!(world.inventory("host-1").unwrap().claim().is_none());
    world.patch("Cluster", "c1", pause(json!(false))).await;
    world.wait_running("m-1").await;
    let annotate = |value: Value| json!({ "metadata": { "annotations": { annotation::PAUSED: value } } });
    world.patch("BaremetalMachine", "m-1", annotate(json!("true"))).await;
    world.wait_until("it is paused by annotation", is_paused).await;
}

/// The same hosts come back to a control plane or deployment whose pool says so.
#[tokio::test(start_paused = true)]
async fn pool_gives_former_hosts_back() {
    let world = World::with_hosts(&["host-1", "host-2"]).await;
    world.patch("MachineInventoryPool", "pool", json!({ "spec": { "nodeReuse": true } })).await;
    let own = json!({ "metadata": { "labels": { "cluster.x-k8s.io/deployment-name": "md" } } });
    let apply = async |machine: &str| {
        world.patch("Cluster", "c1", json!({ "spec": { "paused": true } })).await;
        world.apply_machine(machine).await;
        world.patch("Machine", machine, own.clone()).await;
        world.patch("Cluster", "c1", json!({ "spec": { "paused": false } })).await;
        world.wait_running(machine).await;
    };
    apply("m-1").await;
    apply("m-2").await;
    world.delete_machine("m-1").await;
    world.delete_machine("m-2").await;
    world.wait_released("m-2", "host-2").await;
    world.wait_released("m-1", "host-1").await;
    let other =
        json!({ "metadata": { "annotations": { annotation::NODE_REUSE_GROUP: "deployment/other" } } });
    world.patch("MachineInventory", "host-1", other).await;
    world.wait_idle().await;
    apply("m-3").await;
    let machine = world.machine("m-3").unwrap();
    assert_eq!(machine.spec.provider_id.as_deref(), Some("baremetal:///host-2"), "the first was another's");
}

// Templates

#[test]
fn infra_machine_template_and_cluster_template() {
    for (kind, spec) in [
        ("BaremetalMachineTemplate", "machineInventoryPoolRef"),
        ("BaremetalClusterTemplate", "controlPlaneLoadBalancer"),
    ] {
        let template = schema(kind, "spec/template");
        assert!(template["properties"]["spec"]["properties"][spec].is_object(), "{kind}");
        for field in ["labels", "annotations"] {
            assert!(template["properties"]["metadata"]["properties"][field].is_object(), "{kind}: {field}");
        }
    }
}

/// A rule in the schema cannot see the annotation of the dry run: a policy can.
#[test]
fn infra_templates_immutability_lets_dry_runs_pass() {
    for kind in ["BaremetalMachineTemplate", "BaremetalClusterTemplate"] {
        assert!(!schema(kind, "spec").to_string().contains("oldSelf"), "{kind}: a rule on changes");
    }
    let policies = documents(RIGHTS);
    let policy = policies.iter().find(|document| {
        document["kind"] == "ValidatingAdmissionPolicy"
            && document["metadata"]["name"] == "baremetal-templates"
    });
    let policy = policy.unwrap();
    let matched = &policy["spec"]["matchConstraints"]["resourceRules"][0]["resources"];
    assert_eq!(*matched, json!(["baremetalclustertemplates", "baremetalmachinetemplates"]));
    let expression = policy["spec"]["validations"][0]["expression"].as_str().unwrap();
    assert!(
        expression.contains("request.dryRun") && expression.contains("'topology.cluster.x-k8s.io/dry-run'")
    );
    let is_bound = |document: &&Value| {
        document["kind"] == "ValidatingAdmissionPolicyBinding"
            && document["spec"]["policyName"] == "baremetal-templates"
    };
    assert_eq!(policies.iter().filter(is_bound).count(), 1);
}

// clusterctl

#[test]
fn clusterctl_metadata_contract_is_that_of_the_definitions() {
    let metadata: Value = serde_norway::from_str(METADATA).unwrap();
    let version: Vec<u64> = env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse().unwrap()).collect();
    let series = metadata["releaseSeries"].as_array().unwrap();
    let current = series.iter().find(|series| series["major"] == version[0] && series["minor"] == version[1]);
    let contract = format!("cluster.x-k8s.io/{}", current.unwrap()["contract"].as_str().unwrap());
    for crd in infrastructure() {
        assert!(crd.metadata.labels.unwrap().contains_key(&contract), "{}", crd.spec.names.kind);
    }
}

#[test]
fn clusterctl_move_labels() {
    for crd in crds::all() {
        let labels = crd.metadata.labels.unwrap_or_default();
        for label in ["clusterctl.cluster.x-k8s.io", "clusterctl.cluster.x-k8s.io/move"] {
            assert!(labels.contains_key(label), "{}: {label}", crd.spec.names.kind);
        }
    }
}

/// A plan in flight holds the move of its host back.
#[tokio::test(start_paused = true)]
async fn clusterctl_block_move() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    let blocks = |world: &World| {
        let annotations = world.inventory("host-1").unwrap().metadata.annotations.unwrap_or_default();
        annotations.contains_key(annotation::BLOCK_MOVE)
    };
    world.wait_until("the move is held back", blocks).await;
    world.wait_running("m-1").await;
    world.patch("Cluster", "c1", json!({ "spec": { "paused": true } })).await;
    world.wait_until("the move may go on", |world| !blocks(world)).await;
}

#[test]
fn multi_tenancy_and_rights_of_the_managers() {
    let flags = <coordinator::config::Config as clap::CommandFactory>::command();
    for flag in ["namespace", "watch-filter"] {
        assert!(flags.get_arguments().any(|argument| argument.get_long() == Some(flag)), "{flag}");
    }
    let roles = documents(RIGHTS);
    let aggregated = roles
        .iter()
        .find(|role| role["metadata"]["labels"]["cluster.x-k8s.io/aggregate-to-manager"] == "true");
    let resources = aggregated.unwrap()["rules"][0]["resources"].clone();
    let listed: Vec<String> = serde_json::from_value(resources).unwrap();
    for crd in infrastructure().iter().filter(|crd| crd.spec.names.kind.starts_with("Baremetal")) {
        assert!(listed.contains(&crd.spec.names.plural), "{}", crd.spec.names.kind);
    }
}

#[tokio::test(start_paused = true)]
async fn infra_machine_template_autoscaling_from_zero() {
    let world = World::with_hosts(&["host-1", "host-2"]).await;
    world.apply_template("t-1", "pool").await;
    let template = |world: &World| {
        world.get_object("baremetalmachinetemplates.infrastructure.cluster.x-k8s.io", "t-1").unwrap()
    };
    let has_capacity = |world: &World| template(world)["status"]["capacity"]["cpu"].is_string();
    world.wait_until("the hosts have told their hardware", has_capacity).await;
    let status = template(&world)["status"].clone();
    let host = world.inventory("host-1").unwrap().status.unwrap().host.unwrap().hardware.unwrap();
    assert_eq!(status["capacity"]["memory"], host.memory_bytes.to_string());
    let kind = json!({ "architecture": "amd64", "operatingSystem": "linux" });
    if host.architecture == "x86_64" {
        assert_eq!(status["nodeInfo"], kind);
    }
    world.delete("MachineInventoryPool", "pool").await;
    world.wait_until("nothing is known without the pool", |world| !has_capacity(world)).await;
}
