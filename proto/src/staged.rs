//! A plan in the staging directory of an upstream system-agent, where `baremetal-agent run-plan`
//! reads it. The contents of its steps are files beside it, so that a plan record, whose Secret is
//! limited to 1 MiB, holds each content once.

use serde::{Deserialize, Serialize};

use crate::plan::{
    Content, CustomFile, CustomInstruction, Inline, PlanError, ReplaceContents, Secret, Step, Stored,
};

/// Holds a directory for each plan, which is named after the plan's id.
pub const DIRECTORY: &str = "/var/lib/baremetal-agent/staging";
/// The file of such a directory that holds the plan.
pub const PLAN: &str = "plan.json";
/// The environment variable with the directory of a running instruction. The upstream agent names
/// that directory after the checksum of the plan record and the index of the instruction.
pub const EXECUTION_DIRECTORY: &str = "CATTLE_AGENT_EXECUTION_PWD";

/// Contents by the names of their files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named;

/// The upstream agent runs the plans of operators by itself, so they are never staged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NeverStaged {}

impl Content for Named {
    type Secret = String;
    type Text = String;
    type File = NeverStaged;
    type Instruction = NeverStaged;
}

impl Stored for Named {}

/// The step with the file names of its contents.
///
/// # Errors
/// [`PlanError::CustomStep`] for a step of an operator's plan.
pub fn name_contents(step: &Step) -> Result<Step<Named>, PlanError> {
    step.replace_contents(&mut FileNames)
}

struct FileNames;

impl ReplaceContents<Inline, Named> for FileNames {
    type Error = PlanError;

    fn replace_secret(&mut self, name: &str, _: &Secret) -> Result<String, PlanError> {
        Ok(name.to_owned())
    }

    fn replace_text(&mut self, name: &str, _: &String) -> Result<String, PlanError> {
        Ok(name.to_owned())
    }

    fn replace_file(&mut self, _: &CustomFile) -> Result<NeverStaged, PlanError> {
        Err(PlanError::CustomStep)
    }

    fn replace_instruction(&mut self, _: &CustomInstruction) -> Result<NeverStaged, PlanError> {
        Err(PlanError::CustomStep)
    }
}
