//! The harness itself: the parts start, Cluster API answers, the workload cluster accepts hosts.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use control_plane::audit::Mark;
use control_plane::etcd::Key;
use control_plane::workload::Kubelet;
use control_plane::{ClusterApi, ControlPlane, Part, Parts, Settings, Workload, apply, kubeconfig};
use futures::StreamExt as _;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::{ApiResource, GroupVersionKind, WatchEvent};
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use common::eventually;

const GROUP: &str = "baremetal:coordinators";

async fn management() -> Result<&'static (ControlPlane, ClusterApi)> {
    static SHARED: OnceCell<(ControlPlane, ClusterApi)> = OnceCell::const_new();
    SHARED
        .get_or_try_init(|| async {
            let parts = Parts::from_environment()?;
            let control_plane = ControlPlane::start(&parts, &Settings::management()).await?;
            let mut cluster_api = ClusterApi::start(&parts, &control_plane).await?;
            cluster_api.start_kubeadm(&parts, &control_plane).await?;
            apply::objects(&control_plane.admin().await?, &infrastructure()?).await?;
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

/// The least that Cluster API takes for infrastructure.
fn infrastructure() -> Result<Vec<DynamicObject>> {
    let definition = |kind: &str| {
        let plural = format!("{}s", kind.to_lowercase());
        let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.infrastructure.cluster.x-k8s.io"),
                "labels": {"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta1"},
            },
            "spec": {
                "group": "infrastructure.cluster.x-k8s.io",
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural},
                "versions": [{
                    "name": "v1beta1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": anything},
                }],
            },
        })
    };
    let definitions = ["PlainCluster", "PlainMachine"].map(definition);
    Ok(definitions.map(serde_json::from_value).into_iter().collect::<Result<_, _>>()?)
}

fn clusters() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster"))
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
    let seen = (counts.writes, counts.refused_writes, counts.lists, counts.watches);
    assert_eq!(seen, (2, 1, 1, 0), "{counts:?}");
    assert_eq!(counts.of("create", "configmaps"), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubeadm_managers_default_and_validate() -> Result<()> {
    let (control_plane, _) = management().await?;
    let client = control_plane.admin().await?;
    let control_planes =
        GroupVersionKind::gvk("controlplane.cluster.x-k8s.io", "v1beta2", "KubeadmControlPlane");
    let configs = GroupVersionKind::gvk("bootstrap.cluster.x-k8s.io", "v1beta2", "KubeadmConfig");
    let manifest = "
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: answered, namespace: default}
spec:
  replicas: 2
  version: v1.36.3
  kubeadmConfigSpec: {format: cloud-config}
  machineTemplate:
    spec:
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: PlainMachineTemplate, name: answered}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfig
metadata: {name: answered, namespace: default}
spec:
  users: [{name: a, passwd: b, passwdFrom: {secret: {name: c, key: d}}}]
";
    let objects = apply::parse_manifest(manifest)?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    for (kind, object, cause) in [(control_planes, &objects[0], "replicas"), (configs, &objects[1], "passwd")]
    {
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&kind));
        let what = format!("a {} is refused", kind.kind);
        let message = eventually(&what, async || {
            Ok(api.create(&dry, object).await.err().map(|error| error.to_string()))
        })
        .await?;
        assert!(message.contains("admission webhook") && message.contains(cause), "{message}");
    }
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
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: PlainCluster, name: answered}
";
    let new: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &clusters());
    let topology = manifest.replace("spec:", "spec:\n  topology: {version: newest, classRef: {name: none}}");
    let refused = apply::parse_manifest(&topology)?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    // The server learns of a new webhook a moment after it was written.
    let message = eventually("a Cluster of an unknown version is refused", async || {
        Ok(new.create(&dry, &refused[0]).await.err().map(|error| error.to_string()))
    })
    .await?;
    assert!(message.contains("admission webhook"), "{message}");

    apply::manifest(&client, manifest).await?;

    let old = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta1", "Cluster");
    let old: Api<DynamicObject> = Api::namespaced_with(client, "default", &ApiResource::from_gvk(&old));
    let cluster = old.get("answered").await?;
    let reference = &cluster.data["spec"]["infrastructureRef"];
    assert_eq!(reference["kind"], "PlainCluster", "{reference}");

    eventually("the core manager takes care of the Cluster", async || {
        let cluster = new.get("answered").await?;
        Ok(cluster.data["status"]["phase"].as_str().map(str::to_owned))
    })
    .await?;
    new.delete("answered", &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn machine_finds_its_node() -> Result<()> {
    let (control_plane, _) = management().await?;
    let workload = workload_cluster().await?;
    let client = control_plane.admin().await?;
    let secret = workload.kubeconfig_secret("default", "joined")?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    secrets.create(&PostParams::default(), &secret).await?;
    workload.register_node(&Kubelet::of_worker("joined-0", "plain:///0")).await?;

    apply::manifest(
        &client,
        "
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: PlainCluster
metadata: {name: joined}
status: {ready: true, initialization: {provisioned: true}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: PlainMachine
metadata: {name: joined-0}
spec: {providerID: 'plain:///0'}
status: {ready: true, initialization: {provisioned: true}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: joined}
spec:
  controlPlaneEndpoint: {host: 127.0.0.1, port: 6443}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: PlainCluster, name: joined}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: joined-0}
spec:
  clusterName: joined
  bootstrap: {dataSecretName: data}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: PlainMachine, name: joined-0}
",
    )
    .await?;

    let machine = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine");
    let machines: Api<DynamicObject> =
        Api::namespaced_with(client, "default", &ApiResource::from_gvk(&machine));
    let node = eventually("the Machine has its nodeRef", async || {
        let machine = machines.get("joined-0").await?;
        Ok(machine.data["status"]["nodeRef"]["name"].as_str().map(str::to_owned))
    })
    .await?;
    assert_eq!(node, "joined-0");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn user_without_role_is_forbidden() -> Result<()> {
    let (control_plane, _) = management().await?;
    let coordinator = control_plane.client("coordinator", GROUP).await?;
    let secrets: Api<Secret> = Api::namespaced(coordinator, "default");
    let error = secrets.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 403), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_register_only_as_their_own_user() -> Result<()> {
    let workload = workload_cluster().await?;
    let labels = BTreeMap::from([("metal3.io/uuid".to_owned(), "u".to_owned())]);
    let kubelet = Kubelet { labels, ..Kubelet::of_worker("node-a", "baremetal:///a") };
    let node = workload.register_node(&kubelet).await?;
    let spec = node.spec.context("spec")?;
    assert_eq!(spec.provider_id.as_deref(), Some("baremetal:///a"));
    let nodes = workload.nodes().await?;
    assert!(nodes.iter().any(|node| node.metadata.name.as_deref() == Some("node-a")));

    let other = workload.control_plane().client("system:node:node-b", "system:nodes").await?;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(other);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"metal3.io/uuid": "stolen"}}}));
    let answer = nodes.patch("node-a", &PatchParams::default(), &patch).await;
    assert!(answer.is_err(), "node-b changed node-a");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn workload_cluster_has_join_configuration() -> Result<()> {
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

/// What a host does before its kubelet starts, by kubeadm itself: it reads and verifies cluster-info
/// at the address that it was given, and fetches its configuration with the token.
#[tokio::test(flavor = "multi_thread")]
async fn kubeadm_accepts_the_join_data() -> Result<()> {
    let parts = Parts::from_environment()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let workload = Workload::start(&parts, listener.local_addr()?, None).await?;
    let port = workload.control_plane().port();
    tokio::spawn(async move {
        while let Ok((mut guest, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
                copy_bidirectional(&mut guest, &mut server).await
            });
        }
    });

    let data: Value = serde_norway::from_str(&workload.join_config())?;
    let config = data["write_files"][0]["content"].as_str().context("no kubeadm config")?;
    // A name that resolves without a DNS server.
    let config = config.replace("nodeRegistration:", "nodeRegistration:\n  name: localhost");
    let path = workload.control_plane().directory().join("join.yaml");
    std::fs::write(&path, config)?;
    let output = tokio::process::Command::new(parts.path(Part::Kubeadm)?)
        .args(["join", "phase", "preflight", "--ignore-preflight-errors=all", "--config"])
        .arg(path)
        .output()
        .await?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let host = bootstrap_client(&workload, &data).await?;
    let certificate = bootstrap_certificate(&host, "joined").await?;
    assert!(certificate.starts_with(b"-----BEGIN CERTIFICATE-----"));
    Ok(())
}

async fn bootstrap_client(workload: &Workload, data: &Value) -> Result<kube::Client> {
    let config = data["write_files"][0]["content"].as_str().context("content")?;
    let config: Value = serde_norway::from_str(config)?;
    let token = &config["discovery"]["bootstrapToken"]["token"];
    let text = workload.control_plane().kubeconfig_text("x", "x")?;
    let mut kubeconfig: Value = serde_norway::from_str(&text)?;
    kubeconfig["users"][0]["user"] = json!({"token": token});
    Ok(kubeconfig::client(&kubeconfig.to_string()).await?)
}

/// Asks for a kubelet's certificate; the controllers approve and sign it.
async fn bootstrap_certificate(host: &kube::Client, node: &str) -> Result<Vec<u8>> {
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(rcgen::DnType::CommonName, format!("system:node:{node}"));
    let request = params.serialize_request(&key)?.pem()?;
    let requests: Api<CertificateSigningRequest> = Api::all(host.clone());
    let object = serde_json::from_value(json!({
        "metadata": {"name": node},
        "spec": {
            "request": STANDARD.encode(request),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    }))?;
    requests.create(&PostParams::default(), &object).await?;
    eventually("the kubelet's certificate is signed", async || {
        let status = requests.get(node).await?.status.unwrap_or_default();
        Ok(status.certificate.map(|certificate| certificate.0))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_control_plane_keeps_its_data() -> Result<()> {
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
    assert!(namespaces.get("kept").await.is_err(), "a killed API server answered");
    control_plane.restart_api_server().await?;
    namespaces.get("kept").await?;

    control_plane.restart_controllers().await?;
    control_plane.restart().await?;
    namespaces.get("kept").await?;
    eventually("the reads are in the log", async || {
        let users = control_plane.audit().users(Mark::default())?;
        let counts = users.get("admin").filter(|counts| counts.of("get", "namespaces") >= 2);
        Ok(counts.map(drop))
    })
    .await
}

#[tokio::test]
async fn objects_vanish_from_etcd_without_deletion_timestamp() -> Result<()> {
    let (control_plane, _) = management().await?;
    let maps: Api<ConfigMap> = Api::namespaced(control_plane.admin().await?, "default");
    let held = json!({"metadata": {"name": "vanishes", "finalizers": ["lab/held"]}});
    let created = maps.create(&PostParams::default(), &serde_json::from_value(held)?).await?;
    let version = created.metadata.resource_version.context("no resourceVersion")?;
    let mut events = Box::pin(maps.watch(&WatchParams::default(), &version).await?);
    let key = Key::new("configmaps", "default", "vanishes");
    ensure!(control_plane.take_out(std::slice::from_ref(&key)).await?.is_empty());
    let seen = timeout(Duration::from_mins(1), events.next()).await?.context("the watch ended")??;
    let WatchEvent::Deleted(map) = seen else { anyhow::bail!("the watch saw {seen:?}") };
    ensure!(map.metadata.name.as_deref() == Some("vanishes") && map.metadata.deletion_timestamp.is_none());
    ensure!(control_plane.take_out(std::slice::from_ref(&key)).await? == [key]);
    Ok(())
}
