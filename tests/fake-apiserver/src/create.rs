//! POST.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::kinds::{CRDS, Kind, Scope};
use crate::managed::record_manager;
use crate::object::{SYSTEM, is_valid_name, metadata_text, normalise_object, set_metadata, validate_object};
use crate::read::Done;
use crate::request::Call;
use crate::store::Store;

impl Call {
    /// The body, if it is an object of the kind of the URL.
    pub(crate) fn object(&self) -> Result<Value, Failure> {
        let object: Value = serde_json::from_slice(&self.body)
            .map_err(|error| Failure::bad_request(format!("cannot parse the body: {error}")))?;
        if !object.is_object() {
            return Err(Failure::bad_request("the body is not an object"));
        }
        let (version, kind) = (self.kind.api_version(), &self.kind.name);
        let given = (object["apiVersion"].as_str(), object["kind"].as_str());
        if given != (Some(&version), Some(kind)) {
            let message = format!(
                "the API version and kind in the data ({given:?}) do not match the expected \
                 ({version}, {kind})"
            );
            return Err(Failure::bad_request(message));
        }
        self.check_place(&object)?;
        Ok(object)
    }

    /// Name and namespace of the body must be those of the URL.
    pub(crate) fn check_place(&self, object: &Value) -> Result<(), Failure> {
        let (namespace, name) = (metadata_text(object, "namespace"), metadata_text(object, "name"));
        if !namespace.is_empty() && namespace != self.request.namespace {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the \
                 request",
            ));
        }
        let wanted = &self.request.name;
        if !wanted.is_empty() && !name.is_empty() && name != wanted {
            return Err(Failure::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({wanted})"
            )));
        }
        Ok(())
    }
}

impl Store {
    pub(crate) fn create_object(&mut self, call: &Call) -> Result<Done, Failure> {
        let object = call.object()?;
        if !metadata_text(&object, "resourceVersion").is_empty() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Failure::internal(message));
        }
        self.insert_object(call, object)
    }

    fn insert_object(&mut self, call: &Call, mut object: Value) -> Result<Done, Failure> {
        let kind = &*call.kind;
        if kind.scope == Scope::Namespaced && call.request.namespace.is_empty() {
            return Err(Failure::not_allowed());
        }
        let name = self.name_for(call, &object)?;
        let key = (kind.resource(), call.request.namespace.clone(), name.clone());
        if let Some(old) = self.get(&key) {
            let deleting = crate::object::is_deleting(old);
            return Err(Failure::already_exists(kind, &name, deleting));
        }
        if self.terminating.contains(&call.request.namespace) {
            return Err(Failure::terminating(kind, &name, &call.request.namespace));
        }
        for field in SYSTEM {
            set_metadata(&mut object, field, Value::Null);
        }
        if kind.has_status
            && let Value::Object(members) = &mut object
        {
            members.remove("status");
        }
        normalise_object(kind, &mut object)?;
        let now = self.clock.rfc3339();
        set_metadata(&mut object, "name", json!(name));
        if !key.1.is_empty() {
            set_metadata(&mut object, "namespace", json!(key.1));
        }
        set_metadata(&mut object, "uid", json!(self.new_uid()));
        set_metadata(&mut object, "creationTimestamp", json!(now));
        if kind.counts_generations() {
            set_metadata(&mut object, "generation", json!(1));
        }
        validate_object(call, &name, &object, None)?;
        Self::check_policy(call, &object)?;
        self.admit(call, &name, &object, None)?;
        record_manager(call, &now, &json!({}), &mut object);
        if call.is_dry_run() {
            return Ok(Done { code: 201, body: call.present_object(&object), changed: false });
        }
        if kind.plural == CRDS {
            self.serve_crd(kind, &mut object)?;
        }
        let object = self.put(key, object);
        Ok(Done { code: 201, body: call.present_object(&object), changed: true })
    }

    fn name_for(&mut self, call: &Call, object: &Value) -> Result<String, Failure> {
        let kind = &*call.kind;
        let (name, prefix) = (metadata_text(object, "name"), metadata_text(object, "generateName"));
        if !name.is_empty() {
            return if is_valid_name(name) {
                Ok(name.to_owned())
            } else {
                let why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                           characters, '-' or '.'";
                Err(Failure::invalid(kind, name, "metadata.name", why))
            };
        }
        // A trailing dash is fine in a prefix; a trailing dot is not.
        if !prefix.is_empty() && !is_valid_name(&format!("{}a", prefix.trim_end_matches('-'))) {
            let why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                       characters, '-' or '.'";
            return Err(Failure::invalid(kind, name, "metadata.generateName", why));
        }
        if prefix.is_empty() {
            let why = "name or generateName is required";
            return Err(Failure::invalid(kind, name, "metadata.name", why));
        }
        loop {
            let name = format!("{prefix}{}", self.new_suffix());
            let key = (kind.resource(), call.request.namespace.clone(), name);
            if self.get(&key).is_none() {
                return Ok(key.2);
            }
        }
    }

    /// A CRD is served from the moment it exists, and a changed one from its change.
    pub(crate) fn serve_crd(&mut self, kind: &Kind, object: &mut Value) -> Result<(), Failure> {
        let crd: CustomResourceDefinition = serde_json::from_value(object.clone()).map_err(|error| {
            Failure::invalid(kind, metadata_text(object, "name"), "spec", &error.to_string())
        })?;
        for kind in Kind::from_crd(&crd) {
            self.kinds.register(kind);
        }
        let condition = |name: &str| json!({ "type": name, "status": "True", "reason": "Fake" });
        object["status"] = json!({
            "conditions": [condition("NamesAccepted"), condition("Established")],
        });
        Ok(())
    }
}
