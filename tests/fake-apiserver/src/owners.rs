//! Who owns which field: managed fields.

use serde_json::{Value, json};

use crate::fields::{Fields, fields_v1, leaves};
use crate::shape::Shape;

/// How an owner came to its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// By server-side apply: fields that it stops applying go.
    Apply,
    /// By any other write.
    Update,
}

/// Who writes, as far as ownership is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    pub(crate) subresource: Option<String>,
    pub(crate) api_version: String,
}

/// A writer and its fields.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Owner {
    pub(crate) writer: Writer,
    pub(crate) fields: Fields,
    time: String,
}

/// All owners of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Owners(Vec<Owner>);

impl Owners {
    /// Records a write that is not an apply: what it changed is its own from now on.
    pub(crate) fn record(&mut self, writer: &Writer, now: &str, (old, new): (&Value, &Value), shape: &Shape) {
        let (before, after) = (leaves(old, shape), leaves(new, shape));
        let changed: Fields = after
            .iter()
            .filter(|(path, value)| before.get(*path) != Some(*value))
            .map(|(path, _)| path.clone())
            .collect();
        let removed: Fields = before.into_keys().filter(|path| !after.contains_key(path)).collect();
        if changed.is_empty() && removed.is_empty() {
            return;
        }
        self.take_from_others(writer, &changed);
        self.forget(&removed);
        let mut fields = self.fields_of(writer);
        fields.extend(changed);
        self.set(writer, fields, now);
    }

    pub(crate) fn fields_of(&self, writer: &Writer) -> Fields {
        let own = self.0.iter().find(|owner| owner.writer == *writer);
        own.map(|owner| owner.fields.clone()).unwrap_or_default()
    }

    pub(crate) fn others<'a>(&'a self, writer: &'a Writer) -> impl Iterator<Item = &'a Owner> {
        self.0.iter().filter(move |owner| owner.writer != *writer)
    }

    pub(crate) fn take_from_others(&mut self, writer: &Writer, taken: &Fields) {
        for owner in self.0.iter_mut().filter(|owner| owner.writer != *writer) {
            owner.fields.retain(|path| !taken.contains(path));
        }
        self.0.retain(|owner| !owner.fields.is_empty());
    }

    pub(crate) fn forget(&mut self, removed: &Fields) {
        for owner in &mut self.0 {
            owner.fields.retain(|path| !removed.contains(path));
        }
        self.0.retain(|owner| !owner.fields.is_empty());
    }

    pub(crate) fn set(&mut self, writer: &Writer, fields: Fields, now: &str) {
        self.0.retain(|owner| owner.writer != *writer);
        if !fields.is_empty() {
            self.0.push(Owner { writer: writer.clone(), fields, time: now.into() });
        }
    }

    /// Equal but for the times and the order, which a write that changes nothing must not touch.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        let fields = |of: &Self, owner: &Owner| of.fields_of(&owner.writer);
        self.0.len() == other.0.len() && self.0.iter().all(|owner| fields(other, owner) == owner.fields)
    }

    /// `metadata.managedFields`.
    pub(crate) fn managed_fields(&self) -> Value {
        let entries = self.0.iter().map(|Owner { writer, fields, time }| {
            let mut entry = json!({
                "manager": writer.manager,
                "operation": match writer.operation {
                    Operation::Apply => "Apply",
                    Operation::Update => "Update",
                },
                "apiVersion": writer.api_version,
                "time": time,
                "fieldsType": "FieldsV1",
                "fieldsV1": fields_v1(fields),
            });
            if let Some(subresource) = &writer.subresource {
                entry["subresource"] = json!(subresource);
            }
            entry
        });
        entries.collect()
    }
}
