//! `docs/reference/faults.md`: the faults that tests play, from the comments of these tests:
//!
//! ```text
//! // Fault: a host loses its power.
//! // Shown: condition `Ready`, with reasons in backticks.
//! // Seen: console, if the API shows nothing of the fault; gone, if no object is left.
//! ```
//!
//! If a row of [`SOURCES`] demands so, a test looks at its fault as an operator does: the test, or a
//! function of its file that the test calls, has a call of [`LOOKS`] or of [`OTHER_LOOKS`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use contract::sources::rust_files;
use coordinator_api::conditions::Reason;
use coordinator_api::explain::Attention;
use proto::refusal::Refusal;

use super::reference::{code, header, table};
use super::{checkout, committed};

/// The faults that a test has to look at as an operator does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Demand {
    Every,
    No,
}

/// Directories of tests that play faults, with a title and a demand.
const SOURCES: [(&str, &str, Demand); 10] = [
    ("coordinator/src/rpc/tests", "Hosts that call the coordinator", Demand::Every),
    ("coordinator/src/controllers/seed_image", "Replicas that serve seed images", Demand::No),
    ("tests/scenarios/tests", "The whole system, in one process", Demand::Every),
    ("tests/swtpm/tests", "Hosts with real TPMs in software", Demand::No),
    ("tests/control-plane/tests", "Real registries", Demand::No),
    (
        "tests/e2e/tests",
        "Real API servers (`make test`), and a QEMU host (`make test-lab`; `qemu_flushes` by `make test-flushes`)",
        Demand::No,
    ),
    ("tests/vip/tests", "The address of an internal endpoint, in network namespaces", Demand::No),
    ("agent/src/boot", "Early boot of a host", Demand::No),
    ("agent/src/plan", "Steps on a host", Demand::No),
    ("agent/tests", "The agent alone", Demand::No),
];

/// Functions by which a test looks at a fault, and the command of an operator for the same.
const LOOKS: [(&str, &str, &str); 3] = [
    ("expect_why(", "why", ""),
    ("expect_nothing(", "why", ": nothing is in the way"),
    ("expect_event(", "describe", ""),
];

/// Functions by which a test looks at what the API does not show.
const OTHER_LOOKS: [(&str, &str); 3] =
    [("expect_metric(", "metric"), ("expect_console(", "host console"), ("expect_404(", "HTTP status")];

struct Fault {
    what: String,
    shown: String,
    /// Commands of an operator, with the kinds of their objects.
    seen: String,
    test: String,
}

#[test]
fn faults_are_documented() {
    let mut text = header("Faults", "the tests named in it");
    text.push_str("\nEach row has a fault, its visible signs, and the test that plays it.\n");
    for (directory, title, demand) in SOURCES {
        let mut faults = vec![];
        read_directory(&checkout(directory), "", demand, &mut faults);
        assert!(!faults.is_empty(), "no fault in {directory}");
        let _ = write!(text, "\n## {title}\n\nTests in `{directory}`.\n");
        for fault in &faults {
            let is_seen = !fault.seen.is_empty() || demand == Demand::No;
            assert!(is_seen, "{} does not look at its fault as an operator does", fault.test);
        }
        if demand == Demand::No {
            let row = |fault: Fault| vec![fault.what, fault.shown, code(&fault.test)];
            table(&mut text, &["fault", "shown", "test"], faults.into_iter().map(row));
        } else {
            let row = |fault: Fault| vec![fault.what, fault.shown, fault.seen, code(&fault.test)];
            table(&mut text, &["fault", "shown", "asserted by", "test"], faults.into_iter().map(row));
        }
    }
    for &refusal in Refusal::ALL {
        assert!(text.contains(&code(refusal.code())), "no fault shows {}", refusal.code());
    }
    committed("docs/reference/faults.md", &text);
}

/// Directories of tests that look at objects by `why`.
const LOOKED_AT: [&str; 3] =
    ["coordinator/kubectl-baremetal/src/why", "coordinator/src/rpc/tests", "tests/scenarios/tests"];

#[test]
fn reasons_that_ask_for_action_are_looked_at() {
    let files = LOOKED_AT.iter().flat_map(|directory| rust_files(&checkout(directory)).unwrap());
    let sources: Vec<_> = files.map(|path| fs::read_to_string(path).unwrap()).collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words: BTreeSet<_> = sources.iter().flat_map(|source| source.split(|c| !is_word(c))).collect();
    let is_asking = |reason: &Reason| reason.explanation().attention == Attention::Act;
    let reasons = Reason::all().filter(is_asking).map(Reason::as_str);
    let missing: Vec<_> = reasons.filter(|reason| !words.contains(reason)).collect();
    assert!(missing.is_empty(), "no test looks at {missing:?} by `why`");
}

fn read_directory(directory: &Path, prefix: &str, demand: Demand, faults: &mut Vec<Fault>) {
    let mut entries: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.is_dir() {
            read_directory(&path, &format!("{prefix}{name}::"), demand, faults);
        } else {
            read_file(&fs::read_to_string(&path).unwrap(), &format!("{prefix}{name}"), demand, faults);
        }
    }
}

fn read_file(source: &str, module: &str, demand: Demand, faults: &mut Vec<Fault>) {
    let mut told: Vec<(String, String)> = vec![];
    let mut elsewhere = None;
    for line in source.lines().map(str::trim) {
        if let Some(what) = line.strip_prefix("// Fault: ") {
            told.push((what.to_owned(), String::new()));
        } else if let Some(shown) = line.strip_prefix("// Shown: ") {
            shown.clone_into(&mut told.last_mut().unwrap().1);
        } else if let Some(seen) = line.strip_prefix("// Seen: ") {
            elsewhere = Some(match seen {
                "console" => "host console, log of the coordinator",
                "gone" => "no object is left",
                _ => panic!("{module}: `Seen: {seen}` is neither console nor gone"),
            });
        } else if let Some(more) = line.strip_prefix("// ").filter(|_| !told.is_empty()) {
            let (what, shown) = told.last_mut().unwrap();
            let open = if shown.is_empty() { what } else { shown };
            let _ = write!(open, " {more}");
        } else if let Some((_, declared)) = line.split_once("fn ") {
            let name = declared.split('(').next().unwrap_or_default();
            let (bodies, elsewhere) = (reached_bodies(source, name), elsewhere.take());
            for (what, shown) in told.drain(..) {
                // Tests of real hosts assert in functions of other files.
                let near = if demand == Demand::No { &[source][..] } else { &bodies };
                check_codes(&shown, source, near, name);
                let seen = elsewhere.map_or_else(|| list_looks(&bodies, &shown), str::to_owned);
                faults.push(Fault { what, shown, seen, test: format!("{module}::{name}") });
            }
        }
    }
}

/// The test and the functions of its file that it calls, directly or not.
fn reached_bodies<'a>(source: &'a str, test: &str) -> Vec<&'a str> {
    let functions = split_functions(source);
    let (mut pending, mut visited, mut bodies) = (vec![test], BTreeSet::new(), vec![]);
    while let Some(name) = pending.pop() {
        let Some(body) = functions.get(name).filter(|_| visited.insert(name.to_owned())) else { continue };
        bodies.push(*body);
        pending
            .extend(functions.keys().filter(|other| body.contains(&format!("{other}("))).map(String::as_str));
    }
    bodies
}

/// Commands of an operator, and answers to the host, from the calls of the test.
fn list_looks(bodies: &[&str], shown: &str) -> String {
    let mut looks = BTreeSet::new();
    for (call, command, answer) in LOOKS {
        for arguments in bodies.iter().flat_map(|body| body.split(call).skip(1)) {
            let literal = arguments.split('"').nth(1).unwrap_or_default();
            let kind = literal.split('/').next().unwrap_or_default().to_lowercase();
            looks.insert(format!("{}{answer}", code(&format!("{command} {kind}"))));
        }
    }
    let is_called = |call: &str| bodies.iter().any(|body| body.contains(call));
    looks
        .extend(OTHER_LOOKS.iter().filter(|(call, _)| is_called(call)).map(|(_, place)| (*place).to_owned()));
    let codes = list_codes(shown);
    let refused = Refusal::ALL.iter().map(|refusal| refusal.code()).filter(|code| codes.contains(code));
    looks.extend(refused.map(|refusal| format!("answer {}", code(refusal))));
    looks.into_iter().collect::<Vec<_>>().join(", ")
}

/// The functions of a file that no module encloses, with their bodies, and its scenarios: a test plays the scenario
/// `Name` by a call of `function::<Name>(…)`.
fn split_functions(source: &str) -> BTreeMap<String, &str> {
    let starts = source.match_indices("fn ").filter(|(index, _)| {
        let line = source[..*index].rsplit('\n').next().unwrap_or_default();
        ["", "async "].contains(&line)
    });
    let function = |(index, _): (usize, &str)| {
        let (name, rest) = source[index + 3..].split_once('(')?;
        let body = rest.split_once("\n}").map_or(rest, |(body, _)| body);
        Some((name.to_owned(), body))
    };
    let scenarios = source.split("\nimpl Scenario for ").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once(" {")?;
        Some((format!("<{name}>"), rest.split_once("\n}").map_or(rest, |(body, _)| body)))
    });
    starts.filter_map(function).chain(scenarios).collect()
}

/// Asserts that the test names each reason and refusal that its comment promises, and its file the
/// conditions.
fn check_codes(shown: &str, source: &str, bodies: &[&str], test: &str) {
    assert!(!shown.is_empty(), "{test} does not say what is shown");
    for promised in list_codes(shown) {
        let is_answer = Reason::all().any(|reason| reason.as_str() == promised)
            || Refusal::ALL.iter().any(|refusal| refusal.code() == promised);
        let is_named = bodies.iter().any(|body| body.contains(promised));
        assert!(
            is_named || (!is_answer && source.contains(promised)),
            "{test} promises {promised}, and names it nowhere"
        );
    }
}

/// Conditions, reasons and refusals in backticks.
fn list_codes(shown: &str) -> Vec<&str> {
    let is_code =
        |text: &&str| text.chars().all(char::is_alphanumeric) && text.starts_with(char::is_uppercase);
    shown.split('`').skip(1).step_by(2).filter(is_code).collect()
}
