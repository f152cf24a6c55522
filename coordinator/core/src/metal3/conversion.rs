//! Conversion of the Metal3 kinds between v1beta1 and v1beta2, of JSON to JSON, without loss.
//!
//! Each kind has a function to v1beta2 and one back to v1beta1, which change the fields that differ.
//! A converted object is converted back to find what the target version cannot express: the differences
//! to the given object are kept in an annotation, which the next conversion applies and removes.

mod cluster;
mod data;
mod data_template;
mod differences;
mod fields;
mod machine;
mod remediation;
mod status;

use coordinator_api::names::annotation::CONVERSION_DIFFERENCES;
use coordinator_api::names::{INFRASTRUCTURE_GROUP, kind};
use serde_json::{Map, Value};

use self::differences::{
    Difference, apply_differences, find_differences, read_differences, render_differences,
};
use self::fields::{Fields, shorten_metadata};

/// The cause for which an object is not converted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    #[error("{place} is not {expected}")]
    Field { place: String, expected: &'static str },
    #[error(
        "{kind} is not converted from {from} to {to}: the kinds of Metal3 are, between v1beta1 and v1beta2"
    )]
    Unknown { kind: String, from: String, to: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1beta1,
    V1beta2,
}

impl Version {
    fn parse(api_version: &str) -> Option<Self> {
        match api_version.strip_prefix(INFRASTRUCTURE_GROUP)? {
            "/v1beta1" => Some(Self::V1beta1),
            "/v1beta2" => Some(Self::V1beta2),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::V1beta1 => "v1beta1",
            Self::V1beta2 => "v1beta2",
        }
    }
}

/// The parts of an object that a conversion may change. Metadata belongs to the API server, but for
/// labels and annotations.
const CONTENT: [&str; 2] = ["spec", "status"];

/// Changes the fields of a part of an object.
type Change = fn(&mut Fields<'_>) -> Result<(), ConversionError>;

/// The changes of spec and status of a kind. The spec of a template holds that of the objects that are
/// cloned from it.
struct Changes {
    target: Version,
    is_template: bool,
    spec: Change,
    status: Change,
}

/// Nothing differs between the versions.
#[allow(clippy::unnecessary_wraps, reason = "one of the functions of a table")]
fn keep_fields(_: &mut Fields<'_>) -> Result<(), ConversionError> {
    Ok(())
}

/// The kind of the objects that are cloned from a template of this kind.
fn cloned_kind(kind: &str) -> Option<&'static str> {
    match kind {
        kind::METAL3_CLUSTER_TEMPLATE => Some(kind::METAL3_CLUSTER),
        kind::METAL3_MACHINE_TEMPLATE => Some(kind::METAL3_MACHINE),
        kind::METAL3_REMEDIATION_TEMPLATE => Some(kind::METAL3_REMEDIATION),
        _ => None,
    }
}

fn changes_of(kind: &str, target: Version) -> Option<Changes> {
    use Version::{V1beta1, V1beta2};
    let cloned = cloned_kind(kind);
    let (spec, status): (Change, Change) = match (cloned.unwrap_or(kind), target) {
        (kind::METAL3_CLUSTER, V1beta2) => (cluster::spec_to_v1beta2, cluster::status_to_v1beta2),
        (kind::METAL3_CLUSTER, V1beta1) => (cluster::spec_to_v1beta1, cluster::status_to_v1beta1),
        (kind::METAL3_MACHINE, V1beta2) => (machine::spec_to_v1beta2, machine::status_to_v1beta2),
        (kind::METAL3_MACHINE, V1beta1) => (machine::spec_to_v1beta1, status::to_v1beta1),
        (kind::METAL3_DATA, V1beta2) => (data::spec_to_v1beta2, data::status_to_v1beta2),
        (kind::METAL3_DATA_CLAIM, V1beta2) => (data::claim_to_v1beta2, data::status_to_v1beta2),
        (kind::METAL3_DATA | kind::METAL3_DATA_CLAIM, V1beta1) => (keep_fields, keep_fields),
        (kind::METAL3_DATA_TEMPLATE, V1beta2) => {
            (data_template::spec_to_v1beta2, data_template::status_to_v1beta2)
        }
        (kind::METAL3_DATA_TEMPLATE, V1beta1) => {
            (data_template::spec_to_v1beta1, data_template::status_to_v1beta1)
        }
        (kind::METAL3_REMEDIATION, V1beta2) => (remediation::spec_to_v1beta2, keep_fields),
        (kind::METAL3_REMEDIATION, V1beta1) => (remediation::spec_to_v1beta1, keep_fields),
        _ => return None,
    };
    // The status of a template is its own.
    let status = if cloned.is_some() { keep_fields } else { status };
    Some(Changes { target, is_template: cloned.is_some(), spec, status })
}

/// Changes the fields that differ between the versions, without the differences that are kept.
fn change_fields(changes: &Changes, content: &mut Map<String, Value>) -> Result<(), ConversionError> {
    let mut fields = Fields::root(content);
    if let Some(mut spec) = fields.object("spec")? {
        if changes.is_template {
            change_template(changes, &mut spec)?;
        } else {
            (changes.spec)(&mut spec)?;
        }
    }
    if let Some(mut status) = fields.object("status")? {
        (changes.status)(&mut status)?;
    }
    Ok(())
}

fn change_template(changes: &Changes, spec: &mut Fields<'_>) -> Result<(), ConversionError> {
    let Some(mut template) = spec.object("template")? else { return Ok(()) };
    if changes.target == Version::V1beta2 {
        shorten_metadata(&mut template)?;
    }
    template.object("spec")?.map_or(Ok(()), |mut spec| (changes.spec)(&mut spec))
}

/// Converts an object to `target`, a group with a version. An object of that version stays as it is.
pub fn convert_object(object: Value, target: &str) -> Result<Value, ConversionError> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (kind, from) = (text("kind"), text("apiVersion"));
    if from == target {
        return Ok(object);
    }
    let unknown =
        || ConversionError::Unknown { kind: kind.clone(), from: from.clone(), to: target.to_owned() };
    let (own, wanted) = Version::parse(&from).zip(Version::parse(target)).ok_or_else(unknown)?;
    let there = changes_of(&kind, wanted).ok_or_else(unknown)?;
    let back = changes_of(&kind, own).ok_or_else(unknown)?;
    let Value::Object(mut object) = object else { return Err(unknown()) };
    let given = take_content(&mut object);
    let mut content = given.clone();
    change_fields(&there, &mut content)?;
    for difference in take_differences(&mut object, wanted)? {
        apply_differences(&difference, &mut content);
    }
    let mut returned = content.clone();
    change_fields(&back, &mut returned)?;
    put_differences(&mut object, own, find_differences(&returned, &given))?;
    object.insert("apiVersion".to_owned(), target.into());
    object.extend(content);
    Ok(Value::Object(object))
}

fn take_content(object: &mut Map<String, Value>) -> Map<String, Value> {
    CONTENT.iter().filter_map(|part| object.remove_entry(*part)).collect()
}

/// Takes the differences for `wanted` off an object. Annotations that were not there go with them, but an
/// empty map stays where there was one: who applies an empty map owns it, and with a map that is gone the
/// API server removes the annotations in it that nobody owns.
fn take_differences(
    object: &mut Map<String, Value>,
    wanted: Version,
) -> Result<Vec<Difference>, ConversionError> {
    let mut object = Fields::root(object);
    let Some(mut metadata) = object.object("metadata")? else { return Ok(vec![]) };
    let Some(mut annotations) = metadata.object("annotations")? else { return Ok(vec![]) };
    let Some(text) = annotations.take_text(CONVERSION_DIFFERENCES)? else { return Ok(vec![]) };
    let mut differences = read_differences(&text, wanted.name()).unwrap_or_default();
    let were_empty = differences.pop_if(|last| *last == Difference::empty_annotations()).is_some();
    if annotations.is_empty() && !were_empty {
        metadata.remove("annotations");
    }
    Ok(differences)
}

/// Keeps the differences for `own` in an object, where there are any.
fn put_differences(
    object: &mut Map<String, Value>,
    own: Version,
    mut differences: Vec<Difference>,
) -> Result<(), ConversionError> {
    if differences.is_empty() {
        return Ok(());
    }
    let mut object = Fields::root(object);
    let mut metadata = object.object_or_new("metadata")?;
    if metadata.object("annotations")?.is_some_and(|annotations| annotations.is_empty()) {
        differences.push(Difference::empty_annotations());
    }
    let text = render_differences(own.name(), &differences);
    metadata.object_or_new("annotations")?.set(CONVERSION_DIFFERENCES, text);
    Ok(())
}

#[cfg(test)]
mod tests;
