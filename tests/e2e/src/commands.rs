//! Programs of the machine that runs the tests.

use std::path::Path;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

/// Runs curl; the error is what it wrote to stderr.
pub(crate) async fn run_curl(arguments: Vec<String>) -> Result<(), String> {
    let output = Command::new("curl").args(&arguments).output().await;
    let output = output.map_err(|error| format!("curl: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

/// Compares a file with its `sha256sum` file.
pub(crate) async fn verify_checksum(file: &Path, sum: &Path) -> anyhow::Result<()> {
    let wanted = tokio::fs::read_to_string(sum).await?;
    let output = Command::new("sha256sum").arg(file).output().await.context("run sha256sum")?;
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    let word = |text: &str| text.split_whitespace().next().unwrap_or_default().to_owned();
    ensure!(word(&wanted) == word(&found), "checksum {found}, wanted {wanted}");
    Ok(())
}

/// Extracts one file of an ISO, as a kernel that mounts it would show it.
///
/// # Errors
/// When the ISO has no such file.
pub async fn extract_file(iso: &Path, file: &str, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to.parent().context("a path without a parent")?)?;
    let output = Command::new("xorriso")
        .args(["-osirrox", "on", "-indev"])
        .arg(iso)
        .args(["-extract", file])
        .arg(to)
        .output()
        .await
        .context("run xorriso")?;
    ensure!(output.status.success(), "xorriso: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The output of a program that gets `input`; the error is what it wrote to
/// stderr.
pub(crate) async fn run_with_input(
    program: &Path,
    arguments: &[&str],
    input: &str,
) -> anyhow::Result<String> {
    use std::process::Stdio;
    use tokio::io::AsyncWriteExt as _;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| program.display().to_string())?;
    let mut stdin = child.stdin.take().context("no pipe")?;
    let (written, output) =
        tokio::join!(async move { stdin.write_all(input.as_bytes()).await }, child.wait_with_output());
    let output = output?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} {}: {}", program.display(), arguments.join(" "), said.trim());
    written?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
