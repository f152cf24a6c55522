//! A definition gets a second version, and loses the first one, by the commands of docs/upgrade.md.

use std::fs;

use anyhow::{Result, ensure};
use contract::documents::{Reader, STORAGE, checkout};
use control_plane::{ControlPlane, Part, Parts, Settings, Shell, apply};
use coordinator_api::inventory::MachineInventory;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::SERVERS;
use crate::common::eventually;

const NAME: &str = "machineinventories.elemental.cattle.io";

type Versions = Vec<CustomResourceDefinitionVersion>;

/// The definition, with its versions changed by `change`, once the API server serves it so.
async fn change_versions(client: &Client, change: impl Fn(&mut Versions)) -> Result<Vec<String>> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut definition = definitions.get(NAME).await?;
    change(&mut definition.spec.versions);
    let changed = definitions.replace(NAME, &PostParams::default(), &definition).await?;
    Ok(changed.status.and_then(|status| status.stored_versions).unwrap_or_default())
}

/// Both have one schema, as after a change that a conversion webhook carries.
fn add_second(versions: &mut Versions) {
    let second = CustomResourceDefinitionVersion { name: "v1beta2".to_owned(), ..versions[0].clone() };
    versions[0].storage = false;
    versions.push(second);
}

fn remove_first(versions: &mut Versions) {
    versions.retain(|version| version.name != "v1beta1");
}

async fn read(client: &Client, name: &str) -> kube::Result<DynamicObject> {
    let kind = GroupVersionKind::gvk("elemental.cattle.io", "v1beta2", "MachineInventory");
    let resource = ApiResource::from_gvk_with_plural(&kind, "machineinventories");
    Api::<DynamicObject>::namespaced_with(client.clone(), "default", &resource).get(name).await
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_move_to_a_second_stored_version() -> Result<()> {
    let parts = Parts::from_environment()?;
    let _turn = SERVERS.lock().await;
    let management = ControlPlane::start(&parts, &Settings::management()).await?;
    let client = management.admin().await?;
    let file = checkout(&format!("coordinator/config/crd/{NAME}.yaml"));
    apply::manifest(&client, &fs::read_to_string(file)?).await?;
    let inventories: Api<MachineInventory> = Api::namespaced(client.clone(), "default");
    let spec = json!({ "metadata": { "name": "rack-1-u7", "labels": { "rack": "1" } }, "spec": {} });
    let made = inventories.create(&PostParams::default(), &serde_json::from_value(spec)?).await?;

    assert_eq!(change_versions(&client, add_second).await?, ["v1beta1", "v1beta2"]);
    eventually("the second version is served", async || Ok(read(&client, "rack-1-u7").await.ok())).await?;
    let refused = change_versions(&client, remove_first).await.map_err(|error| error.to_string());
    ensure!(refused.as_ref().is_err_and(|error| error.contains("storedVersions")), "{refused:?}");
    let shell = Shell::new(management.admin_kubeconfig())?;
    shell.add_program("kubectl", &parts.path(Part::Kubectl)?)?;
    let mut reader = Reader::of(STORAGE);
    for block in reader.read("docs/upgrade.md", "Versions of the definitions")? {
        shell.run(&block.content).await?;
    }
    reader.finish()?;
    assert_eq!(change_versions(&client, remove_first).await?, ["v1beta2"]);

    // One that is stored in a version that is gone cannot be read; the caches begin again.
    management.kill_api_server();
    management.restart_api_server().await?;
    let moved = read(&client, "rack-1-u7").await?;
    assert_eq!((moved.uid(), &moved.labels()["rack"]), (made.uid(), &"1".to_owned()));
    ensure!(moved.resource_version() != made.resource_version(), "it was not written again");
    Ok(())
}
