//! Steps of custom plans, which others wrote in the upstream format. The executor asks the host's
//! policy when it accepts such a plan.

use std::path::{Component, Path};

use proto::plan::{CustomFile, CustomInstruction};
use proto::v1alpha1::{FailureReason, StepDone};

use super::{Context, step_done};
use crate::ground::durable;
use crate::ground::failure::Failure;
use crate::host::system::{Placement, PlacementAction, System};

/// The content is staged in the state directory, because the agent can write no other place of the
/// host and the content must not be on a command line.
pub(super) async fn write_file<S: System>(
    context: &Context<'_, S>,
    file: &CustomFile,
) -> Result<StepDone, Failure> {
    let staged = context.root.state().path().join("custom-file");
    let placement = parse_placement(file, &staged)?;
    if matches!(placement.action, PlacementAction::File { .. }) {
        durable::write(&staged, file.content.expose())?;
    }
    let placed = context.system.place_file(&context.job, &placement).await;
    durable::remove(&staged)?;
    Ok(step_done(placed?.0))
}

fn parse_placement<'a>(file: &'a CustomFile, staged: &'a Path) -> Result<Placement<'a>, Failure> {
    let path = Path::new(&file.path);
    let mut parts = path.components();
    let is_relative = parts.any(|part| matches!(part, Component::ParentDir | Component::CurDir));
    if !path.is_absolute() || is_relative || path.file_name().is_none() {
        return Err(refused_error(&format!("{} is not an absolute path of a file", file.path)));
    }
    let default = if file.directory { 0o755 } else { 0o600 };
    let mode = parse_mode(&file.permissions, default)?;
    let action = match (file.delete, file.directory) {
        (true, _) => PlacementAction::Delete,
        (false, true) => PlacementAction::Directory,
        (false, false) => PlacementAction::File { staged },
    };
    Ok(Placement { path, mode, uid: file.uid, gid: file.gid, action })
}

/// Octal text of at most four digits; empty text selects the default of the upstream agent.
fn parse_mode(text: &str, default: u32) -> Result<u32, Failure> {
    if text.is_empty() {
        return Ok(default);
    }
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        Ok(_) | Err(_) => Err(refused_error(&format!("permissions {text:?} are not an octal mode"))),
    }
}

fn refused_error(message: &str) -> Failure {
    Failure::new(FailureReason::Refused, message, "correct the plan")
}

pub(super) async fn run_instruction<S: System>(
    context: &Context<'_, S>,
    instruction: &CustomInstruction,
) -> Result<StepDone, Failure> {
    let output = context.system.run_custom(&context.job, instruction).await?;
    Ok(step_done(if instruction.save_output { output.0 } else { String::new() }))
}

#[cfg(test)]
mod tests {
    use proto::plan::Secret;

    use super::*;

    #[test]
    fn custom_files_have_mode_and_safe_path() {
        let cases = [
            ("file", "/a/b/file", "0640", false, Some(0o640)),
            ("default", "/a/b/other", "", false, Some(0o600)),
            ("directory", "/a/c", "", true, Some(0o755)),
            ("relative", "a/b", "", false, None),
            ("climbing", "/a/../etc/shadow", "", false, None),
            ("root", "/", "", true, None),
            ("mode", "/a/b", "rw", false, None),
            ("too many bits", "/a/b", "777777", false, None),
        ];
        for (name, path, permissions, directory, want) in cases {
            let file = CustomFile {
                path: path.into(),
                content: Secret::new(b"x".to_vec()),
                permissions: permissions.into(),
                directory,
                uid: 7,
                gid: 8,
                delete: false,
            };
            let placement = parse_placement(&file, Path::new("/staged")).ok();
            assert_eq!(placement.map(|placement| placement.mode), want, "{name}");
            let deleted = CustomFile { delete: true, ..file };
            let Ok(deleted) = parse_placement(&deleted, Path::new("/s")) else { continue };
            assert_eq!((deleted.action, deleted.uid, deleted.gid), (PlacementAction::Delete, 7, 8), "{name}");
        }
    }
}
