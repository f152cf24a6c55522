//! Who may import whom: the architecture holds only while this does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use contract::documents::checkout;
use contract::rooms::Crate;
use contract::sources::rust_files;

/// Every crate that `package` is built from, itself left out.
fn dependencies(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
            "--package",
            package,
        ])
        .current_dir(checkout(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != package).map(str::to_owned).collect()
}

#[test]
fn each_crate_excludes_its_forbidden_dependencies() {
    let cases = [
        ("proto", vec!["tokio", "tonic", "kube", "k8s-openapi", "simulated-host", "bench"]),
        ("coordinator-api", vec!["tokio", "kube-client", "kube-runtime", "proto", "bench"]),
        (
            "coordinator-core",
            vec!["tokio", "tonic", "kube-client", "kube-runtime", "hyper", "rustls", "rand", "bench"],
        ),
        (
            "agent",
            vec![
                "kube",
                "kube-core",
                "k8s-openapi",
                "coordinator-core",
                "coordinator-api",
                "openssl",
                "aws-lc-rs",
                "simulated-host",
                "bench",
            ],
        ),
        (
            "coordinator",
            vec!["agent", "openssl", "native-tls", "aws-lc-rs", "fake-apiserver", "simulated-host", "bench"],
        ),
        (
            "kubectl-baremetal",
            vec!["coordinator", "agent", "openssl", "native-tls", "aws-lc-rs", "fake-apiserver", "bench"],
        ),
    ];
    for (package, forbidden) in cases {
        let built_from = dependencies(package);
        assert!(!built_from.is_empty(), "{package}: cargo tree said nothing");
        let found: Vec<_> = forbidden.into_iter().filter(|name| built_from.contains(*name)).collect();
        assert!(found.is_empty(), "{package} is built from {found:?}");
    }
}

/// Source files below `directory`, tests left out, with their text.
fn sources(directory: &str) -> Vec<(String, String)> {
    let directory = checkout(directory);
    let is_test = |path: &Path| {
        let below = path.strip_prefix(&directory).unwrap();
        below.ends_with("tests.rs") || below.components().any(|part| part.as_os_str() == "tests")
    };
    let files = rust_files(&directory).unwrap().into_iter().filter(|path| !is_test(path));
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        (path.display().to_string(), code)
    };
    files.map(read).collect()
}

/// The ways to read YAML without a budget.
const UNBOUNDED_YAML: [&str; 3] = ["serde_norway::from_", "serde_norway::Deserializer", "serde_norway::with"];

#[test]
fn no_module_reaches_where_it_must_not() {
    let cases = [
        (
            "coordinator/core/src",
            vec![
                "std::fs",
                "std::env",
                "std::net::Tcp",
                "std::net::Udp",
                "ToSocketAddrs",
                "SystemTime",
                "Instant::now",
                "Timestamp::now",
                "Zoned::now",
                "tokio::",
            ],
        ),
        // RUSTSEC-2023-0071, ignored in .deny.toml: the time of operations with a private key depends on it.
        (
            "coordinator/src",
            vec![
                "RsaPrivateKey",
                " PrivateKey,",
                " PrivateKey}",
                "rsa::PrivateKey",
                "rsa::pkcs1v15",
                "rsa::pss",
            ],
        ),
        // Texts of others are read by a parser with budgets, which is safe Rust: decision 84.
        ("coordinator/core/src/network", vec!["serde_norway"]),
        ("coordinator/core/src/metal3", vec!["serde_norway"]),
        ("coordinator/core/src", UNBOUNDED_YAML.to_vec()),
        ("coordinator/src", UNBOUNDED_YAML.to_vec()),
        ("coordinator/api/src", UNBOUNDED_YAML.to_vec()),
        ("coordinator/kubectl-baremetal/src", UNBOUNDED_YAML.to_vec()),
        ("coordinator/src/rpc", vec!["crate::controllers"]),
        ("coordinator/src/controllers", vec!["proto::v1alpha1", "tonic::", "crate::rpc"]),
        ("coordinator/src/store", vec!["crate::controllers", "crate::rpc"]),
    ];
    for (directory, forbidden) in cases {
        let sources = sources(directory);
        assert!(!sources.is_empty(), "{directory} is empty");
        for (path, code) in sources {
            let found: Vec<_> = forbidden.iter().filter(|word| code.contains(**word)).collect();
            assert!(found.is_empty(), "{path} uses {found:?}");
        }
    }
}

/// The rooms of each crate from the ground up: a room imports only rooms that stand before it.
const ROOMS: [(&str, &[&str]); 7] = [
    (
        "agent/src",
        &[
            "ground",
            "identity",
            "state",
            "update",
            "host",
            "alive",
            "boot",
            "client",
            "plan",
            "console",
            "installed",
            "live",
        ],
    ),
    (
        "coordinator/src",
        &[
            "bounded",
            "ca",
            "clock",
            "credential",
            "key",
            "permits",
            "port",
            "quantities",
            "shutdown",
            "telemetry",
            "agent_file",
            "egress",
            "base_image",
            "lease",
            "store",
            "tls",
            "traces",
            "config",
            "index",
            "metrics",
            "events",
            "client",
            "health",
            "write_limits",
            "rpc",
            "seed_iso",
            "workload",
            "listener",
            "diagnostics",
            "conversion",
            "watch",
            "cluster_api",
            "controllers",
            "run",
        ],
    ),
    (
        "coordinator/core/src",
        &[
            "attestation",
            "ids",
            "holding",
            "pause",
            "problem",
            "retry",
            "text",
            "yaml",
            "bootstrap",
            "image_catalog",
            "network",
            "provider_id",
            "cloud_init",
            "load_balancer",
            "node_link",
            "cluster",
            "plan",
            "host",
            "inventory",
            "pool",
            "reboot",
            "seed_image",
            "demand",
            "registry_access",
            "release",
            "assignment",
            "trace",
            "host_decision",
            "machine_status",
            "metal3",
        ],
    ),
    (
        "coordinator/api/src",
        &[
            "capi_ipam",
            "explain",
            "hardware",
            "machine",
            "names",
            "network",
            "notes",
            "object",
            "pool",
            "schema",
            "capi",
            "cluster",
            "conditions",
            "inventory",
            "registration",
            "seed_image",
            "template",
            "crds",
            "metal3",
        ],
    ),
    (
        "coordinator/kubectl-baremetal/src",
        &[
            "failure",
            "fleet",
            "change",
            "why",
            "view",
            "arguments",
            "explanation",
            "cluster",
            "ui",
            "commands",
        ],
    ),
    (
        "coordinator/bundle/src",
        &["archive", "components", "packages", "bill", "chart", "contents", "signature", "image", "plugin"],
    ),
    (
        "proto/src",
        &[
            "agent_mark",
            "distribution",
            "fields",
            "codec",
            "facts",
            "generate",
            "limits",
            "platform",
            "update_keys",
            "proof",
            "refusal",
            "tpm",
            "balancer",
            "plan",
            "size",
            "staged",
            "wire",
        ],
    ),
];

#[test]
fn rooms_import_only_rooms_below() {
    for (directory, order) in ROOMS {
        let code = Crate::read(&checkout(directory)).unwrap();
        let rooms = code.rooms();
        let known: BTreeSet<_> = order.iter().copied().collect();
        assert_eq!(rooms.keys().copied().collect::<BTreeSet<_>>(), known, "the rooms of {directory}");
        for (place, room) in order.iter().enumerate() {
            let above: Vec<_> = order[place..].iter().filter(|other| rooms[room].contains(**other)).collect();
            assert!(above.is_empty(), "{directory}: {room} imports {above:?}, which stand above it");
        }
    }
}

/// Files of a circle are read as one, so a circle has to stay that small.
const CIRCLE_FILES: usize = 3;

#[test]
fn no_circle_of_files_is_large() {
    for (directory, _) in ROOMS {
        let code = Crate::read(&checkout(directory)).unwrap();
        for circle in code.circles() {
            let files: Vec<_> = circle.iter().map(|module| module.join("/")).collect();
            assert!(files.len() <= CIRCLE_FILES, "{directory}: these files import each other: {files:?}");
        }
    }
}

#[test]
fn imports_are_found_in_every_form() {
    let directory = tempfile::tempdir().unwrap();
    let files = [
        ("lib.rs", "mod ground; mod plan; mod live;"),
        ("ground.rs", "pub struct Path;"),
        ("plan.rs", "mod steps; use crate::ground::{self, Path as _};"),
        ("plan/steps.rs", "fn f() { crate::live::start() } use super::super::ground::Path;"),
        ("live.rs", "pub fn start() {} #[cfg(test)] mod tests { use crate::plan; }"),
    ];
    std::fs::create_dir(directory.path().join("plan")).unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let code = Crate::read(directory.path()).unwrap();
    let found = code.rooms();
    assert_eq!(found["plan"], BTreeSet::from(["ground", "live"]));
    assert!(found["live"].is_empty() && found["ground"].is_empty(), "{found:?}");
    assert!(code.circles().is_empty());

    std::fs::write(directory.path().join("live.rs"), "use crate::plan::steps;").unwrap();
    let code = Crate::read(directory.path()).unwrap();
    assert_eq!(code.circles(), [[&vec!["live".to_owned()], &vec!["plan".to_owned(), "steps".to_owned()]]]);
}

/// How a condition is read, of typed objects and of JSON.
const CONDITION_READS: [&str; 11] = [
    "find_condition(",
    "is_true(",
    "ready_reason(",
    "conditions.iter",
    ".conditions()",
    ".conditions.clone()",
    ".conditions.as_slice()",
    ".conditions.is_empty()",
    "&status.conditions",
    "/conditions\"",
    "[\"conditions\"]",
];

/// Reads that decide nothing: file, part of the line, why it is one.
const ALLOWED_READS: [(&str, &str, &str); 25] = [
    (
        "core/src/pool.rs",
        "known.map_or_else(Vec::new, |status| status.conditions.clone())",
        "the writer of the status keeps them",
    ),
    (
        "core/src/metal3/host/status.rs",
        "written.conditions.is_empty()",
        "whether the definition of the kind drops all of them",
    ),
    (
        "core/src/metal3/remediation.rs",
        "conditions.iter().cloned().partition(|condition| condition[\"type\"] == OWNER_REMEDIATED)",
        "the writer keeps those of others, and does not write twice the one by which an owner is asked",
    ),
    (
        "src/store/metal3.rs",
        "found.data.pointer(\"/status/conditions\")",
        "the writer of the status keeps those of others",
    ),
    (
        "src/controllers/cluster.rs",
        "cluster.status.as_ref().map_or(&[][..], |status| &status.conditions)",
        "a failure that is shown already keeps its time",
    ),
    (
        "src/controllers/pool.rs",
        "pool.status.as_ref().map_or(&[][..], |status| &status.conditions)",
        "the same",
    ),
    (
        "src/metrics/hosts.rs",
        "inventory.status.as_ref().map(|status| &status.conditions)",
        "hosts are counted by what is shown of them",
    ),
    (
        "src/index/metal3/hosts.rs",
        "host.status.iter().flat_map(|status| &status.conditions)",
        "which hosts a Secret triggers: what follows is decided from stored facts",
    ),
    (
        "src/controllers/metal3/machine.rs",
        "machine.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice())",
        "an Event is written once per cause",
    ),
    (
        "src/controllers/host.rs",
        "let before = find_condition(inventory.conditions(), Type::Ready)",
        "an Event is written once per cause",
    ),
    ("src/controllers/machine.rs", "fn ready_reason(", "an Event is written once per cause"),
    (
        "src/controllers/machine.rs",
        "find_condition(&self.status.as_ref()?.conditions, Type::Ready)",
        "the same",
    ),
    ("src/controllers/front_door.rs", "fn ready_reason(", "the same"),
    ("src/controllers/front_door.rs", "let before = machine.ready_reason()", "the same"),
    ("src/controllers/metal3/host.rs", "fn ready_reason(", "the same"),
    (
        "src/controllers/metal3/host.rs",
        "find_condition(&self.status.as_ref()?.conditions, Type::Ready)",
        "the same",
    ),
    (
        "core/src/host/conditions.rs",
        "conditions::find_condition(inventory.conditions(), Type::Ready)",
        "a reason that no stored fact has stays until its writer decides again",
    ),
    ("src/controllers/metal3/host.rs", "let before = host.ready_reason()", "the same"),
    (
        "src/controllers/metal3/host.rs",
        "inventory.and_then(|inventory| find_condition(inventory.conditions(), Type::Ready))",
        "shown on the host that names the inventory",
    ),
    (
        "core/src/metal3/data/foreign.rs",
        "find_condition(&status.conditions, Type::Ready)",
        "the answer of another provider is shown",
    ),
    (
        "core/src/pause.rs",
        "find_condition(before, Type::Ready)",
        "a paused machine without the condition gets it once",
    ),
    (
        "src/controllers/metal3/machine.rs",
        "let before = find_condition(conditions, Type::Ready)",
        "an Event is written once per cause",
    ),
    (
        "core/src/inventory/admission.rs",
        "find_condition(conditions_of(registration), Type::",
        "shown on the pools that select hosts of the registration",
    ),
    ("core/src/inventory/admission.rs", "|status| &status.conditions)", "the same"),
    (
        "src/controllers/seed_image.rs",
        "let ready = find_condition(&projected.conditions, Type::Ready);",
        "an Event has the cause of the condition that is written with it",
    ),
];

/// Conditions are projections: what is decided follows from stored facts.
#[test]
fn no_condition_is_an_input_of_a_decision() {
    let mut unused: BTreeSet<_> = ALLOWED_READS.into_iter().collect();
    let mut found = vec![];
    for directory in ["coordinator/core/src", "coordinator/src"] {
        for (path, code) in sources(directory) {
            for line in code.lines().filter(|line| CONDITION_READS.iter().any(|read| line.contains(read))) {
                let is_allowed =
                    |(file, part, _): &(&str, &str, &str)| path.ends_with(file) && line.contains(part);
                match ALLOWED_READS.iter().find(|allowed| is_allowed(allowed)) {
                    Some(allowed) => drop(unused.remove(allowed)),
                    None => found.push(format!("{path}: {}", line.trim())),
                }
            }
        }
    }
    assert!(found.is_empty(), "conditions are read: {found:#?}");
    assert!(unused.is_empty(), "allowed and not read any more: {unused:?}");
}
