//! Another agent, from its announcement until it is kept: one start of the agent
//! after the other.

use std::fs;
use std::process::ExitCode;

use agent::ground::paths::Root;
use agent::update::keys;
use agent::update::launch::{choose_program, keep_proven};
use agent::update::offer::Offer;
use agent::update::record::{Program, Purpose, Record};
use anyhow::{Result, ensure};
use proto::update_keys::UpdateKeys;
use semver::Version;
use simulated_host::SimulatedSystem;

use crate::REBOOTING;

const FILE: &[u8] = b"another agent";

fn image() -> Version {
    Version::new(1, 0, 0)
}

fn program() -> Program {
    Program { version: Version::new(1, 1, 0), checksum: proto::proof::identity(FILE) }
}

fn keys() -> UpdateKeys {
    UpdateKeys::parse(&[vec![1; 32]]).unwrap()
}

/// One start: the agent of the image takes the announcement, the other one attaches.
pub(crate) fn play(root: &Root) -> Result<ExitCode> {
    let host = SimulatedSystem::new(root.clone());
    if host.is_booting() {
        host.run_cloud_init()?;
    }
    let Some(newer) = choose_program(root, &image(), Purpose::Attach) else {
        let record = Record::read(&root.state())?;
        ensure!(record == Record::default(), "it was given up: {record:?}");
        Offer { program: program(), size: FILE.len(), keys: Some(keys()) }.keep(root, FILE)?;
        return Ok(ExitCode::from(REBOOTING));
    };
    ensure!(newer == program(), "{newer:?}");
    keep_proven(root, &newer.version)?;
    Ok(ExitCode::SUCCESS)
}

/// The other agent is there, whole, and is the one that starts.
pub(crate) fn check(root: &Root) -> Result<()> {
    let record = Record::read(&root.state())?;
    ensure!(record == Record::default().with_trial(program(), None).with_kept(), "{record:?}");
    ensure!(keys::read(&root.state())? == Some(keys()), "its keys are not trusted");
    ensure!(fs::read(program().path(&root.state()))? == FILE, "another file");
    ensure!(choose_program(root, &image(), Purpose::Other) == Some(program()), "it does not start");
    Ok(())
}
