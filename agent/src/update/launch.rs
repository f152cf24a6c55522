//! Chooses the agent that starts: the agent of the image starts first, decides and hands over.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use ring::digest::{Context, SHA256};
use semver::Version;

use super::keys;
use super::record::{Choice, Failed, Program, Purpose, Record, STARTS};
use crate::ground::durable;
use crate::ground::failpoint::failpoint;
use crate::ground::failure::Failure;
use crate::ground::paths::Root;

/// The way to ask for the same agent again.
const AGAIN: &str = "correct the cause, then ask again: remove the annotation baremetal.cluster.io/agent-version of the MachineInventory, and set it again";

/// The agent that `own` hands over to; `None` if `own` runs itself.
pub fn choose_program(root: &Root, own: &Version, purpose: Purpose) -> Option<Program> {
    match try_choose(root, own, purpose) {
        Ok(program) => program,
        Err(error) => {
            // An agent whose starts cannot be counted must not be tried.
            tracing::warn!(%error, "cannot read the agent update record, starting the image's agent");
            None
        }
    }
}

fn try_choose(root: &Root, own: &Version, purpose: Purpose) -> Result<Option<Program>, Failure> {
    let state = root.state();
    let mut record = Record::read(&state)?;
    loop {
        let choice = record.choose(own, purpose);
        let is_trial = matches!(choice, Choice::Trial(_));
        let (program, message) = match choice {
            Choice::Own => return Ok(None),
            Choice::GiveUp(program) => (program, describe_failure(purpose)),
            Choice::Kept(program) | Choice::Trial(program) => {
                match check_file(&program, &program.path(&state)) {
                    Ok(()) if is_trial => {
                        record.with_start(purpose).write(&state)?;
                        failpoint("update::start::counted");
                        return Ok(Some(program));
                    }
                    Ok(()) => return Ok(Some(program)),
                    Err(message) => (program, message),
                }
            }
        };
        record = record.with_failed(fail(&program.version, message));
        record.write(&state)?;
    }
}

fn describe_failure(purpose: Purpose) -> String {
    match purpose {
        Purpose::Attach | Purpose::Other => format!("it was started {STARTS} times and did not attach"),
        Purpose::Boot => "its early boot did not end well".to_owned(),
        Purpose::Duty => format!("it was started {STARTS} times for the load balancer and ended each time"),
    }
}

fn fail(version: &Version, message: String) -> Failed {
    tracing::warn!(%version, cause = message, "agent update given up");
    Failed { version: version.clone(), message, next_action: AGAIN.to_owned() }
}

/// Compares the file with the signed checksum; a damaged file is not started.
fn check_file(program: &Program, path: &Path) -> Result<(), String> {
    match hash_file(path) {
        Ok(checksum) if checksum == program.checksum => Ok(()),
        Ok(_) => Err(format!("its file {} is damaged", path.display())),
        Err(error) => Err(format!("its file {} cannot be read: {error}", path.display())),
    }
}

fn hash_file(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut buffer) = (Context::new(&SHA256), vec![0; 64 * 1024]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex::encode(hash.finish())),
            read => hash.update(&buffer[..read]),
        }
    }
}

/// Gives up an agent that cannot be started or did not attach, so that it is not started again.
pub fn give_up(root: &Root, version: &Version, message: String) -> Result<(), Failure> {
    refuse(root, fail(version, message))
}

/// Records that an announced agent is not started.
pub fn refuse(root: &Root, failed: Failed) -> Result<(), Failure> {
    let state = root.state();
    durable::create_directory(&state.updates())?;
    Record::read(&state)?.with_failed(failed).write(&state)
}

/// Keeps the agent of this version, which is on trial and has attached.
pub fn keep_proven(root: &Root, version: &Version) -> Result<(), Failure> {
    let state = root.state();
    let record = Record::read(&state)?;
    if !record.is_on_trial(version) {
        return Ok(());
    }
    // The record forgets the keys when the agent is kept.
    if let Some(keys) = record.trial.as_ref().and_then(|trial| trial.keys.as_ref()) {
        keys::write(&state, keys)?;
        failpoint("update::keys::kept");
    }
    record.with_kept().write(&state)?;
    failpoint("update::kept");
    Ok(())
}

/// Records that the running agent has fulfilled a purpose, if it had to.
pub fn record_proven(root: &Root, version: &Version, purpose: Purpose) {
    let state = root.state();
    let proven = Record::read(&state).and_then(|record| {
        if !record.is_unproven(version, purpose) {
            return Ok(());
        }
        record.with_proven(purpose).write(&state)
    });
    if let Err(error) = proven {
        tracing::warn!(%error, "cannot record that this agent works, so the image's agent is started next");
    }
}

/// Removes the agents that no record names, and those that are older than the image's agent
/// (`own`). Called at early boot, while only this process runs from the directory. `file` is the
/// running program: if it is an update itself, `own` is not the version of the image.
pub fn remove_unneeded(root: &Root, own: &Version, file: &Path) {
    let state = root.state();
    let directory = state.updates();
    let Ok(entries) = fs::read_dir(&directory) else { return };
    let is_update = file.parent() == Some(directory.as_path());
    let kept = Record::read(&state).and_then(|record| {
        let newer = if is_update { record.clone() } else { record.clone().without_older(own) };
        if newer != record {
            newer.write(&state)?;
        }
        Ok(newer)
    });
    let record = match kept {
        Ok(record) => record,
        Err(error) => {
            tracing::warn!(%error, "cannot delete unused agent binaries");
            return;
        }
    };
    let record_path = state.update_record();
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    for path in paths.filter(|path| *path != record_path && !names(&record, path)) {
        if let Err(error) = durable::remove(&path) {
            tracing::warn!(%error, "cannot delete unused agent binaries");
        }
    }
}

fn names(record: &Record, path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| record.needs(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::paths::StateDir;
    use crate::update::record::Trial;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    fn lay(state: &StateDir, text: &str) -> Program {
        let checksum = proto::proof::identity(text.as_bytes());
        let program = Program { version: version(text), checksum };
        durable::create_directory(&state.updates()).unwrap();
        fs::write(program.path(state), text).unwrap();
        program
    }

    #[test]
    fn trial_agent_is_abandoned_after_allowed_starts() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let own = version("1.0.0");
        assert_eq!(choose_program(&root, &own, Purpose::Attach), None, "a live system has no state");
        let (kept, tried) = (lay(&root.state(), "1.1.0"), lay(&root.state(), "1.2.0"));
        let record = Record { kept: Some(kept.clone()), ..Record::default() }.with_trial(tried.clone(), None);
        record.write(&root.state()).unwrap();
        for _ in 0..STARTS {
            assert_eq!(
                choose_program(&root, &own, Purpose::Boot),
                Some(kept.clone()),
                "early boot does not try"
            );
            assert_eq!(choose_program(&root, &own, Purpose::Attach), Some(tried.clone()));
        }
        assert_eq!(choose_program(&root, &own, Purpose::Attach), Some(kept.clone()));
        let record = Record::read(&root.state()).unwrap();
        assert_eq!((record.kept, record.trial), (Some(kept), None));
        let failed = record.failed.unwrap();
        assert!(failed.message.contains("3 times") && failed.version == tried.version, "{failed:?}");
    }

    #[test]
    fn early_boot_falls_back_at_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let own = version("1.0.0");
        let new = lay(&root.state(), "1.1.0");
        Record::default().with_trial(new.clone(), None).with_kept().write(&root.state()).unwrap();
        assert_eq!(choose_program(&root, &own, Purpose::Boot), Some(new.clone()));
        record_proven(&root, &own, Purpose::Boot);
        assert_eq!(choose_program(&root, &own, Purpose::Boot), None, "it shut the gate, or was killed");
        let record = Record::read(&root.state()).unwrap();
        assert!(record.failed.unwrap().message.contains("early boot"));
        assert_eq!(choose_program(&root, &own, Purpose::Attach), None, "no part of it is started");

        Record::default().with_trial(new.clone(), None).with_kept().write(&root.state()).unwrap();
        for _ in 0..2 {
            assert_eq!(choose_program(&root, &own, Purpose::Boot), Some(new.clone()));
            record_proven(&root, &new.version, Purpose::Boot);
        }
    }

    #[test]
    fn a_damaged_file_is_not_started() {
        for damage in ["1.1.0 and more", ""] {
            let directory = tempfile::tempdir().unwrap();
            let root = Root::at(directory.path());
            let program = lay(&root.state(), "1.1.0");
            Record { kept: Some(program.clone()), ..Record::default() }.write(&root.state()).unwrap();
            fs::write(program.path(&root.state()), damage).unwrap();
            assert_eq!(choose_program(&root, &version("1.0.0"), Purpose::Boot), None);
            let failed = Record::read(&root.state()).unwrap().failed.unwrap();
            assert!(failed.message.contains("damaged"), "{failed:?}");
        }
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let program = lay(&root.state(), "1.1.0");
        Record::default().with_trial(program.clone(), None).write(&root.state()).unwrap();
        fs::remove_file(program.path(&root.state())).unwrap();
        assert_eq!(choose_program(&root, &version("1.0.0"), Purpose::Attach), None);
        assert!(Record::read(&root.state()).unwrap().failed.unwrap().message.contains("cannot be read"));
    }

    #[test]
    fn early_boot_removes_what_nothing_starts() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let state = root.state();
        remove_unneeded(&root, &version("1.0.0"), Path::new("/usr/bin/baremetal-agent"));
        let (kept, tried, gone) = (lay(&state, "1.1.0"), lay(&state, "1.2.0"), lay(&state, "1.3.0"));
        let record = Record {
            kept: Some(kept.clone()),
            trial: Some(Trial { program: tried.clone(), starts: 1, keys: None }),
            ..Record::default()
        };
        record.write(&state).unwrap();
        remove_unneeded(&root, &version("1.1.0"), &kept.path(&state));
        assert!(kept.path(&state).exists() && tried.path(&state).exists() && !gone.path(&state).exists());
        assert_eq!(Record::read(&state).unwrap(), record, "it is not the image");
        remove_unneeded(&root, &version("1.1.0"), Path::new("/usr/bin/baremetal-agent"));
        assert!(!kept.path(&state).exists(), "the image brought it");
        remove_unneeded(&root, &version("2.0.0"), Path::new("/usr/bin/baremetal-agent"));
        assert_eq!(Record::read(&state).unwrap(), Record::default());
        assert!(!tried.path(&state).exists());
    }
}
