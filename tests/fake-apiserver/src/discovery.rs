//! Which kinds are served: `/api`, `/apis`, `/apis/GROUP`, `/apis/GROUP/VERSION`, `/version`; and
//! that the server is ready: `/readyz`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use kube::core::Version;
use serde_json::{Value, json};

use crate::kinds::{Kind, Kinds, Scope};
use crate::request::{Request, Verb};

/// The version of Kubernetes that `/version` names.
const VERSION: (&str, &str) = ("1", "36");

/// A request for a discovery document, and the document; `None` for all other paths.
pub(crate) fn find_document(kinds: &Kinds, user: &str, path: &str) -> Option<(Request, Value)> {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    let document = match parts.as_slice() {
        ["version"] => {
            let (major, minor) = VERSION;
            json!({
                "major": major, "minor": minor, "gitVersion": format!("v{major}.{minor}.0"), "gitCommit": "",
                "gitTreeState": "clean", "buildDate": "2026-01-01T00:00:00Z", "goVersion": "", "compiler": "",
                "platform": "fake",
            })
        }
        ["readyz"] => json!("ok"),
        ["api"] => {
            json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })
        }
        ["apis"] => {
            let groups: Vec<_> = groups(kinds).into_iter().map(|(name, of)| group(&name, of)).collect();
            json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
        }
        ["apis", name] => {
            let (name, versions) = groups(kinds).remove_entry(*name)?;
            let mut group = group(&name, versions);
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            group
        }
        ["api", version] => resources(kinds, "", version)?,
        ["apis", group, version] => resources(kinds, group, version)?,
        _ => return None,
    };
    let request = Request {
        user: user.to_owned(),
        verb: Verb::Get,
        group: String::new(),
        resource: String::new(),
        namespace: String::new(),
        name: path.to_owned(),
        subresource: String::new(),
    };
    Some((request, document))
}

/// The versions of every named group, the preferred one first.
fn groups(kinds: &Kinds) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for kind in kinds.all().filter(|kind| !kind.group.is_empty()) {
        groups.entry(kind.group.clone()).or_default().push(kind.version.clone());
    }
    for versions in groups.values_mut() {
        versions.sort_by_cached_key(|version| Reverse(Version::parse(version).priority()));
        versions.dedup();
    }
    groups
}

fn group(name: &str, versions: Vec<String>) -> Value {
    let versions = versions.into_iter();
    let versions: Vec<_> = versions
        .map(|version| json!({ "groupVersion": format!("{name}/{version}"), "version": version }))
        .collect();
    json!({ "name": name, "preferredVersion": versions[0], "versions": versions })
}

fn resources(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let served: Vec<_> =
        kinds.all().filter(|kind| (&*kind.group, &*kind.version) == (group, version)).collect();
    let api_version = served.first()?.api_version();
    let resources: Vec<_> = served.into_iter().flat_map(|kind| resource(kind)).collect();
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources,
    }))
}

fn resource(kind: &Kind) -> Vec<Value> {
    let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let describe = |name: String, verbs: &[&str]| {
        json!({
            "name": name, "singularName": kind.name.to_lowercase(), "kind": kind.name,
            "namespaced": kind.scope == Scope::Namespaced, "verbs": verbs,
        })
    };
    let mut resources = vec![describe(kind.plural.clone(), &verbs)];
    if kind.has_status {
        resources.push(describe(format!("{}/status", kind.plural), &["get", "patch", "update"]));
    }
    resources
}
