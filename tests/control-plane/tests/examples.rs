//! `docs/examples/` against the real API server.

use std::error::Error as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use control_plane::parts::Provider;
use control_plane::{ControlPlane, Parts, Settings, apply};
use kube::Client;
use kube::api::DynamicObject;

fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read_manifests(directory: &Path) -> Result<Vec<(String, Vec<DynamicObject>)>> {
    let mut manifests = vec![];
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let objects = apply::parse_manifest(&fs::read_to_string(&path)?)?;
            manifests.push((path.display().to_string(), objects));
        }
    }
    manifests.sort_by(|(left, _), (right, _)| left.cmp(right));
    Ok(manifests)
}

fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| types.kind.as_str())
}

/// Our definitions, Cluster API's, and the namespace of the coordinator.
async fn install_definitions(client: &Client, parts: &Parts) -> Result<()> {
    for (file, definitions) in read_manifests(&checkout("coordinator/config/crd"))? {
        apply::objects(client, &definitions).await.context(file)?;
    }
    for provider in Provider::ALL {
        let components = fs::read_to_string(parts.cluster_api_components(provider)?)?;
        let mut components = apply::parse_manifest(&components)?;
        components.retain(|object| kind(object) == "CustomResourceDefinition");
        apply::objects(client, &components).await?;
    }
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: baremetal-system}}";
    apply::manifest(client, namespace).await?;
    Ok(())
}

async fn management() -> Result<(ControlPlane, Client)> {
    let parts = Parts::from_environment()?;
    let management = ControlPlane::start(&parts, &Settings::management()).await?;
    let client = management.admin().await?;
    install_definitions(&client, &parts).await?;
    Ok((management, client))
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_apply_strictly() -> Result<()> {
    let (_management, client) = management().await?;
    for (file, objects) in read_manifests(&checkout("docs/examples"))? {
        apply::objects_strictly(&client, &objects).await.context(file)?;
    }
    let unknown = apply::parse_manifest(
        "{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: MachineInventoryPool, metadata: {name: unknown}, spec: {clusterName: lab, machineInventories: [], members: 3}}",
    )?;
    let Err(error) = apply::objects_strictly(&client, &unknown).await else {
        anyhow::bail!("an unknown field was accepted");
    };
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    ensure!(cause.contains("members"), "{error}: {cause}");
    Ok(())
}
