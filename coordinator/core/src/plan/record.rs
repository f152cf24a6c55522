//! The plan record: one JSON document, read without rendering. Its files and instructions have the
//! format of the upstream system-agent, so that it can run the plans of the coordinator.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proto::plan::{
    Checksum, Content, CustomFile, CustomInstruction, Generation, Inline, Plan, PlanError, PlanId,
    ReplaceContents, Secret, Stored, TypedPlan,
};
use proto::staged;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
pub(super) struct Document {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) files: Vec<File>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) instructions: Vec<Instruction>,
    /// Upstream ignores the typed plan, whose steps refer to the files and instructions of the
    /// document, because a Secret is limited to 1 MiB.
    #[serde(rename = "baremetal.cluster.io/plan", skip_serializing_if = "Option::is_none")]
    pub(super) typed: Option<TypedPlan<Indexed>>,
}

/// A file of the upstream system-agent, written before any instruction runs.
#[derive(Serialize, Deserialize, Clone, PartialEq)]
pub(super) struct File {
    #[serde(default)]
    pub(super) content: String,
    pub(super) path: String,
    #[serde(default)]
    pub(super) permissions: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) directory: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) uid: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) gid: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) action: String,
}

/// The one action of a file that is not to write it.
pub(super) const DELETE: &str = "delete";

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl File {
    pub(super) fn encode(path: String, content: &[u8]) -> Self {
        Self {
            content: STANDARD.encode(content),
            path,
            permissions: "0600".to_owned(),
            directory: false,
            uid: 0,
            gid: 0,
            action: String::new(),
        }
    }

    pub(super) fn decode(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.content).ok()
    }
}

/// An instruction of the upstream system-agent. It runs once, in order, and again at each start of
/// the agent.
#[derive(Serialize, Deserialize, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) struct Instruction {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) command: String,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) env: Vec<String>,
    #[serde(default)]
    pub(super) save_output: bool,
}

impl Instruction {
    /// The one instruction of a plan of the coordinator: `baremetal-agent` runs the staged plan,
    /// because each step is written once (decision 67). The upstream agent keeps standard output
    /// alone, so a shell says there that the host has no such program.
    pub(super) fn run_plan(id: &PlanId) -> Self {
        let script = format!(
            "for agent in /usr/bin/baremetal-agent /var/lib/baremetal-agent/bin/baremetal-agent; do\n  \
             [ ! -x \"$agent\" ] || exec \"$agent\" run-plan \"$1\"\ndone\nrm -rf {}\necho '{NO_AGENT}'\nexit 1",
            staged::DIRECTORY
        );
        Self {
            name: "run-plan".to_owned(),
            command: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), script, "run-plan".to_owned(), id.to_string()],
            env: Vec::new(),
            save_output: true,
        }
    }
}

const NO_AGENT: &str = "baremetal: this host has no baremetal-agent, which runs its plans; next: use an image with /usr/bin/baremetal-agent, or install the host from a seed ISO";

/// Contents by their index in the lists of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Indexed;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileIndex {
    pub(super) file: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InstructionIndex {
    pub(super) instruction: usize,
}

impl Content for Indexed {
    type Secret = usize;
    type Text = usize;
    type File = FileIndex;
    type Instruction = InstructionIndex;
}

impl Stored for Indexed {}

/// Most bytes of all values of a Secret, which the API server takes.
pub const SECRET_BYTES: usize = 1024 * 1024;
/// Most bytes of a record, because the results of the plan are beside it.
pub(super) const RECORD_BYTES: usize = SECRET_BYTES - 160 * 1024;

/// Why bytes are not a plan record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanRecordError {
    /// The text of serde is left out, because it quotes its input, and a plan holds secrets.
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
    /// The text has the size of the user-data as its author wrote it.
    #[error(
        "the user-data has {user_data} bytes, and the record of its plan {bytes}; the Secret of a plan holds {}: let the host download files instead",
        RECORD_BYTES
    )]
    TooLarge { user_data: usize, bytes: usize },
    #[error("the plan is not usable: {0}")]
    Invalid(#[from] PlanError),
}

/// Reads a record. `None` is the empty plan of a host that never had one.
///
/// # Errors
/// [`PlanRecordError`] when the bytes are not a record.
pub fn read_record(bytes: &[u8]) -> Result<Option<Plan>, PlanRecordError> {
    let document: Document = serde_json::from_slice(bytes)
        .map_err(|error| PlanRecordError::Json { line: error.line(), column: error.column() })?;
    let Some(typed) = &document.typed else {
        let is_empty = document.files.is_empty() && document.instructions.is_empty();
        return if is_empty { Ok(None) } else { Err(PlanRecordError::NotTyped) };
    };
    let generation =
        Generation::parse(typed.generation).ok_or(PlanRecordError::Generation(typed.generation))?;
    let steps = typed
        .steps
        .iter()
        .enumerate()
        .map(|(index, step)| step.replace_contents(&mut Contents { step: index, document: &document }));
    let plan = Plan {
        id: PlanId::parse(&typed.id)?,
        generation,
        checksum: Checksum::of(bytes),
        kind: typed.kind,
        steps: steps.collect::<Result<_, _>>()?,
    };
    Ok(Some(plan.check()?))
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

/// Accepts only the plan whose record was announced.
pub fn verify_checksum(plan: Plan, announced: &Checksum) -> Result<Plan, PlanRecordError> {
    if plan.checksum == *announced {
        return Ok(plan);
    }
    Err(PlanRecordError::Checksum { announced: announced.clone(), found: plan.checksum })
}

/// The contents of a step, taken from its document.
struct Contents<'a> {
    step: usize,
    document: &'a Document,
}

impl Contents<'_> {
    fn read_file(&self, file: usize) -> Result<(&File, Vec<u8>), PlanRecordError> {
        let found = self.document.files.get(file).and_then(|found| Some((found, found.decode()?)));
        found.ok_or(PlanRecordError::File { step: self.step, file })
    }
}

impl ReplaceContents<Indexed, Inline> for Contents<'_> {
    type Error = PlanRecordError;

    fn replace_secret(&mut self, _: &str, file: &usize) -> Result<Secret, PlanRecordError> {
        Ok(Secret::new(self.read_file(*file)?.1))
    }

    fn replace_text(&mut self, _: &str, file: &usize) -> Result<String, PlanRecordError> {
        let (_, content) = self.read_file(*file)?;
        String::from_utf8(content).map_err(|_| PlanRecordError::File { step: self.step, file: *file })
    }

    fn replace_file(&mut self, file: &FileIndex) -> Result<CustomFile, PlanRecordError> {
        let (found, content) = self.read_file(file.file)?;
        Ok(CustomFile {
            path: found.path.clone(),
            content: Secret::new(content),
            permissions: found.permissions.clone(),
            directory: found.directory,
            uid: found.uid,
            gid: found.gid,
            delete: found.action == DELETE,
        })
    }

    fn replace_instruction(
        &mut self,
        &InstructionIndex { instruction }: &InstructionIndex,
    ) -> Result<CustomInstruction, PlanRecordError> {
        let missing = PlanRecordError::Instruction { step: self.step, instruction };
        let found = self.document.instructions.get(instruction).ok_or(missing)?;
        Ok(CustomInstruction {
            name: found.name.clone(),
            command: found.command.clone(),
            args: found.args.clone(),
            env: found.env.clone(),
            save_output: found.save_output,
        })
    }
}
