//! Agents beside that of the image: files whose text says what they do.

use std::fs;

use agent::ground::paths::Root;
use agent::ground::version::own_version;
use agent::update::launch::choose_program;
use agent::update::record::Purpose;
use semver::Version;

/// What an agent's file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// It is a good one.
    Works,
    /// It ends as soon as it was started.
    Crashes,
    /// It does not reach the coordinator.
    Deaf,
}

/// An agent that is about to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// As Hello states it.
    pub version: Version,
    pub behaviour: Behaviour,
}

impl Program {
    /// The file of an agent, larger than one message.
    pub fn file(version: &str, behaviour: Behaviour) -> Vec<u8> {
        let does = match behaviour {
            Behaviour::Works => "works",
            Behaviour::Crashes => "crashes",
            Behaviour::Deaf => "is deaf",
        };
        let architecture = std::env::consts::ARCH;
        let mut file = format!("baremetal-agent-version:{version}:{architecture}; {does}\n").into_bytes();
        file.resize(600_000, b'.');
        file
    }

    /// The agent that systemd comes to when it starts that of the image for the verb
    /// `run`.
    pub fn start(root: &Root) -> Self {
        let Some(newer) = choose_program(root, &own_version(), Purpose::Attach) else {
            return Self { version: own_version(), behaviour: Behaviour::Works };
        };
        let file = fs::read(newer.path(&root.state())).unwrap_or_default();
        let says = |text: &str| file.windows(text.len()).any(|window| window == text.as_bytes());
        let behaviour = if says("; works") {
            Behaviour::Works
        } else if says("; is deaf") {
            Behaviour::Deaf
        } else {
            Behaviour::Crashes
        };
        Self { version: newer.version, behaviour }
    }
}
