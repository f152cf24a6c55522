//! The Metal3 kinds at two versions on a real API server, which converts by the webhook of the coordinator.

use std::sync::Arc;

use clap::Parser as _;
use control_plane::parts::Parts;
use control_plane::{ControlPlane, Settings, apply};
use coordinator::ca::Authority;
use coordinator::clock::Clock;
use coordinator::config::Config;
use coordinator::conversion::{self, definitions};
use coordinator::metrics::Metrics;
use coordinator::port::serve_port;
use coordinator::tls::Acceptor;
use coordinator_api::metal3::{self, CONVERTED};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep};

const FORMER: &str = include_str!("kinds/metal3.yaml");
const NEWER: &str = include_str!("versions/v1beta2.yaml");
const VERSIONS: [&str; 2] = ["v1beta1", "v1beta2"];
const DEADLINE: Duration = Duration::from_mins(1);

/// Serves the webhook outside of the cluster and names it in the definitions, as a leader does.
async fn serve_webhook(client: &Client) {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("--conversion-url=https://127.0.0.1:{}", port.local_addr().unwrap().port());
    let own = ["coordinator", "--server-url=https://c", "--own-namespace=baremetal-system", "--metal3=full"];
    let config = Config::parse_from(own.into_iter().chain([&*url]));
    let authority = Authority::generate(Timestamp::now()).unwrap();
    let identity = authority.server(&definitions::certificate_names(&config), Timestamp::now()).unwrap();
    let acceptor = Acceptor::new(&authority, identity, Clock::system()).unwrap();
    let routes = conversion::build_router();
    tokio::spawn(serve_port(port, Some(acceptor.for_callers()), routes, conversion::CALLERS));
    let wanted = definitions::wanted_conversion(&config, &authority);
    let (lead, leadership) = watch::channel(true);
    let (keeper, wanted) = (client.clone(), Arc::new(wanted));
    let named = (*wanted).clone();
    tokio::spawn(async move {
        let _lead = lead;
        definitions::keep_definitions(keeper, Metrics::default(), named, leadership).await;
    });
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let end = Instant::now() + DEADLINE;
    for name in CONVERTED {
        while crds.get(name).await.unwrap().spec.conversion.as_ref() != Some(&wanted) {
            assert!(Instant::now() < end, "{name} does not name the webhook");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The API of a kind at each version.
fn apis(client: &Client, kind: &str) -> [Api<DynamicObject>; 2] {
    VERSIONS.map(|version| {
        let group = "infrastructure.cluster.x-k8s.io";
        let plural = format!("{}s", kind.to_lowercase());
        let api_version = format!("{group}/{version}");
        let (group, version, kind) = (group.to_owned(), version.to_owned(), kind.to_owned());
        let resource = ApiResource { group, version, api_version, kind, plural };
        Api::namespaced_with(client.clone(), "default", &resource)
    })
}

/// The objects of a manifest that have two versions: kind and name.
fn list_objects(manifest: &str) -> Vec<(String, String)> {
    let objects = apply::parse_manifest(manifest).unwrap();
    let kinds = objects.into_iter().map(|object| (object.types.clone().unwrap().kind, object.name_any()));
    let is_converted =
        |kind: &str| CONVERTED.iter().any(|name| name.starts_with(&format!("{}s.", kind.to_lowercase())));
    kinds.filter(|(kind, _)| is_converted(kind)).collect()
}

/// An API server changes the content of a definition some time after it was written.
async fn get_converted(api: &Api<DynamicObject>, name: &str) -> DynamicObject {
    let end = Instant::now() + DEADLINE;
    loop {
        match api.get(name).await {
            Ok(found) => return found,
            Err(error) if Instant::now() > end => panic!("{name}: {error:?}"),
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Writes each object as it is read at the version that it is not of: nothing of it changes.
async fn write_unchanged(client: &Client, manifest: &str, own: usize) {
    let objects = list_objects(manifest);
    assert!(!objects.is_empty());
    for (kind, name) in objects {
        let apis = apis(client, &kind);
        let before = get_converted(&apis[own], &name).await;
        let shown = get_converted(&apis[1 - own], &name).await;
        apis[1 - own].replace(&name, &PostParams::default(), &shown).await.unwrap();
        let after = apis[own].get(&name).await.unwrap();
        assert_eq!(after.data, before.data, "{kind} {name} through {shown:#?}");
        assert_eq!(after.resource_version(), before.resource_version(), "{kind} {name} is not written");
    }
}

async fn patch(api: &Api<DynamicObject>, name: &str, patch: &Value) {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn metal3_is_read_and_written_at_both_versions() {
    let parts = Parts::from_environment().unwrap();
    let management = ControlPlane::start(&parts, &Settings::management()).await.unwrap();
    let client = management.admin().await.unwrap();
    for crd in metal3::crds() {
        let text = coordinator_api::crds::yaml(&crd).unwrap();
        apply::manifest(&client, &text).await.unwrap();
    }
    apply::manifest(&client, FORMER).await.unwrap();
    let [_, newer] = apis(&client, "Metal3Machine");
    // A list would be answered with 429, and the client would try again.
    assert!(newer.get("every-field").await.is_err(), "without the authority nothing is converted");
    serve_webhook(&client).await;
    write_unchanged(&client, FORMER, 0).await;
    apply::manifest(&client, NEWER).await.unwrap();
    write_unchanged(&client, NEWER, 1).await;

    let [former, newer] = apis(&client, "Metal3Cluster");
    let shown = former.get("newer").await.unwrap().data;
    assert_eq!(shown["spec"]["noCloudProvider"], true);
    assert_eq!(shown["spec"]["failureDomains"]["b"]["controlPlane"], true);
    let status = json!({ "status": { "ready": true, "conditions": [] } });
    former.patch_status("newer", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let shown = newer.get("newer").await.unwrap().data;
    assert_eq!(shown["status"]["initialization"]["provisioned"], true);
    let names: Vec<_> = shown["spec"]["failureDomains"]
        .as_array()
        .unwrap()
        .iter()
        .map(|domain| domain["name"].clone())
        .collect();
    assert_eq!(names, ["b", "a"], "the order is kept through a write at v1beta1");
    patch(&newer, "newer", &json!({ "spec": { "cloudProviderEnabled": true } })).await;
    let shown = former.get("newer").await.unwrap().data;
    assert_eq!(
        (&shown["spec"]["cloudProviderEnabled"], &shown["spec"]["noCloudProvider"]),
        (&json!(true), &json!(false))
    );

    let [former, newer] = apis(&client, "Metal3Remediation");
    patch(&former, "newer", &json!({ "spec": { "strategy": { "timeout": "1h30m" } } })).await;
    assert_eq!(newer.get("newer").await.unwrap().data["spec"]["strategy"]["timeoutSeconds"], 5400);
    patch(&newer, "newer", &json!({ "spec": { "strategy": { "retryLimit": 3 } } })).await;
    let strategy = former.get("newer").await.unwrap().data["spec"]["strategy"].clone();
    assert_eq!(strategy, json!({ "type": "Reboot", "retryLimit": 3, "timeout": "1h30m" }));
}
