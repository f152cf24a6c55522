//! Which agent a host is to run: asked for by an operator, served by the
//! coordinator, tried by the host.

use coordinator_api::inventory::{AgentUpdateState, AgentUpdateStatus};
use semver::Version;

use super::statement::StatedUpdate;

/// The facts that are known to the replica with the stream of the host.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The annotation of the inventory.
    pub wanted: Option<&'a str>,
    /// Version of the agent that this coordinator serves.
    pub served: Option<&'a str>,
    /// Version of the agent that attached.
    pub runs: &'a str,
    /// The statement of that agent about updates; `None` if it is older than them.
    pub stated: Option<&'a StatedUpdate>,
    /// A plan is in flight.
    pub is_busy: bool,
}

/// The message that is due on the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Nothing,
    /// The host learns that nothing is asked of it: it keeps the agent that attached,
    /// and forgets the one that it gave up.
    Confirm,
    /// Nothing is sent, for the reason that is shown.
    Show(AgentUpdateStatus),
    /// The agent that is served is announced.
    Announce(AgentUpdateStatus),
}

pub fn decide(situation: &Situation<'_>) -> Decision {
    let Situation { wanted, served, runs, stated, is_busy } = *situation;
    let is_on_trial = stated.is_some_and(|stated| stated.is_on_trial);
    let confirm = |is_due: bool| if is_due { Decision::Confirm } else { Decision::Nothing };
    let Some(wanted) = wanted else {
        return confirm(is_on_trial || stated.is_some_and(|stated| stated.failed.is_some()));
    };
    if runs == wanted {
        return confirm(is_on_trial);
    }
    let show = |state, message: String| {
        Decision::Show(AgentUpdateStatus { version: wanted.to_owned(), state, message })
    };
    let unavailable = |message| show(AgentUpdateState::Unavailable, message);
    let Ok(version) = Version::parse(wanted) else {
        return unavailable(format!(
            "{wanted:?} is no semantic version; next: give one such as 1.2.3 in the annotation"
        ));
    };
    let Some(stated) = stated else {
        return unavailable(
            "the agent of the host is older than updates over the stream; next: upgrade its OS image to one with a newer agent".to_owned(),
        );
    };
    if Version::parse(runs).is_ok_and(|runs| runs >= version) {
        return unavailable(format!(
            "the host runs agent {runs}, and the newer one of image and update starts; next: remove the annotation"
        ));
    }
    if served != Some(wanted) {
        let served = served.map_or("no agent".to_owned(), |served| format!("agent {served}"));
        return unavailable(format!(
            "the coordinator serves {served}; next: upgrade the coordinator to {wanted}, or ask for the version that it serves"
        ));
    }
    if let Some(failed) = stated.failed.as_ref().filter(|failed| failed.version == wanted) {
        return show(AgentUpdateState::Failed, failed.message.clone());
    }
    if is_busy {
        return show(AgentUpdateState::Waiting, "the host executes a plan first".to_owned());
    }
    let version = wanted.to_owned();
    Decision::Announce(AgentUpdateStatus { version, state: AgentUpdateState::Sent, message: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::statement::FailedUpdate;

    fn stated(failed: Option<&str>, is_on_trial: bool) -> StatedUpdate {
        let failed = failed
            .map(|version| FailedUpdate { version: version.into(), message: "it did not attach".into() });
        StatedUpdate { failed, is_on_trial }
    }

    const CALM: Situation<'static> = Situation {
        wanted: Some("1.1.0"),
        served: Some("1.1.0"),
        runs: "1.0.0",
        stated: None,
        is_busy: false,
    };

    #[test]
    fn agent_is_announced_when_operator_requests_it() {
        let (plain, trial) = (stated(None, false), stated(None, true));
        let (failed, other) = (stated(Some("1.1.0"), false), stated(Some("1.0.9"), false));
        let calm = Situation { stated: Some(&plain), ..CALM };
        for (name, situation, want) in [
            ("asked for", calm, "announce"),
            ("not asked for", Situation { wanted: None, ..calm }, "nothing"),
            ("it runs", Situation { runs: "1.1.0", ..calm }, "nothing"),
            ("it runs on trial", Situation { runs: "1.1.0", stated: Some(&trial), ..calm }, "confirm"),
            (
                "on trial, and not asked for any more",
                Situation { wanted: None, stated: Some(&trial), ..calm },
                "confirm",
            ),
            ("it failed", Situation { stated: Some(&failed), ..calm }, "Failed: it did not attach"),
            ("another failed", Situation { stated: Some(&other), ..calm }, "announce"),
            (
                "it failed, and is not asked for any more",
                Situation { wanted: None, stated: Some(&failed), ..calm },
                "confirm",
            ),
            ("a plan runs", Situation { is_busy: true, ..calm }, "Waiting: the host executes a plan"),
            (
                "the host runs a newer one",
                Situation { runs: "1.2.0", ..calm },
                "Unavailable: the host runs agent 1.2.0",
            ),
            (
                "the coordinator has another",
                Situation { served: Some("1.2.0"), ..calm },
                "Unavailable: the coordinator serves agent 1.2.0",
            ),
            (
                "the coordinator has none",
                Situation { served: None, ..calm },
                "Unavailable: the coordinator serves no agent",
            ),
            ("no version", Situation { wanted: Some("new"), ..calm }, "Unavailable: \"new\" is no semantic"),
            ("an agent without updates", CALM, "Unavailable: the agent of the host is older"),
        ] {
            let got = match decide(&situation) {
                Decision::Nothing => "nothing".to_owned(),
                Decision::Confirm => "confirm".to_owned(),
                Decision::Announce(_) => "announce".to_owned(),
                Decision::Show(status) => format!("{:?}: {}", status.state, status.message),
            };
            assert!(got.starts_with(want), "{name}: {got}");
        }
    }
}
