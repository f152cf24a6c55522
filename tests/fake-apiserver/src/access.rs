//! Authorization by RBAC rules.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use serde::Deserialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::request::{Call, Verb};

/// What a user may do. Without rules, nothing but discovery.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    grants: Vec<Grant>,
    /// Name of the service account that the rules were read for.
    username: Option<String>,
}

#[derive(Clone, Debug)]
struct Grant {
    /// `None`: in all namespaces, and on cluster-scoped kinds.
    namespace: Option<String>,
    rule: PolicyRule,
}

impl Rules {
    fn with<'a>(mut self, namespace: Option<&str>, rules: impl Iterator<Item = &'a PolicyRule>) -> Self {
        self.grants
            .extend(rules.map(|rule| Grant { namespace: namespace.map(str::to_owned), rule: rule.clone() }));
        self
    }

    /// The rules that the bindings of a YAML stream give to a service account, by the roles of the
    /// same stream. Other documents are ignored.
    ///
    /// # Errors
    /// When a document is not YAML, or a role or binding cannot be parsed.
    pub fn of_service_account(
        manifests: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let is_bound = |subjects: &Option<Vec<Subject>>| {
            subjects.iter().flatten().any(|subject| {
                let place = (subject.kind.as_str(), subject.namespace.as_deref(), subject.name.as_str());
                place == ("ServiceAccount", Some(namespace), name)
            })
        };
        let manifests = Manifests::parse(manifests)?;
        let username = Some(format!("system:serviceaccount:{namespace}:{name}"));
        let mut rules = Self { username, ..Self::default() };
        for binding in manifests.cluster_bindings.iter().filter(|one| is_bound(&one.subjects)) {
            rules = rules.with(None, manifests.rules_of(&binding.role_ref, None));
        }
        for binding in manifests.bindings.iter().filter(|one| is_bound(&one.subjects)) {
            let within = binding.metadata.namespace.as_deref();
            rules = rules.with(within, manifests.rules_of(&binding.role_ref, within));
        }
        Ok(rules)
    }

    fn allow(&self, call: &Call) -> bool {
        self.grants.iter().any(|grant| grant.allows(call))
    }
}

impl Grant {
    fn allows(&self, call: &Call) -> bool {
        let request = &call.request;
        let is_in_place = self.namespace.as_ref().is_none_or(|namespace| *namespace == request.namespace);
        let resource = if request.subresource.is_empty() {
            request.resource.clone()
        } else {
            format!("{}/{}", request.resource, request.subresource)
        };
        let contains = |list: &[String], wanted: &str| list.iter().any(|one| one == "*" || one == wanted);
        let name = resource_name(call);
        let is_named = |names: &Vec<String>| names.is_empty() || names.contains(&name);
        let any_status = format!("*/{}", request.subresource);
        let resources = self.rule.resources.as_deref().unwrap_or_default();
        is_in_place
            && contains(&self.rule.verbs, request.verb.as_str())
            && contains(self.rule.api_groups.as_deref().unwrap_or_default(), &request.group)
            && (contains(resources, &resource)
                || (!request.subresource.is_empty() && resources.contains(&any_status)))
            && self.rule.resource_names.as_ref().is_none_or(is_named)
    }
}

/// A list or watch of one name is a request for that name. A create has none: it is in the body.
fn resource_name(call: &Call) -> String {
    let of_collection = matches!(call.request.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
    if !of_collection {
        return call.request.name.clone();
    }
    let mut requirements = call.query("fieldSelector").split(',');
    let name = requirements.find_map(|one| one.strip_prefix("metadata.name="));
    name.map(|name| name.trim_start_matches('=').to_owned()).unwrap_or_default()
}

/// Rules by user. Users without rules may do everything.
#[derive(Debug, Default)]
pub(crate) struct Access(BTreeMap<String, Rules>);

impl Access {
    pub(crate) fn restrict(&mut self, user: &str, rules: Rules) {
        self.0.insert(user.to_owned(), rules);
    }

    /// What the server calls the user.
    pub(crate) fn find_username(&self, user: &str) -> Option<String> {
        self.0.get(user)?.username.clone()
    }

    pub(crate) fn check(&self, call: &Call) -> Result<(), Failure> {
        match self.0.get(&call.request.user) {
            Some(rules) if !rules.allow(call) => Err(Failure::forbidden(&call.request)),
            _ => Ok(()),
        }
    }
}

fn read_documents(stream: &str) -> impl Iterator<Item = Result<Value, serde_norway::Error>> {
    serde_norway::Deserializer::from_str(stream).map(Value::deserialize)
}

/// The admission policies of a stream of YAML documents, with their bindings.
///
/// # Panics
/// When the stream is not YAML.
pub fn read_policies(stream: &str) -> Vec<Value> {
    let documents = read_documents(stream).map(Result::unwrap);
    documents.filter(|document| document["apiVersion"] == "admissionregistration.k8s.io/v1").collect()
}

#[derive(Default)]
struct Manifests {
    cluster_roles: Vec<ClusterRole>,
    roles: Vec<Role>,
    cluster_bindings: Vec<ClusterRoleBinding>,
    bindings: Vec<RoleBinding>,
}

impl Manifests {
    fn parse(stream: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let mut manifests = Self::default();
        for document in read_documents(stream) {
            let document = document?;
            match document["kind"].as_str() {
                Some("ClusterRole") => manifests.cluster_roles.push(serde_json::from_value(document)?),
                Some("Role") => manifests.roles.push(serde_json::from_value(document)?),
                Some("ClusterRoleBinding") => {
                    manifests.cluster_bindings.push(serde_json::from_value(document)?);
                }
                Some("RoleBinding") => manifests.bindings.push(serde_json::from_value(document)?),
                _ => {}
            }
        }
        Ok(manifests)
    }

    fn rules_of<'a>(
        &'a self,
        role: &'a RoleRef,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = &'a PolicyRule> {
        let is_cluster_role = role.kind == "ClusterRole";
        let cluster_roles = self
            .cluster_roles
            .iter()
            .filter(move |one| is_cluster_role && one.metadata.name.as_ref() == Some(&role.name));
        let roles = self.roles.iter().filter(move |one| {
            let place = (one.metadata.namespace.as_deref(), one.metadata.name.as_ref());
            !is_cluster_role && place == (namespace, Some(&role.name))
        });
        cluster_roles.map(|role| &role.rules).chain(roles.map(|role| &role.rules)).flatten().flatten()
    }
}
