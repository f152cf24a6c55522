//! What the manifests of the coordinator say in two places is the same in both.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use coordinator_api::names::IMAGE_CATALOG;
use serde::Deserialize as _;
use serde_json::{Value, json};

const RIGHTS: &str = include_str!("../../config/rbac.yaml");
const MANAGER: &str = include_str!("../../config/manager.yaml");

fn documents(text: &str) -> Vec<Value> {
    serde_norway::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap()).collect()
}

fn of_kind(text: &str, kind: &str) -> Value {
    documents(text).into_iter().find(|document| document["kind"] == kind).unwrap()
}

/// Every verb that the coordinator has on a resource.
fn verbs(resource: &str) -> Vec<String> {
    let roles = documents(RIGHTS).into_iter().filter(|document| {
        document["metadata"]["name"] == "baremetal-coordinator" && document["rules"].is_array()
    });
    let mut verbs: Vec<String> = roles
        .flat_map(|role| role["rules"].as_array().unwrap().clone())
        .filter(|rule| rule["resources"].as_array().unwrap().contains(&json!(resource)))
        .flat_map(|rule| rule["verbs"].as_array().unwrap().clone())
        .map(|verb| verb.as_str().unwrap().to_owned())
        .collect();
    verbs.sort();
    verbs
}

#[test]
fn the_coordinator_may_do_what_it_does_and_no_more() {
    for (resource, want) in [
        ("machineregistrations", "list patch watch"),
        ("seedimages", "list patch watch"),
        ("machineinventories", "create get list patch watch"),
        ("machineinventories/status", "patch"),
        ("machineregistrations/status", "patch"),
        ("seedimages/status", "patch"),
        ("baremetalclusters", "list patch watch"),
        ("baremetalmachines", "get list patch watch"),
        ("machineinventorypools", "get list watch"),
        ("baremetalclusters/status", "patch"),
        ("baremetalmachines/status", "patch"),
        ("machineinventorypools/status", "patch"),
        ("clusters", "list watch"),
        ("machines", "list watch"),
        ("secrets", "create get patch"),
        ("events", "create patch"),
        ("configmaps", "list watch"),
        ("leases", "create get list patch update watch"),
        // No owner reference of ours blocks a deletion.
        ("machineinventories/finalizers", ""),
        ("*", ""),
    ] {
        assert_eq!(verbs(resource).join(" "), want, "{resource}");
    }
}

#[test]
fn the_role_allows_the_catalog_that_the_deployment_names() {
    let (role, deployment) = (of_kind(RIGHTS, "Role"), of_kind(MANAGER, "Deployment"));
    assert_eq!(role["metadata"]["namespace"], deployment["metadata"]["namespace"]);
    let mut rules = role["rules"].as_array().unwrap().iter();
    let catalog = rules.find(|rule| rule["resources"][0] == "configmaps").unwrap();
    assert_eq!(catalog["resourceNames"], json!([IMAGE_CATALOG]));
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let named = container["env"].as_array().unwrap().iter().find(|env| env["name"] == "IMAGE_CATALOG");
    assert_eq!(named.unwrap()["value"], IMAGE_CATALOG);
}

#[test]
fn the_deployment_runs_two_replicas_of_manager() {
    let spec = of_kind(MANAGER, "Deployment")["spec"].clone();
    assert_eq!(spec["replicas"], 2);
    assert_eq!(spec["template"]["spec"]["containers"][0]["name"], "manager");
}
