//! The life of a host: from the live ISO through install, upgrade, other ways to persist and a broken upgrade, with the lab's
//! `elemental`.

#![allow(clippy::missing_panics_doc, clippy::unwrap_used, reason = "helpers of tests")]

use crate::steps::{BOOT, INSTALL, reboot, running, shell};
use crate::{Guest, PowerState, Stop};

async fn code(host: &Guest, command: &[&str]) -> i64 {
    host.exec_within(command, INSTALL).await.unwrap().code
}

/// The trial of a new snapshot ends in the active mode only.
async fn wait_for_assessment(host: &Guest) {
    host.wait_until("cleared boot assessment", BOOT, || async {
        let listed =
            host.exec(&["grub-editenv", "/oem/grubenv", "list"]).await.map_err(|error| error.to_string())?;
        if listed.stdout.contains("boot_assessment_check") { Err(listed.stdout) } else { Ok(()) }
    })
    .await
    .unwrap();
}

/// Boot 1: the ISO, found although the empty disk is first. Its agent starts and has no coordinator;
/// a command of the test installs.
async fn elemental_installs_from_the_live_iso(host: &Guest, device: &str) {
    host.wait_for_boot(1, BOOT).await.unwrap();
    host.wait_for_console("register and install this host", BOOT).await.unwrap();
    assert_eq!(running(host).await, "live_mode live");
    assert_eq!(
        code(host, &["elemental", "upgrade", "--system", "file:/run/os-images/v1.squashfs"]).await,
        33
    );
    assert_eq!(code(host, &["elemental", "install", "--reboot=false", "/dev/nothing"]).await, 47);
    shell(host, &format!("elemental install --reboot=false --system dir:/run/rootfsbase {device}")).await;
    assert_eq!(code(host, &["elemental", "install", "--reboot=false", device]).await, 57);
}

/// Boot 2: from the disk, while the ISO is still in the drive.
async fn the_disk_boots(host: &Guest) -> String {
    reboot(host, 2).await;
    assert_eq!(running(host).await, "active_mode live");
    shell(host, "echo kept >/var/lib/baremetal-agent/witness; echo lost >/etc/witness").await;
    // The image's files and modes come back at each boot, and other files beside them stay.
    shell(host, "rm /var/log/journal -r; chmod 700 /var/log; echo kept >/var/log/witness").await;
    wait_for_assessment(host).await;
    assert!(shell(host, "elemental state").await.contains("source: dir:/run/rootfsbase"));
    assert_eq!(code(host, &["elemental", "upgrade", "--system", "nonsense:x"]).await, 33);
    assert_eq!(code(host, &["elemental", "upgrade", "--system", "10.0.2.100:5000/os:v1"]).await, 33);
    assert_eq!(code(host, &["elemental", "upgrade", "--system", "file:/nowhere"]).await, 1);
    shell(host, "cat /etc/machine-id").await
}

/// Boot 3: the upgrade's image, with the persistent paths alone.
async fn an_upgrade_boots(host: &Guest, machine_id: &str) {
    shell(host, "elemental upgrade --reboot=false --system file:/run/os-images/v1.squashfs && sync").await;
    assert_eq!(running(host).await, "active_mode live", "an upgrade changes nothing that runs");
    reboot(host, 3).await;
    assert_eq!(running(host).await, "active_mode v1");
    assert_eq!(
        shell(host, "cat /var/lib/baremetal-agent/witness; ls /etc/witness 2>/dev/null; true").await,
        "kept"
    );
    assert_eq!(shell(host, "stat -c %a /var/log; cat /var/log/witness").await, "755\nkept");
    assert_eq!(shell(host, "cat /etc/machine-id").await, machine_id);
    wait_for_assessment(host).await;
}

/// Arguments of the kernel in the boots that follow.
async fn set_arguments(host: &Guest, arguments: &str) {
    let set = "grub-editenv /oem/grub_oem_env create && grub-editenv /oem/grub_oem_env set";
    shell(host, &format!("{set} 'extra_cmdline={arguments}' && sync")).await;
}

/// Leaves a file of a former node in these directories, and the marks that an upstream agent leaves of a plan that has
/// come to its reboot.
async fn request_cleanup(host: &Guest, plan: &str, directories: &[&str]) {
    for directory in directories {
        shell(host, &format!("mkdir -p {directory}/pki && echo former >{directory}/pki/witness")).await;
    }
    let marks =
        format!("mkdir -p done && echo {plan} >cleanup-requested && touch done/{plan}.reboot && sync");
    shell(host, &format!("cd /var/lib/baremetal-agent && {marks}")).await;
}

/// The plan of the last wipe, and how many mount points it left alone.
async fn read_receipt(host: &Guest) -> String {
    let receipt = "/var/lib/baremetal-agent/cleanup-receipt.json";
    shell(host, &format!("jq -r '\"\\(.planId) \\(.kept | length)\"' {receipt}")).await
}

/// Boot 4: persistent paths are overlays, and early boot wipes a former node there.
async fn an_overlay_persists_and_is_wiped(host: &Guest) {
    let upper = |path: &str| format!("/run/elemental/persistent/.state/{path}.overlay/upper");
    let node = [upper("var-lib-kubelet"), upper("etc-kubernetes")];
    let log = upper("var-log");
    shell(host, &format!("mkdir -p {log} && echo kept >{log}/witness")).await;
    request_cleanup(host, "reprovision-01", &[&node[0], &node[1]]).await;
    set_arguments(host, "lab.persistence=overlay").await;
    reboot(host, 4).await;
    assert_eq!(running(host).await, "active_mode v1");
    let kinds = "for path in kubelet containerd; do findmnt -no FSTYPE --mountpoint /var/lib/$path; done";
    assert_eq!(shell(host, kinds).await, "overlay\next4");
    assert_eq!(shell(host, "cat /var/log/witness").await, "kept");
    assert_eq!(read_receipt(host).await, "reprovision-01 0");
    let upper = "/run/elemental/persistent/.state/*.overlay/upper";
    let left = format!("find /var/lib/kubelet /etc/kubernetes {upper} -path '*/pki/witness'");
    assert_eq!(shell(host, &left).await, "");
}

/// Boot 5: without a sentinel the kernel's arguments say which system runs, and early boot wipes as well.
async fn a_boot_without_sentinel_is_known(host: &Guest) {
    set_arguments(host, "lab.no_sentinel").await;
    request_cleanup(host, "reprovision-02", &["/run/elemental/persistent/.state/var-lib-kubelet.bind"]).await;
    reboot(host, 5).await;
    assert_eq!(shell(host, "ls /run/elemental | grep -c '_mode$' || true").await, "0");
    let status = shell(host, "baremetal-agent status").await;
    assert!(status.contains("lab.example/os:v1 (active)"), "{status}");
    assert_eq!(read_receipt(host).await, "reprovision-02 0");
    assert_eq!(shell(host, "find /var/lib/kubelet -name witness").await, "");
    set_arguments(host, "").await;
}

/// Boots 6 to 9: the new image is damaged and grub goes back to the old one; once that came up, it tries again.
async fn broken_upgrade_falls_back_and_is_retried(host: &Guest) {
    shell(host, "elemental upgrade --reboot=false --system file:/run/os-images/v2.squashfs").await;
    let damage = "set -e; mkdir -p /tmp/state; mount LABEL=COS_STATE /tmp/state; \
        dd if=/dev/zero of=/tmp/state/.snapshots/active/snapshot.img bs=4096 count=1 conv=notrunc; sync; umount /tmp/state";
    shell(host, damage).await;
    // Boot 6 is the damaged image, whose initramfs reboots.
    reboot(host, 7).await;
    assert_eq!(running(host).await, "passive_mode v1");
    host.wait_until("the end of the passive boot's trial", BOOT, || async {
        let listed = shell(host, "grub-editenv /oem/grubenv list").await;
        if listed.contains("last_boot_attempt") { Err(listed) } else { Ok(()) }
    })
    .await
    .unwrap();
    reboot(host, 9).await;
    assert_eq!(running(host).await, "passive_mode v1");
    let listed = shell(host, "grub-editenv /oem/grubenv list").await;
    assert!(listed.contains("boot_assessment_check=yes"), "{listed}");
    assert!(shell(host, "elemental state").await.contains("v2.squashfs"), "state names what should run");
}

/// Plays it on a host that was powered on for the first time, with the ISO in its drive and an empty disk `device`.
/// `set_cd_first` makes the firmware try the ISO first.
pub async fn play(host: &mut Guest, device: &str, set_cd_first: impl FnOnce()) {
    elemental_installs_from_the_live_iso(host, device).await;
    let machine_id = the_disk_boots(host).await;
    an_upgrade_boots(host, &machine_id).await;
    an_overlay_persists_and_is_wiped(host).await;
    a_boot_without_sentinel_is_known(host).await;
    broken_upgrade_falls_back_and_is_retried(host).await;

    // A good upgrade ends the fallback; a plug pulled after a sync costs nothing.
    shell(host, "elemental upgrade --reboot=false --system file:/run/os-images/v2.squashfs && sync").await;
    host.power_cut().await;
    assert_eq!(host.state(), PowerState::Off(Stop::PowerCut));
    host.power_on().await.unwrap();
    host.wait_for_boot(10, BOOT).await.unwrap();
    assert_eq!(running(host).await, "active_mode v2");

    // The CD first: the ISO still knows that it is only a guest here, and the agent decides.
    set_cd_first();
    reboot(host, 11).await;
    assert_eq!(running(host).await, "live_mode live");
    let _ = host.exec(&["systemctl", "--no-block", "poweroff"]).await;
    assert_eq!(host.wait_for_off(BOOT).await.unwrap(), Stop::PowerOff);
    // Kept when something failed above: the console log is in it.
    std::fs::remove_dir_all(host.console().parent().unwrap()).unwrap();
}
