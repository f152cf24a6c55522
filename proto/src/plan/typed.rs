//! The stored form of a plan.

use serde::{Deserialize, Serialize};

use super::{Content, Kind, Step, Stored};

/// A plan whose contents are stored apart from its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "C: Stored")]
pub struct TypedPlan<C: Content> {
    /// The name of the plan.
    pub id: String,
    /// The number of the plan.
    pub generation: u64,
    /// The purpose of the plan.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The steps, in their order.
    pub steps: Vec<Step<C>>,
}
