//! The provider by the real `clusterctl`: installed, used for clusters of every flavor, upgraded, and
//! deleted.

use anyhow::{Context as _, Result, ensure};
use bundle::components::Sources;
use control_plane::{ClusterApi, Clusterctl, ControlPlane, Parts, Settings, apply};
use coordinator_api::names::{label, plan_secret, registration_secret};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionSpec,
};
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::pinned_kind;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::SERVERS;
use crate::common::eventually;

const LABEL: &str = "infrastructure-baremetal";
const VERSIONS: [&str; 2] = ["v0.1.0", "v0.1.99"];
const URL: &str = "https://baremetal.example:8443";
const HOST: &str = "api.lab.example";
const NAMESPACE: &str = "baremetal-system";
/// Another one for the same objects.
const OTHER: &str = "other";
const POLICY: &str = "baremetal-coordinator-secrets";

fn dynamic(
    client: &Client,
    namespace: &str,
    (group, version, kind): (&str, &str, &str),
) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, version, kind);
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

/// What `clusterctl` stored of a version, and whether its pods would be admitted.
async fn check_installed(client: &Client, version: &str, metal3: &str) -> Result<()> {
    let providers = dynamic(client, NAMESPACE, ("clusterctl.cluster.x-k8s.io", "v1alpha3", "Provider"));
    let provider = providers.get(LABEL).await?;
    ensure!(provider.data["version"] == version, "{:?}", provider.data);

    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let deployment = deployments.get("baremetal-coordinator").await?;
    ensure!(deployment.labels()["cluster.x-k8s.io/provider"] == LABEL);
    let spec = deployment.spec.context("no spec")?;
    let template = spec.template.spec.context("no pod")?;
    let container = &template.containers[0];
    assert_eq!((spec.replicas, container.name.as_str()), (Some(2), "manager"));
    let flags = [format!("--server-url={URL}"), format!("--metal3={metal3}")];
    assert_eq!(container.args.as_deref(), Some(&flags[..]));
    for container in &template.containers {
        assert_eq!(container.image.as_deref(), Some(bundle::IMAGE));
    }

    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let mut pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "one" }, "spec": template }))?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    pods.create(&dry, &pod).await.context("the pod is not admitted under the profile restricted")?;
    if let Some(pod) = &mut pod.spec {
        pod.host_network = Some(true);
    }
    ensure!(pods.create(&dry, &pod).await.is_err(), "the namespace does not restrict its pods");
    check_definitions(client).await
}

/// The text of the definitions is that of their sources, whatever looks like a variable in it.
async fn check_definitions(client: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for want in coordinator_api::crds::all() {
        let found = api.get(&want.name_any()).await?;
        for (key, value) in want.labels() {
            ensure!(found.labels().get(key) == Some(value), "{}: {key}", want.name_any());
        }
        let schemas = |definition: &CustomResourceDefinition| json!(definition.spec.versions[0].schema);
        ensure!(schemas(&found) == schemas(&want), "{} is changed", want.name_any());
    }
    Ok(())
}

async fn generate(clusterctl: &Clusterctl, name: &str, flavor: &str) -> Result<Vec<DynamicObject>> {
    let mut arguments = vec!["generate", "cluster", name, "--infrastructure", "baremetal"];
    arguments.extend(["--kubernetes-version", "v1.36.3", "--target-namespace", "default"]);
    arguments.extend(["--control-plane-machine-count", "3", "--worker-machine-count", "2"]);
    if !flavor.is_empty() {
        arguments.extend(["--flavor", flavor]);
    }
    Ok(apply::parse_manifest(&clusterctl.render(&arguments).await?)?)
}

/// What `clusterctl` created is served a moment later.
async fn await_served(client: &Client, definitions: Vec<CustomResourceDefinition>) -> Result<()> {
    for definition in definitions {
        let CustomResourceDefinitionSpec { group, names, versions, .. } = definition.spec;
        let kind = GroupVersionKind::gvk(&group, &versions[0].name, &names.kind);
        eventually(&format!("{} is served", names.kind), async || {
            Ok(pinned_kind(client, &kind).await.ok().map(drop))
        })
        .await?;
    }
    Ok(())
}

/// Every field is known, and every webhook and policy agrees.
async fn check_flavor(
    client: &Client,
    clusterctl: &Clusterctl,
    flavor: &str,
    infrastructure: &str,
) -> Result<()> {
    let objects = generate(clusterctl, "lab", flavor).await?;
    apply::try_objects_strictly(client, &objects).await.with_context(|| format!("flavor {flavor:?}"))?;
    let kind = |object: &DynamicObject| object.types.clone().unwrap_or_default().kind;
    let cluster = objects.iter().find(|object| kind(object) == "Cluster").context("no Cluster")?;
    assert_eq!(cluster.data["spec"]["infrastructureRef"]["kind"], infrastructure, "{flavor}");
    let pools: Vec<&Value> = objects
        .iter()
        .filter(|object| kind(object) == "MachineInventoryPool")
        .map(|pool| &pool.data["spec"]["machineInventories"])
        .collect();
    if infrastructure == "BaremetalCluster" {
        assert_eq!(pools, [&json!([{ "name": "rack-1-u7" }]), &json!([])], "{flavor}");
    }
    Ok(())
}

/// Cluster API makes the objects of a `ClusterClass`: the endpoint and the pools are those of the cluster.
async fn check_topology(client: &Client, clusterctl: &Clusterctl) -> Result<()> {
    let objects = generate(clusterctl, "classy", "clusterclass").await?;
    apply::objects_strictly(client, &objects).await.context("the ClusterClass")?;
    let ours = |kind| dynamic(client, "default", ("infrastructure.cluster.x-k8s.io", "v1beta1", kind));
    let owned = ListParams::default().labels("cluster.x-k8s.io/cluster-name=classy");
    let list = async |kind| anyhow::Ok(ours(kind).list(&owned).await?.items);
    let cluster = eventually("the topology has a BaremetalCluster", async || {
        Ok(list("BaremetalCluster").await?.into_iter().next())
    })
    .await?;
    let want = json!({ "type": "External", "host": HOST, "port": 6443 });
    assert_eq!(cluster.data["spec"]["controlPlaneLoadBalancer"], want);
    let pools = eventually("both machine templates are cloned", async || {
        let templates = list("BaremetalMachineTemplate").await?;
        let pool = |template: &DynamicObject| {
            let reference = &template.data["spec"]["template"]["spec"]["machineInventoryPoolRef"]["name"];
            reference.as_str().unwrap_or_default().to_owned()
        };
        let mut pools: Vec<String> = templates.iter().map(pool).collect();
        pools.sort();
        Ok((pools.len() == 2).then_some(pools))
    })
    .await?;
    assert_eq!(pools, ["classy-control-plane", "classy-workers"]);
    Ok(())
}

/// Definitions with objects are never deleted.
async fn delete_provider(client: &Client, clusterctl: &Clusterctl) -> Result<()> {
    let delete = ["delete", "--infrastructure", "baremetal", "--include-crd"];
    let refusal = clusterctl.run(&delete).await.unwrap_err().to_string();
    ensure!(refusal.contains("found existing objects"), "{refusal}");
    clusterctl.run(&delete[..3]).await?;
    let ours = ListParams::default().labels(&format!("cluster.x-k8s.io/provider={LABEL}"));
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    eventually("the Deployment is gone", async || {
        Ok(deployments.list(&ours).await?.items.is_empty().then_some(()))
    })
    .await?;
    check_definitions(client).await
}

/// The policies limit the account in any namespace: `clusterctl` changes namespaces in fields, and none in
/// expressions.
async fn check_other_namespace(
    management: &ControlPlane,
    clusterctl: &Clusterctl,
    init: &[&str],
) -> Result<()> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(management.admin().await?);
    eventually("the former policies are gone", async || {
        Ok(policies.get_opt(POLICY).await?.is_none().then_some(()))
    })
    .await?;
    clusterctl.run(&[init, &["--target-namespace", OTHER]].concat()).await?;
    let client = management.service_account(OTHER, "baremetal-coordinator").await?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let create = async |namespace: &str, name: &str, kind: &str| {
        let labels = json!({ label::MANAGED: "true" });
        let metadata = json!({ "name": name, "labels": labels });
        let secret: Secret =
            serde_json::from_value(json!({ "metadata": metadata, "type": kind, "immutable": true }))?;
        match Api::namespaced(client.clone(), namespace).create(&dry, &secret).await {
            Ok(_) => anyhow::Ok((201, String::new())),
            Err(kube::Error::Api(status)) => Ok((status.code, status.message)),
            Err(error) => Err(error.into()),
        }
    };
    let message = eventually("a policy refuses another type", async || {
        let (code, message) = create("default", "one", "Opaque").await?;
        Ok((code == 422).then_some(message))
    })
    .await?;
    let want = "the coordinator creates Secrets with plans, with registration tokens, with rendered data, and its CA only";
    ensure!(message.contains(POLICY) && message.contains(want), "{message}");
    let authority = "baremetal-coordinator-ca";
    for (namespace, name, kind, want) in [
        ("default", "one", plan_secret::TYPE, 201),
        ("default", "one-registration-token", registration_secret::TYPE, 201),
        (OTHER, authority, "Opaque", 201),
        ("default", authority, "Opaque", 422),
        (OTHER, "one", "Opaque", 422),
    ] {
        let (code, message) = create(namespace, name, kind).await?;
        ensure!(code == want, "{namespace}/{name} of type {kind}: {code} {message}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn clusterctl_installs_upgrades_and_deletes() -> Result<()> {
    let parts = Parts::from_environment()?;
    let _turn = SERVERS.lock().await;
    let management = ControlPlane::start(&parts, &Settings::management()).await?;
    let mut cluster_api = ClusterApi::start(&parts, &management).await?;
    cluster_api.start_kubeadm(&parts, &management).await?;
    let client = management.admin().await?;
    let mut clusterctl = Clusterctl::prepare(&parts, &management, &cluster_api).await?;
    let release = Sources::of_checkout().repository()?;
    for version in VERSIONS {
        clusterctl.add_release(LABEL, version, &release)?;
    }
    clusterctl.configure("infrastructure-components.yaml")?;

    let first = format!("baremetal:{}", VERSIONS[0]);
    let init = ["init", "--infrastructure", &first];
    let error = clusterctl.run(&init).await.unwrap_err().to_string();
    ensure!(error.contains("BAREMETAL_SERVER_URL"), "{error}");
    clusterctl.set_variable("BAREMETAL_SERVER_URL", URL);
    clusterctl.run(&init).await?;
    check_installed(&client, VERSIONS[0], "off").await?;
    await_served(&client, coordinator_api::crds::all()).await?;

    for (name, value) in [
        ("CONTROL_PLANE_ENDPOINT_HOST", HOST),
        ("CONTROL_PLANE_VIP", "192.0.2.100"),
        ("CONTROL_PLANE_HOSTS", "[{name: rack-1-u7}]"),
        ("METAL3_IMAGE", "oci://registry.example/os/node:v1.36.3"),
    ] {
        clusterctl.set_variable(name, value);
    }
    check_flavor(&client, &clusterctl, "", "BaremetalCluster").await?;
    check_flavor(&client, &clusterctl, "vip", "BaremetalCluster").await?;
    check_topology(&client, &clusterctl).await?;

    let plan = clusterctl.run(&["upgrade", "plan"]).await?;
    ensure!(plan.contains(VERSIONS[1]), "{plan}");
    clusterctl.configure("infrastructure-components-metal3.yaml")?;
    let next = format!("baremetal:{}", VERSIONS[1]);
    clusterctl.run(&["upgrade", "apply", "--infrastructure", &next]).await?;
    check_installed(&client, VERSIONS[1], "full").await?;
    await_served(&client, coordinator_api::metal3::crds()).await?;
    check_flavor(&client, &clusterctl, "metal3", "Metal3Cluster").await?;
    delete_provider(&client, &clusterctl).await?;
    check_other_namespace(&management, &clusterctl, &["init", "--infrastructure", &next]).await
}
