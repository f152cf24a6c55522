//! Structural schemas of CRDs: pruning, defaulting and validation, as the real server does them.
//!
//! Not served, because no CRD of this project uses them: `allOf`, `anyOf`, `oneOf`, `not`,
//! embedded resources, string formats other than `date-time`, `messageExpression`.

mod normalise;
pub(crate) mod rules;
mod validate;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use regex::Regex;
use serde_json::Value;

use rules::Rule;

/// A compiled schema. `props` has no children: they are in the other fields.
#[derive(Debug)]
pub(crate) struct Schema {
    props: JSONSchemaProps,
    members: BTreeMap<String, Schema>,
    /// Of members that are not named: `additionalProperties`.
    others: Option<Box<Schema>>,
    items: Option<Box<Schema>>,
    pattern: Option<Result<Regex, String>>,
    rules: Vec<Rule>,
}

/// One violation of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) field: String,
    /// `FieldValueRequired` and its like.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Schema {
    pub(crate) fn compile(root: &JSONSchemaProps) -> Self {
        let mut schema = Self::compile_props(root.clone());
        // The server validates metadata by its own rules.
        for name in ["apiVersion", "kind", "metadata"] {
            schema.members.remove(name);
        }
        schema
    }

    fn compile_props(mut props: JSONSchemaProps) -> Self {
        let members = props.properties.take().unwrap_or_default();
        let others = match props.additional_properties.take() {
            Some(JSONSchemaPropsOrBool::Schema(of)) => Some(Box::new(Self::compile_props(*of))),
            Some(JSONSchemaPropsOrBool::Bool(true)) => Some(Box::new(Self::compile_props(JSONSchemaProps {
                x_kubernetes_preserve_unknown_fields: Some(true),
                nullable: Some(true),
                ..JSONSchemaProps::default()
            }))),
            _ => None,
        };
        let items = match props.items.take() {
            Some(JSONSchemaPropsOrArray::Schema(item)) => Some(Box::new(Self::compile_props(*item))),
            _ => None,
        };
        let pattern = props.pattern.as_deref();
        let pattern = pattern.map(|text| Regex::new(text).map_err(|error| error.to_string()));
        let rules = props.x_kubernetes_validations.take().unwrap_or_default();
        Self {
            members: members.into_iter().map(|(name, of)| (name, Self::compile_props(of))).collect(),
            others,
            items,
            pattern,
            rules: rules.iter().map(Rule::compile).collect(),
            props,
        }
    }

    fn member(&self, name: &str) -> Option<&Self> {
        self.members.get(name).or(self.others.as_deref())
    }

    fn has_rules(&self) -> bool {
        let mut children = self.members.values().chain(self.others.as_deref()).chain(self.items.as_deref());
        !self.rules.is_empty() || children.any(Self::has_rules)
    }

    fn is_nullable(&self) -> bool {
        self.props.nullable == Some(true)
    }

    fn default(&self) -> Option<&Value> {
        self.props.default.as_ref().map(|default| &default.0)
    }

    /// The item of `old` that has the same keys as `item` in a list of type `map`.
    fn correlated<'a>(&self, item: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
        let keys = self.map_keys()?;
        old?.as_array()?.iter().find(|other| keys.iter().all(|key| other[key] == item[key]))
    }

    fn map_keys(&self) -> Option<&[String]> {
        let is_map = self.props.x_kubernetes_list_type.as_deref() == Some("map");
        self.props.x_kubernetes_list_map_keys.as_deref().filter(|_| is_map)
    }
}

/// The path of a member.
fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
