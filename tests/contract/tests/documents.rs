//! Every command in a document is run by a test, or says why none runs it.

use std::collections::BTreeMap;
use std::fs;

use contract::documents::{Block, DOCUMENTS, RUN, checkout, parse_blocks};
use contract::spans::list_pages;
use regex::Regex;

/// Programs that an operator or a developer runs.
const PROGRAMS: [&str; 12] = [
    "kubectl",
    "clusterctl",
    "helm",
    "make",
    "cargo",
    "curl",
    "skopeo",
    "sha256sum",
    "export",
    "cat",
    "etcdctl",
    "etcdutl",
];

fn read(path: &str) -> String {
    fs::read_to_string(checkout(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn list_documents() -> BTreeMap<String, Vec<Block>> {
    let pages = list_pages(&DOCUMENTS).unwrap();
    pages.into_iter().map(|page| (page.clone(), parse_blocks(&read(&page)))).collect()
}

fn find_runner(document: &str, section: &str) -> Option<&'static str> {
    let row = RUN.iter().find(|(own, part, _)| *own == document && *part == section);
    row.map(|(_, _, runner)| *runner)
}

#[test]
fn commands_have_a_runner_or_a_reason() {
    let mut wrong = vec![];
    for (document, blocks) in list_documents() {
        for block in blocks.iter().filter(|block| block.is_commands()) {
            let place = format!("{document}#{}", block.section);
            match (&block.not_run, find_runner(&document, &block.section)) {
                (None, None) => wrong.push(format!(
                    "{place}: name a test in contract::documents::RUN, or write `<!-- not run: reason -->` above"
                )),
                (Some(reason), _) if reason.split_whitespace().count() < 3 => {
                    wrong.push(format!("{place}: {reason:?} is no reason"));
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn blocks_of_commands_are_marked() {
    let mut wrong = vec![];
    for (document, blocks) in list_documents() {
        for block in blocks.iter().filter(|block| !block.is_commands()) {
            let is_command = |line: &&str| PROGRAMS.contains(&line.split(' ').next().unwrap_or_default());
            let command = block.content.lines().find(is_command);
            wrong
                .extend(command.map(|line| format!("{document}#{}: `{line}` is in no ```sh", block.section)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn runners_have_commands_once() {
    let documents = list_documents();
    for (index, (document, section, _)) in RUN.iter().enumerate() {
        let twice = RUN[..index].iter().any(|(own, part, _)| own == document && part == section);
        assert!(!twice, "{document}#{section} is in the table twice");
        let blocks = documents.get(*document).unwrap_or_else(|| panic!("{document} is no document"));
        let is_run =
            |block: &&Block| block.section == *section && block.is_commands() && block.not_run.is_none();
        assert!(blocks.iter().any(|block| is_run(&block)), "{document}#{section} has no commands");
    }
}

/// Parts of the tests, as `docs/versions.md` names them: row, module, its Go module.
const VERSIONS: [(&str, &str, &str); 5] = [
    ("Kubernetes", "kubernetes", "k8s.io/kubernetes"),
    ("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    ("Cluster API, `clusterctl`", "cluster-api", "sigs.k8s.io/cluster-api"),
    ("Helm", "helm", "helm.sh/helm/v4"),
    ("containerd on hosts", "containerd", "github.com/containerd/containerd/v2"),
];

fn find_version(module: &str, path: &str) -> String {
    let requirements = read(&format!("tests/control-plane/parts/{module}/go.mod"));
    let required = Regex::new(&format!(r"(?m)^\t{} (v\S+)", regex::escape(path))).unwrap();
    required.captures(&requirements).unwrap_or_else(|| panic!("{module} requires no {path}"))[1].to_owned()
}

#[test]
fn versions_are_those_of_the_tests() {
    let text = read("docs/versions.md");
    for (row, module, path) in VERSIONS {
        let wanted = format!("| {row} | {} |", find_version(module, path));
        assert!(text.contains(&wanted), "docs/versions.md lacks a row that begins with `{wanted}`");
    }
    let earlier = format!("Kubernetes {} is", find_version("kubernetes-earlier", "k8s.io/kubernetes"));
    assert!(text.contains(&earlier), "docs/versions.md lacks `{earlier}`");
}

#[test]
fn minimum_versions_are_those_that_hosts_compare() {
    let text = read("docs/versions.md");
    let (major, minor) = proto::platform::KERNEL;
    let rows = [
        format!("| Linux | {major}.{minor} |"),
        format!("| control groups | version {} |", proto::platform::CONTROL_GROUPS),
        format!("| systemd | {} |", proto::platform::SYSTEMD),
    ];
    for wanted in rows {
        assert!(text.contains(&wanted), "docs/versions.md lacks a row that begins with `{wanted}`");
    }
}
