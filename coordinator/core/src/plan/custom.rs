//! Plans that an operator writes, in the format of the upstream system-agent.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator_api::names::{annotation, plan_secret};
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::ResourceExt as _;
use proto::plan::{Generation, Kind, Plan, PlanId, Secret, Step, TypedPlan};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::PlanRecordError;
use super::record::{DELETE, Document, File, FileIndex, Instruction, InstructionIndex, read_record};

/// A plan of an operator that can be executed.
#[derive(Clone, PartialEq)]
pub struct CustomPlan {
    /// Differs for each version of the Secret, so that the same version does not run again.
    pub id: PlanId,
    files: Vec<File>,
    instructions: Vec<Instruction>,
}

/// Why a Secret has no plan that can be executed; to be read after its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CustomPlanError {
    #[error("does not exist in this namespace")]
    Missing,
    #[error("holds the plans of a host: name another one")]
    OfHost,
    #[error("is not of type {}", plan_secret::TYPE)]
    Type,
    #[error("has {key} {found:?}, only {custom:?} is executed", key = annotation::PLAN_TYPE, custom = Kind::Custom.as_str())]
    Kind {
        /// The shortened value of the annotation.
        found: String,
    },
    /// The text of serde is left out, because it quotes its input.
    #[error(
        "has no plan of the upstream format under the key {} (line {line}, column {column})",
        plan_secret::PLAN
    )]
    Format {
        /// The line of the first fault.
        line: usize,
        /// The column of the first fault.
        column: usize,
    },
    #[error("has {0}, which no host here executes")]
    Unsupported(&'static str),
    #[error("has no files and no instructions")]
    Empty,
    #[error("cannot be executed: {0}")]
    Invalid(#[from] PlanRecordError),
}

/// All fields of the upstream format. Others are refused, because a misspelt field would be taken
/// for an absent one.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Upstream {
    files: Vec<UpstreamFile>,
    instructions: Vec<UpstreamInstruction>,
    periodic_instructions: Vec<serde_json::Value>,
    probes: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct UpstreamFile {
    path: String,
    content: String,
    directory: bool,
    uid: u32,
    gid: u32,
    permissions: String,
    action: String,
    /// Hints for its planner; its agent does not read them either.
    #[serde(rename = "dynamic")]
    _dynamic: bool,
    #[serde(rename = "minor")]
    _minor: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct UpstreamInstruction {
    name: String,
    image: String,
    env: Vec<String>,
    args: Vec<String>,
    command: String,
    save_output: bool,
}

impl From<UpstreamFile> for File {
    fn from(file: UpstreamFile) -> Self {
        let UpstreamFile { path, content, directory, uid, gid, permissions, action, .. } = file;
        Self { content, path, permissions, directory, uid, gid, action }
    }
}

impl From<UpstreamInstruction> for Instruction {
    fn from(instruction: UpstreamInstruction) -> Self {
        let UpstreamInstruction { name, env, args, command, save_output, .. } = instruction;
        Self { name, command, args, env, save_output }
    }
}

/// Reads the plan of an operator. `host` is the name of the Secret that holds the
/// plans of the host.
pub fn read_custom(secret: Option<&KubeSecret>, host: &str) -> Result<CustomPlan, CustomPlanError> {
    let secret = secret.ok_or(CustomPlanError::Missing)?;
    if secret.name_any() == host || secret.annotations().contains_key(annotation::TPM_HASH) {
        return Err(CustomPlanError::OfHost);
    }
    if secret.type_.as_deref() != Some(plan_secret::TYPE) {
        return Err(CustomPlanError::Type);
    }
    let kind = secret.annotations().get(annotation::PLAN_TYPE).map(String::as_str).unwrap_or_default();
    if kind != Kind::Custom.as_str() {
        return Err(CustomPlanError::Kind { found: kind.chars().take(32).collect() });
    }
    let bytes = secret.data.as_ref().and_then(|data| data.get(plan_secret::PLAN)).map(|bytes| &*bytes.0);
    let bytes = bytes.unwrap_or_default();
    let plan: Upstream = serde_json::from_slice(bytes)
        .map_err(|error| CustomPlanError::Format { line: error.line(), column: error.column() })?;
    check_supported(&plan)?;
    let mut hash = Sha256::new();
    for part in [secret.uid().unwrap_or_default(), secret.resource_version().unwrap_or_default()] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.update(bytes);
    let id = format!("{}-{}", Kind::Custom.as_str(), hex::encode(&hash.finalize()[..8]));
    let plan = CustomPlan {
        id: PlanId::parse(&id).map_err(PlanRecordError::from)?,
        files: plan.files.into_iter().map(File::from).collect(),
        instructions: plan.instructions.into_iter().map(Instruction::from).collect(),
    };
    // A plan that a host would refuse is refused here.
    plan.render(Generation(1))?;
    Ok(plan)
}

fn check_supported(plan: &Upstream) -> Result<(), CustomPlanError> {
    let (mut files, mut instructions) = (plan.files.iter(), plan.instructions.iter());
    let unsupported = [
        (!plan.periodic_instructions.is_empty(), "periodicInstructions"),
        (!plan.probes.is_empty(), "probes"),
        (instructions.clone().any(|found| !found.image.is_empty()), "an instruction with an image"),
        (instructions.any(|found| found.command.is_empty()), "an instruction without a command"),
        (files.clone().any(|found| !matches!(&*found.action, "" | DELETE)), "a file with an unknown action"),
        (
            files.any(|found| STANDARD.decode(&found.content).is_err()),
            "a file whose content is not base64 text",
        ),
    ];
    if let Some((_, what)) = unsupported.into_iter().find(|(is_there, _)| *is_there) {
        return Err(CustomPlanError::Unsupported(what));
    }
    if plan.files.is_empty() && plan.instructions.is_empty() {
        return Err(CustomPlanError::Empty);
    }
    Ok(())
}

impl fmt::Debug for CustomPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CustomPlan({})", self.id)
    }
}

impl CustomPlan {
    /// The plan with that number and the bytes of its record: as the operator wrote it, files before
    /// instructions.
    pub fn render(&self, generation: Generation) -> Result<(Plan, Secret), PlanRecordError> {
        let files = (0..self.files.len()).map(|file| Step::WriteCustomFile(FileIndex { file }));
        let instructions = (0..self.instructions.len())
            .map(|instruction| Step::RunCustomInstruction(InstructionIndex { instruction }));
        let typed = TypedPlan {
            id: self.id.to_string(),
            generation: generation.0,
            kind: Kind::Custom,
            steps: files.chain(instructions).collect(),
        };
        let document = Document {
            files: self.files.clone(),
            instructions: self.instructions.clone(),
            typed: Some(typed),
        };
        let bytes =
            serde_json::to_vec(&document).map_err(|error| PlanRecordError::Render(error.to_string()))?;
        let plan = read_record(&bytes)?;
        let plan = plan.ok_or_else(|| PlanRecordError::Render("it has no steps".to_owned()))?;
        Ok((plan, Secret::new(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    const PLAN: &str = r#"{"files":[{"path":"/srv/x","content":"Y2FuYXJ5","permissions":"0640","uid":7,"gid":8},
        {"path":"/srv/old","content":"","action":"delete","minor":true}],
        "instructions":[{"name":"first","command":"/bin/sh","args":["-c","echo ${X}"],"env":["A=b"],"saveOutput":true},
        {"command":"true"}]}"#;

    fn secret(kind: &str, plan: &str) -> KubeSecret {
        let mut secret = KubeSecret {
            type_: Some(plan_secret::TYPE.into()),
            data: Some([(plan_secret::PLAN.to_owned(), ByteString(plan.into()))].into()),
            ..KubeSecret::default()
        };
        secret.metadata.name = Some("firmware".into());
        secret.metadata.resource_version = Some("1".into());
        secret.annotations_mut().insert(annotation::PLAN_TYPE.into(), kind.into());
        secret
    }

    #[test]
    fn an_operators_plan_becomes_a_record() {
        let plan = read_custom(Some(&secret("custom", PLAN)), "host-1").unwrap();
        let (record, bytes) = plan.render(Generation(4)).unwrap();
        assert_eq!((record.kind, record.generation), (Kind::Custom, Generation(4)));
        assert_eq!(read_record(bytes.expose()), Ok(Some(record.clone())));
        let [
            Step::WriteCustomFile(file),
            Step::WriteCustomFile(old),
            Step::RunCustomInstruction(first),
            Step::RunCustomInstruction(_),
        ] = &record.steps[..]
        else {
            panic!("{:?}", record.steps)
        };
        assert_eq!(
            (file.path.as_str(), file.content.expose(), file.uid, file.gid),
            ("/srv/x", &b"canary"[..], 7, 8)
        );
        assert_eq!((file.permissions.as_str(), file.delete, old.delete), ("0640", false, true));
        assert_eq!((&first.args[1][..], &first.env[0][..], first.save_output), ("echo ${X}", "A=b", true));
        let mut changed = secret("custom", PLAN);
        changed.metadata.resource_version = Some("2".into());
        assert_ne!(read_custom(Some(&changed), "host-1").unwrap().id, plan.id, "written again: run again");
    }

    #[test]
    fn what_no_host_executes_is_refused_by_name() {
        let instruction = |more: &str| format!(r#"{{"instructions":[{{"command":"true"{more}}}]}}"#);
        let kind = |found: &str| CustomPlanError::Kind { found: found.into() };
        let cases = [
            ("no type", secret("", PLAN), kind("")),
            ("a reset", secret("reset", PLAN), kind("reset")),
            ("ours", secret("reprovision", PLAN), kind("reprovision")),
            ("empty", secret("custom", "{}"), CustomPlanError::Empty),
            (
                "periodic",
                secret("custom", r#"{"periodicInstructions":[{}]}"#),
                CustomPlanError::Unsupported("periodicInstructions"),
            ),
            ("probes", secret("custom", r#"{"probes":{"a":{}}}"#), CustomPlanError::Unsupported("probes")),
            (
                "image",
                secret("custom", &instruction(r#","image":"a/b""#)),
                CustomPlanError::Unsupported("an instruction with an image"),
            ),
            (
                "no command",
                secret("custom", r#"{"instructions":[{"name":"a"}]}"#),
                CustomPlanError::Unsupported("an instruction without a command"),
            ),
            (
                "action",
                secret("custom", r#"{"files":[{"path":"/a","action":"move"}]}"#),
                CustomPlanError::Unsupported("a file with an unknown action"),
            ),
        ];
        for (name, secret, want) in cases {
            assert_eq!(read_custom(Some(&secret), "host-1"), Err(want), "{name}");
        }
        for torn in ["{", r#"{"later":1}"#, &instruction(r#","later":1"#)] {
            let error = read_custom(Some(&secret("custom", torn)), "host-1").unwrap_err();
            assert!(matches!(error, CustomPlanError::Format { .. }), "{torn}: {error}");
        }
        assert_eq!(read_custom(Some(&secret("custom", PLAN)), "firmware"), Err(CustomPlanError::OfHost));
        assert_eq!(read_custom(None, "host-1"), Err(CustomPlanError::Missing));
        let other = KubeSecret { type_: Some("Opaque".into()), ..secret("custom", PLAN) };
        assert_eq!(read_custom(Some(&other), "host-1"), Err(CustomPlanError::Type));
    }
}
