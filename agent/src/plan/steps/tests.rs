use std::collections::{BTreeMap, BTreeSet};

use proto::plan::{CustomFile, CustomInstruction, Image, NodeIdentity, Secret, Seed};

use super::*;
use crate::host::system::deadlines;

/// One step of each kind, in the order of the contract.
fn any_step() -> [Step; 15] {
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
        Step::UpgradeSystem(_) => {
            deadlines::UPGRADE + deadlines::CHECK_SNAPSHOT + 2 * deadlines::JOB_END + 4 * deadlines::QUERY
        }
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
    let steps = any_step();
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
    let once: Vec<_> = any_step()
        .iter()
        .map(StepSpec::spec_of)
        .filter(|spec| !spec.repeatable)
        .map(|spec| spec.name)
        .collect();
    assert_eq!(once, ["run-custom-instruction"]);
}

#[test]
fn what_is_not_repeatable_is_not_retried() {
    for spec in any_step().iter().map(StepSpec::spec_of) {
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
        ("full disk", policy, FailureClass::NoSpace, 2, true),
        ("still full", policy, FailureClass::NoSpace, 3, false),
        ("terminal", policy, FailureClass::Terminal, 1, false),
        ("unknown", policy, FailureClass::Unknown, 2, true),
        ("unknown again", policy, FailureClass::Unknown, 3, false),
        ("never", RetryPolicy::Never, FailureClass::Transient, 1, false),
    ];
    for (name, policy, class, attempts, want) in cases {
        assert_eq!(policy.allows_another(class, attempts), want, "{name}");
    }
}

#[test]
fn a_timeout_names_the_step_and_an_action() {
    let image = Image::parse("lab/os:v1").unwrap();
    let error = timed_out(&StepSpec::spec_of(&Step::UpgradeSystem(image.into())), None);
    assert_eq!(error.reason, FailureReason::Timeout);
    assert_eq!(error.message, "upgrade-system did not end within 60 minutes");
    assert!(error.next_action.contains("reachable"), "{}", error.next_action);
}
