//! What tests do inside a host.

use std::time::Duration;

use ::qemu::Host;

/// Five times what a boot takes on a quiet machine, and more.
pub(crate) const BOOT: Duration = Duration::from_secs(400);
pub(crate) const INSTALL: Duration = Duration::from_secs(400);

pub(crate) async fn shell(host: &Host, script: &str) -> String {
    let output = host.exec_within(&["sh", "-c", script], INSTALL).await.unwrap();
    assert_eq!(output.code, 0, "{script}: {}{}", output.stdout, output.stderr);
    output.stdout.trim().to_owned()
}

pub(crate) async fn reboot(host: &Host, boot: u32) {
    // The guest agent may be stopped before it has answered.
    let _ = host.exec(&["systemctl", "--no-block", "reboot"]).await;
    host.wait_for_boot(boot, BOOT).await.unwrap();
}

/// What runs: the mode's sentinel and the image's tag.
pub(crate) async fn running(host: &Host) -> String {
    shell(host, "cd /run/elemental; ls -d *_mode; . /etc/os-release; echo $IMAGE_TAG")
        .await
        .replace('\n', " ")
}
