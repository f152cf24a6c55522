//! Observes the success after the reboot: the wanted image runs, the former node is wiped, and
//! cloud-init has run the new seed to its end.

use std::path::PathBuf;
use std::time::Duration;

use proto::plan::Image;
use proto::v1alpha1::{BootMode, FailureReason, StepDone, SystemState};

use super::{Context, list_paths};
use crate::ground::failure::{Failure, FailureClass};
use crate::ground::paths::Root;
use crate::host::image;
use crate::host::kept_paths::find_lost_paths;
use crate::host::system::{CloudInit, RebootMethod, Snapshot, System};
use crate::state::receipt::Receipt;
use crate::state::{bootstrap, receipt, seed};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time within which the boot assessment asks the agent again: a check and the pause after it.
const ASSESSMENT: Duration = Duration::from_mins(2);

pub(super) async fn verify_system<S: System>(
    context: &Context<'_, S>,
    wanted: &Image,
) -> Result<StepDone, Failure> {
    let running = context.system.running().await?;
    let booted = booted_snapshot(context.system, &running).await?;
    check_system(wanted, &running, booted.as_ref(), context.rebooted_from)?;
    check_paths(&find_lost_paths(context.root))?;
    continue_wipe(context, &running.boot_id).await?;
    check_receipt(context.plan_id.as_str(), receipt::read_receipt(context.root).as_ref())?;
    check_bootstrap(bootstrap::is_interrupted(context.root, context.plan_id.as_str()))?;
    let instance = expected_instance(context)?;
    let (ran, errors) = cloud_init(context.system).await?;
    check_cloud_init(instance.as_deref(), ran.as_deref(), &errors)?;
    Ok(StepDone {
        output: String::new(),
        // The state is read again, because cloud-init has set the name and the addresses by now.
        system: Some(Box::new(context.system.running().await?)),
    })
}

/// The snapshot that booted; `None` if its number is unknown.
async fn booted_snapshot<S: System>(system: &S, running: &SystemState) -> Result<Option<Snapshot>, Failure> {
    if running.snapshot == 0 {
        return Ok(None);
    }
    let snapshots = system.snapshots().await?;
    Ok(snapshots.into_iter().find(|snapshot| snapshot.number == running.snapshot))
}

/// `booted` names the source of the image. Only if it names none, the image's own name is compared,
/// which is the name in its first registry.
fn check_system(
    wanted: &Image,
    running: &SystemState,
    booted: Option<&Snapshot>,
    rebooted_from: Option<&str>,
) -> Result<(), Failure> {
    if rebooted_from == Some(running.boot_id.as_str()) {
        let (message, next_action) = ("the host has not rebooted", "reboot it by hand");
        return Err(Failure::new(FailureReason::Command, message, next_action));
    }
    let known = booted.filter(|booted| !(booted.source.is_empty() && booted.digest.is_empty()));
    let runs = match known {
        Some(booted) => image::is_written_from(wanted.as_str(), &booted.source, &booted.digest),
        None => image::is_same_image(wanted.as_str(), &running.image),
    };
    let (why, action) = match running.boot_mode() {
        BootMode::Active if runs => return Ok(()),
        BootMode::Active => (
            "the host booted another image",
            "check on the host (`elemental state`) what boots next, and from which source it was written",
        ),
        BootMode::Passive | BootMode::Recovery => (
            "the boot loader fell back to an older system",
            "look at the console of the host for why the new image does not boot, then correct the image",
        ),
        BootMode::Live => (
            "the host booted the live ISO instead of its disk",
            "take the ISO out, or put the disk first in the firmware's boot order",
        ),
        BootMode::Unspecified => (
            "boot mode unknown: nothing says whether the boot loader fell back",
            "check that the image's initramfs holds Elemental's dracut module, which writes /run/elemental",
        ),
    };
    let source = known.map_or(&running.image, |booted| &booted.source);
    let image = if source.is_empty() { "an unnamed image" } else { source };
    let message = format!("{why}: {image} runs instead of {wanted}");
    Err(Failure::new(FailureReason::BootFallback, message, action))
}

/// Early boot starts no node on an image that does not keep these paths.
fn check_paths(lost: &[PathBuf]) -> Result<(), Failure> {
    if lost.is_empty() {
        return Ok(());
    }
    let message = format!("the image does not keep over a reboot what a node needs: {}", list_paths(lost));
    let action =
        "add these to the persistent paths of the image (mode bind) and push it, then delete the Machine";
    Err(Failure::new(FailureReason::PathsNotKept, message, action))
}

fn check_receipt(plan: &str, receipt: Option<&Receipt>) -> Result<(), Failure> {
    let found = match receipt {
        Some(receipt) if receipt.plan_id == plan && receipt.kept.is_empty() => return Ok(()),
        Some(receipt) if receipt.plan_id == plan => {
            let kept = list_paths(&receipt.kept);
            return Err(Failure::new(
                FailureReason::CleanupMissing,
                format!("the former node was not wiped completely, mount points are left: {kept}"),
                "see on the host what is mounted there, and unmount it",
            ));
        }
        Some(receipt) => format!("the last one is for plan {}", receipt.plan_id),
        None => "there is none".to_owned(),
    };
    Err(Failure::new(
        FailureReason::CleanupMissing,
        format!(
            "no receipt says that the former node was wiped for this plan ({found}): baremetal-agent-boot.service did not run or failed"
        ),
        "see `journalctl -u baremetal-agent-boot` on the host",
    ))
}

/// Reboots the host for a wipe that reached the time limit of this boot. Other boots of the plan may
/// follow; each removes a part.
async fn continue_wipe<S: System>(context: &Context<'_, S>, boot_id: &str) -> Result<(), Failure> {
    let Some(progress) = receipt::read_progress(context.root) else { return Ok(()) };
    let is_receipted = receipt::read_receipt(context.root)
        .is_some_and(|receipt| receipt.plan_id == context.plan_id.as_str());
    if progress.plan_id != context.plan_id.as_str() || progress.boot_id != boot_id || is_receipted {
        return Ok(());
    }
    let action = if is_assessed(context.root) {
        context.system.reboot(RebootMethod::Orderly).await?;
        "none: the host reboots for it"
    } else {
        "none: the host reboots for it as soon as this system counts as good"
    };
    let failure = Failure::new(FailureReason::CleanupMissing, progress.to_string(), action);
    Err(failure.with_class(FailureClass::Transient))
}

/// True if the agent attached so long ago that the boot assessment has seen it. Before that the
/// next boot would be one of the former system.
fn is_assessed(root: &Root) -> bool {
    let attached = root.attached_mark().metadata().and_then(|mark| mark.modified());
    // A clock that went back meanwhile proves nothing, and the wait must end.
    attached.is_ok_and(|attached| attached.elapsed().map_or(true, |elapsed| elapsed >= ASSESSMENT))
}

fn check_bootstrap(is_interrupted: bool) -> Result<(), Failure> {
    if !is_interrupted {
        return Ok(());
    }
    let message = "the host went down while cloud-init ran the bootstrap commands in its first boot, and cloud-init does not run them again";
    let action = "see that its power is back; where the commands themselves reboot the host, use power_state of cloud-init instead";
    Err(Failure::new(FailureReason::CloudInit, message, action))
}

/// The instance id of the stored seed; a result for another instance proves nothing.
fn expected_instance<S>(context: &Context<'_, S>) -> Result<Option<String>, Failure> {
    let seed = seed::load(&context.root.state())?;
    Ok(seed.and_then(|seed| seed::instance_id(&seed.meta_data)))
}

async fn cloud_init<S: System>(system: &S) -> Result<(Option<String>, Vec<String>), Failure> {
    loop {
        match system.cloud_init().await? {
            CloudInit::Finished { instance_id, errors } => return Ok((instance_id, errors)),
            // The deadline of the step ends this loop.
            CloudInit::Running => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

fn check_cloud_init(wanted: Option<&str>, ran: Option<&str>, errors: &[String]) -> Result<(), Failure> {
    let message = match (wanted, ran) {
        _ if !errors.is_empty() => format!("cloud-init failed: {}", errors.join("; ")),
        (Some(wanted), Some(ran)) if wanted != ran => {
            format!("cloud-init ran instance {ran} instead of {wanted}: it did not read the plan's seed")
        }
        (Some(_) | None, Some(_) | None) => return Ok(()),
    };
    let next_action = "see /var/log/cloud-init-output.log on the host";
    Err(Failure::new(FailureReason::CloudInit, message, next_action))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wanted_image_must_run_after_a_reboot() {
        let (oci, file) = ("oci:lab/os:v2", "file:/images/v2");
        let fallback = Some(FailureReason::BootFallback);
        let (active, passive) = (BootMode::Active, BootMode::Passive);
        let snapshot = |source: &str, digest: &str| {
            Some(Snapshot { number: 2, source: source.into(), digest: digest.into(), active: true })
        };
        let cases = [
            ("runs", oci, "lab/os:v2", active, None, None),
            ("boot mode unknown", oci, "lab/os:v2", BootMode::Unspecified, snapshot(oci, ""), fallback),
            ("old image", oci, "lab/os:v1", active, None, fallback),
            ("unnamed image", oci, "", active, None, fallback),
            ("same image, fallback slot", oci, "lab/os:v2", passive, None, fallback),
            ("recovery", oci, "lab/os:v2", BootMode::Recovery, None, fallback),
            ("live", oci, "lab/os:v2", BootMode::Live, None, fallback),
            ("mirrored", "mirror/os:v2", "lab/os:v2", active, snapshot("oci://mirror/os:v2", ""), None),
            ("no tag", "mirror/os", "lab/os:v2", active, snapshot("oci://mirror/os:latest", ""), None),
            ("digest", "mirror/os@sha256:a", "lab/os:v2", active, snapshot("", "sha256:a"), None),
            ("another, by its source", oci, "lab/os:v2", active, snapshot("oci://lab/os:v1", ""), fallback),
            ("source unknown", oci, "lab/os:v2", active, snapshot("", ""), None),
            ("file that booted", file, "lab/os:v2", active, snapshot("file:///images/v2", ""), None),
            ("another file", file, "lab/os:v1", active, snapshot("file:/images/v1", ""), fallback),
            ("file, state unknown", file, "lab/os:v1", active, None, fallback),
        ];
        for (name, wanted, image, mode, booted, want) in cases {
            let running = SystemState {
                boot_id: "boot-2".into(),
                image: image.into(),
                boot_mode: mode.into(),
                ..SystemState::default()
            };
            let wanted = Image::parse(wanted).unwrap();
            let judged = check_system(&wanted, &running, booted.as_ref(), Some("boot-1"));
            assert_eq!(judged.err().map(|failure| failure.reason), want, "{name}");
        }
        let running =
            SystemState { boot_id: "boot-1".into(), image: "lab/os:v2".into(), ..SystemState::default() };
        let judged = check_system(&Image::parse(oci).unwrap(), &running, None, Some("boot-1"));
        assert_eq!(judged.unwrap_err().reason, FailureReason::Command);
    }

    #[test]
    fn receipt_must_match_plan_and_keep_nothing() {
        let receipt = |plan: &str, kept: &[&str]| Receipt {
            plan_id: plan.into(),
            boot_id: "b".into(),
            kept: kept.iter().map(std::path::PathBuf::from).collect(),
        };
        assert!(check_receipt("p-2", Some(&receipt("p-2", &[]))).is_ok());
        let kept = "/var/lib/kubelet/pods/a";
        let cases = [
            (None, "there is none"),
            (Some(receipt("p-1", &[])), "plan p-1"),
            (Some(receipt("p-2", &[kept])), kept),
        ];
        for (found, text) in cases {
            let failure = check_receipt("p-2", found.as_ref()).unwrap_err();
            assert_eq!(failure.reason, FailureReason::CleanupMissing);
            assert!(failure.message.contains(text), "{}", failure.message);
        }
    }

    #[test]
    fn a_reboot_waits_for_the_boot_assessment() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert!(!is_assessed(&root), "not attached");
        let mark = root.attached_mark();
        std::fs::create_dir_all(mark.parent().unwrap()).unwrap();
        let file = std::fs::File::create(&mark).unwrap();
        assert!(!is_assessed(&root), "attached just now");
        file.set_modified(std::time::SystemTime::now() - ASSESSMENT).unwrap();
        assert!(is_assessed(&root));
        file.set_modified(std::time::SystemTime::now() + ASSESSMENT).unwrap();
        assert!(is_assessed(&root), "the clock went back");
    }

    #[test]
    fn interrupted_bootstrap_fails_the_plan() {
        assert!(check_bootstrap(false).is_ok());
        assert_eq!(check_bootstrap(true).unwrap_err().reason, FailureReason::CloudInit);
    }

    #[test]
    fn cloud_init_must_run_plan_seed_without_errors() {
        type Case<'a> = (&'static str, Option<&'a str>, Option<&'a str>, &'a [String], bool);
        let error = ["runcmd: kubeadm join failed".to_owned()];
        let cases: [Case<'_>; 5] = [
            ("ours", Some("p-2"), Some("p-2"), &[], true),
            ("another", Some("p-2"), Some("p-1"), &[], false),
            ("errors", Some("p-2"), Some("p-2"), &error, false),
            ("instance unknown", Some("p-2"), None, &[], true),
            ("seed names none", None, Some("x"), &[], true),
        ];
        for (name, wanted, ran, errors, good) in cases {
            assert_eq!(check_cloud_init(wanted, ran, errors).is_ok(), good, "{name}");
        }
    }
}
