//! The rules for what a provider installs: definitions, rights, metadata.

use coordinator_api::crds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize as _;
use serde_json::{Value, json};

const RIGHTS: &str = include_str!("../../../../coordinator/config/rbac.yaml");
const METADATA: &str = include_str!("../../../../coordinator/config/metadata.yaml");

fn infrastructure() -> Vec<CustomResourceDefinition> {
    let mut kinds = crds::all();
    kinds.retain(|crd| crd.spec.group == "infrastructure.cluster.x-k8s.io");
    kinds
}

pub(crate) fn schema(kind: &str, path: &str) -> Value {
    let crd = infrastructure().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = json!(crd.spec.versions[0].schema);
    let place = format!("/openAPIV3Schema/properties/{}", path.replace('/', "/properties/"));
    schema.pointer(&place).cloned().unwrap_or_else(|| panic!("{kind} has no {path}"))
}

fn documents(text: &str) -> Vec<Value> {
    serde_norway::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap()).collect()
}

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

#[test]
fn infra_cluster_terminal_failures_are_not_reported() {
    let status = schema("BaremetalCluster", "status");
    assert!(
        status["properties"]["failureReason"].is_null() && status["properties"]["failureMessage"].is_null()
    );
}

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
