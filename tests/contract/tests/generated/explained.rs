//! Descriptions, as `kubectl explain` shows them: a kind has a sentence, a field names the unit of a number
//! and the default of an optional value.

use regex::Regex;
use serde_json::{Value, json};

/// Words that name the unit or the range of a number.
const UNITS: &str = r"(?i)\b(seconds?|milliseconds|minutes|hours|days|bytes|number|how often|percent|port|id|index|prefix length|no new host)\b|\d to \d";

#[test]
fn values_have_units_and_state_their_defaults() {
    let mut wrong = vec![];
    let units = Regex::new(UNITS).unwrap();
    for crd in coordinator_api::crds::all().into_iter().chain(coordinator_api::metal3::crds()) {
        let kind = &crd.spec.names.kind;
        // Kinds of Elemental and Metal3 have the descriptions of their projects; our fields in these kinds are marked.
        let is_own = crd.spec.group == "infrastructure.cluster.x-k8s.io" && !kind.starts_with("Metal3");
        for version in &crd.spec.versions {
            let (schema, kind) = (json!(version.schema), format!("{kind} at {}", version.name));
            let spec = &schema["openAPIV3Schema"]["properties"]["spec"];
            let text = schema["openAPIV3Schema"]["description"].as_str().unwrap_or_default();
            if !text.ends_with('.') || text.starts_with("Auto-generated") {
                wrong.push(format!("{kind} is not described: {text:?}"));
            }
            check_values(&format!("{kind} spec"), spec, is_own, &units, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn check_values(path: &str, schema: &Value, is_own: bool, units: &Regex, wrong: &mut Vec<String>) {
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let text = field["description"].as_str().unwrap_or_default();
        let kind = field["type"].as_str().unwrap_or_default();
        let is_number = matches!(kind, "integer" | "number");
        if is_number && !text.starts_with("Accepted and ignored") && !units.is_match(text) {
            wrong.push(format!("{path} names no unit: {text:?}"));
        }
        let is_scalar = is_number || matches!(kind, "string" | "boolean");
        let is_optional = !required.contains(&json!(name));
        let says = ["default: ", "absent"].iter().any(|word| text.to_lowercase().contains(word));
        if is_scalar && is_optional && (is_own || text.starts_with("Ours: ")) && !says {
            wrong.push(format!("{path} does not name its default: {text:?}"));
        }
        check_values(&path, field, is_own, units, wrong);
        check_values(&format!("{path}[]"), &field["items"], is_own, units, wrong);
        check_values(&format!("{path}.*"), &field["additionalProperties"], is_own, units, wrong);
    }
}
