//! What an operator in front of a host can read, and what only the journal has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn units() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../systemd");
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|end| end == "service")).collect()
}

/// The value of a directive that stands once.
fn directive(unit: &str, name: &str) -> Option<String> {
    let mut values = unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let value = values.next().map(str::to_owned);
    assert!(values.next().is_none(), "{name} stands twice");
    value
}

#[test]
fn every_unit_writes_to_the_console() {
    let units = units();
    assert_eq!(units.len(), 5, "{units:?}");
    for path in units {
        let unit = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy();
        if name == "baremetal-agent-console@.service" {
            assert_eq!(directive(&unit, "StandardOutput").as_deref(), Some("tty"), "{name}");
            continue;
        }
        assert_eq!(directive(&unit, "StandardOutput").as_deref(), Some("journal+console"), "{name}");
        // By systemd's default the log would follow the output; for years.
        let services = ["baremetal-agent.service", "baremetal-agent-alive.service"];
        let log = if services.contains(&&*name) { "journal" } else { "journal+console" };
        assert_eq!(directive(&unit, "StandardError").as_deref(), Some(log), "{name}");
    }
}

#[test]
fn every_unit_line_has_a_reason() {
    for path in units() {
        let mut explained = false;
        for line in fs::read_to_string(&path).unwrap().lines() {
            match line.chars().next() {
                None | Some('[') => explained = false,
                Some('#') => explained = true,
                // Its value is a sentence itself.
                Some(_) if line.starts_with("Description=") => {}
                Some(_) => assert!(explained, "{}: {line}", path.display()),
            }
        }
    }
}

#[test]
fn errors_go_to_the_console_logs_to_stderr() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("var/lib/baremetal-agent");
    fs::create_dir_all(&state).unwrap();
    fs::write(state.join("journal"), "torn").unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_baremetal-agent"))
        .arg("--root")
        .arg(directory.path())
        .arg("run")
        .output()
        .unwrap();
    let (said, log) = (String::from_utf8(run.stdout).unwrap(), String::from_utf8(run.stderr).unwrap());
    assert!(!run.status.success());
    assert!(log.contains("safe mode"), "{log}");
    let [line] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert!(line.starts_with("baremetal: cannot read ") && line.contains("; next: "), "{line}");
}
