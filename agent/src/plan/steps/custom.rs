//! Steps of plans that others wrote, in the upstream format. Whether they run
//! at all is the host's policy; the executor asks it when a plan is accepted.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};

use proto::plan::{CustomFile, CustomInstruction};
use proto::v1alpha1::{FailureReason, StepDone};

use super::{Context, StepError, step_done};
use crate::durable;
use crate::host::system::System;
use crate::paths::Root;

pub(super) fn write_file(root: &Root, file: &CustomFile) -> Result<StepDone, StepError> {
    let given = Path::new(&file.path);
    let odd = |part: Component<'_>| matches!(part, Component::ParentDir | Component::CurDir);
    if !given.is_absolute() || given.components().any(odd) {
        return Err(refused_error(&format!("{} is not an absolute path", file.path)));
    }
    let default = if file.directory { 0o755 } else { 0o600 };
    let mode = parse_mode(&file.permissions, default)?;
    let path = root.join(given);
    if file.directory {
        durable::create_directory_with_mode(&path, mode)?;
        let permissions = Permissions::from_mode(mode);
        fs::set_permissions(&path, permissions).map_err(|source| durable::DurableError {
            attempt: "set the mode of",
            path,
            source,
        })?;
        return Ok(StepDone::default());
    }
    if let Some(parent) = path.parent() {
        durable::create_directory_with_mode(parent, 0o755)?;
    }
    durable::write_with_mode(&path, file.content.expose(), mode)?;
    Ok(StepDone::default())
}

/// Octal text of at most four digits; empty is the default of the upstream agent.
fn parse_mode(text: &str, default: u32) -> Result<u32, StepError> {
    if text.is_empty() {
        return Ok(default);
    }
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        Ok(_) | Err(_) => Err(refused_error(&format!("permissions {text:?} are not an octal mode"))),
    }
}

fn refused_error(message: &str) -> StepError {
    StepError::new(FailureReason::Refused, message, "correct the plan")
}

pub(super) async fn run_instruction<S: System>(
    context: &Context<'_, S>,
    instruction: &CustomInstruction,
) -> Result<StepDone, StepError> {
    let output = context.system.run_custom(&context.job, instruction).await?;
    Ok(step_done(output.0))
}

#[cfg(test)]
mod tests {
    use proto::plan::Secret;

    use super::*;

    #[test]
    fn custom_files_have_mode_and_safe_path() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let cases = [
            ("file", "/a/b/file", "0640", false, Some(0o640)),
            ("default", "/a/b/other", "", false, Some(0o600)),
            ("directory", "/a/c", "0700", true, Some(0o700)),
            ("relative", "a/b", "", false, None),
            ("climbing", "/a/../etc/shadow", "", false, None),
            ("mode", "/a/b", "rw", false, None),
            ("too many bits", "/a/b", "777777", false, None),
        ];
        for (name, path, permissions, is_directory, want) in cases {
            let file = CustomFile {
                path: path.into(),
                content: Secret::new(b"x".to_vec()),
                permissions: permissions.into(),
                directory: is_directory,
            };
            let written = write_file(&root, &file);
            let mode = written.is_ok().then(|| {
                let metadata = fs::metadata(root.join(path)).unwrap();
                assert_eq!(metadata.is_dir(), is_directory, "{name}");
                metadata.permissions().mode() & 0o7777
            });
            assert_eq!(mode, want, "{name}");
        }
    }
}
