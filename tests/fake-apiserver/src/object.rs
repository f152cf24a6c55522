//! What the server does to every object before it keeps it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::kinds::{Kind, Origin};
use crate::metadata;
use crate::request::Call;

/// Members of `metadata` that only the server writes.
pub(crate) const SYSTEM: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// A string of `metadata`, empty when absent.
pub(crate) fn metadata_text<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"][name].as_str().unwrap_or_default()
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// `metadata`, made when it is missing; `None` only if `object` is no object.
pub(crate) fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let metadata = object.as_object_mut()?.entry("metadata").or_insert(Value::Null);
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata.as_object_mut()
}

/// Sets one member of `metadata`; null takes it away.
pub(crate) fn set_metadata(object: &mut Value, name: &str, value: Value) {
    let Some(metadata) = metadata_mut(object) else {
        return;
    };
    if value.is_null() {
        metadata.remove(name);
    } else {
        metadata.insert(name.to_owned(), value);
    }
}

/// Everything that the server compares, so without what it adds itself at each write.
pub(crate) fn content(object: &Value) -> Value {
    let mut content = object.clone();
    set_metadata(&mut content, "resourceVersion", Value::Null);
    set_metadata(&mut content, "managedFields", Value::Null);
    content
}

/// Everything but metadata: a change of it is a new generation.
pub(crate) fn without_metadata(object: &Value, kind: &Kind) -> Value {
    let mut rest = object.clone();
    if let Value::Object(members) = &mut rest {
        members.remove("metadata");
        members.remove("apiVersion");
        if kind.has_status {
            members.remove("status");
        }
    }
    rest
}

/// Drops what the real server's encoding drops, and turns a Secret's `stringData` into `data`.
pub(crate) fn normalise_object(kind: &Kind, object: &mut Value) -> Result<(), Failure> {
    if kind.origin == Origin::BuiltIn {
        drop_nulls(object);
        for name in ["data", "binaryData", "stringData"] {
            drop_empty(object, name);
        }
    }
    if is_secret(kind) {
        normalise_secret(object)?;
    }
    if let Some(schema) = &kind.schema {
        schema.normalise(object);
    }
    metadata::prune_metadata(object)?;
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.name);
    if let Some(metadata) = metadata_mut(object) {
        metadata.retain(|_, value| !is_empty(value));
    }
    Ok(())
}

/// By the rules for metadata and sizes, and by the schema of the kind. `old` is the stored object of an update.
pub(crate) fn validate_object(
    call: &Call,
    name: &str,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Failure> {
    let mut violations = metadata::validate_metadata(&call.kind, new)?;
    if let Some(schema) = &call.kind.schema {
        violations.extend(schema.validate(new, old, &call.request.subresource));
    }
    if !violations.is_empty() {
        return Err(Failure::violations(&call.kind, name, &violations));
    }
    metadata::check_data_keys(&call.kind, name, new)?;
    metadata::check_object_size(&call.kind, name, new)
}

fn is_secret(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.name == "Secret"
}

fn normalise_secret(secret: &mut Value) -> Result<(), Failure> {
    if let Value::Object(members) = secret
        && let Some(Value::Object(plain)) = members.remove("stringData")
    {
        for (name, value) in plain {
            let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
            secret["data"][name] = json!(encoded);
        }
    }
    let data = secret["data"].as_object();
    let encoded = data.into_iter().flatten().filter_map(|(_, value)| value.as_str());
    for value in encoded {
        STANDARD.decode(value).map_err(|error| {
            Failure::bad_request(format!("Secret in version \"v1\" cannot be handled: {error}"))
        })?;
    }
    if secret["type"].as_str().is_none_or(str::is_empty) {
        secret["type"] = json!("Opaque");
    }
    drop_empty(secret, "data");
    Ok(())
}

/// What may never change of Secrets and `ConfigMaps`. Returns field and reason.
pub(crate) fn immutable_change(
    kind: &Kind,
    old: &Value,
    new: &Value,
) -> Option<(&'static str, &'static str)> {
    let frozen = kind.origin == Origin::BuiltIn && old["immutable"] == json!(true);
    let field = ["data", "binaryData", "immutable"].into_iter().find(|name| old[name] != new[name]);
    if is_secret(kind) && old["type"] != new["type"] {
        return Some(("type", "field is immutable"));
    }
    field.filter(|_| frozen).map(|name| (name, "field is immutable when `immutable` is set"))
}

/// RFC 1123 subdomain: what nearly every kind demands of its names.
pub(crate) fn is_valid_name(name: &str) -> bool {
    let label = |label: &str| {
        let inner = label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        inner && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn drop_empty(object: &mut Value, name: &str) {
    if let Value::Object(members) = object
        && members.get(name).is_some_and(is_empty)
    {
        members.remove(name);
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
