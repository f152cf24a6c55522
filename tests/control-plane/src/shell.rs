//! Commands of a document, run as an operator runs them.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use tokio::process::Command;

/// The commands could not be run, or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The shell did not start.
    #[error("start bash")]
    Start(#[from] io::Error),
    /// A command ended with an error.
    #[error("commands failed:\n{0}")]
    Failed(String),
}

/// An empty directory with programs of its own, and the kubeconfig of an operator.
#[derive(Debug)]
pub struct Shell {
    directory: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Shell {
    /// Without programs but those of the system.
    ///
    /// # Errors
    /// When its directory cannot be made.
    pub fn new(kubeconfig: PathBuf) -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        fs::create_dir_all(directory.path().join("bin"))?;
        Ok(Self { directory, kubeconfig })
    }

    /// A file or directory of the shell.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Adds a program.
    ///
    /// # Errors
    /// When it is there already.
    pub fn add_program(&self, name: &str, program: &Path) -> io::Result<()> {
        symlink(program, self.path("bin").join(name))
    }

    /// Adds a program that is a script.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add_script(&self, name: &str, script: &str) -> io::Result<()> {
        let path = self.path("bin").join(name);
        fs::write(&path, script)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))
    }

    /// Runs commands until one fails; the answer is all that they wrote.
    ///
    /// # Errors
    /// When one fails, with all that they wrote.
    pub async fn run(&self, commands: &str) -> Result<String, Error> {
        let home = self.directory.path();
        let mut command = Command::new("bash");
        command
            .args(["-euxo", "pipefail", "-c", commands])
            .current_dir(home)
            .kill_on_drop(true)
            .env_clear()
            .env("PATH", format!("{}/bin:/usr/bin:/bin", home.display()))
            .env("HOME", home)
            .env("XDG_CONFIG_HOME", home)
            .env("KUBECONFIG", &self.kubeconfig)
            // It would ask GitHub.
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
        let output = command.output().await?;
        let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        if output.status.success() { Ok(text.concat()) } else { Err(Error::Failed(text.concat())) }
    }
}
