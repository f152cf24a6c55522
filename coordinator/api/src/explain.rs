//! What each reason, Event and refusal means: its cause, and what an operator does
//! about it. `docs/reference` and `kubectl baremetal why` show the same entries.

#![allow(clippy::enum_glob_use, reason = "the tables name every variant")]

mod cluster;
mod event;
mod host;
mod machine;
mod metal3;
mod registration;
mod seed_image;

use serde::Serialize;
use strum::{EnumMessage as _, IntoEnumIterator as _, IntoStaticStr};

use crate::conditions::{Reason, Type};

pub use event::{EVENTS, EventEntry, EventType};

/// What a reason asks of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Attention {
    /// Nothing: it is as intended.
    None,
    /// Nothing: it goes on by itself.
    Wait,
    /// It stays as it is until an operator acts.
    Act,
}

/// Why a reason is there, and what to do about it.
///
/// `NAME` and `NAMESPACE` in the action stand for the object that has the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What it asks of an operator.
    pub attention: Attention,
    /// Why the reason is there.
    pub cause: &'static str,
    /// What an operator does.
    pub action: &'static str,
}

type Entry = (Reason, Explanation);

const fn act(cause: &'static str, action: &'static str) -> Explanation {
    Explanation { attention: Attention::Act, cause, action }
}

const fn wait(cause: &'static str, action: &'static str) -> Explanation {
    Explanation { attention: Attention::Wait, cause, action }
}

const fn fine(cause: &'static str) -> Explanation {
    Explanation { attention: Attention::None, cause, action: "none" }
}

impl Reason {
    /// Cause and next action. A test proves that every reason has them.
    pub fn explanation(self) -> Option<&'static Explanation> {
        let tables = [
            machine::REASONS,
            host::REASONS,
            registration::REASONS,
            seed_image::REASONS,
            cluster::REASONS,
            metal3::REASONS,
        ];
        let mut entries = tables.into_iter().flatten();
        entries.find(|(reason, _)| *reason == self).map(|(_, explanation)| explanation)
    }

    /// One sentence that says what the reason means.
    pub fn meaning(self) -> String {
        join_lines(self.get_documentation())
    }

    /// Every reason, in the order of its declaration.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }
}

impl Type {
    /// What the condition says when it is true.
    pub fn meaning(self) -> String {
        join_lines(self.get_documentation())
    }

    /// Whether the status `True` is what tells of a problem.
    pub fn is_bad_when_true(self) -> bool {
        matches!(
            self,
            Self::Paused
                | Self::NetworkDrift
                | Self::FieldsIgnored
                | Self::AdmissionOpen
                | Self::HostsRefused
        )
    }
}

fn join_lines(documentation: Option<&'static str>) -> String {
    documentation.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_reason_is_explained_once() {
        for reason in Reason::all() {
            let explanation = reason.explanation().unwrap_or_else(|| panic!("{reason:?} has no entry"));
            assert!(!reason.meaning().is_empty(), "{reason:?} has no meaning");
            assert!(!explanation.cause.is_empty() && !explanation.action.is_empty(), "{reason:?}");
            let is_none = explanation.action.starts_with("none");
            assert_eq!(is_none, explanation.attention != Attention::Act, "{reason:?}: {explanation:?}");
        }
        let tables = [machine::REASONS, host::REASONS, registration::REASONS, seed_image::REASONS];
        let entries = tables.into_iter().chain([cluster::REASONS, metal3::REASONS]).flatten();
        let reasons: Vec<_> = entries.map(|(reason, _)| *reason).collect();
        let distinct: HashSet<_> = reasons.iter().collect();
        assert_eq!((reasons.len(), distinct.len()), (Reason::all().count(), Reason::all().count()));
    }

    #[test]
    fn events_are_explained() {
        for event in EVENTS {
            let texts = [event.object, event.reason, event.meaning, event.cause, event.action];
            assert!(texts.iter().all(|text| !text.is_empty()), "{event:?}");
        }
    }
}
