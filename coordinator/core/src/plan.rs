//! Plans: rendered once, stored as a record, read back ever after.
//!
//! ```text
//! PlanInputs ─render─► (Plan, bytes) ─► Secret, key `plan`
//!                                          │ read (never rendered)
//!            agent ◄─ gRPC ─ Plan ◄────────┘ checksum == announced
//! ```
//!
//! The bytes are one JSON document: the files and instructions of the upstream
//! system-agent, and beside them the typed plan, which upstream
//! ignores. Their SHA-256 is announced in the inventory's status; bytes that
//! differ from the announced ones are refused.

pub mod custom;
mod record;
mod render;
mod results;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use coordinator_api::inventory::PlanType;
use proto::plan::{Generation, Image, Kind, Plan, RegistryAccess, Secret};

use crate::network::HostNetwork;

pub use record::{PlanRecordError, SECRET_BYTES, read_record, verify_checksum};
pub use render::{render, step_names};
pub use results::{PlanEnd, Progress, failure_reasons, read_progress};

/// The parts of which a plan is rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanInputs {
    /// The host becomes a node.
    Reprovision(Reprovision),
    /// The node is taken off the host.
    Clean(Clean),
}

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reprovision {
    pub image: Image,
    /// For the registry of the image.
    pub registry: Option<Box<RegistryAccess>>,
    pub user_data: Secret,
    pub network: HostNetwork,
    pub names: Names,
    /// Keys that replace those of the names.
    pub meta_data: BTreeMap<String, String>,
}

/// A host that keeps its address and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clean {
    pub network: HostNetwork,
}

/// Names that the host goes by while it is a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Name of the node.
    pub hostname: String,
    /// Name of the machine.
    pub machine: String,
    /// Namespace of the machine.
    pub namespace: String,
    /// Value of the label `metal3.io/uuid`.
    pub uuid: String,
    pub provider_id: String,
}

/// The kind of a plan, as the status of an object has it.
pub const fn plan_type(kind: Kind) -> PlanType {
    match kind {
        Kind::Clean => PlanType::Clean,
        Kind::Reprovision => PlanType::Reprovision,
        Kind::Custom => PlanType::Custom,
    }
}

/// The content of a plan Secret, read before a plan is assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredPlan {
    /// There is no Secret, or no key in it.
    Missing,
    /// The host never had a plan.
    Empty,
    Record(Box<Plan>),
    /// Not a plan record. Its generation is still respected where it can be
    /// read.
    Unusable {
        error: PlanRecordError,
        generation: Generation,
    },
}

impl StoredPlan {
    pub fn parse(bytes: Option<&Secret>) -> Self {
        let Some(bytes) = bytes else { return Self::Missing };
        match read_record(bytes.expose()) {
            Ok(Some(plan)) => Self::Record(Box::new(plan)),
            Ok(None) => Self::Empty,
            Err(error) => Self::Unusable { error, generation: record::read_generation(bytes.expose()) },
        }
    }

    /// The generation that a new plan must exceed.
    pub fn generation(&self) -> Generation {
        match self {
            Self::Missing | Self::Empty => Generation(0),
            Self::Record(plan) => plan.generation,
            Self::Unusable { generation, .. } => *generation,
        }
    }
}
