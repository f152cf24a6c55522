//! What a plan leaves on a host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use agent::ground::paths::Root;
use agent::state::node_identity;

/// Type, permissions and content of everything below `/etc` and `/var`.
pub(crate) type State = BTreeMap<String, String>;

/// How far an agent is with a plan: each has its own record of it.
const PROGRESS: [&str; 2] = ["/var/lib/baremetal-agent/journal", "/var/lib/baremetal-agent/done"];

pub(crate) fn read_state(root: &Root) -> State {
    let mut state = State::new();
    for directory in ["/etc", "/var"] {
        read_directory(root, directory, &mut state);
    }
    // Only our agent goes back to the former network.
    state.retain(|path, _| !path.starts_with("/var/lib/baremetal-agent/network-trial"));
    // One document, written with and without white space.
    let identity = root.state().node_identity();
    if identity.exists() {
        let parsed = format!("{:?}", node_identity::read(root).unwrap());
        assert_eq!(fs::metadata(&identity).unwrap().permissions().mode() & 0o777, 0o600);
        state.insert("/var/lib/baremetal-agent/node-identity.json".to_owned(), parsed);
    }
    state
}

/// What only one of two hosts has.
pub(crate) fn list_differences<'a>(
    ours: &'a State,
    theirs: &'a State,
) -> Vec<(&'a str, Option<&'a str>, Option<&'a str>)> {
    let paths: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let of = |state: &'a State, path: &String| state.get(path).map(String::as_str);
    let rows = paths.into_iter().map(|path| (path.as_str(), of(ours, path), of(theirs, path)));
    rows.filter(|(_, ours, theirs)| ours != theirs).collect()
}

fn read_directory(root: &Root, directory: &str, state: &mut State) {
    for entry in fs::read_dir(root.join(directory)).unwrap().map(Result::unwrap) {
        let path = format!("{directory}/{}", entry.file_name().to_string_lossy());
        if PROGRESS.contains(&path.as_str()) {
            continue;
        }
        state.insert(path.clone(), describe(&entry.path()));
        if entry.file_type().unwrap().is_dir() {
            read_directory(root, &path, state);
        }
    }
}

fn describe(path: &Path) -> String {
    let metadata = fs::symlink_metadata(path).unwrap();
    let mode = metadata.permissions().mode() & 0o7777;
    if metadata.is_symlink() {
        format!("link to {}", fs::read_link(path).unwrap().display())
    } else if metadata.is_dir() {
        format!("directory {mode:o}")
    } else {
        format!("file {mode:o} {}", String::from_utf8_lossy(&fs::read(path).unwrap()))
    }
}
