//! Files and instructions in the format of the upstream system-agent, so that it can run the plans
//! of the coordinator.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proto::plan::PlanId;
use proto::staged;
use serde::{Deserialize, Serialize};

/// Written before any instruction runs.
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

/// Runs once, in order, and again at each start of the upstream agent.
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
