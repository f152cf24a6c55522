//! Makes the manifest of a Deployment in a cluster one of a process beside it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// Where the process serves its webhooks.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) url: String,
    /// PEM of the authority that signed its certificate.
    pub(super) authority: String,
}

/// Ends the service of v1beta1, as Cluster API does about April 2027.
pub(super) fn stop_serving_v1beta1(objects: &mut [DynamicObject]) {
    let versions =
        objects.iter_mut().filter_map(|object| object.data.pointer_mut("/spec/versions")?.as_array_mut());
    for version in versions.flatten().filter(|version| version["name"] == "v1beta1") {
        version["served"] = json!(false);
    }
}

/// Leaves out what runs the manager and makes its certificate, and points webhooks at `endpoint`.
pub(super) fn adapt(objects: Vec<DynamicObject>, endpoint: &Endpoint) -> Vec<DynamicObject> {
    let mut kept: Vec<DynamicObject> = objects.into_iter().filter(|object| order(object).is_some()).collect();
    kept.sort_by_key(order);
    for object in &mut kept {
        if let Some(client) = object.data.pointer_mut("/spec/conversion/webhook/clientConfig") {
            redirect(client, endpoint);
        }
        let webhooks = object.data.get_mut("webhooks").and_then(Value::as_array_mut);
        for webhook in webhooks.into_iter().flatten() {
            if let Some(client) = webhook.get_mut("clientConfig") {
                redirect(client, endpoint);
            }
        }
    }
    kept
}

/// The turn of an object, by what must be there before it; `None` for what stays out.
fn order(object: &DynamicObject) -> Option<u8> {
    match object.types.as_ref()?.kind.as_str() {
        "Deployment" | "Service" | "Certificate" | "Issuer" => None,
        "Namespace" => Some(0),
        "ClusterRole" => Some(1),
        "CustomResourceDefinition" => Some(2),
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => Some(4),
        _ => Some(3),
    }
}

fn redirect(client: &mut Value, endpoint: &Endpoint) {
    let path = client.pointer("/service/path").and_then(Value::as_str);
    let url = format!("{}{}", endpoint.url, path.unwrap_or_default());
    *client = json!({ "url": url, "caBundle": STANDARD.encode(&endpoint.authority) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::parse_manifest;

    #[test]
    fn webhooks_are_called_by_address_without_deployments() {
        let manifest = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hooks}
webhooks:
- name: one
  clientConfig: {service: {name: s, namespace: n, path: /validate}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things}
spec:
  conversion:
    strategy: Webhook
    webhook:
      clientConfig: {service: {name: s, namespace: n, path: /convert}}
";
        let endpoint = Endpoint { url: "https://127.0.0.1:1".to_owned(), authority: "PEM".to_owned() };
        let adapted = adapt(parse_manifest(manifest).unwrap(), &endpoint);
        let clients: Vec<Option<&Value>> = vec![
            adapted[0].data.pointer("/spec/conversion/webhook/clientConfig"),
            adapted[1].data.pointer("/webhooks/0/clientConfig"),
        ];
        let wanted = ["/convert", "/validate"]
            .map(|path| json!({"url": format!("https://127.0.0.1:1{path}"), "caBundle": "UEVN"}));
        assert_eq!(clients, wanted.iter().map(Some).collect::<Vec<_>>());
        assert_eq!(adapted.len(), 2);
    }
}
