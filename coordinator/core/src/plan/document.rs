//! The JSON of rancher's system-agent, both ways.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proto::plan::{CustomFile, CustomInstruction, Generation, Image, Kind, Plan, PlanId, Secret, Step};
use serde::{Deserialize, Serialize};

use super::{Clean, Job, Names, PlanError, Reprovision, Stored, checksum, kind, script, seed, steps, write};

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct Document {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<File>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    instructions: Vec<Instruction>,
}

#[derive(Serialize, Deserialize)]
struct File {
    #[serde(default)]
    content: String,
    path: String,
    #[serde(default)]
    permissions: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    directory: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Instruction {
    #[serde(default)]
    name: String,
    #[serde(default)]
    command: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(default)]
    save_output: bool,
}

/// What makes a plan ours: everything that its files and instructions do not
/// already say.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Card {
    id: String,
    generation: u64,
    kind: String,
    owner: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<Names>,
}

/// What every version of the card says.
#[derive(Deserialize, Default)]
#[serde(default)]
struct CardHead {
    generation: u64,
    owner: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Identity<'a> {
    uuid: &'a str,
    provider_id: &'a str,
}

const CARD: &str = "plan.json";

pub(super) fn render(
    job: &Job,
    id: &PlanId,
    generation: Generation,
    owner: &str,
) -> Result<Vec<u8>, PlanError> {
    let staging = script::staging(id);
    let file = |name: &str, content: &[u8]| File {
        content: STANDARD.encode(content),
        path: format!("{staging}/{name}"),
        permissions: "0600".to_owned(),
        directory: false,
    };
    let mut files = vec![file(CARD, &json(&card(job, id, generation, owner))?)];
    let seed = seed(job, id);
    if let Some(data) = &seed.user_data {
        files.push(file("user-data", data.expose()));
    }
    files.push(file("meta-data", seed.meta_data.as_bytes()));
    if let Some(network) = &seed.network_config {
        files.push(file("network-config", network.as_bytes()));
    }
    if let Job::Reprovision(job) = job {
        let identity = Identity { uuid: &job.names.uuid, provider_id: &job.names.provider_id };
        files.push(file("node-identity.json", &json(&identity)?));
    }
    let instructions = steps(job, id)
        .iter()
        .filter_map(|step| {
            Some(Instruction {
                name: step.name().to_owned(),
                command: "/bin/sh".to_owned(),
                args: script::arguments(step, id)?,
                env: vec![],
                save_output: true,
            })
        })
        .collect();
    json(&Document { files, instructions })
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, PlanError> {
    serde_json::to_vec(value).map_err(|error| PlanError::Render(error.to_string()))
}

fn card(job: &Job, id: &PlanId, generation: Generation, owner: &str) -> Card {
    let (image, names) = match job {
        Job::Reprovision(job) => (Some(job.image.to_string()), Some(job.names.clone())),
        Job::Clean(_) => (None, None),
    };
    Card {
        id: id.to_string(),
        generation: generation.0,
        kind: kind(job).as_str().to_owned(),
        owner: owner.to_owned(),
        image,
        names,
    }
}

pub(super) fn parse(bytes: &[u8], foreign: Generation) -> Result<Option<Stored>, PlanError> {
    // serde's text quotes what it read, and a plan holds secrets: only the place is told.
    let broken = |error: serde_json::Error| {
        PlanError::Json(format!("line {}, column {}", error.line(), error.column()))
    };
    let document: Document = serde_json::from_slice(bytes).map_err(broken)?;
    if document.files.is_empty() && document.instructions.is_empty() {
        return Ok(None);
    }
    let card = document.files.iter().find(|file| file.path.ends_with("/plan.json"));
    let Some(card) = card else {
        return foreign_plan(document, bytes, foreign).map(Some);
    };
    let card: Card = serde_json::from_slice(&content(card)?).map_err(|_| PlanError::Altered)?;
    let job = job(&card, &document)?;
    let stored = write(&job, Generation(card.generation), &card.owner)?;
    // Byte for byte: an instruction slipped in beside ours must not pass as ours.
    if stored.bytes.expose() != bytes {
        return Err(PlanError::Altered);
    }
    Ok(Some(stored))
}

/// Generation and owner of whatever plan of ours lies there, proven or not.
pub(super) fn head(bytes: &[u8]) -> Option<(Generation, String)> {
    let document: Document = serde_json::from_slice(bytes).ok()?;
    let card = document.files.iter().find(|file| file.path.ends_with("/plan.json"))?;
    let head: CardHead = serde_json::from_slice(&content(card).ok()?).ok()?;
    // A number that no successor fits above is no number of ours.
    let generation = Some(head.generation).filter(|generation| *generation < u64::from(u32::MAX));
    Some((Generation(generation.unwrap_or(0)), head.owner))
}

fn content(file: &File) -> Result<Vec<u8>, PlanError> {
    STANDARD
        .decode(&file.content)
        .map_err(|_| PlanError::Json(format!("content of {} is not base64", file.path)))
}

fn job(card: &Card, document: &Document) -> Result<Job, PlanError> {
    let part = |name: &str| -> Result<Option<Vec<u8>>, PlanError> {
        let end = format!("/{name}");
        document.files.iter().find(|file| file.path.ends_with(&end)).map(content).transpose()
    };
    let network_config =
        part("network-config")?.map(String::from_utf8).transpose().map_err(|_| PlanError::Altered)?;
    match (card.kind.as_str(), &card.image, &card.names) {
        ("reprovision", Some(image), Some(names)) => Ok(Job::Reprovision(Reprovision {
            image: Image::parse(image)?,
            user_data: Secret::new(part("user-data")?.ok_or(PlanError::Altered)?),
            network_config,
            names: names.clone(),
        })),
        ("clean", None, None) => Ok(Job::Clean(Clean { network_config })),
        _ => Err(PlanError::Altered),
    }
}

fn foreign_plan(document: Document, bytes: &[u8], generation: Generation) -> Result<Stored, PlanError> {
    let checksum = checksum(bytes);
    let mut steps = vec![];
    for file in &document.files {
        steps.push(Step::WriteCustomFile(CustomFile {
            path: file.path.clone(),
            content: Secret::new(content(file)?),
            permissions: file.permissions.clone(),
            directory: file.directory,
        }));
    }
    steps.extend(document.instructions.into_iter().map(|instruction| {
        Step::RunCustomInstruction(CustomInstruction {
            name: instruction.name,
            command: instruction.command,
            args: instruction.args,
            env: instruction.env,
        })
    }));
    let id = PlanId::parse(&format!("custom-{}", &checksum[..16]))?;
    Ok(Stored {
        plan: Plan { id, generation, kind: Kind::Custom, steps }.check()?,
        owner: String::new(),
        bytes: Secret::new(bytes.to_vec()),
        checksum,
    })
}
