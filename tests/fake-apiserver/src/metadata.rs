//! Validation of metadata and of sizes.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;

use crate::failure::Failure;
use crate::kinds::{Kind, Origin};
use crate::object::is_valid_name;
use crate::schema::Violation;

/// Of all annotations of an object.
const MAX_ANNOTATIONS: usize = 256 << 10;
/// Of the data of a Secret or `ConfigMap`.
const MAX_DATA: usize = 1 << 20;
const MAX_BODY: usize = 3 << 20;
/// Of what etcd stores.
const MAX_OBJECT: usize = 3 << 19;

/// Members of `metadata` that are kept.
const KNOWN: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Drops unknown members. Members of a wrong type cannot be decoded.
pub(crate) fn prune_metadata(object: &mut Value) -> Result<(), Failure> {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
        return Ok(());
    };
    metadata.retain(|name, _| KNOWN.contains(&name.as_str()));
    parse(object).map(|_| ())
}

/// What a patch makes of metadata: the real server answers with 422 where a PUT is a bad request.
pub(crate) fn check_patched(object: &Value) -> Result<(), Failure> {
    parse(object).map(|_| ()).map_err(|failure| Failure::unprocessable(failure.to_string()))
}

fn parse(object: &Value) -> Result<ObjectMeta, Failure> {
    serde_json::from_value(object["metadata"].clone())
        .map_err(|error| Failure::bad_request(format!("cannot decode metadata: {error}")))
}

/// Everything but names and the fields that only the server writes.
pub(crate) fn validate_metadata(kind: &Kind, object: &Value) -> Result<Vec<Violation>, Failure> {
    let metadata = parse(object)?;
    let mut found = Vec::new();
    check_labels(&metadata.labels.unwrap_or_default(), &mut found);
    check_annotations(&metadata.annotations.unwrap_or_default(), &mut found);
    check_owners(&metadata.owner_references.unwrap_or_default(), &mut found);
    for (index, finalizer) in metadata.finalizers.into_iter().flatten().enumerate() {
        let is_standard = ["foregroundDeletion", "kubernetes", "orphan"].contains(&finalizer.as_str());
        if !is_qualified_name(&finalizer) {
            add(&mut found, "metadata.finalizers", "FieldValueInvalid", &finalizer);
        }
        if kind.origin == Origin::BuiltIn && !finalizer.contains('/') && !is_standard {
            let field = format!("metadata.finalizers[{index}]");
            add(&mut found, &field, "FieldValueInvalid", &finalizer);
        }
    }
    Ok(found)
}

fn add(found: &mut Vec<Violation>, field: &str, reason: &'static str, value: &str) {
    let message = format!("Invalid value: \"{value}\"");
    found.push(Violation { field: field.to_owned(), reason, message });
}

fn check_labels(labels: &BTreeMap<String, String>, found: &mut Vec<Violation>) {
    for (key, value) in labels {
        if !is_qualified_name(key) {
            add(found, "metadata.labels", "FieldValueInvalid", key);
        }
        if !value.is_empty() && !is_short_name(value) {
            add(found, "metadata.labels", "FieldValueInvalid", value);
        }
    }
}

fn check_annotations(annotations: &BTreeMap<String, String>, found: &mut Vec<Violation>) {
    for key in annotations.keys().filter(|key| !is_qualified_name(&key.to_lowercase())) {
        add(found, "metadata.annotations", "FieldValueInvalid", key);
    }
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > MAX_ANNOTATIONS {
        add(found, "metadata.annotations", "FieldValueTooLong", &format!("{size} bytes"));
    }
}

fn check_owners(owners: &[OwnerReference], found: &mut Vec<Violation>) {
    for owner in owners {
        let version = owner.api_version.rsplit('/').next().unwrap_or_default();
        for (name, value) in
            [("apiVersion", version), ("kind", &*owner.kind), ("name", &*owner.name), ("uid", &*owner.uid)]
        {
            if value.is_empty() {
                let field = format!("metadata.ownerReferences.{name}");
                add(found, &field, "FieldValueInvalid", value);
            }
        }
    }
    if owners.iter().filter(|owner| owner.controller == Some(true)).count() > 1 {
        let why = "Only one reference can have Controller set to true";
        add(found, "metadata.ownerReferences", "FieldValueInvalid", why);
    }
}

/// An optional DNS name and a slash, then a name of up to 63 characters.
fn is_qualified_name(name: &str) -> bool {
    match name.split_once('/') {
        Some((prefix, name)) => is_valid_name(prefix) && is_short_name(name),
        None => is_short_name(name),
    }
}

/// What label values are, too.
fn is_short_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let (first, last) = (name.bytes().next(), name.bytes().last());
    name.len() <= 63
        && name.bytes().all(is_inner)
        && [first, last].iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}

pub(crate) fn check_body_size(size: usize) -> Result<(), Failure> {
    if size > MAX_BODY { Err(Failure::too_large(MAX_BODY)) } else { Ok(()) }
}

/// The keys of Secrets and `ConfigMaps`, which are names of files in a volume.
pub(crate) fn check_data_keys(kind: &Kind, name: &str, object: &Value) -> Result<(), Failure> {
    if !has_data(kind) {
        return Ok(());
    }
    let fields = ["data", "binaryData"].into_iter();
    let keys = fields
        .flat_map(|field| object[field].as_object().into_iter().flatten().map(move |(key, _)| (field, key)));
    let violations: Vec<_> = keys
        .filter(|(_, key)| !is_data_key(key))
        .map(|(field, key)| Violation {
            field: format!("{field}[{key}]"),
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {key:?}: a valid config key must consist of alphanumeric characters, '-', '_' or '.'"),
        })
        .collect();
    if violations.is_empty() { Ok(()) } else { Err(Failure::violations(kind, name, &violations)) }
}

fn has_data(kind: &Kind) -> bool {
    kind.group.is_empty() && ["ConfigMap", "Secret"].contains(&kind.name.as_str())
}

fn is_data_key(key: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !key.is_empty() && key.len() <= 253 && key != "." && !key.starts_with("..") && key.bytes().all(is_allowed)
}

/// The limits of etcd, and of the data of Secrets and `ConfigMaps`.
pub(crate) fn check_object_size(kind: &Kind, name: &str, object: &Value) -> Result<(), Failure> {
    let members = ["data", "binaryData"].into_iter().filter_map(|name| object[name].as_object()).flatten();
    let is_secret = kind.name == "Secret";
    let size = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        // A Secret's data is base64; its limit is for what it encodes.
        if is_secret { STANDARD.decode(text).map_or(0, |bytes| bytes.len()) } else { text.len() }
    };
    let data: usize = members.map(|(_, value)| size(value)).sum();
    if has_data(kind) && data > MAX_DATA {
        let violation = Violation {
            field: if is_secret { "data" } else { "" }.to_owned(),
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {MAX_DATA} bytes"),
        };
        return Err(Failure::violations(kind, name, &[violation]));
    }
    let size = object.to_string().len();
    if size > MAX_OBJECT {
        return Err(Failure::internal("etcdserver: request is too large"));
    }
    Ok(())
}
