//! What `elemental state` prints.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::host::system::SystemError;

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

/// The snapshot that boots next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Active {
    pub(super) number: u32,
    pub(super) source: String,
}

pub(super) fn parse_active(printed: &str) -> Result<Option<Active>, SystemError> {
    let state: State = serde_norway::from_str(printed).map_err(|error| SystemError::Parse {
        what: "the output of `elemental state`",
        why: error.to_string(),
    })?;
    let nested = state.partitions.and_then(|partitions| partitions.state);
    let snapshots = state.state.or(nested).map(|partition| partition.snapshots);
    let mut snapshots = snapshots.into_iter().flatten();
    let active = snapshots.find(|(_, snapshot)| snapshot.active && !snapshot.source.is_empty());
    Ok(active.map(|(number, snapshot)| Active { number, source: snapshot.source }))
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
                Some((2, "oci://lab/os:v2")),
            ),
            ("nested", format!("partitions:\n    state:\n        {snapshots}"), Some((2, "oci://lab/os:v2"))),
            ("none active", "state:\n    snapshots:\n        1: {source: a}\n".to_owned(), None),
            ("no snapshots", "state:\n    label: COS_STATE\n".to_owned(), None),
        ];
        for (name, given, want) in cases {
            let active = parse_active(&given).unwrap();
            assert_eq!(active.as_ref().map(|active| (active.number, active.source.as_str())), want, "{name}");
        }
        assert!(parse_active("[1, 2]").is_err());
    }
}
