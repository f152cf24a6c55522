//! Plans: rendered once into the upstream format, read back ever after.
//!
//! The plan Secret keeps rancher's system-agent JSON, so that an upstream
//! agent can run a plan of ours. Our own agent gets the same plan as typed
//! steps: [`parse`] reads the Secret's bytes back and proves, by rendering them
//! once more, that nobody has altered them.

mod document;
mod script;

use proto::plan::{Generation, Image, Kind, NodeIdentity, Plan, PlanId, Secret, Seed, Step};
use proto::v1alpha1::{StepReport, step_report::Outcome};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::cloud_init::{self, MetaData};

/// What a host is to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// A node.
    Reprovision(Reprovision),
    /// A host without a node.
    Clean(Clean),
}

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reprovision {
    /// The OS image.
    pub image: Image,
    /// Bootstrap data, normalised.
    pub user_data: Secret,
    /// network-config version 2.
    pub network_config: Option<String>,
    /// Names that the host goes by.
    pub names: Names,
}

/// A host that keeps its address and loses everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clean {
    /// network-config version 2.
    pub network_config: Option<String>,
}

/// Names that the host goes by while it is a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Names {
    /// Name of the node.
    pub hostname: String,
    /// Name of the machine.
    pub machine: String,
    /// Namespace of the machine.
    pub namespace: String,
    /// What the kubelet says of itself.
    pub uuid: String,
    /// `baremetal:///<inventory>`.
    pub provider_id: String,
}

/// A plan as it is stored: its bytes and what they say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The typed plan.
    pub plan: Plan,
    /// UID of the `BaremetalMachine` that it is for; empty for a foreign plan.
    pub owner: String,
    /// Value of the Secret's key `plan`.
    pub bytes: Secret,
    /// Lower-case hexadecimal SHA-256 of the bytes.
    pub checksum: String,
}

/// Why bytes are no plan of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Not the upstream format.
    #[error("it is not JSON of the system-agent format ({0})")]
    Json(String),
    /// Ours, but changed.
    #[error("it was altered after it was written, or written by a coordinator that renders otherwise")]
    Altered,
    /// Cannot be rendered.
    #[error("the plan cannot be written: {0}")]
    Render(String),
    /// See [`proto::plan::PlanError`].
    #[error("the plan is not usable: {0}")]
    Invalid(#[from] proto::plan::PlanError),
}

/// SHA-256 as the upstream agent reports it.
#[must_use]
pub fn checksum(bytes: &[u8]) -> String {
    proto::proof::identity(bytes)
}

/// What a plan Secret holds, read in order to go on from it.
///
/// Only a plan that proves itself may be announced and run. One that does not
/// (altered, or of a coordinator that renders otherwise) still says whose it
/// was and how far the numbers have come, so that it blocks nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The plan, when it proves itself.
    pub stored: Option<Stored>,
    /// UID of the `BaremetalMachine` that it says it is for.
    pub owner: String,
    /// The generation that it says it has; zero where it says none.
    pub generation: Generation,
    /// Why there is no plan to go on with, unless it is the empty one.
    pub unusable: Option<PlanError>,
}

/// Reads what a plan Secret holds.
#[must_use]
pub fn find(bytes: &[u8]) -> Found {
    let (generation, owner) = document::head(bytes).unwrap_or_default();
    match parse(bytes, Generation(1)) {
        Ok(stored) => Found { stored, owner, generation, unusable: None },
        Err(error) => Found { stored: None, owner, generation, unusable: Some(error) },
    }
}

/// Writes a plan.
///
/// # Errors
/// [`PlanError::Render`] when JSON cannot hold it.
pub fn write(job: &Job, generation: Generation, owner: &str) -> Result<Stored, PlanError> {
    let id = name(job, generation, owner)?;
    let bytes = document::render(job, &id, generation, owner)?;
    Ok(Stored {
        plan: Plan { id: id.clone(), generation, kind: kind(job), steps: steps(job, &id) }.check()?,
        owner: owner.to_owned(),
        checksum: checksum(&bytes),
        bytes: Secret::new(bytes),
    })
}

/// Reads a plan back. `None` is the empty plan of a host with nothing to do.
/// `foreign` numbers a plan that the coordinator did not write: such bytes
/// carry no generation.
///
/// # Errors
/// [`PlanError`] when the bytes are garbled or were altered.
pub fn parse(bytes: &[u8], foreign: Generation) -> Result<Option<Stored>, PlanError> {
    document::parse(bytes, foreign)
}

fn kind(job: &Job) -> Kind {
    match job {
        Job::Reprovision(_) => Kind::Reprovision,
        Job::Clean(_) => Kind::Clean,
    }
}

/// Named by content: two plans with one name are one plan.
fn name(job: &Job, generation: Generation, owner: &str) -> Result<PlanId, PlanError> {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(kind(job).as_str().as_bytes());
    part(&generation.0.to_be_bytes());
    part(owner.as_bytes());
    let network = match job {
        Job::Reprovision(job) => {
            part(job.image.as_str().as_bytes());
            part(job.user_data.expose());
            for name in [&job.names.hostname, &job.names.machine, &job.names.namespace, &job.names.uuid] {
                part(name.as_bytes());
            }
            part(job.names.provider_id.as_bytes());
            &job.network_config
        }
        Job::Clean(job) => &job.network_config,
    };
    part(network.as_deref().unwrap_or_default().as_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let head = digest.iter().take(8).fold(0_u64, |head, byte| (head << 8) | u64::from(*byte));
    Ok(PlanId::parse(&format!("{}-{head:016x}", kind(job).as_str()))?)
}

/// The steps of a job. The order is the contract: the marker before anything
/// changes, `cloud-init clean` before the seed (it deletes seeds), everything on
/// disk before the reboot, and the proof last.
fn steps(job: &Job, id: &PlanId) -> Vec<Step> {
    let seed = Step::WriteSeed(seed(job, id));
    match job {
        Job::Reprovision(job) => vec![
            Step::RequestCleanup,
            Step::CleanCloudInit,
            seed,
            Step::WriteNodeIdentity(NodeIdentity {
                uuid: job.names.uuid.clone(),
                provider_id: job.names.provider_id.clone(),
            }),
            Step::UpgradeSystem(job.image.clone()),
            Step::SyncFileSystems,
            Step::Reboot,
            Step::VerifySystem(job.image.clone()),
        ],
        Job::Clean(_) => vec![
            Step::StopKubelet,
            Step::RemoveWorkload,
            Step::StopContainerd,
            Step::RemoveNodeState,
            Step::RemoveNodeIdentity,
            seed,
            Step::SyncFileSystems,
        ],
    }
}

fn seed(job: &Job, id: &PlanId) -> Seed {
    match job {
        Job::Reprovision(job) => Seed {
            user_data: Some(job.user_data.clone()),
            meta_data: cloud_init::meta_data(&MetaData {
                instance_id: id.as_str().to_owned(),
                hostname: job.names.hostname.clone(),
                uuid: job.names.uuid.clone(),
                provider_id: job.names.provider_id.clone(),
                machine: job.names.machine.clone(),
                namespace: job.names.namespace.clone(),
            }),
            network_config: job.network_config.clone(),
        },
        Job::Clean(job) => Seed {
            user_data: None,
            meta_data: cloud_init::neutral_meta_data(id.as_str()),
            network_config: job.network_config.clone(),
        },
    }
}

/// What a report says of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// A step is done, the plan is not.
    Progress,
    /// The last step is done: the host has proven the plan.
    Applied,
    /// A step failed, and with it the plan.
    Failed {
        /// The step, the cause and the next action.
        message: String,
    },
    /// Not about this plan.
    Stale,
}

/// Judges a report of the host against its newest plan.
#[must_use]
pub fn judge(plan: &Plan, report: &StepReport) -> Judgement {
    let known = usize::try_from(report.step).ok().and_then(|index| Some((index, plan.steps.get(index)?)));
    let Some((index, step)) = known else {
        return Judgement::Stale;
    };
    if report.plan_id != plan.id.as_str() || report.generation != plan.generation.0 {
        return Judgement::Stale;
    }
    match &report.outcome {
        Some(Outcome::Done(_)) if index + 1 == plan.steps.len() => Judgement::Applied,
        Some(Outcome::Failed(failure)) => {
            Judgement::Failed { message: format!("step {}: {}", step.name(), failure.message) }
        }
        Some(Outcome::Started(_) | Outcome::Done(_)) => Judgement::Progress,
        None => Judgement::Stale,
    }
}

#[cfg(test)]
mod tests;
