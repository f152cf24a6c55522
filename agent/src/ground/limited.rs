//! Runs a test in a process of its own, because the limit of descriptors is that of a process.

use std::process::Command;

const LIMITED: &str = "BAREMETAL_TEST_LIMITED";

/// True in the process with 32 descriptors. Elsewhere starts that process for the test, and asserts
/// that the test passes in it.
pub(crate) fn is_limited(test: &str) -> bool {
    if std::env::var_os(LIMITED).is_some() {
        return true;
    }
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 32 && exec \"$0\" --exact \"$1\" --test-threads=1"])
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(LIMITED, "1")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    false
}
