//! What `kubectl get` prints of our kinds, by the tables of the real API server, fits
//! into 120 columns.

use std::fmt::Write as _;

use control_plane::parts::Parts;
use control_plane::{ControlPlane, Settings, apply};
use coordinator_api::{crds, metal3};
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::Value;

/// One object of each kind, with names and statuses as sites have them.
const OBJECTS: &str = include_str!("tables/objects.yaml");
const COLUMNS: usize = 120;
/// Between columns, as kubectl has it.
const GAP: usize = 3;
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

async fn create(client: &Client, manifest: &str) -> ApiResource {
    let object: DynamicObject = serde_norway::from_str(manifest).unwrap();
    let types = object.types.clone().unwrap();
    apply::manifest(client, manifest).await.unwrap_or_else(|error| panic!("{error:?}: {manifest}"));
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
    let plural = match types.kind.as_str() {
        "MachineInventory" => "machineinventories".to_owned(),
        _ => resource.plural.clone(),
    };
    let resource = ApiResource { plural, ..resource };
    if !object.data["status"].is_null() {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
        let name = object.metadata.name.clone().unwrap();
        let status = Patch::Merge(serde_json::json!({ "status": object.data["status"] }));
        api.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
    }
    resource
}

/// The default columns, as kubectl prints them.
fn print_table(table: &Value) -> String {
    let definitions = table["columnDefinitions"].as_array().unwrap();
    let shown: Vec<usize> =
        (0..definitions.len()).filter(|index| definitions[*index]["priority"] == 0).collect();
    let text = |value: &Value| match value {
        Value::Null => "<none>".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let header = shown.iter().map(|index| text(&definitions[*index]["name"]).to_uppercase());
    let mut lines = vec![header.collect::<Vec<_>>()];
    for row in table["rows"].as_array().unwrap() {
        lines.push(shown.iter().map(|index| text(&row["cells"][*index])).collect());
    }
    let width = |index: usize| lines.iter().map(|line| line[index].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..shown.len()).map(width).collect();
    let mut printed = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let _ = writeln!(printed, "{}", cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end());
    }
    printed
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_all_kinds_fit_into_a_terminal() {
    let parts = Parts::from_environment().unwrap();
    let management = ControlPlane::start(&parts, &Settings::management()).await.unwrap();
    let client = management.admin().await.unwrap();
    let definitions: Vec<_> = crds::all().into_iter().chain(metal3::crds()).collect();
    for crd in &definitions {
        apply::manifest(&client, &crds::yaml(crd).unwrap()).await.unwrap();
    }
    let mut kinds = vec![];
    for manifest in OBJECTS.split("---\n").filter(|manifest| manifest.contains("kind:")) {
        let resource = create(&client, manifest).await;
        let path = format!("/apis/{}/namespaces/default/{}", resource.api_version, resource.plural);
        let request = http::Request::get(path).header("Accept", TABLE).body(vec![]).unwrap();
        let table: Value = client.request(request).await.unwrap();
        let printed = print_table(&table);
        let widest = printed.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= COLUMNS, "{widest} columns:\n{printed}");
        assert!(printed.contains("NAME"), "{printed}");
        println!("{printed}");
        kinds.push(resource.kind);
    }
    for crd in &definitions {
        let kind = &crd.spec.names.kind;
        let has_columns = crd.spec.versions[0].additional_printer_columns.is_some();
        assert!(!has_columns || kinds.contains(kind), "no object of {kind}");
    }
}
