//! Writes the new image beside the running one.

use proto::plan::{Image, Upgrade};
use proto::v1alpha1::{BootMode, StepDone, SystemState};

use super::{Context, step_done};
use crate::ground::failure::Failure;
use crate::host::image;
use crate::host::system::{Snapshot, System};

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
    let ended = if is_in_place(wanted, &running, next.as_ref(), context.active_at_start) {
        step_done(format!("{wanted} is in place already"))
    } else {
        let output = context.system.upgrade(&context.job, upgrade).await?;
        step_done(output.0)
    };
    context.system.sync().await?;
    let next = next_snapshot(context.system).await;
    if next.is_some_and(|next| !is_from(wanted, &next)) {
        // This is no failure, because the CLI may write a reference in another form. The image that
        // runs after the reboot decides.
        tracing::warn!(image = %wanted, "elemental state names another image to boot next");
    }
    Ok(ended)
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
