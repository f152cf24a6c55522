//! The definitions of our kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt;

use crate::cluster::BaremetalCluster;
use crate::inventory::{IDENTITY_MESSAGE, IDENTITY_RULE, MachineInventory};
use crate::machine::BaremetalMachine;
use crate::names::{INFRASTRUCTURE_GROUP, VERSION, label};
use crate::pool::MachineInventoryPool;
use crate::registration::MachineRegistration;
use crate::seed_image::SeedImage;
use crate::template::{BaremetalClusterTemplate, BaremetalMachineTemplate};

/// Labels by which Cluster API finds the version of a kind for each of its contracts. The stored version
/// implements both, so that Cluster API needs no conversion (decision 0085).
const CONTRACTS: [&str; 2] = ["cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2"];

/// Category of all kinds of Cluster API and its providers for `kubectl get`.
const CATEGORY: &str = "cluster-api";

/// All definitions; the kinds of the registration are first.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        MachineRegistration::crd(),
        SeedImage::crd(),
        with_rule(MachineInventory::crd(), IDENTITY_RULE, IDENTITY_MESSAGE),
        MachineInventoryPool::crd(),
        BaremetalCluster::crd(),
        BaremetalMachine::crd(),
        without_transitions(BaremetalMachineTemplate::crd()),
        without_transitions(BaremetalClusterTemplate::crd()),
    ];
    for crd in &mut crds {
        make_spec_optional(crd);
        complete_definition(crd);
    }
    crds
}

/// Adds defaults to descriptions, because `kubectl explain` does not show defaults.
fn name_defaults(schema: &mut JSONSchemaProps) {
    for field in schema.properties.iter_mut().flat_map(|fields| fields.values_mut()) {
        let default = field.default.as_ref().map(|default| &default.0);
        if let Some(default) = default.filter(|default| !default.is_object() && !default.is_array()) {
            let text = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
            let text = if text.is_empty() { "empty".to_owned() } else { text };
            let description = field.description.get_or_insert_default();
            *description = format!("{description} Default: {text}.");
        }
    }
    parts(schema).for_each(name_defaults);
}

/// The schemas of fields, of elements of a list, and of values of a map.
fn parts(schema: &mut JSONSchemaProps) -> impl Iterator<Item = &mut JSONSchemaProps> {
    let fields = schema.properties.iter_mut().flat_map(|fields| fields.values_mut());
    let elements = match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(elements)) => Some(&mut **elements),
        _ => None,
    };
    let values = match &mut schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => Some(&mut **values),
        _ => None,
    };
    fields.chain(elements).chain(values)
}

/// Adds the labels for Cluster API, and to descriptions the defaults. A kind has the description of its
/// spec, because `kubectl explain KIND` shows the one and not the other.
pub(crate) fn complete_definition(crd: &mut CustomResourceDefinition) {
    for schema in schemas(crd) {
        if let Some(spec) = schema.properties.as_mut().and_then(|fields| fields.get_mut("spec")) {
            schema.description.clone_from(&spec.description);
            name_defaults(spec);
        }
    }
    let labels = crd.metadata.labels.get_or_insert_default();
    labels.insert(label::CLUSTERCTL.to_owned(), String::new());
    labels.insert(label::CLUSTERCTL_MOVE.to_owned(), String::new());
    if crd.spec.group == INFRASTRUCTURE_GROUP {
        crd.spec.names.categories = Some(vec![CATEGORY.to_owned()]);
        for contract in CONTRACTS {
            labels.insert(contract.to_owned(), VERSION.to_owned());
        }
    }
}

fn schemas(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    let versions = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    versions.filter_map(|schema| schema.open_api_v3_schema.as_mut())
}

/// Adds a rule on the whole object. The derive of `kube` would need a default of the spec,
/// which the type does not have.
fn with_rule(mut crd: CustomResourceDefinition, rule: &str, message: &str) -> CustomResourceDefinition {
    for schema in schemas(&mut crd) {
        schema.x_kubernetes_validations = Some(vec![ValidationRule {
            rule: rule.to_owned(),
            message: Some(message.to_owned()),
            ..ValidationRule::default()
        }]);
    }
    crd
}

/// Removes the rules on changes from the spec of a clone, because they would reject the dry
/// run of a changed template.
fn without_transitions(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for schema in schemas(&mut crd) {
        let mut place = Some(schema);
        for field in ["spec", "template", "spec"] {
            place = place.and_then(|schema| schema.properties.as_mut()?.get_mut(field));
        }
        let rules = place.map(|schema| &mut schema.x_kubernetes_validations);
        if let Some(rules) = rules {
            let kept = rules.take().into_iter().flatten().filter(|rule| !rule.rule.contains("oldSelf"));
            *rules = Some(kept.collect::<Vec<_>>()).filter(|rules| !rules.is_empty());
        }
    }
    crd
}

/// Makes `spec` optional, as in the definitions of the elemental operator and the baremetal-operator. Its
/// default is not stored, because a stored default looks like a value of an operator.
pub(crate) fn make_spec_optional(crd: &mut CustomResourceDefinition) {
    if crd.spec.group == INFRASTRUCTURE_GROUP {
        return;
    }
    for schema in schemas(crd) {
        schema.required = None;
        if let Some(spec) = schema.properties.as_mut().and_then(|properties| properties.get_mut("spec")) {
            spec.default = None;
        }
    }
}

/// Accepts the status of another operator, so that an object that was read from its installation applies
/// with `--validate=strict`. The API server stores a status by the subresource alone.
pub(crate) fn keep_foreign_status(crd: &mut CustomResourceDefinition) {
    for schema in schemas(crd) {
        if let Some(status) = schema.properties.as_mut().and_then(|fields| fields.get_mut("status")) {
            keep_unknown_fields(status);
        }
    }
}

fn keep_unknown_fields(schema: &mut JSONSchemaProps) {
    if schema.type_.as_deref() == Some("object") && schema.additional_properties.is_none() {
        schema.x_kubernetes_preserve_unknown_fields = Some(true);
    }
    parts(schema).for_each(keep_unknown_fields);
}

/// A definition as YAML.
pub fn yaml(crd: &CustomResourceDefinition) -> Result<String, serde_norway::Error> {
    serde_norway::to_string(crd)
}
