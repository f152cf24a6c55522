//! The Helm chart by the real Helm, compared with the manifests that `clusterctl` installs.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use bundle::components::{Metal3, Sources};
use control_plane::{ControlPlane, Definitions, Part, Parts, Settings, apply};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::SERVERS;

const URL: &str = "https://coordinator.example:8443";
const NAMESPACE: &str = "baremetal-system";

struct Chart {
    helm: PathBuf,
    directory: tempfile::TempDir,
}

impl Chart {
    fn write() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        for (name, text) in Sources::of_checkout().chart()? {
            let path = directory.path().join("chart").join(name);
            fs::create_dir_all(path.parent().context("no parent")?)?;
            fs::write(path, text)?;
        }
        Ok(Self { helm: Parts::from_environment()?.path(Part::Helm)?, directory })
    }

    async fn run(&self, arguments: &[&str], values: &Value) -> Result<String> {
        let file = self.directory.path().join("values.yaml");
        fs::write(&file, values.to_string())?;
        let home = self.directory.path();
        let mut command = Command::new(&self.helm);
        command.args(arguments).arg("--values").arg(&file).env_clear().env("HOME", home);
        let output = command.output().await?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    async fn render(&self, namespace: &str, values: &Value) -> Result<Vec<DynamicObject>> {
        let path = self.path();
        let arguments = ["template", "baremetal", &path, "--namespace", namespace];
        Ok(apply::parse_manifest(&self.run(&arguments, values).await?)?)
    }

    fn path(&self) -> String {
        self.directory.path().join("chart").display().to_string()
    }
}

/// By kind and name; what is of Helm alone is left out.
fn index(objects: Vec<DynamicObject>) -> BTreeMap<(String, String), Value> {
    let mut index = BTreeMap::new();
    for mut object in objects {
        let kind = object.types.clone().unwrap_or_default().kind;
        if kind == "Namespace" || kind == "ConfigMap" {
            continue;
        }
        if kind == "CustomResourceDefinition" {
            object.metadata.annotations = None;
        }
        index.insert((kind, object.name_any()), json!(object));
    }
    index
}

fn catalog(objects: &[DynamicObject]) -> Option<&Value> {
    let is_catalog = |object: &&DynamicObject| object.name_any() == "elemental-image-catalog";
    objects.iter().find(is_catalog).map(|object| &object.data["data"])
}

#[tokio::test]
async fn chart_renders_the_plain_manifests() -> Result<()> {
    let chart = Chart::write()?;
    let image = json!({ "tag": "latest" });
    for (mode, metal3) in [("off", Metal3::Off), ("full", Metal3::Full)] {
        let values = json!({ "serverURL": URL, "watch": { "allNamespaces": true }, "image": image, "metal3": { "mode": mode } });
        let mut rendered = index(chart.render(NAMESPACE, &values).await?);
        let plain = Sources::of_checkout().objects(metal3)?;
        let plain =
            plain.into_iter().map(serde_norway::from_value).collect::<Result<Vec<DynamicObject>, _>>()?;
        let plain = index(plain);
        let names: Vec<_> = plain.keys().collect();
        assert_eq!(rendered.keys().collect::<Vec<_>>(), names);
        // The plain manifests have the flag's default.
        let place = "/spec/template/spec/containers/0/args/1";
        let deployment = ("Deployment".to_owned(), "baremetal-coordinator".to_owned());
        let flag =
            rendered.get_mut(&deployment).and_then(|found| found.pointer_mut(place)).context("no flag")?;
        assert_eq!(flag.take(), format!("--metal3={mode}"));
        *flag = json!("--metal3=off");
        for (key, want) in &plain {
            assert_eq!(&rendered[key], want, "{key:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn chart_passes_lint_and_its_schema_refuses_mistakes() -> Result<()> {
    let chart = Chart::write()?;
    let path = chart.path();
    let lint = ["lint", &path, "--strict"];
    let said = chart.run(&lint, &json!({ "serverURL": URL, "watch": { "allNamespaces": true } })).await?;
    ensure!(said.contains("0 chart(s) failed"), "{said}");
    for (name, values, cause) in [
        ("no URL", json!({ "watch": { "allNamespaces": true } }), "serverURL is required"),
        ("http", json!({ "serverURL": "http://c" }), "serverURL"),
        ("unverified", json!({ "global": { "registry": { "tlsVerify": false } } }), "tlsVerify"),
        ("unknown", json!({ "replicaCount": 3 }), "replicaCount"),
        ("a bool", json!({ "metal3": { "mode": false } }), "mode"),
        (
            "no gateway",
            json!({ "serverURL": URL, "watch": { "allNamespaces": true }, "gateway": { "enabled": true } }),
            "parentRefs",
        ),
        ("no namespace", json!({ "serverURL": URL }), "write watch.allNamespaces=true"),
        (
            "two scopes",
            json!({ "serverURL": URL, "watch": { "allNamespaces": true, "namespaces": ["fleet"] } }),
            "exclude each other",
        ),
    ] {
        let Err(error) = chart.render(NAMESPACE, &values).await else { bail!("{name} was accepted") };
        ensure!(error.to_string().contains(cause), "{name}: {error}");
    }
    Ok(())
}

#[tokio::test]
async fn catalog_is_that_of_registry_and_data() -> Result<()> {
    let chart = Chart::write()?;
    let images = json!([
        { "version": "v1.36.3", "repository": "os/node", "tag": "v1.36.3" },
        { "version": "v1.36.4", "repository": "os/node", "tag": "v1.36.4" },
    ]);
    let pinned = format!("other.example/os/node@sha256:{}", "0".repeat(64));
    let values = json!({
        "serverURL": URL,
        "watch": { "allNamespaces": true },
        "global": { "registry": { "address": "registry.example:5000/" } },
        "provider": { "imageCatalog": { "images": images, "data": { "v1.36.4": pinned } } },
    });
    let objects = chart.render(NAMESPACE, &values).await?;
    let want = json!({ "v1.36.3": "registry.example:5000/os/node:v1.36.3", "v1.36.4": pinned });
    assert_eq!(catalog(&objects), Some(&want));
    let deployment = index(objects).remove(&("Deployment".to_owned(), "baremetal-coordinator".to_owned()));
    let image = deployment.context("no Deployment")?;
    let image = &image["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(*image, format!("registry.example:5000/baremetal-coordinator:{}", bundle::VERSION));

    let defaults =
        chart.render(NAMESPACE, &json!({ "serverURL": URL, "watch": { "allNamespaces": true } })).await?;
    let versions = catalog(&defaults).and_then(Value::as_object).context("no catalog")?;
    assert_eq!(versions.keys().collect::<Vec<_>>(), ["v1.33.7-2", "v1.34.5"]);
    Ok(())
}

/// Everything that is off by default.
fn every_option() -> Value {
    json!({
        "serverURL": URL,
        "serverNames": ["192.0.2.7"],
        "replicas": 3,
        "image": { "digest": format!("sha256:{}", "a".repeat(64)), "pullPolicy": "Always", "pullSecrets": ["pull"] },
        "service": { "type": "ClusterIP", "annotations": { "a": "b" } },
        "gateway": { "enabled": true, "parentRefs": [{ "name": "public", "sectionName": "tls" }] },
        "watch": { "namespaces": ["fleet-a", "fleet-b"], "filter": "here" },
        "metal3": { "mode": "hosts" },
        "privateCA": { "configMap": "authorities" },
        "certificateAuthority": { "issuerRef": { "name": "site", "kind": "ClusterIssuer" } },
        "cache": { "size": "4Gi", "sizeLimit": "5Gi" },
        "baseImages": { "arrivingSize": "2Gi", "sizeLimit": "3Gi" },
        "logLevel": "info,coordinator=debug",
        "loggingFormat": "json",
        "tracing": { "endpoint": "http://collector.observability:4317", "headersSecret": "collector" },
        "allowBase": ["10.1.0.0/16", "images.example"],
        "refuseBase": ["10.96.0.0/12"],
        "allowWorkload": ["192.0.2.9"],
        "refuseWorkload": ["10.97.0.0/16"],
        "extraArgs": ["--source-connections=4096"],
        "nodeSelector": { "kubernetes.io/os": "linux" },
        "tolerations": [{ "operator": "Exists" }],
        "affinity": { "nodeAffinity": {} },
        "priorityClassName": "system-cluster-critical",
        "podAnnotations": { "a": "b" },
        "networkPolicy": { "enabled": true, "metricsFrom": [{ "namespaceSelector": {} }] },
        "serviceMonitor": { "enabled": true, "labels": { "release": "prometheus" } },
        "prometheusRule": { "enabled": true, "labels": { "release": "prometheus" } },
        "dashboard": { "enabled": true },
    })
}

#[tokio::test]
async fn route_has_the_version_that_is_served() -> Result<()> {
    let chart = Chart::write()?;
    let path = chart.path();
    let gateway = json!({ "enabled": true, "parentRefs": [{ "name": "public" }] });
    let values = json!({ "serverURL": URL, "watch": { "allNamespaces": true }, "gateway": gateway });
    let (stable, old) =
        ("gateway.networking.k8s.io/v1/TLSRoute", "gateway.networking.k8s.io/v1alpha2/TLSRoute");
    for (served, want) in [
        (vec![], "v1"),
        (vec![stable], "v1"),
        (vec![old], "v1alpha2"),
        (vec![old, stable], "v1"),
        (vec!["gateway.networking.k8s.io/v1/Gateway", old], "v1alpha2"),
    ] {
        let mut arguments = vec!["template", "baremetal", &path];
        arguments.extend(served.iter().flat_map(|version| ["--api-versions", version]));
        let objects = apply::parse_manifest(&chart.run(&arguments, &values).await?)?;
        let types = objects.into_iter().filter_map(|object| object.types);
        let versions: Vec<_> =
            types.filter(|types| types.kind == "TLSRoute").map(|types| types.api_version).collect();
        assert_eq!(versions, [format!("gateway.networking.k8s.io/{want}")], "{served:?}");
    }
    Ok(())
}

#[tokio::test]
async fn chart_installs_alerts_and_dashboard_as_they_are() -> Result<()> {
    let objects = Chart::write()?.render("lab", &every_option()).await?;
    let find = |kind: &str, name: &str| {
        let is_it = |object: &&DynamicObject| {
            object.types.as_ref().is_some_and(|types| types.kind == kind) && object.name_any() == name
        };
        objects.iter().find(is_it).with_context(|| format!("no {kind} {name}"))
    };
    let files = Sources::of_checkout().observability()?;
    let rules: Value = serde_norway::from_str(&files["observability/alerts.yaml"])?;
    assert_eq!(find("PrometheusRule", "baremetal-coordinator")?.data["spec"], rules);
    let found = find("ConfigMap", "baremetal-coordinator-dashboard")?;
    let dashboard: Value =
        serde_json::from_str(found.data["data"]["baremetal.json"].as_str().context("no text")?)?;
    assert_eq!(dashboard, serde_json::from_str::<Value>(&files["observability/dashboard.json"])?);
    assert_eq!(found.labels()["grafana_dashboard"], "1");
    Ok(())
}

#[tokio::test]
async fn scrapes_have_a_token_unless_insecure() -> Result<()> {
    let chart = Chart::write()?;
    for is_insecure in [false, true] {
        let mut values = every_option();
        values["insecureDiagnostics"] = json!(is_insecure);
        let objects = index(chart.render("lab", &values).await?);
        let find = |kind: &str| {
            let key = (kind.to_owned(), "baremetal-coordinator".to_owned());
            objects.get(&key).map(|object| &object["spec"]).with_context(|| format!("no {kind}"))
        };
        let endpoint = &find("ServiceMonitor")?["endpoints"][0];
        ensure!(endpoint["port"] == "diagnostics", "{endpoint}");
        let has_token = endpoint["scheme"] == "https" && endpoint["bearerTokenFile"].is_string();
        ensure!(has_token != is_insecure, "{endpoint}");
        let arguments = &find("Deployment")?["template"]["spec"]["containers"][0]["args"];
        let is_plain = arguments.as_array().is_some_and(|all| all.contains(&json!("--insecure-diagnostics")));
        ensure!(is_plain == is_insecure, "{arguments}");
    }
    Ok(())
}

#[tokio::test]
async fn targets_of_a_chart_are_flags() -> Result<()> {
    let objects = index(Chart::write()?.render("lab", &every_option()).await?);
    let deployment = objects.get(&("Deployment".to_owned(), "baremetal-coordinator".to_owned()));
    let pod = &deployment.context("no Deployment")?["spec"]["template"]["spec"];
    let arguments = pod["containers"][0]["args"].as_array().context("no arguments")?;
    for flag in [
        "--allow-base=10.1.0.0/16",
        "--allow-base=images.example",
        "--refuse-base=10.96.0.0/12",
        "--allow-workload=192.0.2.9",
        "--refuse-workload=10.97.0.0/16",
    ] {
        ensure!(arguments.contains(&json!(flag)), "{flag} is not in {arguments:?}");
    }
    Ok(())
}

#[tokio::test]
async fn fetcher_of_a_chart_has_no_credential() -> Result<()> {
    let objects = index(Chart::write()?.render("lab", &every_option()).await?);
    let deployment = objects.get(&("Deployment".to_owned(), "baremetal-coordinator".to_owned()));
    let pod = &deployment.context("no Deployment")?["spec"]["template"]["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false);
    let fetcher = &pod["containers"][1];
    assert_eq!(fetcher["args"], json!(["fetch-base-images", "--arriving-size=2Gi"]));
    let mounts = fetcher["volumeMounts"].as_array().context("no mounts")?;
    let names: Vec<_> = mounts.iter().map(|mount| &mount["name"]).collect();
    assert_eq!(names, ["base-images", "authorities"]);
    let volumes = pod["volumes"].as_array().context("no volumes")?;
    let authorities = volumes.iter().find(|volume| volume["name"] == "authorities");
    ensure!(authorities.is_some_and(|volume| volume["configMap"].is_object()), "{volumes:?}");
    let variables = fetcher["env"].as_array().context("no environment")?;
    ensure!(variables.iter().all(|variable| variable["valueFrom"].is_null()), "{variables:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rendered_charts_apply_strictly() -> Result<()> {
    let chart = Chart::write()?;
    let parts = Parts::from_environment()?;
    let _turn = SERVERS.lock().await;
    let management = ControlPlane::start(&parts, &Settings::management()).await?;
    let client = management.admin().await?;
    let namespaces = "{apiVersion: v1, kind: Namespace, metadata: {name: lab}}\n---\n\
        {apiVersion: v1, kind: Namespace, metadata: {name: fleet-a}}\n---\n\
        {apiVersion: v1, kind: Namespace, metadata: {name: fleet-b}}";
    apply::manifest(&client, namespaces).await?;
    for project in Definitions::CHART {
        apply::manifest(&client, &parts.definitions(project)?).await?;
    }
    let full = json!({ "serverURL": URL, "watch": { "allNamespaces": true }, "metal3": { "mode": "full" } });
    for (name, values) in [("full", full), ("every option", every_option())] {
        let objects = chart.render("lab", &values).await?;
        apply::objects_strictly(&client, &objects).await.context(name)?;
        ensure!(
            objects.iter().all(|object| object.namespace().is_none_or(|namespace| namespace != NAMESPACE))
        );
    }
    let all = chart.render("lab", &every_option()).await?;
    let deployment = all.iter().find(|object| {
        object.name_any() == "baremetal-coordinator" && object.data["spec"]["template"].is_object()
    });
    let container = &deployment.context("no Deployment")?.data["spec"]["template"]["spec"]["containers"][0];
    let (arguments, variables) = (&container["args"], &container["env"]);
    ensure!(
        arguments.as_array().is_some_and(|all| all.contains(&json!("--provided-authority"))),
        "{arguments}"
    );
    let is_certificate =
        |object: &&DynamicObject| object.types.as_ref().is_some_and(|types| types.kind == "Certificate");
    let certificate = &all.iter().find(is_certificate).context("no Certificate")?.data["spec"];
    let issuer = json!({ "name": "site", "kind": "ClusterIssuer", "group": "cert-manager.io" });
    assert_eq!((&certificate["issuerRef"], &certificate["isCA"]), (&issuer, &json!(true)));
    assert_eq!(certificate["secretName"], "baremetal-coordinator-ca");
    let variable = |name: &str| {
        variables.as_array().and_then(|all| all.iter().find(|variable| variable["name"] == name)).cloned()
    };
    let endpoint = variable("OTEL_EXPORTER_OTLP_ENDPOINT").context("no endpoint")?;
    assert_eq!(endpoint["value"], "http://collector.observability:4317");
    let headers = variable("OTEL_EXPORTER_OTLP_HEADERS").context("no headers")?;
    assert_eq!(headers["valueFrom"]["secretKeyRef"], json!({ "name": "collector", "key": "headers" }));
    assert_eq!(variable("LOGGING_FORMAT").context("no format")?["value"], "json");
    let bindings = all.iter().filter(|object| object.types.clone().unwrap_or_default().kind == "RoleBinding");
    let mut places: Vec<String> = bindings.map(|binding| binding.namespace().unwrap_or_default()).collect();
    places.sort();
    assert_eq!(places, ["fleet-a", "fleet-a", "fleet-b", "fleet-b", "lab"]);
    let route = all.iter().find(|object| object.types.clone().unwrap_or_default().kind == "TLSRoute");
    assert_eq!(route.context("no route")?.data["spec"]["hostnames"], json!(["coordinator.example"]));
    Ok(())
}
