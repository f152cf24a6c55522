//! Files and instructions as the upstream system-agent has them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proto::plan::{PlanId, Step};
use serde::{Deserialize, Serialize};

use super::script;

/// Written before any instruction runs.
#[derive(Serialize, Deserialize)]
pub(in crate::plan) struct File {
    #[serde(default)]
    content: String,
    path: String,
    #[serde(default)]
    permissions: String,
}

impl File {
    pub(in crate::plan) fn encode(path: String, content: &[u8]) -> Self {
        Self { content: STANDARD.encode(content), path, permissions: "0600".to_owned() }
    }

    pub(in crate::plan) fn decode(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.content).ok()
    }
}

/// Runs once, in order; all of them again at each start of the upstream agent.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::plan) struct Instruction {
    #[serde(default)]
    name: String,
    #[serde(default)]
    command: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    save_output: bool,
}

/// The instructions for `steps`: none for a step that an upstream agent cannot
/// do (it cannot prove a boot), and one more that removes the files.
pub(in crate::plan) fn instructions(steps: &[Step], id: &PlanId) -> Vec<Instruction> {
    let of_step = |step: &Step| Some(instruction(step.name(), script::arguments(step, id)?));
    let removal = instruction(script::REMOVE_STAGING, script::remove_staging());
    steps.iter().filter_map(of_step).chain([removal]).collect()
}

fn instruction(name: &str, args: Vec<String>) -> Instruction {
    Instruction { name: name.to_owned(), command: "/bin/sh".to_owned(), args, save_output: true }
}
