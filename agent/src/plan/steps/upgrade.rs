//! Writes the new image beside the running one.

use std::time::Duration;

use proto::plan::{Image, Upgrade};
use proto::v1alpha1::{BootMode, FailureReason, StepDone, SystemState};

use super::{Context, step_done};
use crate::ground::failure::Failure;
use crate::host::system::{Snapshot, System, UpgradeRoom};
use crate::host::{image, kernel_log};

/// `elemental upgrade` writes another snapshot at each call and flushes nothing. So this step first
/// checks whether an upgrade is needed, and is done only after a flush. An upgrade of an earlier
/// agent has ended by now ([`System::earlier_jobs`]).
pub(super) async fn upgrade_system<S: System>(
    context: &Context<'_, S>,
    upgrade: &Upgrade,
) -> Result<StepDone, Failure> {
    let wanted = &upgrade.image;
    let running = context.system.running().await?;
    let next = next_snapshot(context.system).await;
    let (begun, mut output) = if is_in_place(wanted, &running, next.as_ref(), context.active_at_start) {
        // The agent that wrote the image was killed, so the time of its start is unknown.
        (Duration::ZERO, format!("{wanted} is in place already"))
    } else {
        check_room(context.system.upgrade_room().await)?;
        let begun = kernel_log::uptime(context.root);
        (begun, context.system.upgrade(&context.job, upgrade).await?.0)
    };
    context.system.sync().await?;
    check_write_errors(&context.system.write_errors(begun).await)?;
    let next = next_snapshot(context.system).await;
    if next.as_ref().is_some_and(|next| !is_from(wanted, next)) {
        // This is no failure, because the CLI may write a reference in another form. The image that
        // runs after the reboot decides.
        tracing::warn!(image = %wanted, "elemental state names another image to boot next");
    }
    if let Some(next) = next.filter(|next| next.number != running.snapshot) {
        output = format!("{output}\n{}", context.system.check_snapshot(&next).await?.0);
    }
    Ok(step_done(output))
}

const MIB: u64 = 1 << 20;

/// Checked before the pull, because the registry serves a whole image to each attempt. `elemental`
/// writes the new snapshot beside all others, and the new image may be larger than the running one.
fn check_room(room: Option<UpgradeRoom>) -> Result<(), Failure> {
    let Some(UpgradeRoom { free_bytes, image_bytes }) = room else { return Ok(()) };
    let needed = image_bytes + image_bytes / 5 + 256 * MIB;
    if free_bytes >= needed {
        return Ok(());
    }
    let (free, needed) = (free_bytes / MIB, needed.div_ceil(MIB));
    let message = format!(
        "the state partition has {free} MiB free, and another snapshot needs {needed} MiB (1.2 times the running one and 256 MiB)"
    );
    let action = "remove old snapshots on the host, or install it again with a larger state partition, then delete the Machine";
    Err(Failure::new(FailureReason::NoSpace, message, action))
}

/// `elemental` does not learn of these errors, and would boot an image with holes.
fn check_write_errors(errors: &[String]) -> Result<(), Failure> {
    if errors.is_empty() {
        return Ok(());
    }
    let shown = errors.iter().take(3).map(String::as_str).collect::<Vec<_>>().join("; ");
    let message =
        format!("writes to a disk failed while the image was written, so it is not booted: {shown}");
    let action = "check the host's disk and the room on its state partition, then delete the Machine";
    Err(Failure::new(FailureReason::InputOutput, message, action))
}

/// The snapshot that boots next; `None` if it is unknown, because the upgrade does not depend on
/// it.
pub(crate) async fn next_snapshot<S: System>(system: &S) -> Option<Snapshot> {
    match system.snapshots().await {
        Ok(snapshots) => snapshots.into_iter().find(|snapshot| snapshot.active),
        Err(error) => {
            tracing::warn!(%error, "cannot tell which snapshot boots next");
            None
        }
    }
}

fn is_from(wanted: &Image, snapshot: &Snapshot) -> bool {
    image::is_written_from(wanted.as_str(), &snapshot.source, &snapshot.digest)
}

/// True if `wanted` boots next without another upgrade.
///
/// There are two such cases. The wanted image has booted, boots next, and is named by digest,
/// because a tag or a path may name another image by now. Or this step wrote the image in this boot
/// and was interrupted afterwards, so its number is greater than the number of the snapshot that
/// was to boot next at the step's start. An older snapshot never ran, or ran and fell back, and a
/// power cut may have torn it.
fn is_in_place(
    wanted: &Image,
    running: &SystemState,
    next: Option<&Snapshot>,
    active_at_start: Option<u32>,
) -> bool {
    let Some(next) = next.filter(|next| is_from(wanted, next)) else { return false };
    let booted = running.boot_mode == i32::from(BootMode::Active) && running.snapshot == next.number;
    let runs = booted && image::has_digest(wanted.as_str());
    runs || active_at_start.is_some_and(|number| next.number > number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::failure::FailureClass;

    // Fault: the state partition has no room for another snapshot.
    // Shown: the plan fails before the pull: `NoSpace` with both sizes.
    #[test]
    fn room_is_needed_before_the_pull() {
        let gib = 1024 * MIB;
        let room = |free_bytes, image_bytes| Some(UpgradeRoom { free_bytes, image_bytes });
        assert!(check_room(None).is_ok(), "unknown");
        assert!(check_room(room(3 * gib, 2 * gib)).is_ok());
        let failure = check_room(room(2 * gib, 2 * gib)).unwrap_err();
        assert_eq!((failure.reason, failure.class), (FailureReason::NoSpace, FailureClass::Terminal));
        assert!(failure.message.contains("2048 MiB free, and another snapshot needs 2714 MiB"), "{failure}");
    }

    // Fault: the disk loses writes to the image, which `elemental` does not notice.
    // Shown: the plan fails before the reboot, with the kernel's message.
    #[test]
    fn write_errors_keep_an_image_from_booting() {
        assert!(check_write_errors(&[]).is_ok());
        let failure = check_write_errors(&["loop: Write error at byte offset 1".to_owned()]).unwrap_err();
        assert_eq!(failure.class, FailureClass::Terminal);
        assert!(failure.message.contains("loop: Write error"), "{failure}");
    }

    #[test]
    fn an_upgrade_is_skipped_only_when_proven() {
        let (v1, v2, file) = ("oci:lab/os:v1", "oci:lab/os:v2", "file:/images/v2");
        let digest = "oci:lab/os@sha256:a";
        let (active, passive) = (BootMode::Active, BootMode::Passive);
        let cases = [
            ("old runs", v2, active, Some((1, v1)), None, false),
            ("runs already", digest, active, Some((1, digest)), None, true),
            ("runs from this tag, which may have moved", v2, active, Some((1, v2)), None, false),
            ("state unknown, os-release says so", v2, active, None, None, false),
            ("another is next", v2, active, Some((2, v1)), None, false),
            ("another digest runs", "lab/os@sha256:b", active, Some((1, digest)), None, false),
            ("runs as the fallback", digest, passive, Some((1, digest)), None, false),
            ("written, agent killed", v2, active, Some((2, v2)), Some(1), true),
            ("not written, agent killed", v2, active, Some((1, v1)), Some(1), false),
            ("written before a power cut", v2, active, Some((2, v2)), Some(2), false),
            ("fell back, agent killed while it pulled", v2, passive, Some((2, v2)), Some(2), false),
            ("a file, written by another plan", file, active, Some((1, file)), None, false),
            ("a file, agent killed", file, active, Some((2, file)), Some(1), true),
        ];
        for (name, wanted, mode, next, at_start, want) in cases {
            let running = SystemState {
                image: "lab/os:v2".into(),
                boot_mode: mode.into(),
                snapshot: u32::from(mode == active),
                ..SystemState::default()
            };
            let next = next.map(|(number, source)| Snapshot {
                number,
                source: source.to_owned(),
                active: true,
                ..Snapshot::default()
            });
            let wanted = Image::parse(wanted).unwrap();
            assert_eq!(is_in_place(&wanted, &running, next.as_ref(), at_start), want, "{name}");
        }
    }
}
