//! A network that a plan brings is on trial until a boot with it reaches the coordinator. The
//! former network is kept beside the seed, and comes back once.
//!
//! While the system runs, only the record changes. Early boot puts the former network into the
//! seed, so that a crash at any point repeats this step.

use std::collections::BTreeMap;
use std::io;

use proto::plan::{PlanId, Secret, Seed};
use serde::{Deserialize, Serialize};

use super::connections;
use super::seed::{self, NETWORK_CONFIG, NETWORK_DATA};
use crate::ground::durable;
use crate::ground::failpoint::failpoint;
use crate::ground::failure::{Failure, OnPath as _};
use crate::ground::paths::{Root, StateDir};

const RECORD: &str = "trial.json";

/// The network part of a seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SeedNetwork {
    network_config: Option<String>,
    connections: BTreeMap<String, Secret>,
    network_data: Option<Secret>,
}

impl SeedNetwork {
    fn of_seed(seed: &Seed) -> Self {
        Self {
            network_config: seed.network_config.clone(),
            connections: seed.connections.clone(),
            network_data: seed.network_data.clone(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    plan_id: String,
    /// The boot that wrote the seed; this boot still has the former network.
    written_in: String,
    /// Set if the former network comes back.
    reverted: Option<Revert>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Revert {
    /// The boot that had the new network.
    boot_id: String,
    why: String,
}

/// A network that has not reached the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    record: Record,
    former: SeedNetwork,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// This boot still has the former network.
    NotBegun,
    /// This boot has the new network.
    Running,
    /// This boot has the new network, and is to end.
    Ending,
    /// The former network is back.
    Reverted,
}

impl Trial {
    /// The phase in the boot `boot`.
    pub fn phase(&self, boot: &str) -> Phase {
        match &self.record.reverted {
            Some(revert) if revert.boot_id == boot => Phase::Ending,
            Some(_) => Phase::Reverted,
            None if self.record.written_in == boot => Phase::NotBegun,
            None => Phase::Running,
        }
    }

    /// The plan that brought the network.
    pub fn plan_id(&self) -> &str {
        &self.record.plan_id
    }

    /// The reason for which the former network comes back or is back.
    pub fn reverted(&self) -> Option<&str> {
        self.record.reverted.as_ref().map(|revert| revert.why.as_str())
    }

    fn store(&self, state: &StateDir) -> Result<(), Failure> {
        let record = serde_json::json!(self.record).to_string();
        let connections = self.former.connections.iter();
        let keyfiles: Vec<_> =
            connections.map(|(name, content)| (connections::file_name(name), content.expose())).collect();
        let mut files = vec![(RECORD, record.as_bytes())];
        files.extend(self.former.network_config.as_ref().map(|text| (NETWORK_CONFIG, text.as_bytes())));
        files.extend(self.former.network_data.as_ref().map(|data| (NETWORK_DATA, data.expose())));
        files.extend(keyfiles.iter().map(|(name, content)| (name.as_str(), *content)));
        durable::create_directory(state.path())?;
        durable::replace_directory(&state.network_trial(), &files)
    }
}

/// The trial of this host. If the record cannot be read, the current network stays.
pub fn read_trial(state: &StateDir) -> Option<Trial> {
    try_read(state).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the former network, it is not restored");
        None
    })
}

fn try_read(state: &StateDir) -> Result<Option<Trial>, Failure> {
    let directory = state.network_trial();
    let path = directory.join(RECORD);
    let Some(bytes) = durable::read(&path)? else {
        return Ok(None);
    };
    let record = serde_json::from_slice(&bytes).map_err(io::Error::from).on("read", &path)?;
    let network_config = durable::read(&directory.join(NETWORK_CONFIG))?;
    let former = SeedNetwork {
        network_config: network_config.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        connections: seed::read_connections(&directory)?,
        network_data: durable::read(&directory.join(NETWORK_DATA))?.map(Secret::new),
    };
    Ok(Some(Trial { record, former }))
}

/// The trial of the network that `plan` brings, computed before its seed is stored; `None` if
/// nothing changes or no former network exists.
fn plan_trial(
    plan: &PlanId,
    boot: &str,
    wanted: &SeedNetwork,
    current: Option<SeedNetwork>,
    earlier: Option<Trial>,
) -> Option<Trial> {
    let Some(earlier) = earlier else {
        let former = current.filter(|former| former != wanted)?;
        return Some(Trial { record: new_record(plan, boot), former });
    };
    // The network of an earlier trial is not proven, so the former network of that trial stays the
    // one to return to.
    if earlier.former == *wanted {
        return None;
    }
    let is_same = earlier.plan_id() == plan.as_str();
    let record = if is_same { earlier.record } else { new_record(plan, boot) };
    Some(Trial { record, former: earlier.former })
}

fn new_record(plan: &PlanId, boot: &str) -> Record {
    Record { plan_id: plan.to_string(), written_in: boot.to_owned(), reverted: None }
}

/// Keeps the former network. Must be called before the seed of `plan` is stored.
pub fn keep_former(root: &Root, plan: &PlanId, boot: &str, wanted: &Seed) -> Result<(), Failure> {
    let state = root.state();
    let current = seed::load(&state)?.as_ref().map(SeedNetwork::of_seed);
    match plan_trial(plan, boot, &SeedNetwork::of_seed(wanted), current, read_trial(&state)) {
        Some(trial) => trial.store(&state)?,
        None => durable::remove_directory(&state.network_trial())?,
    }
    Ok(())
}

/// Records that the network of this boot reached the coordinator. Does nothing in a boot that does
/// not have the new network.
pub fn confirm_network(root: &Root, boot: &str) -> Result<(), Failure> {
    let state = root.state();
    match read_trial(&state).map(|trial| trial.phase(boot)) {
        Some(Phase::Running) => durable::remove_directory(&state.network_trial()),
        Some(Phase::NotBegun | Phase::Ending | Phase::Reverted) | None => Ok(()),
    }
}

/// Has the former network restored at the next boot.
pub fn revert_network(root: &Root, trial: Trial, boot: &str, why: &str) -> Result<(), Failure> {
    let revert = Revert { boot_id: boot.to_owned(), why: why.to_owned() };
    let record = Record { reverted: Some(revert), ..trial.record };
    Trial { record, ..trial }.store(&root.state())?;
    failpoint("boot::network::reverted");
    Ok(())
}

/// The seed with the former network, while the stored seed still has the network that failed.
pub fn find_former_seed(state: &StateDir) -> Result<Option<Seed>, Failure> {
    let Some(trial) = read_trial(state).filter(|trial| trial.reverted().is_some()) else {
        return Ok(None);
    };
    let seed = seed::load(state)?.filter(|seed| SeedNetwork::of_seed(seed) != trial.former);
    let SeedNetwork { network_config, connections, network_data } = trial.former;
    Ok(seed.map(|seed| Seed { network_config, connections, network_data, ..seed }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn network(text: &str) -> SeedNetwork {
        let keyfile = Secret::new(format!("[connection]\nid={text}\n").into_bytes());
        SeedNetwork {
            network_config: Some(format!("version: 2 # {text}\n")),
            connections: BTreeMap::from([("eno1".to_owned(), keyfile)]),
            network_data: Some(Secret::new(format!("{{\"id\":\"{text}\"}}").into_bytes())),
        }
    }

    fn seed_with(network: &SeedNetwork) -> Seed {
        let SeedNetwork { network_config, connections, network_data } = network.clone();
        let user_data = Some(Secret::new(b"#cloud-config\n".to_vec()));
        let meta_data = "instance-id: p-1\n".into();
        Seed { user_data, meta_data, network_config, connections, network_data }
    }

    fn plan(id: &str) -> PlanId {
        PlanId::parse(id).unwrap()
    }

    fn trial(id: &str, former: &str, reverted_in: Option<&str>) -> Trial {
        let revert = |boot: &str| Revert { boot_id: boot.into(), why: "silence".into() };
        let record =
            Record { plan_id: id.into(), written_in: "b-1".into(), reverted: reverted_in.map(revert) };
        Trial { record, former: network(former) }
    }

    #[test]
    fn only_a_proven_network_is_a_former_one() {
        let (old, new) = (Some(network("old")), Some(network("new")));
        let begun = |id: &str, written_in: &str| {
            let trial = trial(id, "old", None);
            Some(Trial { record: Record { written_in: written_in.into(), ..trial.record }, ..trial })
        };
        let cases = [
            ("first plan of a host without a seed", "p-1", "new", None, None, None),
            ("unchanged", "p-1", "old", old.clone(), None, None),
            ("changed", "p-1", "new", old.clone(), None, begun("p-1", "b-2")),
            (
                "killed before the seed was stored",
                "p-1",
                "new",
                old,
                begun("p-1", "b-1"),
                begun("p-1", "b-1"),
            ),
            (
                "killed after the seed was stored",
                "p-1",
                "new",
                new.clone(),
                begun("p-1", "b-1"),
                begun("p-1", "b-1"),
            ),
            (
                "a plan whose boot never came",
                "p-2",
                "third",
                new.clone(),
                begun("p-1", "b-1"),
                begun("p-2", "b-2"),
            ),
            (
                "a plan after a revert",
                "p-2",
                "third",
                Some(network("old")),
                Some(trial("p-1", "old", Some("b-1"))),
                begun("p-2", "b-2"),
            ),
            ("back to the proven one", "p-2", "old", new, begun("p-1", "b-1"), None),
        ];
        for (name, id, wanted, current, earlier, want) in cases {
            assert_eq!(plan_trial(&plan(id), "b-2", &network(wanted), current, earlier), want, "{name}");
        }
    }

    #[test]
    fn trial_runs_from_boot_after_its_seed() {
        let cases = [
            ("the boot that wrote it", None, "b-1", Phase::NotBegun),
            ("the next", None, "b-2", Phase::Running),
            ("a later one", None, "b-3", Phase::Running),
            ("silence", Some("b-2"), "b-2", Phase::Ending),
            ("the boot after it", Some("b-2"), "b-3", Phase::Reverted),
        ];
        for (name, reverted_in, boot, want) in cases {
            assert_eq!(trial("p-1", "old", reverted_in).phase(boot), want, "{name}");
        }
    }

    #[test]
    fn the_former_network_comes_back_once() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let state = root.state();
        seed::store(&state, &seed_with(&network("old"))).unwrap();
        let store_seed = |id: &str, text: &str| {
            keep_former(&root, &plan(id), "b-1", &seed_with(&network(text))).unwrap();
            seed::store(&state, &seed_with(&network(text))).unwrap();
        };
        store_seed("p-1", "new");
        confirm_network(&root, "b-1").unwrap();
        assert!(read_trial(&state).is_some(), "the boot that wrote the seed proves nothing");
        confirm_network(&root, "b-2").unwrap();
        assert_eq!(read_trial(&state), None, "it is the proven one");
        store_seed("p-2", "newer");
        assert_eq!(find_former_seed(&state).unwrap(), None);
        let found = read_trial(&state).unwrap();
        revert_network(&root, found, "b-2", "silence").unwrap();
        confirm_network(&root, "b-2").unwrap();
        assert_eq!(seed::load(&state).unwrap(), Some(seed_with(&network("newer"))), "until the next boot");
        let former = find_former_seed(&state).unwrap();
        assert_eq!(former, Some(seed_with(&network("new"))));
        seed::store(&state, &former.unwrap()).unwrap();
        assert_eq!(find_former_seed(&state).unwrap(), None, "once");
        confirm_network(&root, "b-3").unwrap();
        let found = read_trial(&state).unwrap();
        assert_eq!((found.plan_id(), found.reverted()), ("p-2", Some("silence")), "the plan learns of it");
        fs::write(state.network_trial().join(RECORD), "torn").unwrap();
        assert_eq!(read_trial(&state), None);
    }
}
