//! Plans as values that cannot be wrong: numbered, named by their content, made of typed steps. A
//! plan is parsed once, where it arrives.

mod content;
mod image;
mod name;
mod step;

use serde::{Deserialize, Serialize};

use crate::limits;
pub use content::{Content, Inline, ReplaceContents, Secret, Stored};
pub use image::{IMAGE_SCHEMES, Image, RegistryAccess, Upgrade, to_source};
pub use name::{Checksum, Generation, PlanId};
pub use step::{CustomFile, CustomInstruction, NodeIdentity, Seed, Step};

/// The purpose of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Removes the node from the host.
    Clean,
    /// Makes the host a node.
    Reprovision,
    /// A plan of an operator in the upstream format.
    Custom,
}

impl Kind {
    /// Value of the annotation `baremetal.alauda.io/plan.type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Reprovision => "reprovision",
            Self::Custom => "custom",
        }
    }
}

/// A job of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The name, which follows from the content.
    pub id: PlanId,
    /// The number, which is higher than that of each former plan.
    pub generation: Generation,
    /// The checksum of the plan record that the coordinator announced.
    pub checksum: Checksum,
    /// The purpose of the plan.
    pub kind: Kind,
    /// The steps, in their order. Each runs at most once, and at most one is a [`Step::Reboot`].
    pub steps: Vec<Step>,
}

impl Plan {
    /// Checks the rules that concern more than one step.
    ///
    /// # Errors
    /// [`PlanError`] when the generation is zero, there are no steps or too many, a reboot is not
    /// followed by a verification, or a plan of the coordinator holds a custom step.
    pub fn check(self) -> Result<Self, PlanError> {
        if self.generation.0 == 0 {
            return Err(PlanError::Generation);
        }
        if self.steps.is_empty() || self.steps.len() > limits::STEPS {
            return Err(PlanError::Steps(self.steps.len()));
        }
        if (self.kind == Kind::Custom) != self.steps.iter().any(Step::is_custom) {
            return Err(PlanError::CustomStep);
        }
        let reboots = self.steps.iter().filter(|step| matches!(step, Step::Reboot)).count();
        let proven = self
            .steps
            .windows(2)
            .filter(|pair| matches!(pair, [Step::Reboot, Step::VerifySystem { .. }]))
            .count();
        if reboots > 1 || reboots != proven {
            return Err(PlanError::Reboot);
        }
        Ok(self)
    }
}

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

/// The cause that a message or a record is not a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// See [`PlanId::parse`].
    #[error("plan id is not 1 to 64 characters of a-z, 0-9 and dash")]
    Id,
    /// See [`Checksum::parse`].
    #[error("plan checksum is not 64 lower-case hexadecimal digits")]
    Checksum,
    /// Generations start at 1.
    #[error("plan generation is zero")]
    Generation,
    /// See [`Image::parse`].
    #[error("image reference is empty, too long, starts with a dash or holds white space")]
    Image,
    /// The kind is unknown to this version.
    #[error("plan kind {0} is unknown: agent and coordinator are of different versions")]
    Kind(i32),
    /// The step is unknown to this version.
    #[error("step {0} is unknown: agent and coordinator are of different versions")]
    Step(usize),
    /// A required part is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The plan has no steps, or more than [`limits::STEPS`].
    #[error("plan has {0} steps; 1 to {max} are allowed", max = limits::STEPS)]
    Steps(usize),
    /// A plan of the coordinator holds a custom step, or a custom plan holds another step.
    #[error("custom steps and the plan kind custom go together")]
    CustomStep,
    /// A plan may reboot once, and the next step has to prove the reboot.
    #[error("a plan reboots at most once, and verifies the system right after it")]
    Reboot,
}
