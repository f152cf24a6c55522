//! The alert rules by the real promtool: their syntax, and their unit tests.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use control_plane::{Part, Parts};

/// Runs promtool in the directory of the rules; what it wrote when it fails.
fn run_promtool(arguments: &[&str]) -> Result<(), String> {
    let promtool = Parts::from_environment().unwrap().path(Part::Promtool).unwrap();
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../coordinator/observability");
    let output = Command::new(promtool).args(arguments).current_dir(rules).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&text).into_owned()) }
}

#[test]
fn alert_rules_are_well_formed() {
    assert_eq!(run_promtool(&["check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml"]), Ok(()));
}

#[test]
fn alerts_fire_when_they_should() {
    assert_eq!(run_promtool(&["test", "rules", "alerts_test.yaml"]), Ok(()));
}
