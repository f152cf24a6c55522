//! Steps of tests inside a host.

#![allow(clippy::missing_panics_doc, clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use crate::Guest;

/// Five times the time that a boot takes on a quiet machine, and more.
pub const BOOT: Duration = Duration::from_secs(400);
pub const INSTALL: Duration = Duration::from_secs(400);

pub async fn shell(host: &Guest, script: &str) -> String {
    let output = host.exec_within(&["sh", "-c", script], INSTALL).await.unwrap();
    assert_eq!(output.code, 0, "{script}: {}{}", output.stdout, output.stderr);
    output.stdout.trim().to_owned()
}

pub async fn reboot(host: &Guest, boot: u32) {
    // The guest agent may be stopped before it has answered.
    let _ = host.exec(&["systemctl", "--no-block", "reboot"]).await;
    host.wait_for_boot(boot, BOOT).await.unwrap();
}

/// The running system: the mode's sentinel and the image's tag.
pub async fn running(host: &Guest) -> String {
    shell(host, "cd /run/elemental; ls -d *_mode; . /etc/os-release; echo $IMAGE_TAG")
        .await
        .replace('\n', " ")
}
