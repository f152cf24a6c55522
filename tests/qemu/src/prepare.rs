//! What a host has before it is powered on for the first time.

use std::path::Path;

use guest::LabError;

use crate::arguments::OVMF_CODE;
use crate::config::{Firmware, HostConfig};

/// Makes what is missing of directory, system disk and UEFI variables.
pub(crate) async fn prepare(config: &HostConfig) -> Result<(), LabError> {
    let directory = &config.directory;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| LabError::Prepare { path, source }
    };
    tokio::fs::create_dir_all(directory).await.map_err(failed(directory))?;
    let disk = config.system_disk();
    if !disk.exists() {
        let file = tokio::fs::File::create_new(&disk).await.map_err(failed(&disk))?;
        file.set_len(u64::from(config.disk_gib) << 30).await.map_err(failed(&disk))?;
    }
    if !config.keeps_writes {
        lay_overlay(&disk, &config.overlay()).await?;
    }
    let variables = directory.join("uefi-variables.fd");
    if config.firmware == Firmware::Uefi && !variables.exists() {
        let template = Path::new(OVMF_CODE).with_file_name("OVMF_VARS_4M.fd");
        tokio::fs::copy(&template, &variables).await.map_err(failed(&template))?;
    }
    Ok(())
}

/// A new one over what the disk is now.
async fn lay_overlay(disk: &Path, overlay: &Path) -> Result<(), LabError> {
    let mut command = tokio::process::Command::new("qemu-img");
    command.args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"]).arg(disk).arg(overlay);
    let made = command.output().await.map_err(|source| LabError::Start { program: "qemu-img", source })?;
    if made.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&made.stderr).trim().to_owned();
    Err(LabError::Program { program: "qemu-img", said })
}
