//! What every test with a simulated host begins and ends with.

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::progress::Progress;
use e2e::stage::Stage;

/// A base ISO with the reserved file and nothing to boot.
pub(crate) fn base_iso(directory: &Path) -> PathBuf {
    let content = directory.join("base");
    std::fs::create_dir_all(&content).unwrap();
    std::fs::write(content.join("livecd-cloud-config.yaml"), "\n".repeat(65536)).unwrap();
    let iso = directory.join("base.iso");
    let made = Command::new("xorriso")
        .args(["-as", "mkisofs", "-quiet", "-R", "-V", "COS_LIVE", "-o"])
        .args([&iso, &content])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    iso
}

/// Fails the test with everything that a person would look at.
pub(crate) fn blame(stage: &Stage, progress: &Progress, error: &anyhow::Error) -> ! {
    let log = std::fs::read_to_string(stage.directory.path().join("coordinator.log")).unwrap_or_default();
    panic!("in step {:?}: {error:#}\n\ncoordinator:\n{log}", progress.current());
}
