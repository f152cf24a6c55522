//! Command lines of kubectl: verbs with their options, kinds, names and fields.

use clap::{Arg, ArgAction, ArgMatches, Command};
use contract::documents::checkout;
use kubectl_baremetal::list_kinds;

use super::names::{KNOWN, check_name, find_definition, has_field};

/// Verb, its options with a value, and without one. A change of fields belongs into a block that is run.
const VERBS: [(&str, &[&str], &[&str]); 12] = [
    ("annotate", &["selector"], &["all", "overwrite"]),
    ("apply", &["filename"], &[]),
    ("create", &["docker-server"], &[]),
    ("delete", &[], &[]),
    ("describe", &[], &[]),
    ("explain", &[], &[]),
    ("get", &["output", "selector", "sort-by"], &["watch"]),
    ("krew", &["archive", "manifest"], &[]),
    ("label", &["selector"], &["all", "overwrite"]),
    ("logs", &[], &["follow"]),
    ("scale", &["replicas"], &[]),
    ("wait", &["for", "timeout"], &[]),
];
/// Options with a short form.
const SHORT: [(&str, char); 3] = [("filename", 'f'), ("output", 'o'), ("selector", 'l')];

/// Kinds of Kubernetes and of Cluster API that the plugin does not look at.
const KINDS_OF_OTHERS: [&str; 9] = [
    "clusterrole",
    "clusterrolebinding",
    "configmap",
    "crd",
    "deployment",
    "events",
    "node",
    "secret",
    "secrets",
];
/// Of these the objects are ours, by name.
const OURS: [(&str, &str); 3] = [
    ("clusterrole", "ClusterRole"),
    ("clusterrolebinding", "ClusterRoleBinding"),
    ("deployment", "Deployment"),
];
const MANIFESTS: [&str; 3] = ["rbac.yaml", "all-namespaces.yaml", "manager.yaml"];
const NAMESPACES: [&str; 2] = ["baremetal-system", "default"];
/// Where the names of what a release has are made.
const BUNDLE: [&str; 2] = ["coordinator/bundle/src/main.rs", "coordinator/bundle/src/plugin.rs"];

fn option(name: &'static str) -> Arg {
    let argument = Arg::new(name).long(name).action(ArgAction::Append);
    match SHORT.iter().find(|(long, _)| *long == name) {
        Some((_, short)) => argument.short(*short),
        None => argument,
    }
}

fn program() -> Command {
    let verbs = VERBS.iter().map(|(verb, options, flags)| {
        let flag = |name: &&'static str| Arg::new(*name).long(*name).action(ArgAction::SetTrue);
        let words = Arg::new("words").num_args(0..);
        let command = Command::new(*verb).arg(words).args(options.iter().map(|name| option(name)));
        command.args(flags.iter().map(flag))
    });
    let kubeconfig = Arg::new("kubeconfig").long("kubeconfig").global(true);
    let namespace = Arg::new("namespace").long("namespace").short('n').global(true);
    let all = Arg::new("all-namespaces").long("all-namespaces").short('A').global(true);
    let all = all.action(ArgAction::SetTrue);
    Command::new("kubectl").subcommand_required(true).args([kubeconfig, namespace, all]).subcommands(verbs)
}

/// What the reader replaces.
fn is_placeholder(word: &str) -> bool {
    !word.is_empty()
        && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-' || c == '_')
}

/// The first line of what clap says.
pub(super) fn describe(error: &clap::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

pub(super) fn check(words: &[&str]) -> Result<(), String> {
    let words: Vec<_> = words.iter().filter(|word| **word != "…").collect();
    let matches = program().try_get_matches_from(&words).map_err(|error| describe(&error))?;
    let (verb, given) = matches.subcommand().ok_or("no verb")?;
    if let Some(namespace) = matches.get_one::<String>("namespace").or(given.get_one("namespace"))
        && !is_placeholder(namespace)
        && !NAMESPACES.contains(&namespace.as_str())
    {
        return Err(format!("no namespace {namespace}"));
    }
    let values = |name: &str| -> Vec<&str> {
        let values = given.try_get_many::<String>(name).ok().flatten();
        values.into_iter().flatten().map(String::as_str).collect()
    };
    match (verb, values("words").as_slice()) {
        // The verb is named, or `kubectl describe` of an object that the sentence names.
        (_, []) if words.len() == 2 => Ok(()),
        ("apply", []) => values("filename").into_iter().try_for_each(check_file),
        ("krew", ["install"]) => {
            [values("archive"), values("manifest")].concat().into_iter().try_for_each(check_release)
        }
        ("create", ["secret", "docker-registry" | "generic" | "tls", _]) => Ok(()),
        ("explain", [kind]) => check_kind(kind),
        ("annotate" | "label", [object, rest @ ..]) => check_labelled(given, object, rest),
        ("delete" | "describe" | "get" | "logs" | "scale" | "wait", [object, rest @ ..]) => {
            check_object(object, rest)?;
            values("output").into_iter().try_for_each(|output| check_output(object, output))
        }
        (_, rest) => Err(format!("{verb} does not take {rest:?}")),
    }
}

fn check_kind(word: &str) -> Result<(), String> {
    let is_looked_at = || {
        let kinds = list_kinds().map(|kind| kind.kind.to_lowercase());
        kinds.into_iter().any(|kind| word == kind || word == format!("{kind}s"))
    };
    let is_known = KINDS_OF_OTHERS.contains(&word) || find_definition(word).is_some() || is_looked_at();
    if is_known || is_placeholder(word) { Ok(()) } else { Err(format!("no kind {word}")) }
}

/// `KIND`, `KIND/NAME`, or `KIND NAME`.
fn check_object(object: &str, rest: &[&str]) -> Result<(), String> {
    let (kind, name) = match (object.split_once('/'), rest) {
        (None, []) => return check_kind(object),
        (None, [name]) => (object, *name),
        (Some((kind, name)), []) => (kind, name),
        _ => return Err(format!("{rest:?} is too much")),
    };
    check_kind(kind)?;
    let Some((_, kind)) = OURS.iter().find(|(word, _)| *word == kind) else { return Ok(()) };
    let manifests: String =
        MANIFESTS.iter().map(|file| super::read(&format!("coordinator/config/{file}"))).collect();
    let is_there = manifests.contains(&format!("kind: {kind}\nmetadata:\n  name: {name}\n"));
    if is_there || is_placeholder(name) { Ok(()) } else { Err(format!("no manifest has a {kind} {name}")) }
}

fn check_labelled(given: &ArgMatches, object: &str, rest: &[&str]) -> Result<(), String> {
    let is_of_many = given.contains_id("selector") || given.get_flag("all") || object.contains('/');
    let pairs = if is_of_many { rest } else { rest.get(1..).unwrap_or_default() };
    check_kind(object.split('/').next().unwrap_or_default())?;
    if pairs.is_empty() {
        return Err("nothing is set".to_owned());
    }
    for pair in pairs {
        let key = match pair.split_once('=') {
            Some((key, _)) => key,
            None => pair.strip_suffix('-').ok_or_else(|| format!("{pair} sets nothing"))?,
        };
        // One without a domain is an operator's own.
        if key.contains('/') {
            check_name(key)?;
        }
    }
    Ok(())
}

/// A field of a kind of ours, or a key of a Secret.
fn check_output(object: &str, output: &str) -> Result<(), String> {
    let Some(path) = output.strip_prefix("jsonpath=") else {
        let is_form = ["json", "name", "wide", "yaml"].contains(&output);
        return if is_form { Ok(()) } else { Err(format!("no form {output}")) };
    };
    let path = path.trim_start_matches("{.").trim_end_matches('}');
    let kind = object.split('/').next().unwrap_or_default();
    let is_field = match find_definition(kind) {
        Some(crd) => has_field(crd, path),
        None => path.strip_prefix("data.").is_some_and(|key| KNOWN.contains(key)),
    };
    if is_field { Ok(()) } else { Err(format!("{kind} has no {path}")) }
}

fn check_file(path: &str) -> Result<(), String> {
    if checkout(path).exists() || path.starts_with("https://") {
        Ok(())
    } else {
        Err(format!("the checkout has no {path}"))
    }
}

/// A file that `make release` writes.
fn check_release(path: &str) -> Result<(), String> {
    let sources: String = BUNDLE.iter().map(|file| super::read(file)).collect();
    let name = path.strip_prefix("dist/").ok_or_else(|| format!("{path} is not in dist"))?;
    let is_made = sources.contains(&format!("\"{}\"", name.replace("amd64", "{architecture}")));
    if is_made { Ok(()) } else { Err(format!("no release has {name}")) }
}
