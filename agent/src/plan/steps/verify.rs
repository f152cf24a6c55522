//! Success is observed, after the reboot: the wanted image runs, the former
//! node is wiped, and cloud-init has run the new seed to its end.

use std::time::Duration;

use proto::plan::Image;
use proto::v1alpha1::{BootMode, FailureReason, StepDone, SystemState};

use super::{Context, StepError};
use crate::boot::seed;
use crate::boot::{Receipt, receipt};
use crate::host::image;
use crate::host::system::{CloudInit, System};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn verify_system<S: System>(
    context: &Context<'_, S>,
    wanted: &Image,
) -> Result<StepDone, StepError> {
    let running = context.system.running().await?;
    let active = active_source(context.system, wanted).await;
    judge_system(wanted, &running, active.as_deref(), context.rebooted_from)?;
    judge_receipt(context.plan_id.as_str(), receipt::read_receipt(context.root).as_ref())?;
    let instance = expected_instance(context)?;
    let (ran, errors) = cloud_init(context.system).await?;
    judge_cloud_init(instance.as_deref(), ran.as_deref(), &errors)?;
    Ok(StepDone {
        output: String::new(),
        // Once more: cloud-init has set the name and the addresses by now.
        system: Some(context.system.running().await?),
    })
}

/// Only asked for where os-release cannot name the image.
async fn active_source<S: System>(system: &S, wanted: &Image) -> Option<String> {
    if image::is_only_a_source(wanted.as_str()) { system.next_image().await.ok().flatten() } else { None }
}

/// `active` is the source of the snapshot that boots next; in active mode it
/// is the one that runs.
fn judge_system(
    wanted: &Image,
    running: &SystemState,
    active: Option<&str>,
    rebooted_from: Option<&str>,
) -> Result<(), StepError> {
    if rebooted_from == Some(running.boot_id.as_str()) {
        let (message, next_action) = ("the host has not rebooted", "reboot it by hand");
        return Err(StepError::new(FailureReason::Command, message, next_action));
    }
    let fell_back = [BootMode::Passive, BootMode::Recovery, BootMode::Live]
        .into_iter()
        .find(|mode| running.boot_mode == i32::from(*mode));
    let runs = image::is_same_image(wanted.as_str(), &running.image)
        || active.is_some_and(|source| image::is_same_image(wanted.as_str(), source));
    let (why, action) = match fell_back {
        Some(BootMode::Live) => (
            "the host booted the live ISO instead of its disk",
            "take the ISO out, or put the disk first in the firmware's boot order",
        ),
        Some(_) => (
            "the boot loader fell back to an older system",
            "look at the console of the host for why the new image does not boot, then correct the image",
        ),
        None if runs => return Ok(()),
        None => (
            "the host booted another image",
            "check on the host (`elemental state`) what boots next, and that IMAGE in the image's os-release is the reference by which it was asked for",
        ),
    };
    let image = if running.image.is_empty() { "an unnamed image" } else { &running.image };
    let message = format!("{why}: {image} runs instead of {wanted}");
    Err(StepError::new(FailureReason::BootFallback, message, action))
}

fn judge_receipt(plan: &str, receipt: Option<&Receipt>) -> Result<(), StepError> {
    let found = match receipt {
        Some(receipt) if receipt.plan_id == plan => return Ok(()),
        Some(receipt) => format!("the last one is for plan {}", receipt.plan_id),
        None => "there is none".to_owned(),
    };
    let message = format!(
        "no receipt says that the former node was wiped for this plan ({found}): baremetal-agent-boot.service did not run or failed"
    );
    let next_action = "see `journalctl -u baremetal-agent-boot` on the host";
    Err(StepError::new(FailureReason::CleanupMissing, message, next_action))
}

/// A result for another instance says nothing of our seed.
fn expected_instance<S>(context: &Context<'_, S>) -> Result<Option<String>, StepError> {
    let seed = seed::load(&context.root.state())?;
    Ok(seed.and_then(|seed| seed::instance_id(&seed.meta_data)))
}

async fn cloud_init<S: System>(system: &S) -> Result<(Option<String>, Vec<String>), StepError> {
    loop {
        match system.cloud_init().await? {
            CloudInit::Finished { instance_id, errors } => return Ok((instance_id, errors)),
            // The step's own deadline ends this.
            CloudInit::Running => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

fn judge_cloud_init(wanted: Option<&str>, ran: Option<&str>, errors: &[String]) -> Result<(), StepError> {
    let failed = |message| {
        let next_action = "see /var/log/cloud-init-output.log on the host";
        Err(StepError::new(FailureReason::CloudInit, message, next_action))
    };
    if !errors.is_empty() {
        return failed(format!("cloud-init failed: {}", errors.join("; ")));
    }
    match (wanted, ran) {
        (Some(wanted), Some(ran)) if wanted != ran => failed(format!(
            "cloud-init ran instance {ran} instead of {wanted}: it did not read the plan's seed"
        )),
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wanted_image_must_run_after_a_reboot() {
        let (oci, file) = ("oci:lab/os:v2", "file:/images/v2");
        let fallback = Some(FailureReason::BootFallback);
        let (active, passive) = (BootMode::Active, BootMode::Passive);
        let cases = [
            ("runs", oci, "lab/os:v2", active, None, None),
            ("no sentinel", oci, "lab/os:v2", BootMode::Unspecified, None, None),
            ("old image", oci, "lab/os:v1", active, None, fallback),
            ("unnamed image", oci, "", active, None, fallback),
            ("same image, fallback slot", oci, "lab/os:v2", passive, None, fallback),
            ("recovery", oci, "lab/os:v2", BootMode::Recovery, None, fallback),
            ("live", oci, "lab/os:v2", BootMode::Live, None, fallback),
            ("file that is active", file, "lab/os:v2", active, Some("file:///images/v2"), None),
            ("file that is not active", file, "lab/os:v1", active, Some("file:/images/v1"), fallback),
            ("file, state unknown", file, "lab/os:v1", active, None, fallback),
            ("file that os-release names", file, "/images/v2", active, None, None),
        ];
        for (name, wanted, image, mode, source, want) in cases {
            let running = SystemState {
                boot_id: "boot-2".into(),
                image: image.into(),
                boot_mode: mode.into(),
                ..SystemState::default()
            };
            let wanted = Image::parse(wanted).unwrap();
            let judged = judge_system(&wanted, &running, source, Some("boot-1"));
            assert_eq!(judged.err().map(|failure| failure.reason), want, "{name}");
        }
        let running =
            SystemState { boot_id: "boot-1".into(), image: "lab/os:v2".into(), ..SystemState::default() };
        let judged = judge_system(&Image::parse(oci).unwrap(), &running, None, Some("boot-1"));
        assert_eq!(judged.unwrap_err().reason, FailureReason::Command);
    }

    #[test]
    fn the_receipt_must_be_for_this_plan() {
        let receipt = |plan: &str| Receipt { plan_id: plan.into(), boot_id: "b".into(), kept: vec![] };
        assert!(judge_receipt("p-2", Some(&receipt("p-2"))).is_ok());
        for found in [None, Some(receipt("p-1"))] {
            let failure = judge_receipt("p-2", found.as_ref()).unwrap_err();
            assert_eq!(failure.reason, FailureReason::CleanupMissing);
        }
    }

    #[test]
    fn cloud_init_must_have_run_our_seed_without_errors() {
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
            assert_eq!(judge_cloud_init(wanted, ran, errors).is_ok(), good, "{name}");
        }
    }
}
