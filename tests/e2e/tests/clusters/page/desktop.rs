//! What would open a browser on the machine of an operator.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::timeout;

/// A program of the desktop in a directory of its own: what it is asked to open is read from `asked`.
pub(super) struct Desktop {
    directory: tempfile::TempDir,
    asked: PathBuf,
}

impl Desktop {
    pub(super) fn prepare() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let asked = directory.path().join("asked");
        ensure!(Command::new("mkfifo").arg(&asked).status()?.success(), "no pipe");
        let program = directory.path().join("xdg-open");
        fs::write(&program, format!("#!/bin/sh\necho \"$*\" >{}\n", asked.display()))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        Ok(Self { directory, asked })
    }

    pub(super) fn programs(&self) -> &Path {
        self.directory.path()
    }

    pub(super) async fn read_link(&self, deadline: Duration) -> anyhow::Result<String> {
        let read = timeout(deadline, tokio::fs::read_to_string(&self.asked)).await;
        Ok(read.context("nothing was opened")??.trim().to_owned())
    }
}
