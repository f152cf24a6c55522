use std::time::Duration;

use proto::plan::Image;

use super::*;
use crate::host::system::Diagnosis;

#[test]
fn a_timeout_names_the_step_and_an_action() {
    let image = Image::parse("lab/os:v1").unwrap();
    let error = timed_out(&StepSpec::spec_of(&Step::UpgradeSystem(image.into())), None);
    assert_eq!(error.reason, FailureReason::Timeout);
    assert_eq!(error.message, "upgrade-system did not end within 60 minutes");
    assert!(error.next_action.contains("reachable"), "{}", error.next_action);
}

#[test]
fn full_disk_is_distinguished_from_broken_one() {
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
        status: crate::host::system::Status::Code(1),
        diagnosis: Box::new(Diagnosis { cause: "no room", next_action, ..Diagnosis::default() }),
        output: crate::host::system::Output("why".into()),
    };
    let missing =
        SystemError::Run { program: "elemental".into(), source: std::io::ErrorKind::NotFound.into() };
    let busy = SystemError::Busy { unit: "baremetal-step-p-4.service".into(), limit: Duration::ZERO };
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
