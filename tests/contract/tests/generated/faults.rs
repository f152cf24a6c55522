//! `docs/reference/faults.md`: the faults that tests play, from what the tests
//! say about themselves:
//!
//! ```text
//! // Fault: what happens.
//! // Shown: where an operator sees what, with reasons in backticks.
//! ```

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use proto::refusal::Refusal;

use super::reference::{code, header, table};
use super::{checkout, committed};

/// Where faults are played, and the title of what is played there.
const SOURCES: [(&str, &str); 9] = [
    ("coordinator/src/rpc/tests", "Hosts that call the coordinator"),
    ("tests/scenarios/tests", "The whole system, in one process"),
    ("tests/swtpm/tests", "Hosts with real TPMs in software"),
    ("tests/control-plane/tests", "Real registries"),
    ("tests/e2e/tests", "Real API servers, and a QEMU host (`make test-lab`)"),
    ("tests/vip/tests", "The address of an internal endpoint, in network namespaces"),
    ("agent/src/boot", "Early boot of a host"),
    ("agent/src/plan", "Steps on a host"),
    ("agent/tests", "The agent alone"),
];

struct Fault {
    what: String,
    shown: String,
    test: String,
}

#[test]
fn faults_are_documented() {
    let mut text = header("Faults", "the tests named in it");
    text.push_str("\nWhat happens, what an operator sees, and the test that plays it.\n");
    for (directory, title) in SOURCES {
        let mut faults = vec![];
        read_directory(&checkout(directory), "", &mut faults);
        assert!(!faults.is_empty(), "no fault in {directory}");
        let _ = write!(text, "\n## {title}\n\nTests in `{directory}`.\n");
        let row = |fault: Fault| vec![fault.what, fault.shown, code(&fault.test)];
        table(&mut text, &["fault", "shown", "test"], faults.into_iter().map(row));
    }
    for refusal in Refusal::ALL {
        assert!(text.contains(&code(refusal.code())), "no fault shows {}", refusal.code());
    }
    committed("docs/reference/faults.md", &text);
}

fn read_directory(directory: &Path, prefix: &str, faults: &mut Vec<Fault>) {
    let mut entries: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.is_dir() {
            read_directory(&path, &format!("{prefix}{name}::"), faults);
        } else {
            read_file(&fs::read_to_string(&path).unwrap(), &format!("{prefix}{name}"), faults);
        }
    }
}

fn read_file(source: &str, module: &str, faults: &mut Vec<Fault>) {
    let mut told: Vec<(String, String)> = vec![];
    for line in source.lines().map(str::trim) {
        if let Some(what) = line.strip_prefix("// Fault: ") {
            told.push((what.to_owned(), String::new()));
        } else if let Some(shown) = line.strip_prefix("// Shown: ") {
            shown.clone_into(&mut told.last_mut().unwrap().1);
        } else if let Some(more) = line.strip_prefix("// ").filter(|_| !told.is_empty()) {
            let (what, shown) = told.last_mut().unwrap();
            let open = if shown.is_empty() { what } else { shown };
            let _ = write!(open, " {more}");
        } else if let Some((_, declared)) = line.split_once("fn ") {
            let name = declared.split('(').next().unwrap_or_default();
            for (what, shown) in told.drain(..) {
                check_codes(&shown, source, name);
                faults.push(Fault { what, shown, test: format!("{module}::{name}") });
            }
        }
    }
}

/// A reason that is promised is one that the test's file asks for.
fn check_codes(shown: &str, source: &str, test: &str) {
    assert!(!shown.is_empty(), "{test} does not say what is shown");
    for quoted in shown.split('`').skip(1).step_by(2) {
        let is_reason = quoted.chars().all(char::is_alphanumeric) && quoted.starts_with(char::is_uppercase);
        assert!(!is_reason || source.contains(quoted), "{test} promises {quoted}, its file does not name it");
    }
}
