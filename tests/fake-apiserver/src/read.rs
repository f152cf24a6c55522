//! GET, and the forms in which objects leave the server.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::request::{Call, Form};
use crate::selector::Selector;
use crate::store::{Key, Store};

#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) code: u16,
    pub(crate) body: Value,
    /// A new resource version came of it.
    pub(crate) changed: bool,
}

impl Done {
    pub(crate) fn unchanged(body: Value) -> Self {
        Self { code: 200, body, changed: false }
    }
}

impl Call {
    pub(crate) fn key(&self) -> Key {
        let Self { kind, request, .. } = self;
        (kind.resource(), request.namespace.clone(), request.name.clone())
    }

    pub(crate) fn selector(&self) -> Result<Selector, Failure> {
        Selector::parse(self.query("labelSelector"), self.query("fieldSelector"))
    }

    /// An object as this call wants to see it.
    pub(crate) fn present_object(&self, object: &Value) -> Value {
        match self.form {
            Form::Metadata => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": object["metadata"],
            }),
            Form::Whole => {
                let mut object = object.clone();
                // One storage serves all versions of a kind; there is no conversion.
                object["apiVersion"] = json!(self.kind.api_version());
                object
            }
        }
    }
}

impl Store {
    pub(crate) fn get_object(&self, call: &Call) -> Result<Done, Failure> {
        let found = self.get(&call.key());
        let stored = found.ok_or_else(|| Failure::not_found(&call.kind, &call.request.name))?;
        Ok(Done::unchanged(call.present_object(stored)))
    }

    pub(crate) fn select(&self, call: &Call, selector: &Selector) -> Vec<Arc<Value>> {
        let resource = call.kind.resource();
        let all = self.list(&resource, call.namespace());
        let chosen = all.filter(|(_, stored)| selector.matches(stored));
        chosen.map(|(_, stored)| stored.clone()).collect()
    }
}
