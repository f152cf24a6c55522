//! The leader names the webhook in the definitions of the Metal3 kinds, with the authority that signs its
//! certificate. Manifests cannot name the authority, so that whoever applies them removes it again.

use std::time::Duration;

use coordinator_api::metal3::{CONVERTED, webhook};
use coordinator_core::retry;
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, ServiceReference, WebhookClientConfig,
    WebhookConversion,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ca::Authority;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::store::{StoreError, diff};
use crate::telemetry::chain;

const KIND: &str = "CustomResourceDefinition";
/// Interval between two looks, because manifests may be applied at any time.
const INTERVAL: Duration = Duration::from_mins(1);

/// The names of the webhook's certificate.
pub fn certificate_names(config: &Config) -> Vec<String> {
    let service = format!("{}.{}.svc", webhook::SERVICE, config.own_namespace);
    let url = config.conversion_url.as_deref().map(crate::config::url_host);
    [service].into_iter().chain(url.map(str::to_owned)).collect()
}

/// The webhook that the definitions are to name.
pub fn wanted_conversion(config: &Config, authority: &Authority) -> CustomResourceConversion {
    let service = ServiceReference {
        namespace: config.own_namespace.clone(),
        name: webhook::SERVICE.to_owned(),
        path: Some(webhook::PATH.to_owned()),
        port: Some(webhook::PORT),
    };
    let url = config.conversion_url.as_ref().map(|url| format!("{url}{}", webhook::PATH));
    let client = WebhookClientConfig {
        ca_bundle: Some(ByteString(authority.certificates().as_bytes().to_vec())),
        service: url.is_none().then_some(service),
        url,
    };
    CustomResourceConversion {
        strategy: "Webhook".to_owned(),
        webhook: Some(WebhookConversion {
            client_config: Some(client),
            conversion_review_versions: vec!["v1".to_owned()],
        }),
    }
}

/// Keeps the definitions right while this replica leads; returns when the election ended.
pub async fn keep_definitions(
    client: Client,
    metrics: Metrics,
    wanted: CustomResourceConversion,
    mut leadership: watch::Receiver<bool>,
) {
    let wanted = json!(wanted);
    while leadership.wait_for(|leads| *leads).await.is_ok() {
        let mut changes = leadership.clone();
        tokio::select! {
            // The wait fails only if the election ended.
            _ = changes.wait_for(|leads| !*leads) => {}
            () = look_repeatedly(&client, &metrics, &wanted) => {}
        }
    }
}

async fn look_repeatedly(client: &Client, metrics: &Metrics, wanted: &Value) {
    let mut attempt = 0;
    loop {
        let started = Instant::now();
        let failures = correct_definitions(client, metrics, wanted).await;
        metrics.observe_reconcile(KIND, failures == 0, started.elapsed());
        attempt = if failures == 0 { 0 } else { attempt + 1 };
        let interval = if failures == 0 { INTERVAL } else { retry::failure_backoff(attempt) };
        tokio::time::sleep(interval).await;
    }
}

/// Corrects each definition; one that cannot be corrected does not hinder the others. Gives the number of
/// failures.
async fn correct_definitions(client: &Client, metrics: &Metrics, wanted: &Value) -> usize {
    let mut failures = 0;
    for name in CONVERTED {
        if let Err(error) = correct_definition(client, name, wanted).await {
            failures += 1;
            metrics.count_failure(KIND, error.class());
            tracing::error!(
                name,
                error = chain(&error),
                next_action = "apply config/metal3 of this version",
                "cannot name the conversion webhook in a definition, objects are served at one version alone"
            );
        }
    }
    failures
}

async fn correct_definition(client: &Client, name: &str, wanted: &Value) -> Result<(), StoreError> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = definitions.get(name).await.map_err(StoreError::request("get", KIND, name))?;
    if found.spec.versions.len() < 2 {
        let why = "it has one version of two".to_owned();
        return Err(StoreError::Unusable { kind: KIND, name: name.to_owned(), why });
    }
    let Some(change) = diff(&json!(found.spec.conversion), wanted) else { return Ok(()) };
    let patch = json!({
        "metadata": { "resourceVersion": found.metadata.resource_version },
        "spec": { "conversion": change },
    });
    let written = definitions.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    written.map_err(StoreError::request("patch", KIND, name))?;
    tracing::info!(name, "conversion webhook named in the definition");
    Ok(())
}
