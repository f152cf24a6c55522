//! What `elemental state` prints.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::system::SystemError;

#[derive(Deserialize)]
struct State {
    state: Option<Partition>,
    partitions: Option<Partitions>,
}

#[derive(Deserialize)]
struct Partitions {
    state: Option<Partition>,
}

#[derive(Deserialize)]
struct Partition {
    #[serde(default)]
    snapshots: BTreeMap<u32, Snapshot>,
}

#[derive(Deserialize)]
struct Snapshot {
    #[serde(default)]
    source: String,
    #[serde(default)]
    active: bool,
}

/// Source of the snapshot that boots next.
pub(super) fn active_source(printed: &str) -> Result<Option<String>, SystemError> {
    let state: State = serde_norway::from_str(printed).map_err(|error| SystemError::Parse {
        what: "the output of `elemental state`",
        why: error.to_string(),
    })?;
    let nested = state.partitions.and_then(|partitions| partitions.state);
    let snapshots = state.state.or(nested).map(|partition| partition.snapshots);
    let active = snapshots
        .into_iter()
        .flatten()
        .map(|(_, snapshot)| snapshot)
        .find(|snapshot| snapshot.active && !snapshot.source.is_empty());
    Ok(active.map(|snapshot| snapshot.source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_active_snapshot_is_found() {
        let snapshots = "snapshots:\n            1:\n                source: dir:///run/rootfsbase\n                digest: \"\"\n            2:\n                source: oci://lab/os:v2\n                active: true\n";
        let cases = [
            (
                "flat",
                format!("date: x\nstate:\n        label: COS_STATE\n        {snapshots}"),
                Some("oci://lab/os:v2"),
            ),
            ("nested", format!("partitions:\n    state:\n        {snapshots}"), Some("oci://lab/os:v2")),
            ("none active", "state:\n    snapshots:\n        1: {source: a}\n".to_owned(), None),
            ("no snapshots", "state:\n    label: COS_STATE\n".to_owned(), None),
        ];
        for (name, given, want) in cases {
            assert_eq!(active_source(&given).unwrap().as_deref(), want, "{name}");
        }
        assert!(active_source("[1, 2]").is_err());
    }
}
