//! The texts of reasons and Events: a cause, and the next action of an operator. The plugin and
//! `docs/reference` show the same texts, because nothing else has them.

mod event;
#[macro_use]
mod declare;
mod reason;

use serde::Serialize;
use strum::IntoStaticStr;

pub use event::{EventEntry, EventReason, EventType};
pub use reason::Reason;

/// Attention that a reason asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Attention {
    /// The state is intended.
    None,
    /// The state changes by itself.
    Wait,
    /// The state stays until an operator acts.
    Act,
}

/// Why an object has a reason, and the next action.
///
/// `NAME` and `NAMESPACE` in the action stand for the object that has the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Attention that the reason asks for.
    pub attention: Attention,
    /// Why the object has the reason.
    pub cause: &'static str,
    /// Next action of an operator.
    pub action: &'static str,
}

const fn act(cause: &'static str, action: &'static str) -> Explanation {
    Explanation { attention: Attention::Act, cause, action }
}

const fn wait(cause: &'static str, action: &'static str) -> Explanation {
    Explanation { attention: Attention::Wait, cause, action }
}

const fn fine(cause: &'static str) -> Explanation {
    Explanation { attention: Attention::None, cause, action: "none" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_begin_with_none_unless_an_operator_acts() {
        for reason in Reason::all() {
            let Explanation { attention, cause, action } = reason.explanation();
            assert!(!cause.is_empty() && !action.is_empty(), "{reason:?}");
            assert_eq!(action.starts_with("none"), attention != Attention::Act, "{reason:?}: {action}");
        }
    }
}
