//! The new image beside the running one.

use proto::plan::Image;
use proto::v1alpha1::{BootMode, StepDone, SystemState};

use super::{Context, PriorAttempt, StepError, step_done};
use crate::host::image;
use crate::host::system::System;

/// `elemental upgrade` makes another snapshot each time and flushes nothing:
/// whether it is needed is looked up before, and it is done only when flushed.
/// One that an earlier agent began has ended by now, see [`System::earlier_jobs`].
pub(super) async fn upgrade_system<S: System>(
    context: &Context<'_, S>,
    wanted: &Image,
) -> Result<StepDone, StepError> {
    let running = context.system.running().await?;
    let next = next_image(context.system).await;
    let ended = if is_in_place(wanted, &running, next.as_deref(), context.prior) {
        step_done(format!("{wanted} is in place already"))
    } else {
        let output = context.system.upgrade(&context.job, wanted).await?;
        step_done(output.0)
    };
    context.system.sync().await?;
    let next = next_image(context.system).await;
    if next.is_some_and(|next| !image::is_same_image(wanted.as_str(), &next)) {
        // Not a failure: the CLI may write a reference in another form. What
        // runs after the reboot decides.
        tracing::warn!(image = %wanted, "elemental state names another image as the next one");
    }
    Ok(ended)
}

/// The upgrade goes on without it where it is unknown.
async fn next_image<S: System>(system: &S) -> Option<String> {
    match system.next_image().await {
        Ok(next) => next,
        Err(error) => {
            tracing::warn!(%error, "cannot ask for the image that boots next");
            None
        }
    }
}

/// Whether `wanted` boots next without another upgrade.
///
/// Either it runs now and stays the next one, or this very step wrote it in
/// this boot and was cut off after. One that was written in an earlier boot
/// and never ran may be torn by a power cut.
fn is_in_place(wanted: &Image, running: &SystemState, next: Option<&str>, prior: PriorAttempt) -> bool {
    let is_next = next.map(|next| image::is_same_image(wanted.as_str(), next));
    let names_itself = image::is_same_image(wanted.as_str(), &running.image);
    let active = running.boot_mode == i32::from(BootMode::Active);
    // What a file or a directory holds may have changed since.
    let tells = !image::is_only_a_source(wanted.as_str());
    let runs = tells && names_itself && active && is_next != Some(false);
    runs || (prior == PriorAttempt::SameBoot && is_next == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_skipped_only_when_proven() {
        let (v1, v2, file) = ("oci:lab/os:v1", "oci:lab/os:v2", "file:/images/v2");
        let (active, passive) = (BootMode::Active, BootMode::Passive);
        let cases = [
            ("old runs", v2, "lab/os:v1", active, Some(v1), PriorAttempt::None, false),
            ("runs already", v2, "lab/os:v2", active, Some(v2), PriorAttempt::None, true),
            ("runs, state unknown", v2, "lab/os:v2", active, None, PriorAttempt::None, true),
            ("runs, another is next", v2, "lab/os:v2", active, Some(v1), PriorAttempt::None, false),
            ("runs as the fallback", v2, "lab/os:v2", passive, None, PriorAttempt::None, false),
            ("written, agent killed", v2, "lab/os:v1", active, Some(v2), PriorAttempt::SameBoot, true),
            ("not written, agent killed", v2, "lab/os:v1", active, Some(v1), PriorAttempt::SameBoot, false),
            ("written before a power cut", v2, "lab/os:v1", active, Some(v2), PriorAttempt::None, false),
            (
                "a file, written by another plan",
                file,
                "lab/os:v2",
                active,
                Some(file),
                PriorAttempt::None,
                false,
            ),
            ("a file, agent killed", file, "lab/os:v1", active, Some(file), PriorAttempt::SameBoot, true),
        ];
        for (name, wanted, running, mode, next, prior, want) in cases {
            let running =
                SystemState { image: running.into(), boot_mode: mode.into(), ..SystemState::default() };
            let wanted = Image::parse(wanted).unwrap();
            assert_eq!(is_in_place(&wanted, &running, next, prior), want, "{name}");
        }
    }
}
