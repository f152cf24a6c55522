//! Valid objects, generated from the schema of their CRD.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::api::{ApiResource, DynamicObject};
use regex::Regex;
use serde_json::{Value, json};

/// A kind with a value for every field of its schema.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) resource: ApiResource,
    pub(crate) has_status: bool,
    pub(crate) spec: Value,
    pub(crate) status: Value,
}

impl Sample {
    /// Of the only version of a CRD.
    pub(crate) fn of(crd: &CustomResourceDefinition) -> Self {
        let version = &crd.spec.versions[0];
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.clone());
        let schema = schema.unwrap_or_default();
        let member = |name: &str| schema.properties.as_ref().and_then(|of| of.get(name)).map(generate);
        let status = version.subresources.as_ref().and_then(|of| of.status.as_ref());
        Self {
            resource: super::resource_of(crd),
            has_status: status.is_some(),
            spec: member("spec").unwrap_or_default(),
            status: member("status").unwrap_or_default(),
        }
    }

    /// Of our own CRDs.
    pub(crate) fn all() -> Vec<Self> {
        coordinator_api::crds::all().iter().map(Self::of).collect()
    }

    pub(crate) fn object(&self, name: &str) -> DynamicObject {
        let mut object = DynamicObject::new(name, &self.resource);
        object.data = json!({ "spec": self.spec });
        object
    }
}

fn generate(schema: &JSONSchemaProps) -> Value {
    if let Some(first) = schema.enum_.iter().flatten().next() {
        return first.0.clone();
    }
    if schema.x_kubernetes_int_or_string == Some(true) {
        return json!(1);
    }
    match schema.type_.as_deref() {
        Some("array") => match &schema.items {
            Some(JSONSchemaPropsOrArray::Schema(item)) => json!([generate(item)]),
            _ => json!([]),
        },
        Some("string") if schema.format.as_deref() == Some("date-time") => json!("2026-01-01T00:00:00Z"),
        Some("string") => json!(text(schema)),
        #[expect(clippy::cast_possible_truncation, reason = "bounds of the schemas are small")]
        Some("integer") => json!(schema.minimum.unwrap_or(1.0) as i64),
        Some("number") => json!(schema.minimum.unwrap_or(1.0)),
        Some("boolean") => json!(true),
        _ => generate_object(schema),
    }
}

/// The first of a few texts that the pattern of the field allows. A new pattern that allows none of them
/// needs one of its own: the server refuses the empty text by the name of the field.
fn text(schema: &JSONSchemaProps) -> String {
    let length = schema.min_length.and_then(|length| usize::try_from(length).ok());
    let pattern = schema.pattern.as_deref().and_then(|pattern| Regex::new(pattern).ok());
    [
        "a".repeat(length.unwrap_or(1).max(1)),
        "a/b".into(),
        "https://a".into(),
        format!("sha256:{}", "a".repeat(64)),
    ]
    .into_iter()
    .find(|text| pattern.as_ref().is_none_or(|pattern| pattern.is_match(text)))
    .unwrap_or_default()
}

fn generate_object(schema: &JSONSchemaProps) -> Value {
    let members = schema.properties.iter().flatten();
    let mut object: Value = members.map(|(name, of)| (name.clone(), generate(of))).collect();
    if let Some(JSONSchemaPropsOrBool::Schema(of)) = &schema.additional_properties {
        object["any"] = generate(of);
    }
    if schema.x_kubernetes_preserve_unknown_fields == Some(true) {
        object["any"] = json!({ "list": [1, "a", { "nested": true }] });
    }
    object
}
