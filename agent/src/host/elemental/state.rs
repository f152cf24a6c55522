//! Parses the output of `elemental state`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::ground::failure::Failure;
use crate::host::observed::unreadable;
use crate::host::system::Snapshot;

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
    snapshots: BTreeMap<u32, Entry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    source: String,
    digest: String,
    active: bool,
}

pub(super) fn parse_snapshots(printed: &str) -> Result<Vec<Snapshot>, Failure> {
    let state: State = serde_norway::from_str(printed)
        .map_err(|error| unreadable("the output of `elemental state`", &error))?;
    let nested = state.partitions.and_then(|partitions| partitions.state);
    let snapshots = state.state.or(nested).map(|partition| partition.snapshots);
    Ok(snapshots
        .into_iter()
        .flatten()
        .map(|(number, Entry { source, digest, active })| Snapshot { number, source, digest, active })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_active_snapshot_is_found() {
        let snapshots = "snapshots:\n            1:\n                source: dir:///run/rootfsbase\n                digest: \"\"\n            2:\n                source: oci://lab/os:v2\n                digest: sha256:a\n                active: true\n";
        let cases = [
            (
                "flat",
                format!("date: x\nstate:\n        label: COS_STATE\n        {snapshots}"),
                Some((2, "oci://lab/os:v2", "sha256:a")),
            ),
            (
                "nested",
                format!("partitions:\n    state:\n        {snapshots}"),
                Some((2, "oci://lab/os:v2", "sha256:a")),
            ),
            ("none active", "state:\n    snapshots:\n        1: {source: a}\n".to_owned(), None),
            ("no snapshots", "state:\n    label: COS_STATE\n".to_owned(), None),
        ];
        for (name, given, want) in cases {
            let snapshots = parse_snapshots(&given).unwrap();
            let active = snapshots.iter().find(|snapshot| snapshot.active);
            let active = active.map(|active| (active.number, active.source.as_str(), active.digest.as_str()));
            assert_eq!(active, want, "{name}");
        }
        assert!(parse_snapshots("[1, 2]").is_err());
    }
}
