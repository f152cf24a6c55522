//! The properties of a step. The table of all steps is in `steps.rs`, beside their work.

use std::time::Duration;

use crate::ground::backoff::Backoff;
use crate::ground::failure::FailureClass;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSpec {
    /// The name in journals, logs and reports.
    pub name: &'static str,
    /// The step is given up at this deadline, which is longer than that of each command that the
    /// step runs.
    pub deadline: Duration,
    /// True if the step may run again although its progress is unknown, because it first checks
    /// whether it has taken effect.
    pub repeatable: bool,
    /// The attempts within the deadline.
    pub retries: RetryPolicy,
    /// The operator's next action after the deadline.
    pub timeout_action: &'static str,
}

/// The reaction to a failure of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryPolicy {
    /// The step is given up.
    Never,
    /// Another attempt, after a wait whose upper bound doubles.
    Backoff { first: Duration, longest: Duration },
}

/// Number of attempts if the failure is neither transient nor terminal.
const UNKNOWN_ATTEMPTS: u32 = 3;

impl RetryPolicy {
    /// The waits between attempts; `None` if there is only one attempt.
    pub fn backoff(self) -> Option<Backoff> {
        match self {
            Self::Never => None,
            Self::Backoff { first, longest } => Some(Backoff::between(first, longest)),
        }
    }

    /// True if another attempt follows this number of failed ones, the last of which failed with
    /// this class.
    pub fn allows_another(self, class: FailureClass, attempts: u32) -> bool {
        self != Self::Never
            && match class {
                FailureClass::Transient | FailureClass::NoSpace => true,
                FailureClass::Unknown => attempts < UNKNOWN_ATTEMPTS,
                FailureClass::Terminal => false,
            }
    }
}

pub(super) const fn backoff(first: u64, longest: u64) -> RetryPolicy {
    RetryPolicy::Backoff { first: Duration::from_secs(first), longest: Duration::from_secs(longest) }
}

#[cfg(test)]
pub(crate) mod every {
    use std::collections::BTreeMap;

    use proto::plan::{CustomFile, CustomInstruction, Image, NodeIdentity, Secret, Seed, Step};

    /// One step of each kind, in the order of the contract.
    pub(crate) fn any_step() -> [Step; 15] {
        let image = || Image::parse("lab/os:v1").unwrap();
        [
            Step::RequestCleanup,
            Step::CleanCloudInit,
            Step::WriteSeed(Seed {
                user_data: None,
                meta_data: String::new(),
                network_config: None,
                connections: BTreeMap::new(),
                network_data: None,
            }),
            Step::WriteNodeIdentity(NodeIdentity {
                uuid: "u".into(),
                provider_id: "p".into(),
                owner: String::new(),
            }),
            Step::RemoveNodeIdentity,
            Step::UpgradeSystem(image().into()),
            Step::SyncFileSystems,
            Step::Reboot,
            Step::VerifySystem { image: image() },
            Step::StopKubelet,
            Step::RemoveWorkload,
            Step::StopContainerd,
            Step::RemoveNodeState,
            Step::WriteCustomFile(CustomFile {
                path: "/f".into(),
                content: Secret::new(vec![]),
                permissions: String::new(),
                directory: false,
                uid: 0,
                gid: 0,
                delete: false,
            }),
            Step::RunCustomInstruction(CustomInstruction {
                name: "n".into(),
                command: "c".into(),
                args: vec![],
                env: vec![],
                save_output: true,
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proto::plan::Step;

    use super::*;
    use crate::host::system::deadlines;

    /// The longest command of a step; the compiler asks for every new step.
    fn longest_command(step: &Step) -> Duration {
        match step {
            Step::RequestCleanup
            | Step::WriteSeed(_)
            | Step::WriteNodeIdentity(_)
            | Step::RemoveNodeIdentity
            | Step::SyncFileSystems => Duration::ZERO,
            Step::WriteCustomFile(_) => deadlines::QUERY + deadlines::JOB_END,
            Step::CleanCloudInit => deadlines::CLEAN_CLOUD_INIT + deadlines::JOB_END,
            Step::UpgradeSystem(_) => deadlines::UPGRADE + deadlines::JOB_END + 3 * deadlines::QUERY,
            Step::Reboot | Step::VerifySystem { .. } => deadlines::QUERY,
            Step::StopKubelet => deadlines::STOP_UNIT + deadlines::QUERY,
            Step::RemoveWorkload => deadlines::REMOVE_WORKLOAD + 4 * deadlines::QUERY,
            Step::StopContainerd => deadlines::STOP_UNIT + deadlines::REMOVE_WORKLOAD + 5 * deadlines::QUERY,
            Step::RemoveNodeState => {
                2 * (deadlines::QUERY + deadlines::JOB_END)
                    + deadlines::CLEAR_JOURNAL
                    + deadlines::TRIM
                    + 2 * deadlines::JOB_END
            }
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

    #[test]
    fn what_is_not_repeatable_is_not_retried() {
        for spec in every::any_step().iter().map(StepSpec::spec_of) {
            assert!(spec.repeatable || spec.retries == RetryPolicy::Never, "{}", spec.name);
            let RetryPolicy::Backoff { longest, .. } = spec.retries else { continue };
            assert!(4 * longest < spec.deadline, "{}: several attempts fit", spec.name);
        }
    }

    #[test]
    fn retries_follow_the_class_of_the_failure() {
        let policy = backoff(1, 2);
        let cases = [
            ("transient", policy, FailureClass::Transient, 1000, true),
            ("full disk", policy, FailureClass::NoSpace, 1000, true),
            ("terminal", policy, FailureClass::Terminal, 1, false),
            ("unknown", policy, FailureClass::Unknown, 2, true),
            ("unknown again", policy, FailureClass::Unknown, 3, false),
            ("never", RetryPolicy::Never, FailureClass::Transient, 1, false),
        ];
        for (name, policy, class, attempts, want) in cases {
            assert_eq!(policy.allows_another(class, attempts), want, "{name}");
        }
    }
}
