//! `.ci/advisories` says which database it compared the crates with, or that it reached none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use contract::documents::checkout;
use tempfile::TempDir;

/// A cargo-deny that reaches the database or not, and refuses an advisory about `hostile`.
const DENY: &str = r#"#!/bin/bash
database=$(sed -n 's/^db-path = "\(.*\)"/\1/p' "$2")/advisory-db-3157b0e258782691
case "$*" in
*'fetch db')
    [ -d "$REMOTE" ] || exit 1
    git clone --quiet "$REMOTE" "$database"
    ;;
*advisories)
    echo "$*" >>"$LOG"
    git -C "$database" rev-parse --quiet --verify HEAD >/dev/null || exit 2
    ! [ -d "$database/crates/hostile" ]
    ;;
esac
"#;

/// Outcome of the script.
struct Run {
    printed: String,
    is_success: bool,
    /// Arguments of the comparison.
    compared: String,
}

fn run(directory: &TempDir, remote: Option<&Path>, copy: Option<&Path>) -> Run {
    let [text, deny, log] = ["deny.txt", "deny", "log"].map(|name| directory.path().join(name));
    fs::write(&text, DENY).unwrap();
    fs::write(&log, "").unwrap();
    // Another process writes the program, because a thread that forks would keep a writer of it.
    assert!(Command::new("install").args(["-m", "755"]).args([&text, &deny]).status().unwrap().success());
    let mut command = Command::new(checkout(".ci/advisories"));
    command.arg(&deny).arg(directory.path().join("databases")).env_remove("ADVISORY_DB").env("LOG", &log);
    command.env("REMOTE", remote.unwrap_or(Path::new("/nowhere")));
    if let Some(copy) = copy {
        command.env("ADVISORY_DB", copy);
    }
    let output = command.output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    Run {
        printed: String::from_utf8(printed).unwrap(),
        is_success: output.status.success(),
        compared: fs::read_to_string(&log).unwrap(),
    }
}

/// A database with one advisory about that crate.
fn add_database(directory: &TempDir, name: &str, about: &str) -> PathBuf {
    let database = directory.path().join(name);
    let advisories = database.join("crates").join(about);
    fs::create_dir_all(&advisories).unwrap();
    fs::write(advisories.join("RUSTSEC-2020-0001.md"), "date = \"2020-01-31\"\n").unwrap();
    database
}

fn command(directory: &Path, line: &str) {
    let status = Command::new("bash").args(["-ec", line]).current_dir(directory).status().unwrap();
    assert!(status.success(), "{line}");
}

#[test]
fn crates_are_compared_with_the_fetched_database() {
    let directory = tempfile::tempdir().unwrap();
    let remote = add_database(&directory, "remote", "harmless");
    let commit = "git init --quiet; git add --all; git -c user.name=a -c user.email=a@b commit --quiet -m a";
    command(&remote, commit);
    let run = run(&directory, Some(&remote), None);
    assert!(run.is_success, "{}", run.printed);
    assert!(run.printed.contains("newest advisory is of 2020-01-31, "), "{}", run.printed);
    assert!(!run.compared.is_empty() && !run.compared.contains("--offline"), "{}", run.compared);
}

#[test]
fn copy_stands_in_for_an_unreachable_database() {
    let directory = tempfile::tempdir().unwrap();
    let known = add_database(&directory, "copy", "harmless");
    let archives = directory.path().join("archives");
    fs::create_dir(&archives).unwrap();
    for (name, about) in [("2020-01-30", "old"), ("2020-01-31", "hostile")] {
        let database = add_database(&directory, about, about);
        let archive = archives.join(format!("rustsec-advisory-db-{name}.tar.xz"));
        command(&database, &format!("tar --create --xz --file {} crates", archive.display()));
    }
    for (copy, is_success) in [(&known, true), (&archives, false), (&known, true)] {
        let run = run(&directory, None, Some(copy));
        assert_eq!(run.is_success, is_success, "{}", run.printed);
        assert!(run.printed.contains("newest advisory is of 2020-01-31, "), "{}", run.printed);
        assert!(run.compared.contains("--offline"), "{}", run.compared);
    }
}

#[test]
fn missing_database_is_said_and_no_failure() {
    let directory = tempfile::tempdir().unwrap();
    let without = run(&directory, None, None);
    assert!(without.is_success && without.printed.contains("nothing was checked"), "{}", without.printed);
    let wrong = run(&directory, None, Some(directory.path()));
    assert!(!wrong.is_success && wrong.printed.contains("neither crates nor"), "{}", wrong.printed);
    assert_eq!((without.compared, wrong.compared), (String::new(), String::new()));
}
