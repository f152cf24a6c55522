//! Properties of each kind of step: one table.

use std::time::Duration;

use proto::plan::Step;

/// The properties of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSpec {
    /// In journals, logs and reports.
    pub name: &'static str,
    /// The step is given up after it; longer than each command that it runs.
    pub deadline: Duration,
    /// Whether the step may run again when it is unknown how far it came: it
    /// looks first whether it has taken effect.
    pub repeatable: bool,
    /// What the operator does when the deadline has passed.
    pub timeout_action: &'static str,
}

const CHECK_HOST: &str = "check the host's disk and its system log";

impl StepSpec {
    /// The row of `step`.
    #[must_use]
    pub fn spec_of(step: &Step) -> Self {
        let spec = |minutes| Self {
            name: step.name(),
            deadline: Duration::from_mins(minutes),
            repeatable: true,
            timeout_action: CHECK_HOST,
        };
        match step {
            Step::RequestCleanup
            | Step::WriteSeed(_)
            | Step::WriteNodeIdentity(_)
            | Step::RemoveNodeIdentity
            | Step::WriteCustomFile(_) => spec(1),
            // A job of systemd may take a minute longer than its command.
            Step::CleanCloudInit | Step::StopKubelet | Step::StopContainerd | Step::Reboot => spec(6),
            Step::SyncFileSystems | Step::RemoveWorkload | Step::RemoveNodeState => spec(10),
            Step::VerifySystem(_) => Self {
                timeout_action: "look at cloud-init's log on the host (/var/log/cloud-init-output.log)",
                ..spec(30)
            },
            Step::UpgradeSystem(_) => Self {
                timeout_action: "check that the image's source is reachable and fast enough",
                ..spec(60)
            },
            // Only a command that the coordinator did not write cannot be asked
            // whether it took effect.
            Step::RunCustomInstruction(_) => Self { repeatable: false, ..spec(30) },
        }
    }
}

#[cfg(test)]
pub(crate) mod every {
    use proto::plan::{CustomFile, CustomInstruction, Image, NodeIdentity, Secret, Seed};

    use super::*;

    /// One step of each kind, in the order of the contract.
    pub(crate) fn any_step() -> [Step; 15] {
        let image = || Image::parse("lab/os:v1").unwrap();
        [
            Step::RequestCleanup,
            Step::CleanCloudInit,
            Step::WriteSeed(Seed { user_data: None, meta_data: String::new(), network_config: None }),
            Step::WriteNodeIdentity(NodeIdentity { uuid: "u".into(), provider_id: "p".into() }),
            Step::RemoveNodeIdentity,
            Step::UpgradeSystem(image()),
            Step::SyncFileSystems,
            Step::Reboot,
            Step::VerifySystem(image()),
            Step::StopKubelet,
            Step::RemoveWorkload,
            Step::StopContainerd,
            Step::RemoveNodeState,
            Step::WriteCustomFile(CustomFile {
                path: "/f".into(),
                content: Secret::new(vec![]),
                permissions: String::new(),
                directory: false,
            }),
            Step::RunCustomInstruction(CustomInstruction {
                name: "n".into(),
                command: "c".into(),
                args: vec![],
                env: vec![],
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::host::system::deadlines;

    /// The longest command of a step; the compiler asks for every new step.
    fn longest_command(step: &Step) -> Duration {
        match step {
            Step::RequestCleanup
            | Step::WriteSeed(_)
            | Step::WriteNodeIdentity(_)
            | Step::RemoveNodeIdentity
            | Step::SyncFileSystems
            | Step::WriteCustomFile(_) => Duration::ZERO,
            Step::CleanCloudInit => deadlines::CLEAN_CLOUD_INIT + deadlines::JOB_END,
            Step::UpgradeSystem(_) => deadlines::UPGRADE + deadlines::JOB_END + 3 * deadlines::QUERY,
            Step::Reboot | Step::VerifySystem(_) => deadlines::QUERY,
            Step::StopKubelet | Step::StopContainerd => deadlines::STOP_UNIT + deadlines::QUERY,
            Step::RemoveWorkload => deadlines::REMOVE_WORKLOAD + 2 * deadlines::QUERY,
            Step::RemoveNodeState => 2 * (deadlines::QUERY + deadlines::JOB_END),
            Step::RunCustomInstruction(_) => deadlines::CUSTOM + deadlines::JOB_END,
        }
    }

    #[test]
    fn every_deadline_covers_the_commands_of_its_step() {
        let steps = every::any_step();
        let names: BTreeSet<_> = steps.iter().map(|step| StepSpec::spec_of(step).name).collect();
        assert_eq!(names.len(), steps.len());
        for step in &steps {
            let spec = StepSpec::spec_of(step);
            assert!(spec.deadline > longest_command(step), "{}: {:?}", spec.name, spec.deadline);
            assert!(!spec.timeout_action.is_empty(), "{}", spec.name);
        }
    }

    #[test]
    fn only_custom_instructions_are_not_repeatable() {
        let once: Vec<_> = every::any_step()
            .iter()
            .map(StepSpec::spec_of)
            .filter(|spec| !spec.repeatable)
            .map(|spec| spec.name)
            .collect();
        assert_eq!(once, ["run-custom-instruction"]);
    }
}
