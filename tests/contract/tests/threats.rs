//! The threat model in `docs/security.md`: each attacker has an outcome for each aim, and each test that
//! an outcome names is in the tree.

use std::fs;
use std::sync::LazyLock;

use contract::documents::checkout;
use regex::Regex;

const PAGE: &str = "docs/security.md";
/// The aims in the order of each table.
const AIMS: [&str; 7] = [
    "admit a host",
    "read bootstrap data of another tenant",
    "act as another host",
    "change or clean hosts",
    "act as the coordinator",
    "stop the service",
    "read secrets at rest",
];
const ATTACKERS: usize = 5;
const GAP: &str = "Not protected: ";

/// The rows of an attacker's table: aim and outcome.
struct Attacker {
    name: String,
    rows: Vec<(String, String)>,
}

fn parse_attackers(page: &str) -> Vec<Attacker> {
    let (_, section) = page.split_once("\n## Threat model\n").expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let parts = section.split("\n### ").skip(1);
    let parse_row = |line: &str| {
        let (aim, outcome) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        Some((aim.to_owned(), outcome.to_owned()))
    };
    let parse = |part: &str| Attacker {
        name: part.lines().next().unwrap().to_owned(),
        rows: part.lines().filter_map(parse_row).skip(1).collect(),
    };
    parts.map(parse).collect()
}

/// Name and file of each test that an outcome links to.
fn list_tests(outcome: &str) -> Vec<(String, String)> {
    static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\[`(\w+)`\]\(\.\./([^)]+\.rs)\)").unwrap());
    LINK.captures_iter(outcome).map(|found| (found[1].to_owned(), found[2].to_owned())).collect()
}

/// A function that is marked as a test, whatever other attributes and comments it has.
fn has_test(code: &str, name: &str) -> bool {
    let mark = r"#\[(?:tokio::)?test(?:\([^)]*\))?\]\s*(?:(?:#\[[^\]]*\]|//[^\n]*)\s*)*";
    Regex::new(&format!(r"{mark}(?:async )?fn {name}\(")).unwrap().is_match(code)
}

#[test]
fn each_attacker_has_an_outcome_for_each_aim() {
    let attackers = parse_attackers(&fs::read_to_string(checkout(PAGE)).unwrap());
    assert_eq!(attackers.len(), ATTACKERS);
    for Attacker { name, rows } in &attackers {
        let aims: Vec<_> = rows.iter().map(|(aim, _)| aim.as_str()).collect();
        assert_eq!(aims, AIMS, "{name}");
        for (aim, outcome) in rows {
            let is_shown = !list_tests(outcome).is_empty() || outcome.contains(GAP);
            assert!(is_shown, "{name}: {aim}: name a test, or say `{GAP}` and why");
            let reasons = outcome.split(GAP).skip(1);
            assert!(reasons.clone().all(|reason| reason.len() > 20), "{name}: {aim}: a reason is missing");
        }
    }
}

#[test]
fn tests_that_documents_link_to_exist() {
    let pages = fs::read_dir(checkout("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let tests: Vec<_> = pages.flat_map(|page| list_tests(&fs::read_to_string(page).unwrap())).collect();
    let attackers = parse_attackers(&fs::read_to_string(checkout(PAGE)).unwrap());
    let outcomes = attackers.iter().flat_map(|attacker| &attacker.rows);
    let of_threats: Vec<_> = outcomes.flat_map(|(_, outcome)| list_tests(outcome)).collect();
    assert!(of_threats.len() > 50, "only {} of the threat model were found", of_threats.len());
    assert!(tests.len() > of_threats.len(), "no other page links to a test");
    let is_missing = |(name, file): &&(String, String)| {
        fs::read_to_string(checkout(file)).map_or(true, |code| !has_test(&code, name))
    };
    let missing: Vec<_> = tests.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn only_functions_marked_as_tests_count() {
    for (code, want) in [
        ("#[test]\nfn it_holds() {", true),
        ("#[tokio::test(start_paused = true)]\n// Fault: none.\n#[ignore]\nasync fn it_holds() {", true),
        ("fn it_holds() {", false),
        ("#[test]\nfn it_holds_too() {", false),
        ("#[test]\nfn other() {}\nfn it_holds() {", false),
    ] {
        assert_eq!(has_test(code, "it_holds"), want, "{code}");
    }
    let outcome = "A (@x). [`it_holds`](../a/b.rs), [decision](decisions/1.md), [`c`](../d.md)";
    assert_eq!(list_tests(outcome), [("it_holds".to_owned(), "a/b.rs".to_owned())]);
}
