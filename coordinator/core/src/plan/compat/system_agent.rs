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

/// `None` where an upstream agent has nothing to do: it cannot prove a boot.
pub(in crate::plan) fn instruction(step: &Step, id: &PlanId) -> Option<Instruction> {
    Some(Instruction {
        name: step.name().to_owned(),
        command: "/bin/sh".to_owned(),
        args: script::arguments(step, id)?,
        save_output: true,
    })
}
