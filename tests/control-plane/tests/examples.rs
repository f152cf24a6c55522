//! `docs/examples/` against the real API server.

use std::error::Error as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use contract::documents::checkout;
use control_plane::parts::{Module, Part};
use control_plane::{ClusterApi, ControlPlane, Parts, Settings, apply};
use kube::Client;
use kube::api::DynamicObject;

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

/// Our definitions, the namespace of the coordinator, and Cluster API's managers: their webhooks
/// judge what is applied.
async fn management() -> Result<(ControlPlane, ClusterApi, Client)> {
    let parts = Parts::from_environment()?;
    let management = ControlPlane::start(&parts, &Settings::management()).await?;
    let client = management.admin().await?;
    for (file, definitions) in read_manifests(&checkout("coordinator/config/crd"))? {
        apply::objects(&client, &definitions).await.context(file)?;
    }
    let rights = fs::read_to_string(checkout("coordinator/config/rbac.yaml"))?;
    apply::manifest(&client, &rights).await?;
    let mut cluster_api = ClusterApi::start(&parts, &management).await?;
    cluster_api.start_kubeadm(&parts, &management).await?;
    Ok((management, cluster_api, client))
}

/// What `make e2e` makes of the examples, in a namespace of its own.
fn render_variant(name: &str) -> Result<Vec<DynamicObject>> {
    let kubectl = Parts::from_environment()?.path(Part::Kubectl)?;
    let directory = checkout("tests/e2e/manifests/hosts").join(name);
    let output = Command::new(kubectl)
        .args(["kustomize", "--load-restrictor=LoadRestrictionsNone"])
        .arg(directory)
        .output()
        .context("run kubectl")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rendered = String::from_utf8(output.stdout)?
        .replace("namespace: default", &format!("namespace: {name}"))
        .replace("@RELEASE@", Module::Kubernetes.version())
        .replace("@BASE@", "oci:127.0.0.1:5000/os:1")
        .replace("@DEVICE@", "/dev/vda");
    ensure!(!rendered.contains('@'), "a value is missing: {rendered}");
    Ok(apply::parse_manifest(&rendered)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_apply_strictly() -> Result<()> {
    let (_management, _cluster_api, client) = management().await?;
    for (file, objects) in read_manifests(&checkout("docs/examples"))? {
        apply::objects_strictly(&client, &objects).await.context(file)?;
    }
    for variant in ["registration", "cluster", "internal"] {
        let namespace = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {variant}}}}}");
        apply::manifest(&client, &namespace).await?;
        apply::objects_strictly(&client, &render_variant(variant)?).await.context(variant)?;
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
