//! Files and instructions as the upstream system-agent has them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proto::plan::{PlanId, Step};
use serde::{Deserialize, Serialize};

use super::script;

/// Written before any instruction runs.
#[derive(Serialize, Deserialize, Clone, PartialEq)]
pub(in crate::plan) struct File {
    #[serde(default)]
    pub(in crate::plan) content: String,
    pub(in crate::plan) path: String,
    #[serde(default)]
    pub(in crate::plan) permissions: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(in crate::plan) directory: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(in crate::plan) uid: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(in crate::plan) gid: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(in crate::plan) action: String,
}

/// The one action of a file that is not to write it.
pub(in crate::plan) const DELETE: &str = "delete";

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl File {
    pub(in crate::plan) fn encode(path: String, content: &[u8]) -> Self {
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

    pub(in crate::plan) fn decode(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.content).ok()
    }
}

/// Runs once, in order; all of them again at each start of the upstream agent.
#[derive(Serialize, Deserialize, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(in crate::plan) struct Instruction {
    #[serde(default)]
    pub(in crate::plan) name: String,
    #[serde(default)]
    pub(in crate::plan) command: String,
    #[serde(default)]
    pub(in crate::plan) args: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::plan) env: Vec<String>,
    #[serde(default)]
    pub(in crate::plan) save_output: bool,
}

/// The instructions for `steps`: none for a step that an upstream agent cannot
/// do (it cannot prove a boot), and one more that removes the files.
pub(in crate::plan) fn instructions(steps: &[Step], id: &PlanId) -> Vec<Instruction> {
    let of_step = |step: &Step| Some(instruction(step.name(), script::arguments(step, id)?));
    let removal = instruction(script::REMOVE_STAGING, script::remove_staging());
    steps.iter().filter_map(of_step).chain([removal]).collect()
}

fn instruction(name: &str, args: Vec<String>) -> Instruction {
    Instruction {
        name: name.to_owned(),
        command: "/bin/sh".to_owned(),
        args,
        env: Vec::new(),
        save_output: true,
    }
}
