//! Schemas that a derive cannot express.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Any JSON value, which is stored unchanged, for example a network configuration.
pub(crate) fn any_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// An object with any fields, which is stored unchanged. It is null if a manifest names
/// the field and leaves it empty.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true })
}

/// A list of any values, which is stored unchanged.
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
