//! Memory of the worst inputs that the bounds of a parser admit, and of inputs above them. Each is read in a
//! process of its own; ten of them at once fit the coordinator's pod.

#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy exempts only functions marked as tests")]

use std::process::Command;

use fuzz::find_target;
use fuzz::hostile::{CASES, LONG_CASES, measure_peak};

/// A tenth of the pod's limit of 1 GiB.
const MOST_KIB: usize = 100 * 1024;
const CASE: &str = "MEMORY_CASE";

#[test]
fn worst_inputs_take_a_tenth_each() {
    let program = std::env::current_exe().unwrap();
    for case in CASES {
        let name = case.name;
        let mut command = Command::new(&program);
        command.args(["--exact", "one_case", "--nocapture"]).env(CASE, name);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let taken = text.lines().find_map(|line| line.strip_prefix("taken: ")?.parse::<usize>().ok());
        let taken = taken.unwrap_or_else(|| panic!("{name}: {text}"));
        println!("{name}: {} MiB", taken / 1024);
        assert!(output.status.success() && taken < MOST_KIB, "{name}: {taken} KiB");
    }
}

/// The part of the test above that runs in a process of its own.
#[test]
fn one_case() {
    let Ok(name) = std::env::var(CASE) else { return };
    let case = CASES.iter().find(|case| case.name == name).unwrap();
    let input = (case.make)();
    println!("\ntaken: {}", measure_peak(|| (case.read)(&input)));
}

#[test]
fn each_worst_input_has_a_target() {
    for case in CASES.iter().chain(LONG_CASES) {
        assert!(find_target(case.target).is_some(), "{}", case.name);
    }
}
