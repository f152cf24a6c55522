use std::fs;

use proto::plan::{Image, PlanId};

use super::*;
use crate::system::ExitMeaning;
use crate::system::simulated::Simulated;

#[test]
fn every_step_has_a_deadline_that_its_own_commands_keep() {
    let image = Image::parse("lab/os:v1").unwrap();
    let cases = [
        (Step::RequestCleanup, 1),
        (Step::UpgradeSystem(image.clone()), 60),
        (Step::VerifySystem(image), 30),
        (Step::RemoveWorkload, 10),
    ];
    for (step, minutes) in cases {
        assert_eq!(deadline(&step), Duration::from_mins(minutes), "{}", step.name());
        let failure = timed_out(&step);
        assert!(failure.message.contains(step.name()) && !failure.next_action.is_empty());
    }
}

#[test]
fn a_full_disk_is_told_from_a_broken_one() {
    let error =
        |kind: std::io::ErrorKind| DurableError { attempt: "write", path: "/x".into(), source: kind.into() };
    let cases = [
        (std::io::ErrorKind::StorageFull, FailureReason::NoSpace, "free space"),
        (std::io::ErrorKind::ReadOnlyFilesystem, FailureReason::InputOutput, "read-only"),
        (std::io::ErrorKind::Other, FailureReason::InputOutput, "kernel log"),
    ];
    for (kind, reason, text) in cases {
        let failure = StepError::from(error(kind));
        assert_eq!(failure.reason, reason);
        assert!(failure.next_action.contains(text), "{}", failure.next_action);
    }
}

#[test]
fn a_command_that_fails_leaves_one_action() {
    let failed = |next_action| SystemError::Failed {
        program: "elemental".into(),
        status: crate::system::Status::Code(1),
        meaning: ExitMeaning { cause: "no room", next_action },
        output: crate::system::Output("why".into()),
    };
    let missing =
        SystemError::Run { program: "elemental".into(), source: std::io::ErrorKind::NotFound.into() };
    let busy = SystemError::Busy { unit: "baremetal-step-p-4.service".into(), patience: Duration::ZERO };
    let cases = [
        ("unknown code", failed(None), "journalctl -b"),
        ("known code", failed(Some("free some")), "free some"),
        ("not there", missing, "an image that holds this program"),
        ("still running", busy, "systemctl stop"),
    ];
    for (name, error, want) in cases {
        let action = StepError::from(error).next_action;
        assert!(action.contains(want), "{name}: {action}");
    }
}

#[tokio::test]
async fn pods_volumes_are_unmounted_before_their_directories_are_emptied() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    let system = Simulated::installed(root.clone(), "lab/os:v1").unwrap();
    let volume = root.join("/var/lib/kubelet/pods/a/volume");
    fs::create_dir_all(&volume).unwrap();
    let table = root.join("/proc/1/mountinfo");
    fs::create_dir_all(table.parent().unwrap()).unwrap();
    fs::write(&table, "36 35 98:0 / /var/lib/kubelet/pods/a/volume rw - ext4 /dev/x rw\n").unwrap();
    let plan_id = PlanId::parse("clean-1").unwrap();
    let context = Context {
        root: &root,
        system: &system,
        plan_id: &plan_id,
        job: Job::step(&plan_id, 0),
        again: Again::No,
        rebooted_from: None,
    };
    run(&Step::RemoveNodeState, &context).await.unwrap();
    assert_eq!(system.effects(), [format!("unmount {}", volume.display())]);
    assert!(!volume.exists());
    fs::create_dir_all(&volume).unwrap();
    fs::write(&table, "36 35 98:0 / /var/lib/kubelet/pods/a/volume rw - ext4 /dev/x rw\n").unwrap();
    system.fail("unmount", 32).unwrap();
    let failure = run(&Step::RemoveNodeState, &context).await.unwrap_err();
    assert_eq!(failure.reason, FailureReason::Command);
    assert!(volume.exists());
}
