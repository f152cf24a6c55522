//! What a request asks for.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, request::Parts};

use crate::failure::Failure;
use crate::kinds::{Kind, Kinds, Scope};

/// The verbs of Kubernetes' own authorisation: what RBAC rules name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    /// PATCH of any type.
    Patch,
    /// DELETE of one object.
    Delete,
    DeleteCollection,
}

impl Verb {
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// As RBAC spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// A request as the journal records it and faults match it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Name given to [`crate::FakeApi::client`].
    pub user: String,
    pub verb: Verb,
    /// API group, empty for core.
    pub group: String,
    pub resource: String,
    /// Empty for cluster-scoped kinds and for requests over all namespaces.
    pub namespace: String,
    /// Empty for requests on collections; a create's is in its body.
    pub name: String,
    /// `status`, or empty.
    pub subresource: String,
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { user, verb, resource, namespace, name, .. } = self;
        write!(f, "{user} {} {resource}", verb.as_str())?;
        for part in [&self.subresource, namespace, name] {
            if !part.is_empty() {
                write!(f, "/{part}")?;
            }
        }
        Ok(())
    }
}

/// Whole objects, or their metadata alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    Metadata,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Arc<Kind>,
    pub(crate) request: Request,
    /// What the server calls the user: of a service account its whole name.
    pub(crate) username: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) content_type: String,
    pub(crate) form: Form,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn parse(kinds: &Kinds, user: &str, parts: &Parts, body: Bytes) -> Result<Self, Failure> {
        let path: Vec<_> = parts.uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let (group, version, rest) = match path.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(Failure::unknown_resource()),
        };
        // `namespaces/x` alone is the namespace itself, and so are its subresources.
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            _ => ("", rest),
        };
        let [plural, rest @ ..] = rest else {
            return Err(Failure::unknown_resource());
        };
        let kind = kinds.find(group, version, plural).ok_or_else(Failure::unknown_resource)?;
        let name = rest.first().copied().unwrap_or_default();
        let subresource = rest.get(1).copied().unwrap_or_default();
        let query = parts.uri.query().unwrap_or_default().as_bytes();
        let query: BTreeMap<_, _> = form_urlencoded::parse(query).into_owned().collect();
        let watched = matches!(query.get("watch").map(String::as_str), Some("true" | "1"));
        let known = subresource.is_empty() || (subresource == "status" && kind.has_status);
        let scoped = kind.scope == Scope::Namespaced || namespace.is_empty();
        if !known || !scoped || rest.len() > 2 {
            return Err(Failure::unknown_resource());
        }
        let verb = verb(&parts.method, name, watched)?;
        Ok(Self {
            request: Request {
                user: user.into(),
                verb,
                group: group.into(),
                resource: kind.plural.clone(),
                namespace: namespace.into(),
                name: name.into(),
                subresource: subresource.into(),
            },
            username: user.into(),
            kind,
            query,
            content_type: header(parts, &http::header::CONTENT_TYPE),
            form: form(&header(parts, &http::header::ACCEPT)),
            body,
        })
    }

    pub(crate) fn query(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        self.query("dryRun") == "All"
    }

    /// The namespace of the request; `None` for all of them.
    pub(crate) fn namespace(&self) -> Option<&str> {
        Some(self.request.namespace.as_str()).filter(|namespace| !namespace.is_empty())
    }
}

fn verb(method: &Method, name: &str, watched: bool) -> Result<Verb, Failure> {
    match (method, name.is_empty()) {
        (&Method::GET, true) if watched => Ok(Verb::Watch),
        (&Method::GET, true) => Ok(Verb::List),
        (&Method::GET, false) => Ok(Verb::Get),
        (&Method::POST, true) => Ok(Verb::Create),
        (&Method::PUT, false) => Ok(Verb::Update),
        (&Method::PATCH, false) => Ok(Verb::Patch),
        (&Method::DELETE, false) => Ok(Verb::Delete),
        (&Method::DELETE, true) => Ok(Verb::DeleteCollection),
        _ => Err(Failure::not_allowed()),
    }
}

fn header(parts: &Parts, name: &http::HeaderName) -> String {
    let value = parts.headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

fn form(accept: &str) -> Form {
    if accept.contains("as=PartialObjectMetadata") { Form::Metadata } else { Form::Whole }
}
