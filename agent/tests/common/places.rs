//! The places of failpoints in the source, compared with those that the runs passed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use regex::Regex;

/// Writes that no run of this harness reaches: the file, a part of the line, and what a crash there leaves.
const NOT_PLAYED: [(&str, &str, &str); 11] = [
    ("alive/overload.rs", "join(READY)", "a time that the next check writes again"),
    ("alive/supervisor.rs", "config.as_bytes()", "a configuration that the next start writes again"),
    ("live/used_disk/typed.rs", "durable::write(&done", "a live system, which begins again from its medium"),
    ("live/install.rs", "request.stages", "a live system, which begins again from its medium"),
    ("live/install/attempts.rs", "durable::", "a live system, which begins again from its medium"),
    ("host/elemental.rs", "durable::remove(&path)", "a file in memory, which a reboot removes"),
    ("state/receipt.rs", "cleanup_progress()", "a wipe that goes on from the former record"),
    ("identity.rs", "join(NEXT_KEY)", "a key that is abandoned again"),
    ("plan/staged.rs", "&staging", "files of a plan that is over, which the next plan removes"),
    ("installed/settings.rs", "self.path()", "settings that the coordinator announces again"),
    ("installed/settings.rs", "state().config()", "settings that the coordinator announces again"),
];

/// A crash was played at each failpoint, and at each call of the functions that write durably. A line
/// of `hit` has the name of a failpoint and the place of the call.
pub(crate) fn compare(hit: &BTreeSet<String>) -> Result<()> {
    let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
    for line in hit {
        let (name, place) = line.split_once(' ').context("a failpoint without place")?;
        names.insert(name.to_owned());
        if name.starts_with("durable::") {
            places.insert(place.to_owned());
        }
    }
    let source = read_source()?;
    let wanted = list_names(&source);
    ensure!(
        names == wanted,
        "failpoints in the source and those that were hit differ: {names:?}, {wanted:?}"
    );
    let missed: Vec<_> =
        list_writes(&source)?.into_iter().filter(|write| !places.contains(&write.place)).collect();
    let is_same = |write: &Write, file: &str, call: &str| {
        write.place.starts_with(&format!("agent/src/{file}:")) && write.text.contains(call)
    };
    let is_known = |write: &&Write| NOT_PLAYED.iter().any(|(file, call, _)| is_same(write, file, call));
    let unknown: Vec<_> = missed.iter().filter(|write| !is_known(write)).collect();
    ensure!(unknown.is_empty(), "no crash was played at these writes: {unknown:#?}");
    let is_missed =
        |(file, call, _): &&(&str, &str, &str)| missed.iter().any(|write| is_same(write, file, call));
    let played: Vec<_> = NOT_PLAYED.iter().filter(|row| !is_missed(row)).collect();
    ensure!(played.is_empty(), "these are played: {played:?}");
    Ok(())
}

/// A call that writes durably.
#[derive(Debug)]
struct Write {
    /// As the compiler names it: path from the root of the workspace, and line.
    place: String,
    text: String,
}

/// Paths from the root of the workspace and texts of the agent and the simulated host.
fn read_source() -> Result<Vec<(String, String)>> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pending = vec![PathBuf::from("agent/src"), PathBuf::from("tests/simulated-host/src")];
    let mut source = vec![];
    while let Some(path) = pending.pop() {
        let whole = workspace.join(&path);
        if whole.is_dir() {
            for entry in fs::read_dir(whole)? {
                pending.push(path.join(entry?.file_name()));
            }
            continue;
        }
        source.push((path.to_string_lossy().into_owned(), fs::read_to_string(whole)?));
    }
    Ok(source)
}

fn list_names(source: &[(String, String)]) -> BTreeSet<String> {
    let calls = source.iter().flat_map(|(_, text)| text.split("failpoint(\"").skip(1));
    calls.filter_map(|call| call.split('"').next()).map(str::to_owned).collect()
}

/// Test code below `mod tests` is left out.
fn list_writes(source: &[(String, String)]) -> Result<Vec<Write>> {
    let call = Regex::new(r"durable::(write\w*|replace_directory|remove\w*)\(")?;
    let is_test = |path: &str| path.ends_with("tests.rs") || path.contains("/tests/");
    let mut writes = vec![];
    for (path, text) in source.iter().filter(|(path, _)| path.starts_with("agent/") && !is_test(path)) {
        let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let lines = code.lines().enumerate().filter(|(_, line)| call.is_match(line));
        writes.extend(lines.map(|(index, line)| Write {
            place: format!("{path}:{}", index + 1),
            text: line.trim().to_owned(),
        }));
    }
    Ok(writes)
}
