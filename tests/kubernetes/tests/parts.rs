//! The harness itself: the parts start, Cluster API answers, the workload cluster takes hosts in.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kubernetes_parts::audit::Mark;
use kubernetes_parts::{ClusterApi, ControlPlane, Parts, Settings, Workload, apply};
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

const GROUP: &str = "baremetal:coordinators";

async fn management() -> Result<&'static (ControlPlane, ClusterApi)> {
    static SHARED: OnceCell<(ControlPlane, ClusterApi)> = OnceCell::const_new();
    SHARED
        .get_or_try_init(|| async {
            let parts = Parts::from_environment()?;
            let control_plane = ControlPlane::start(&parts, &Settings::management()).await?;
            let cluster_api = ClusterApi::start(&parts, &control_plane).await?;
            Ok((control_plane, cluster_api))
        })
        .await
}

async fn workload_cluster() -> Result<&'static Workload> {
    static SHARED: OnceCell<Workload> = OnceCell::const_new();
    SHARED
        .get_or_try_init(|| async {
            let parts = Parts::from_environment()?;
            let endpoint = "10.0.2.100:6443".parse()?;
            Ok(Workload::start(&parts, endpoint, None).await?)
        })
        .await
}

fn clusters() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(
        "cluster.x-k8s.io",
        "v1beta2",
        "Cluster",
    ))
}

async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    timeout(Duration::from_mins(1), async {
        loop {
            if let Some(found) = check().await? {
                return Ok(found);
            }
            sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .with_context(|| format!("waited 60 s until {what}"))?
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_for_each_user() -> Result<()> {
    let (control_plane, _) = management().await?;
    let counted = control_plane.client("counted", "system:masters").await?;
    let maps: Api<ConfigMap> = Api::namespaced(counted, "default");
    let mark = control_plane.audit().mark()?;

    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "counted"}}))?;
    maps.create(&PostParams::default(), &map).await?;
    ensure!(maps.create(&PostParams::default(), &map).await.is_err());
    maps.list(&ListParams::default()).await?;
    maps.delete("counted", &DeleteParams::default()).await?;

    let counts = eventually("all four requests are in the log", async || {
        let counts = control_plane.audit().counts("counted", mark)?;
        Ok((counts.requests == 4).then_some(counts))
    })
    .await?;
    let seen = (
        counts.writes,
        counts.refused_writes,
        counts.lists,
        counts.watches,
    );
    assert_eq!(seen, (2, 1, 1, 0), "{counts:?}");
    assert_eq!(counts.of("create", "configmaps"), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_api_defaults_validates_and_converts() -> Result<()> {
    let (control_plane, _) = management().await?;
    let client = control_plane.admin().await?;
    let manifest = "
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: answered, namespace: default}
spec:
  controlPlaneEndpoint: {host: 127.0.0.1, port: 6443}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: BaremetalCluster, name: answered}
";
    // The server learns of a new webhook a moment after it was written.
    eventually("an invalid Cluster is refused by its webhook", async || {
        let invalid = manifest.replace("name: answered, namespace", "name: 1.2.3, namespace");
        let answer = apply::manifest(&client, &invalid).await;
        if answer.is_ok() {
            let api: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), "default", &clusters());
            api.delete("1.2.3", &DeleteParams::default()).await?;
        }
        Ok(answer.err())
    })
    .await?;

    apply::manifest(&client, manifest).await?;

    let old = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta1", "Cluster");
    let old: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&old));
    let cluster = old.get("answered").await?;
    let reference = &cluster.data["spec"]["infrastructureRef"];
    assert_eq!(reference["kind"], "BaremetalCluster", "{reference}");

    let new: Api<DynamicObject> = Api::namespaced_with(client, "default", &clusters());
    eventually("the core manager takes care of the Cluster", async || {
        let cluster = new.get("answered").await?;
        Ok(cluster.data["status"]["phase"].as_str().map(str::to_owned))
    })
    .await?;
    new.delete("answered", &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_may_do_nothing_until_a_role_says_so() -> Result<()> {
    let (control_plane, _) = management().await?;
    let coordinator = control_plane.client("coordinator", GROUP).await?;
    let secrets: Api<Secret> = Api::namespaced(coordinator, "default");
    let error = secrets.list(&ListParams::default()).await.unwrap_err();
    assert!(
        matches!(&error, kube::Error::Api(status) if status.code == 403),
        "{error}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workload_cluster_takes_a_node_as_its_own_user_and_no_other() -> Result<()> {
    let workload = workload_cluster().await?;
    let labels = BTreeMap::from([("metal3.io/uuid".to_owned(), "u".to_owned())]);
    let node = workload
        .register_node("node-a", "baremetal:///a", &labels)
        .await?;
    let spec = node.spec.context("spec")?;
    assert_eq!(spec.provider_id.as_deref(), Some("baremetal:///a"));
    let names: Vec<_> = workload.nodes().await?;
    assert_eq!(names.len(), 1);

    let other = workload
        .control_plane()
        .client("system:node:node-b", "system:nodes")
        .await?;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(other);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"metal3.io/uuid": "stolen"}}}));
    let answer = nodes.patch("node-a", &PatchParams::default(), &patch).await;
    assert!(answer.is_err(), "node-b changed node-a");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workload_cluster_holds_what_a_joining_host_reads() -> Result<()> {
    let workload = workload_cluster().await?;
    let admin = workload.control_plane().admin().await?;
    let public: Api<ConfigMap> = Api::namespaced(admin.clone(), "kube-public");
    let info = eventually("cluster-info is signed for the token", async || {
        let data = public.get("cluster-info").await?.data.unwrap_or_default();
        let signed = data.keys().any(|key| key.starts_with("jws-kubeconfig-"));
        Ok(signed.then_some(data))
    })
    .await?;
    assert!(info["kubeconfig"].contains("server: https://10.0.2.100:6443"));

    let system: Api<ConfigMap> = Api::namespaced(admin, "kube-system");
    let kubelet = system.get("kubelet-config").await?.data.unwrap_or_default();
    assert!(kubelet["kubelet"].contains("clientCAFile: /etc/kubernetes/pki/ca.crt"));
    let kubeadm = system.get("kubeadm-config").await?.data.unwrap_or_default();
    assert!(kubeadm["ClusterConfiguration"].contains("certificatesDir: /etc/kubernetes/pki\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_plane_comes_back_with_its_data() -> Result<()> {
    let parts = Parts::from_environment()?;
    let control_plane = ControlPlane::start(&parts, &Settings::management()).await?;
    let namespaces: Api<Namespace> = Api::all(control_plane.admin().await?);
    let kept: Namespace = serde_json::from_value(json!({"metadata": {"name": "kept"}}))?;
    namespaces.create(&PostParams::default(), &kept).await?;

    control_plane.pause_api_server()?;
    let hanging = timeout(Duration::from_millis(500), namespaces.get("kept")).await;
    assert!(hanging.is_err(), "a stopped API server answered");
    control_plane.resume_api_server()?;
    namespaces.get("kept").await?;

    control_plane.kill_api_server();
    assert!(
        namespaces.get("kept").await.is_err(),
        "a killed API server answered"
    );
    control_plane.restart_api_server().await?;
    namespaces.get("kept").await?;

    control_plane.restart().await?;
    namespaces.get("kept").await?;
    let users = control_plane.audit().users(Mark::default())?;
    assert!(users["admin"].of("get", "namespaces") >= 2);
    Ok(())
}
