//! Annotations, labels and fields.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use coordinator_api::{crds, metal3};
use regex::Regex;
use serde_json::Value;

/// Of Kubernetes, Cluster API and Metal3, which we read or which the text tells apart from ours.
pub(super) const NAMES_OF_OTHERS: [&str; 6] = [
    // What the upstream system-agent does not read in a plan.
    "baremetal.cluster.io/plan",
    "baremetalhost.metal3.io/status",
    "cluster.x-k8s.io/conversion-data",
    "cluster.x-k8s.io/secret",
    "kubernetes.io/dockerconfigjson",
    "metal3.io/uuid",
];
/// Fields of kinds of others.
pub(super) const FIELDS_OF_OTHERS: [&str; 6] = [
    "spec.bootstrap.configRef",
    "spec.paused",
    "spec.remediation.templateRef",
    "spec.version",
    "status.nodeRef",
    "status.storedVersions",
];

/// The names that `docs/reference/names.md` has, which is generated from the code.
pub(super) static KNOWN: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let text = super::read("docs/reference/names.md");
    let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
});

static DEFINITIONS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let all = crds::all().into_iter().chain(metal3::crds());
    all.map(|crd| serde_json::to_value(crd).unwrap()).collect()
});

/// The definition of a kind by a word that kubectl takes for it.
pub(super) fn find_definition(word: &str) -> Option<&'static Value> {
    let word = word.to_lowercase();
    DEFINITIONS.iter().find(|crd| {
        let names = &crd["spec"]["names"];
        let (plural, group) = (names["plural"].as_str().unwrap(), crd["spec"]["group"].as_str().unwrap());
        let short = names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let own = [plural, names["singular"].as_str().unwrap(), &format!("{plural}.{group}")];
        own.contains(&word.as_str()) || short.into_iter().any(|short| short == word)
    })
}

/// Whether a kind has a field at one of its versions, as `status.host.session`; all of them have metadata.
pub(super) fn has_field(crd: &Value, path: &str) -> bool {
    let versions = crd["spec"]["versions"].as_array().unwrap();
    versions.iter().any(|version| has_field_in(&version["schema"]["openAPIV3Schema"], path))
}

fn has_field_in(schema: &Value, path: &str) -> bool {
    let mut at = schema;
    let parts = path.split('.').map(|part| part.trim_end_matches("[]"));
    for (index, part) in parts.enumerate() {
        if index == 0 && part == "metadata" {
            return true;
        }
        at = if at["items"].is_object() { &at["items"] } else { at };
        at = if at["additionalProperties"].is_object() {
            &at["additionalProperties"]
        } else {
            &at["properties"][part]
        };
        if at.is_null() {
            return false;
        }
    }
    true
}

/// An annotation or label, with or without a value.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_known = |name: &str| KNOWN.contains(name) || NAMES_OF_OTHERS.contains(&name);
    // `reboot.metal3.io/KEY`, `baremetal.alauda.io/*`
    let (domain, part) = name.split_once('/').unwrap_or((name, ""));
    let is_any = part == "*" && KNOWN.iter().any(|known| known.starts_with(&format!("{domain}/")));
    if is_known(name) || is_any || part == "KEY" && KNOWN.contains(domain) {
        return Ok(());
    }
    Err(format!("docs/reference/names.md has no {name}"))
}

/// `None` where the text is neither the name of an annotation or label nor a field.
pub(super) fn check(text: &str) -> Option<Result<(), String>> {
    static NAME: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^((?:[a-z0-9-]+\.)+(?:io|com)/[A-Za-z.*-]+)(?:$|=|: )").unwrap());
    static FIELD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^((?:spec|status)(?:\.[A-Za-z0-9*-]+(?:\[\])?)+)(?:$|:? )").unwrap());
    if let Some(found) = NAME.captures(text) {
        return Some(check_name(&found[1]));
    }
    let field = &FIELD.captures(text)?[1];
    let is_right = is_defined(field) || FIELDS_OF_OTHERS.contains(&field);
    Some(if is_right { Ok(()) } else { Err("no definition of ours has this field".to_owned()) })
}

pub(super) fn is_defined(field: &str) -> bool {
    DEFINITIONS.iter().any(|crd| has_field(crd, field))
}
