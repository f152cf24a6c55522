//! The plan record: one JSON document, read without rendering.

use std::collections::BTreeMap;

use proto::plan::{
    Checksum, CustomFile, CustomInstruction, Generation, Image, Kind, NodeIdentity, Plan, PlanError, PlanId,
    RegistryAccess, Secret, Seed, Step, Upgrade,
};
use serde::{Deserialize, Serialize};

use super::PlanRecord;
use super::compat::system_agent::{DELETE, File, Instruction};

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
pub(super) struct Document {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) files: Vec<File>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) instructions: Vec<Instruction>,
    /// Ours; upstream ignores it.
    #[serde(rename = "baremetal.cluster.io/plan", skip_serializing_if = "Option::is_none")]
    pub(super) typed: Option<TypedPlan>,
}

/// The typed plan; file contents are referred to by index.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TypedPlan {
    pub(super) id: String,
    pub(super) generation: u64,
    #[serde(rename = "type")]
    pub(super) kind: TypedKind,
    pub(super) steps: Vec<TypedStep>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TypedKind {
    Clean,
    Reprovision,
    Custom,
}

/// One step, by the name that journals and reports use.
#[derive(Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub(super) enum TypedStep {
    RequestCleanup,
    CleanCloudInit,
    WriteSeed {
        #[serde(skip_serializing_if = "Option::is_none")]
        user_data_file: Option<usize>,
        meta_data_file: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        network_config_file: Option<usize>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        connection_files: BTreeMap<String, usize>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network_data_file: Option<usize>,
    },
    WriteNodeIdentity {
        uuid: String,
        #[serde(rename = "providerID")]
        provider_id: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        owner: String,
    },
    RemoveNodeIdentity,
    UpgradeSystem {
        image: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        registry: Option<TypedRegistry>,
    },
    SyncFileSystems,
    Reboot,
    VerifySystem {
        image: String,
    },
    StopKubelet,
    RemoveWorkload,
    StopContainerd,
    RemoveNodeState,
    WriteCustomFile {
        file: usize,
    },
    RunCustomInstruction {
        instruction: usize,
    },
}

/// The files of an access to a registry, by index.
#[derive(Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TypedRegistry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) docker_config: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) authorities: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) https_proxy: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) http_proxy: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) no_proxy: Option<usize>,
}

/// Why bytes are not a plan record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanRecordError {
    /// serde's own text quotes what it read, and a plan holds secrets.
    #[error("it is not JSON of the plan format (line {line}, column {column})")]
    Json { line: usize, column: usize },
    #[error("it has no typed plan: it was not written by a coordinator")]
    NotTyped,
    #[error("step {step} refers to file {file}, which is missing or not base64 text")]
    File { step: usize, file: usize },
    #[error("step {step} refers to instruction {instruction}, which is missing")]
    Instruction { step: usize, instruction: usize },
    #[error("its generation is {0}, and no coordinator numbers plans so")]
    Generation(u64),
    #[error("its SHA-256 is {found}, {announced} was announced")]
    Checksum { announced: Checksum, found: Checksum },
    #[error("the plan cannot be rendered: {0}")]
    Render(String),
    #[error("the plan is not usable: {0}")]
    Invalid(#[from] PlanError),
}

/// Reads a record. `None` is the empty plan of a host that never had one.
///
/// # Errors
/// [`PlanRecordError`] when the bytes are not a record.
pub fn read_record(bytes: &[u8]) -> Result<Option<PlanRecord>, PlanRecordError> {
    let document: Document = serde_json::from_slice(bytes)
        .map_err(|error| PlanRecordError::Json { line: error.line(), column: error.column() })?;
    let Some(typed) = &document.typed else {
        let is_empty = document.files.is_empty() && document.instructions.is_empty();
        return if is_empty { Ok(None) } else { Err(PlanRecordError::NotTyped) };
    };
    let generation =
        Generation::parse(typed.generation).ok_or(PlanRecordError::Generation(typed.generation))?;
    let steps = typed.steps.iter().enumerate().map(|(index, step)| read_step(index, step, &document));
    let plan = Plan {
        id: PlanId::parse(&typed.id)?,
        generation,
        checksum: Checksum::of(bytes),
        kind: match typed.kind {
            TypedKind::Clean => Kind::Clean,
            TypedKind::Reprovision => Kind::Reprovision,
            TypedKind::Custom => Kind::Custom,
        },
        steps: steps.collect::<Result<_, _>>()?,
    };
    Ok(Some(PlanRecord { plan: plan.check()?, bytes: Secret::new(bytes.to_vec()) }))
}

/// The generation of a document that is not a record any more, zero where it
/// has none.
pub(super) fn read_generation(bytes: &[u8]) -> Generation {
    #[derive(Deserialize)]
    struct Head {
        generation: u64,
    }
    #[derive(Deserialize)]
    struct HeadDocument {
        #[serde(rename = "baremetal.cluster.io/plan")]
        typed: Head,
    }
    let head = serde_json::from_slice::<HeadDocument>(bytes).ok();
    head.and_then(|document| Generation::parse(document.typed.generation)).unwrap_or(Generation(0))
}

impl PlanRecord {
    /// Accepts only the record that was announced.
    pub fn verify_checksum(self, announced: &Checksum) -> Result<Self, PlanRecordError> {
        if self.plan.checksum == *announced {
            return Ok(self);
        }
        Err(PlanRecordError::Checksum { announced: announced.clone(), found: self.plan.checksum })
    }
}

fn read_step(index: usize, step: &TypedStep, document: &Document) -> Result<Step, PlanRecordError> {
    let files = &document.files;
    let content = |file: usize| read_content(index, file, files);
    let text = |file: usize| read_text(index, file, files);
    Ok(match step {
        TypedStep::RequestCleanup => Step::RequestCleanup,
        TypedStep::CleanCloudInit => Step::CleanCloudInit,
        TypedStep::WriteSeed {
            user_data_file,
            meta_data_file,
            network_config_file,
            connection_files,
            network_data_file,
        } => {
            let keyfile = |(name, file): (&String, &usize)| -> Result<_, PlanRecordError> {
                Ok((name.clone(), Secret::new(content(*file)?)))
            };
            Step::WriteSeed(Seed {
                user_data: user_data_file.map(content).transpose()?.map(Secret::new),
                meta_data: text(*meta_data_file)?,
                network_config: network_config_file.map(text).transpose()?,
                connections: connection_files.iter().map(keyfile).collect::<Result<_, _>>()?,
                network_data: network_data_file.map(content).transpose()?.map(Secret::new),
            })
        }
        TypedStep::WriteNodeIdentity { uuid, provider_id, owner } => {
            let (uuid, provider_id, owner) = (uuid.clone(), provider_id.clone(), owner.clone());
            Step::WriteNodeIdentity(NodeIdentity { uuid, provider_id, owner })
        }
        TypedStep::RemoveNodeIdentity => Step::RemoveNodeIdentity,
        TypedStep::UpgradeSystem { image, registry } => Step::UpgradeSystem(Upgrade {
            image: Image::parse(image)?,
            registry: registry.as_ref().map(|registry| read_registry(index, registry, files)).transpose()?,
        }),
        TypedStep::SyncFileSystems => Step::SyncFileSystems,
        TypedStep::Reboot => Step::Reboot,
        TypedStep::VerifySystem { image } => Step::VerifySystem(Image::parse(image)?),
        TypedStep::StopKubelet => Step::StopKubelet,
        TypedStep::RemoveWorkload => Step::RemoveWorkload,
        TypedStep::StopContainerd => Step::StopContainerd,
        TypedStep::RemoveNodeState => Step::RemoveNodeState,
        TypedStep::WriteCustomFile { file } => Step::WriteCustomFile(read_custom_file(index, *file, files)?),
        TypedStep::RunCustomInstruction { instruction } => {
            let missing = PlanRecordError::Instruction { step: index, instruction: *instruction };
            let found = document.instructions.get(*instruction).ok_or(missing)?;
            Step::RunCustomInstruction(CustomInstruction {
                name: found.name.clone(),
                command: found.command.clone(),
                args: found.args.clone(),
                env: found.env.clone(),
                save_output: found.save_output,
            })
        }
    })
}

fn read_content(step: usize, file: usize, files: &[File]) -> Result<Vec<u8>, PlanRecordError> {
    files.get(file).and_then(File::decode).ok_or(PlanRecordError::File { step, file })
}

fn read_text(step: usize, file: usize, files: &[File]) -> Result<String, PlanRecordError> {
    let content = read_content(step, file, files)?;
    String::from_utf8(content).map_err(|_| PlanRecordError::File { step, file })
}

fn read_registry(
    step: usize,
    registry: &TypedRegistry,
    files: &[File],
) -> Result<Box<RegistryAccess>, PlanRecordError> {
    let text = |file: Option<usize>| file.map(|file| read_text(step, file, files)).transpose();
    let secret = |file: Option<usize>| -> Result<_, PlanRecordError> {
        Ok(file.map(|file| read_content(step, file, files)).transpose()?.map(Secret::new))
    };
    Ok(Box::new(RegistryAccess {
        docker_config: secret(registry.docker_config)?,
        authorities: text(registry.authorities)?,
        https_proxy: secret(registry.https_proxy)?,
        http_proxy: secret(registry.http_proxy)?,
        no_proxy: text(registry.no_proxy)?,
    }))
}

fn read_custom_file(step: usize, file: usize, files: &[File]) -> Result<CustomFile, PlanRecordError> {
    let content = Secret::new(read_content(step, file, files)?);
    let found = files.get(file).ok_or(PlanRecordError::File { step, file })?;
    Ok(CustomFile {
        path: found.path.clone(),
        content,
        permissions: found.permissions.clone(),
        directory: found.directory,
        uid: found.uid,
        gid: found.gid,
        delete: found.action == DELETE,
    })
}
