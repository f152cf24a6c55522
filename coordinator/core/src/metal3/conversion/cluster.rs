//! `Metal3Cluster` and its template.

use serde_json::{Map, Value};

use super::fields::{Fields, take_key};
use super::{ConversionError, status};

const DOMAINS: &str = "failureDomains";

/// `noCloudProvider` is the inverse of `cloudProviderEnabled`, which counts if both are set.
pub(super) fn spec_to_v1beta2(spec: &mut Fields<'_>) -> Result<(), ConversionError> {
    let is_without = spec.bool("noCloudProvider")?;
    spec.remove("noCloudProvider");
    if let (None, Some(is_without)) = (spec.bool("cloudProviderEnabled")?, is_without) {
        spec.set("cloudProviderEnabled", !is_without);
    }
    list_domains(spec)
}

/// Both fields are set, so that an edit of one of them at v1beta2 is not contradicted by the other.
pub(super) fn spec_to_v1beta1(spec: &mut Fields<'_>) -> Result<(), ConversionError> {
    if let Some(is_enabled) = spec.bool("cloudProviderEnabled")? {
        spec.set("noCloudProvider", !is_enabled);
    }
    map_domains(spec)
}

pub(super) fn status_to_v1beta2(status: &mut Fields<'_>) -> Result<(), ConversionError> {
    status::to_v1beta2(status)?;
    // The coordinator writes a list if Cluster API reads one.
    if status.get(DOMAINS).is_some_and(Value::is_array) { Ok(()) } else { list_domains(status) }
}

pub(super) fn status_to_v1beta1(status: &mut Fields<'_>) -> Result<(), ConversionError> {
    status::to_v1beta1(status)?;
    map_domains(status)
}

fn list_domains(fields: &mut Fields<'_>) -> Result<(), ConversionError> {
    let item = |name: String, domain: Value| {
        let mut item = match domain {
            Value::Object(domain) => domain,
            Value::Null => Map::new(),
            _ => return None,
        };
        item.insert("name".to_owned(), name.into());
        Some(item)
    };
    fields.list_entries(DOMAINS, item, "a map of objects")
}

fn map_domains(fields: &mut Fields<'_>) -> Result<(), ConversionError> {
    let entry = |mut item: Map<String, Value>| Some((take_key(&mut item, "name")?, item.into()));
    fields.map_items(DOMAINS, entry, "a list of objects with a name")
}
