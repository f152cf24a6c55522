//! The agents beside the one of the image, and their state. The record is one file that is replaced
//! as a whole; every change is a pure function.

use std::collections::BTreeMap;
use std::path::PathBuf;

use proto::update_keys::UpdateKeys;
use semver::Version;
use serde::{Deserialize, Serialize};

use crate::ground::durable;
use crate::ground::failure::{Failure, describe_cause};
use crate::ground::paths::StateDir;

/// Starts of an agent on trial before it is given up.
pub const STARTS: u32 = 3;

/// The purpose of a start of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// Attach: an agent on trial proves itself by it.
    Attach,
    /// Early boot.
    Boot,
    /// The duty for an endpoint.
    Duty,
    /// Show something, or run a part of another start.
    Other,
}

impl Purpose {
    /// The purposes that an agent has to fulfil once after it has attached.
    const LATER: [Self; 2] = [Self::Boot, Self::Duty];

    /// Starts without success before the agent is given up. Early boot is one start in each boot, and
    /// a failed one costs the node until the next.
    const fn starts(self) -> u32 {
        if matches!(self, Self::Boot) { 1 } else { STARTS }
    }
}

/// The record in the state directory. Agents without support for updates ignore it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<Program>,
    /// Purposes that the kept agent has not fulfilled yet, with the number of its starts for each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unproven: BTreeMap<Purpose, u32>,
    /// The agent has not attached yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// The agent was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Failed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub version: Version,
    /// Lower-case hexadecimal SHA-256 of the file.
    pub checksum: String,
}

/// An agent that has to prove itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    pub program: Program,
    /// Number of starts.
    pub starts: u32,
    /// The keys for updates that the host trusts once the agent has attached; `None`: those that it
    /// has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<UpdateKeys>,
}

/// An agent that is not started again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    pub version: Version,
    pub message: String,
    pub next_action: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The agent that makes the choice.
    Own,
    /// An agent that has done this before.
    Kept(Program),
    /// An agent that has not attached, or not been started for this purpose, yet.
    Trial(Program),
    /// An agent that has used up its starts.
    GiveUp(Program),
}

impl Record {
    /// Chooses the newest of image and updates. An agent on trial is started only to attach.
    pub fn choose(&self, own: &Version, purpose: Purpose) -> Choice {
        let trial = self.trial.as_ref().filter(|trial| trial.program.version > *own);
        let kept = self.kept.as_ref().filter(|kept| kept.version > *own);
        let (program, starts) = match (trial, kept) {
            (Some(trial), _) if purpose == Purpose::Attach => (&trial.program, Some(trial.starts)),
            (_, Some(kept)) => (kept, self.unproven.get(&purpose).copied()),
            (_, None) => return Choice::Own,
        };
        match starts {
            None => Choice::Kept(program.clone()),
            Some(starts) if starts < purpose.starts() => Choice::Trial(program.clone()),
            Some(_) => Choice::GiveUp(program.clone()),
        }
    }

    /// True if this version is on trial.
    pub fn is_on_trial(&self, own: &Version) -> bool {
        self.trial.as_ref().is_some_and(|trial| trial.program.version == *own)
    }

    /// Records a new agent to try, with the keys that it brings, and forgets the former failure.
    pub fn with_trial(self, program: Program, keys: Option<UpdateKeys>) -> Self {
        Self { trial: Some(Trial { program, starts: 0, keys }), failed: None, ..self }
    }

    /// Records a start for a purpose that is not proven.
    pub fn with_start(mut self, purpose: Purpose) -> Self {
        let trial = self.trial.as_mut().filter(|_| purpose == Purpose::Attach);
        if let Some(starts) = trial.map(|trial| &mut trial.starts).or(self.unproven.get_mut(&purpose)) {
            *starts = starts.saturating_add(1);
        }
        self
    }

    /// Keeps the agent on trial, because it has attached. It has to prove the other purposes.
    pub fn with_kept(mut self) -> Self {
        if let Some(trial) = self.trial.take() {
            self.kept = Some(trial.program);
            self.unproven = Purpose::LATER.map(|purpose| (purpose, 0)).into();
        }
        self
    }

    /// True if this version is kept and has not fulfilled the purpose yet.
    pub fn is_unproven(&self, own: &Version, purpose: Purpose) -> bool {
        let is_kept = self.kept.as_ref().is_some_and(|kept| kept.version == *own);
        is_kept && self.unproven.contains_key(&purpose)
    }

    /// The kept agent has fulfilled the purpose.
    pub fn with_proven(mut self, purpose: Purpose) -> Self {
        self.unproven.remove(&purpose);
        self
    }

    /// Gives up every agent of this version.
    pub fn with_failed(mut self, failed: Failed) -> Self {
        self.trial.take_if(|trial| trial.program.version == failed.version);
        self.kept.take_if(|kept| kept.version == failed.version);
        if self.kept.is_none() {
            self.unproven.clear();
        }
        self.failed = Some(failed);
        self
    }

    /// Forgets the failure, because the coordinator has seen it.
    pub fn without_failed(self) -> Self {
        Self { failed: None, ..self }
    }

    /// Removes every agent that is not newer than the one of the image.
    pub fn without_older(mut self, image: &Version) -> Self {
        self.trial.take_if(|trial| trial.program.version <= *image);
        self.kept.take_if(|kept| kept.version <= *image);
        if self.kept.is_none() {
            self.unproven.clear();
        }
        self.failed.take_if(|failed| failed.version <= *image);
        self
    }

    /// True if a file with this name may be started.
    pub fn needs(&self, name: &str) -> bool {
        let trial = self.trial.as_ref().map(|trial| &trial.program);
        [self.kept.as_ref(), trial].into_iter().flatten().any(|program| program.file_name() == name)
    }

    /// Reads the record; empty if there is none.
    pub fn read(state: &StateDir) -> Result<Self, Failure> {
        let path = state.update_record();
        let Some(text) = durable::read(&path)? else { return Ok(Self::default()) };
        serde_json::from_slice(&text).map_err(|error| {
            let message = describe_cause(&format!("{} is no record of updates", path.display()), &error);
            Failure::input_output(
                message,
                "remove the file: cannot start the updated agent, falling back to the image's then",
            )
        })
    }

    pub fn write(&self, state: &StateDir) -> Result<(), Failure> {
        durable::write_json(&state.update_record(), self)
    }
}

impl Program {
    /// Name of the agent's file. The name is unique, so that the file of a running agent is never
    /// replaced.
    pub fn file_name(&self) -> String {
        format!("baremetal-agent-{}-{}", self.version, self.checksum.get(..16).unwrap_or_default())
    }

    pub fn path(&self, state: &StateDir) -> PathBuf {
        state.updates().join(self.file_name())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    fn program(text: &str) -> Program {
        Program { version: version(text), checksum: "0123456789abcdef0123".into() }
    }

    fn failed(text: &str) -> Failed {
        Failed { version: version(text), message: "it did not attach".into(), next_action: String::new() }
    }

    fn record(kept: Option<&str>, trial: Option<(&str, u32)>) -> Record {
        let trial = trial.map(|(version, starts)| Trial { program: program(version), starts, keys: None });
        Record { kept: kept.map(program), trial, ..Record::default() }
    }

    #[test]
    fn the_newest_agent_is_started() {
        use Purpose::{Attach, Boot};
        for (name, record, own, purpose, want) in [
            ("no update", record(None, None), "1.0.0", Attach, Choice::Own),
            ("newer", record(Some("1.1.0"), None), "1.0.0", Attach, Choice::Kept(program("1.1.0"))),
            ("newer, other verb", record(Some("1.1.0"), None), "1.0.0", Boot, Choice::Kept(program("1.1.0"))),
            ("the image is newer", record(Some("1.1.0"), None), "1.2.0", Attach, Choice::Own),
            ("the same", record(Some("1.1.0"), None), "1.1.0", Attach, Choice::Own),
            (
                "release after its candidate",
                record(Some("1.1.0"), None),
                "1.1.0-rc.1",
                Attach,
                Choice::Kept(program("1.1.0")),
            ),
            (
                "first start",
                record(None, Some(("1.1.0", 0))),
                "1.0.0",
                Attach,
                Choice::Trial(program("1.1.0")),
            ),
            (
                "last start",
                record(None, Some(("1.1.0", 2))),
                "1.0.0",
                Attach,
                Choice::Trial(program("1.1.0")),
            ),
            ("used up", record(None, Some(("1.1.0", 3))), "1.0.0", Attach, Choice::GiveUp(program("1.1.0"))),
            ("on trial, other verb", record(None, Some(("1.1.0", 0))), "1.0.0", Boot, Choice::Own),
            (
                "on trial beside a kept one",
                record(Some("1.1.0"), Some(("1.2.0", 1))),
                "1.0.0",
                Attach,
                Choice::Trial(program("1.2.0")),
            ),
            (
                "on trial beside a kept one, other verb",
                record(Some("1.1.0"), Some(("1.2.0", 1))),
                "1.0.0",
                Boot,
                Choice::Kept(program("1.1.0")),
            ),
            (
                "the one on trial itself",
                record(Some("1.1.0"), Some(("1.2.0", 1))),
                "1.2.0",
                Attach,
                Choice::Own,
            ),
        ] {
            assert_eq!(record.choose(&version(own), purpose), want, "{name}");
        }
    }

    #[test]
    fn a_kept_agent_proves_each_purpose() {
        let (own, new) = (version("1.0.0"), program("1.1.0"));
        let kept = record(None, Some(("1.1.0", 1))).with_kept();
        assert_eq!(kept.choose(&own, Purpose::Attach), Choice::Kept(new.clone()), "it has attached");
        for (purpose, starts) in [(Purpose::Boot, 1), (Purpose::Duty, STARTS)] {
            assert!(kept.is_unproven(&new.version, purpose) && !kept.is_unproven(&own, purpose));
            let mut record = kept.clone();
            for start in 0..starts {
                let choice = record.choose(&own, purpose);
                assert_eq!(choice, Choice::Trial(new.clone()), "{purpose:?} {start}");
                record = record.with_start(purpose);
            }
            assert_eq!(record.choose(&own, purpose), Choice::GiveUp(new.clone()), "{purpose:?}");
            let proven = record.with_proven(purpose);
            assert_eq!(proven.choose(&own, purpose), Choice::Kept(new.clone()), "{purpose:?}");
        }
        assert_eq!(kept.choose(&own, Purpose::Other), Choice::Kept(new));
    }

    #[test]
    fn agent_trial_ends_kept_or_failed() {
        let tried =
            record(Some("1.1.0"), None).with_failed(failed("1.3.0")).with_trial(program("1.2.0"), None);
        assert_eq!(tried, record(Some("1.1.0"), Some(("1.2.0", 0))), "an earlier failure is forgotten");
        let started = tried.with_start(Purpose::Attach).with_start(Purpose::Attach).with_start(Purpose::Boot);
        assert_eq!(started, record(Some("1.1.0"), Some(("1.2.0", 2))));
        assert!(started.is_on_trial(&version("1.2.0")) && !started.is_on_trial(&version("1.1.0")));
        let unproven = [(Purpose::Boot, 0), (Purpose::Duty, 0)].into();
        let kept = started.clone().with_kept();
        assert_eq!(kept, Record { unproven, ..record(Some("1.2.0"), None) });
        let proven = kept.with_start(Purpose::Boot).with_proven(Purpose::Boot).with_proven(Purpose::Duty);
        assert_eq!(proven, record(Some("1.2.0"), None));
        let given_up = started.with_failed(failed("1.2.0"));
        let former = Record { failed: Some(failed("1.2.0")), ..record(Some("1.1.0"), None) };
        assert_eq!(given_up, former, "the former one stays");
        assert_eq!(given_up.without_failed(), record(Some("1.1.0"), None));
        let damaged = record(Some("1.1.0"), None).with_failed(failed("1.1.0"));
        assert_eq!((damaged.kept, damaged.failed), (None, Some(failed("1.1.0"))));
    }

    #[test]
    fn a_newer_image_ends_updates() {
        let all = record(Some("1.1.0"), Some(("1.2.0", 1)));
        let all = Record { failed: Some(failed("1.3.0")), ..all };
        for (image, want) in [
            ("1.0.0", all.clone()),
            ("1.1.0", Record { kept: None, ..all.clone() }),
            ("1.2.0", Record { kept: None, trial: None, ..all.clone() }),
            ("1.3.0", Record::default()),
        ] {
            assert_eq!(all.clone().without_older(&version(image)), want, "{image}");
        }
        assert!(all.needs(&program("1.1.0").file_name()) && all.needs(&program("1.2.0").file_name()));
        assert!(!all.needs(&program("1.3.0").file_name()));
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let state = crate::ground::paths::Root::at(directory.path()).state();
        assert_eq!(Record::read(&state).unwrap(), Record::default());
        durable::create_directory(&state.updates()).unwrap();
        let written = Record { failed: Some(failed("1.3.0")), ..record(Some("1.1.0"), Some(("1.2.0", 1))) };
        written.write(&state).unwrap();
        assert_eq!(Record::read(&state).unwrap(), written);
        fs::write(state.update_record(), r#"{"kept":null,"ofALaterVersion":1}"#).unwrap();
        assert_eq!(Record::read(&state).unwrap(), Record::default(), "what is not known is left out");
        fs::write(state.update_record(), "torn").unwrap();
        let error = Record::read(&state).unwrap_err();
        assert!(error.next_action.contains("remove"), "{error}");
    }
}
