//! From inputs to a plan record, once.

use proto::plan::{
    Checksum, CustomFile, CustomInstruction, Generation, Inline, Kind, NodeIdentity, Plan, PlanId,
    ReplaceContents, Secret, Seed, Step, TypedPlan, Upgrade,
};
use proto::staged;
use sha2::{Digest as _, Sha256};

use super::record::{Document, File, FileIndex, Indexed, Instruction, InstructionIndex, RECORD_BYTES};
use super::{PlanInputs, PlanRecordError};
use crate::bootstrap::{GZIP, gzip_bytes};
use crate::cloud_init::{self, MetaData};

/// Smaller user-data can be read in the record.
const COMPRESSED_BYTES: usize = 128 * 1024;

/// Renders a plan and the bytes of its record. `claim` names the owner, so that two machines never
/// get plans of one name.
pub fn render(
    inputs: &PlanInputs,
    generation: Generation,
    claim: &str,
) -> Result<(Plan, Secret), PlanRecordError> {
    let kind = match inputs {
        PlanInputs::Reprovision(_) => Kind::Reprovision,
        PlanInputs::Clean(_) => Kind::Clean,
    };
    let id = derive_id(inputs, kind, generation, claim)?;
    let steps = list_steps(inputs, &id, claim);
    let document = render_document(&steps, &id, generation, kind)?;
    let bytes = serde_json::to_vec(&document).map_err(|error| PlanRecordError::Render(error.to_string()))?;
    if bytes.len() > RECORD_BYTES {
        let user_data = match inputs {
            PlanInputs::Reprovision(inputs) => inputs.user_data.expose().len(),
            PlanInputs::Clean(_) => 0,
        };
        return Err(PlanRecordError::TooLarge { user_data, bytes: bytes.len() });
    }
    let plan = Plan { id, generation, checksum: Checksum::of(&bytes), kind, steps }.check()?;
    Ok((plan, Secret::new(bytes)))
}

/// Derived from the content: two plans with one name are one plan.
fn derive_id(
    inputs: &PlanInputs,
    kind: Kind,
    generation: Generation,
    claim: &str,
) -> Result<PlanId, PlanRecordError> {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(kind.as_str().as_bytes());
    part(&generation.0.to_be_bytes());
    part(claim.as_bytes());
    let network = match inputs {
        PlanInputs::Reprovision(inputs) => {
            part(inputs.image.as_str().as_bytes());
            part(inputs.user_data.expose());
            let names = &inputs.names;
            for name in [&names.hostname, &names.machine, &names.namespace, &names.uuid, &names.provider_id] {
                part(name.as_bytes());
            }
            if let Some(access) = &inputs.registry {
                let texts = [&access.authorities, &access.no_proxy];
                let [authorities, no_proxy] = texts.map(|text| text.as_deref().map(str::as_bytes));
                let secrets = [&access.docker_config, &access.https_proxy, &access.http_proxy];
                let [config, https, http] = secrets.map(|secret| secret.as_ref().map(Secret::expose));
                for content in [config, authorities, https, http, no_proxy].into_iter().flatten() {
                    part(content);
                }
            }
            for (key, value) in &inputs.meta_data {
                part(key.as_bytes());
                part(value.as_bytes());
            }
            &inputs.network
        }
        PlanInputs::Clean(inputs) => &inputs.network,
    };
    part(network.network_config.as_deref().unwrap_or_default().as_bytes());
    for (name, content) in &network.connections {
        part(name.as_bytes());
        part(content.expose());
    }
    // Only where it is there: plans without it keep their names.
    if let Some(data) = &network.network_data {
        part(data.expose());
    }
    let digest = hex::encode(&hash.finalize()[..8]);
    Ok(PlanId::parse(&format!("{}-{digest}", kind.as_str()))?)
}

/// Compresses user-data that is large for a Secret, which cloud-init decompresses.
fn compress_large(user_data: &Secret) -> Secret {
    let data = user_data.expose();
    if data.len() < COMPRESSED_BYTES || data.starts_with(&GZIP) {
        return user_data.clone();
    }
    gzip_bytes(data).map_or_else(|| user_data.clone(), Secret::new)
}

/// The order is the contract: the marker before anything changes, `cloud-init
/// clean` before the seed (it deletes seeds), everything on disk before the
/// reboot, and the proof last.
fn list_steps(inputs: &PlanInputs, id: &PlanId, claim: &str) -> Vec<Step> {
    match inputs {
        PlanInputs::Reprovision(inputs) => vec![
            Step::RequestCleanup,
            Step::CleanCloudInit,
            Step::WriteSeed(Seed {
                user_data: Some(compress_large(&inputs.user_data)),
                meta_data: cloud_init::meta_data(&MetaData {
                    instance_id: id.as_str().to_owned(),
                    hostname: inputs.names.hostname.clone(),
                    uuid: inputs.names.uuid.clone(),
                    provider_id: inputs.names.provider_id.clone(),
                    machine: inputs.names.machine.clone(),
                    namespace: inputs.names.namespace.clone(),
                    replaced: inputs.meta_data.clone(),
                }),
                network_config: inputs.network.network_config.clone(),
                connections: inputs.network.connections.clone(),
                network_data: inputs.network.network_data.clone(),
            }),
            Step::WriteNodeIdentity(NodeIdentity {
                uuid: inputs.names.uuid.clone(),
                provider_id: inputs.names.provider_id.clone(),
                owner: claim.to_owned(),
            }),
            Step::UpgradeSystem(Upgrade { image: inputs.image.clone(), registry: inputs.registry.clone() }),
            Step::SyncFileSystems,
            Step::Reboot,
            Step::VerifySystem { image: inputs.image.clone() },
        ],
        PlanInputs::Clean(inputs) => vec![
            Step::StopKubelet,
            Step::RemoveWorkload,
            Step::StopContainerd,
            Step::RemoveNodeIdentity,
            Step::WriteSeed(Seed {
                user_data: None,
                meta_data: cloud_init::neutral_meta_data(id.as_str()),
                network_config: inputs.network.network_config.clone(),
                connections: inputs.network.connections.clone(),
                network_data: inputs.network.network_data.clone(),
            }),
            // Last of the removals, because it trims the blocks that the others freed.
            Step::RemoveNodeState,
            Step::SyncFileSystems,
        ],
    }
}

/// Names of the steps of a plan that is rendered, in their order; none for a plan of an
/// operator, whose steps are its own.
pub const fn step_names(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Reprovision => &[
            "request-cleanup",
            "clean-cloud-init",
            "write-seed",
            "write-node-identity",
            "upgrade-system",
            "sync-file-systems",
            "reboot",
            "verify-system",
        ],
        Kind::Clean => &[
            "stop-kubelet",
            "remove-workload",
            "stop-containerd",
            "remove-node-identity",
            "write-seed",
            "remove-node-state",
            "sync-file-systems",
        ],
        Kind::Custom => &[],
    }
}

fn render_document(
    steps: &[Step],
    id: &PlanId,
    generation: Generation,
    kind: Kind,
) -> Result<Document, PlanRecordError> {
    let staged = render_staged(steps, id, generation, kind)?;
    let mut files = Files { staging: format!("{}/{id}", staged::DIRECTORY), files: vec![] };
    let mut typed = vec![];
    for step in steps {
        typed.push(step.replace_contents(&mut files)?);
        // Records of earlier releases had a file at this index, and later files keep their indexes.
        if matches!(step, Step::WriteSeed(_)) {
            files.add_file(staged::PLAN, &staged);
        }
    }
    Ok(Document {
        files: files.files,
        instructions: vec![Instruction::run_plan(id)],
        typed: Some(TypedPlan { id: id.to_string(), generation: generation.0, kind, steps: typed }),
    })
}

/// The plan as `baremetal-agent run-plan` reads it.
fn render_staged(
    steps: &[Step],
    id: &PlanId,
    generation: Generation,
    kind: Kind,
) -> Result<Vec<u8>, PlanRecordError> {
    let steps = steps.iter().map(staged::name_contents).collect::<Result<_, _>>()?;
    let plan = TypedPlan { id: id.to_string(), generation: generation.0, kind, steps };
    serde_json::to_vec(&plan).map_err(|error| PlanRecordError::Render(error.to_string()))
}

/// The files of the document, in the staging directory of the plan.
struct Files {
    staging: String,
    files: Vec<File>,
}

impl Files {
    /// The index of the file.
    fn add_file(&mut self, name: &str, content: &[u8]) -> usize {
        self.files.push(File::encode(format!("{}/{name}", self.staging), content));
        self.files.len() - 1
    }
}

impl ReplaceContents<Inline, Indexed> for Files {
    type Error = PlanRecordError;

    fn replace_secret(&mut self, name: &str, secret: &Secret) -> Result<usize, PlanRecordError> {
        Ok(self.add_file(name, secret.expose()))
    }

    fn replace_text(&mut self, name: &str, text: &String) -> Result<usize, PlanRecordError> {
        Ok(self.add_file(name, text.as_bytes()))
    }

    fn replace_file(&mut self, _: &CustomFile) -> Result<FileIndex, PlanRecordError> {
        Err(PlanRecordError::NotTyped)
    }

    fn replace_instruction(&mut self, _: &CustomInstruction) -> Result<InstructionIndex, PlanRecordError> {
        Err(PlanRecordError::NotTyped)
    }
}
