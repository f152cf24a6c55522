//! What a schema does to an object before it is validated.

use serde_json::Value;

use super::Schema;

impl Schema {
    /// Drops unknown fields, sets defaults, and drops nulls of fields that may not be null.
    pub(crate) fn normalise(&self, object: &mut Value) {
        let Value::Object(members) = object else {
            return;
        };
        let identity = ["apiVersion", "kind", "metadata"].map(|name| (name, members.remove(name)));
        self.prune_unknown(object);
        self.set_defaults(object);
        for (name, value) in identity {
            if let Some(value) = value {
                object[name] = value;
            }
        }
    }

    fn prune_unknown(&self, value: &mut Value) {
        match value {
            Value::Object(members) => {
                let keeps_unknown = self.props.x_kubernetes_preserve_unknown_fields == Some(true);
                members.retain(|name, _| keeps_unknown || self.member(name).is_some());
                for (name, member) in members {
                    if let Some(schema) = self.member(name) {
                        schema.prune_unknown(member);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for item in items {
                        schema.prune_unknown(item);
                    }
                }
            }
            _ => {}
        }
    }

    fn set_defaults(&self, value: &mut Value) {
        match value {
            Value::Object(members) => {
                for (name, schema) in &self.members {
                    if let Some(default) = schema.default()
                        && members.get(name).is_none_or(|member| schema.drops_null(member))
                    {
                        members.insert(name.clone(), default.clone());
                    }
                }
                members
                    .retain(|name, member| self.member(name).is_none_or(|schema| !schema.drops_null(member)));
                for (name, member) in members {
                    if let Some(schema) = self.member(name) {
                        schema.set_defaults(member);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for item in items {
                        schema.set_defaults(item);
                    }
                }
            }
            _ => {}
        }
    }

    fn drops_null(&self, value: &Value) -> bool {
        value.is_null() && !self.is_nullable()
    }
}
