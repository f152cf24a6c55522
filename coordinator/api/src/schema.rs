//! Schemas that a derive cannot express.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Any JSON value, kept as it is: `cloud-config`, network configurations.
pub(crate) fn any_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// An object with any fields, kept as it is. Null where a manifest names the
/// field and leaves it empty.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true })
}

/// A list of anything, kept as it is.
pub(crate) fn any_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "x-kubernetes-preserve-unknown-fields": true } })
}

/// A Kubernetes quantity.
pub(crate) fn quantity_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "pattern": r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+))?$",
        "x-kubernetes-int-or-string": true,
    })
}
