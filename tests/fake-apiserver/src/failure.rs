//! Rejections, as the `Status` objects of the real server.

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::request::Request;
use crate::schema::Violation;

/// Why a request was rejected.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    reason: &'static str,
    message: String,
    details: Value,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null }
    }

    fn about(mut self, kind: &Kind, name: &str) -> Self {
        self.details = json!({ "name": name, "group": kind.group, "kind": kind.plural });
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn unknown_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub(crate) fn not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    pub(crate) fn unsupported_media_type() -> Self {
        let message = "the body of the request was in an unknown format";
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// Errors for which the real server has no reason.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.resource());
        Self::new(404, "NotFound", message).about(kind, name)
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str, deleting: bool) -> Self {
        let prefix = if deleting { "object is being deleted: " } else { "" };
        let message = format!("{prefix}{} \"{name}\" already exists", kind.resource());
        Self::new(409, "AlreadyExists", message).about(kind, name)
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.resource());
        Self::new(409, "Conflict", message).about(kind, name)
    }

    /// What every stale write gets.
    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(kind, name, why)
    }

    pub(crate) fn invalid(kind: &Kind, name: &str, field: &str, why: &str) -> Self {
        let violation =
            Violation { field: field.to_owned(), reason: "FieldValueInvalid", message: why.to_owned() };
        Self::violations(kind, name, &[violation])
    }

    /// One message and one cause for each violation.
    pub(crate) fn violations(kind: &Kind, name: &str, violations: &[Violation]) -> Self {
        let list: Vec<_> = violations.iter().map(|one| format!("{}: {}", one.field, one.message)).collect();
        let list = if let [one] = list.as_slice() { one.clone() } else { format!("[{}]", list.join(", ")) };
        let causes: Vec<_> = violations
            .iter()
            .map(|one| json!({ "reason": one.reason, "message": one.message, "field": one.field }))
            .collect();
        let group = if kind.group.is_empty() { String::new() } else { format!(".{}", kind.group) };
        let message = format!("{}{group} \"{name}\" is invalid: {list}", kind.name);
        let mut failure = Self::new(422, "Invalid", message);
        failure.details = json!({ "name": name, "group": kind.group, "kind": kind.name, "causes": causes });
        failure
    }

    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    /// No rule of the user allows the request.
    pub(crate) fn forbidden(request: &Request) -> Self {
        let Request { user, verb, group, resource, namespace, name, subresource } = request;
        let mut path = resource.clone();
        if !subresource.is_empty() {
            path = format!("{path}/{subresource}");
        }
        let scope = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{namespace}\"")
        };
        let qualified = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
        let message = format!(
            "{qualified} \"{name}\" is forbidden: User \"{user}\" cannot {} resource \"{path}\" in API \
             group \"{group}\" {scope}",
            verb.as_str(),
        );
        let mut failure = Self::new(403, "Forbidden", message);
        failure.details = json!({ "name": name, "group": group, "kind": resource });
        failure
    }

    /// A `ValidatingAdmissionPolicy`, bound by a binding of the same name, denies the request.
    pub(crate) fn denied(kind: &Kind, name: &str, policy: &str, why: &str) -> Self {
        let why =
            format!("ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {why}");
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.resource());
        let mut failure = Self::new(422, "Invalid", message).about(kind, name);
        failure.details["causes"] = json!([{ "message": why }]);
        failure
    }

    /// What the admission of the real server says of a namespace in deletion.
    pub(crate) fn terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let message = format!(
            "{} \"{name}\" is forbidden: unable to create new content in namespace {namespace} because \
             it is being terminated",
            kind.resource()
        );
        let mut failure = Self::new(403, "Forbidden", message).about(kind, name);
        let why = format!("namespace {namespace} is being terminated");
        failure.details["causes"] =
            json!([{ "reason": "NamespaceTerminating", "message": why, "field": "metadata.namespace" }]);
        failure
    }

    /// The resource version is older than the history of the server.
    pub(crate) fn expired(asked: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {asked} ({oldest})");
        Self::new(410, "Expired", message)
    }

    /// The resource version is one that does not exist yet.
    pub(crate) fn future_version(asked: u64, newest: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {newest}");
        Self::new(504, "Timeout", message).retry_after(1)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// A fault that a test asked for.
    pub(crate) fn injected(code: u16, reason: &'static str, message: &str) -> Self {
        Self::new(code, reason, message)
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.details = json!({ "retryAfterSeconds": seconds });
        self
    }

    pub(crate) fn retry_after_seconds(&self) -> Option<u64> {
        self.details["retryAfterSeconds"].as_u64()
    }

    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}
