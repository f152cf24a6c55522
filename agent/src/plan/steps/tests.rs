use proto::plan::Image;

use super::*;

#[test]
fn a_timeout_names_the_step_and_an_action() {
    let image = Image::parse("lab/os:v1").unwrap();
    let error = timed_out(&StepSpec::spec_of(&Step::UpgradeSystem(image.into())), None);
    assert_eq!(error.reason, FailureReason::Timeout);
    assert_eq!(error.message, "upgrade-system did not end within 60 minutes");
    assert!(error.next_action.contains("reachable"), "{}", error.next_action);
}
