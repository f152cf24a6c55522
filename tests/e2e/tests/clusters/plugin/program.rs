//! The program, as an operator runs it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use e2e::replicas::find_binary;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_mins(3);

/// The program with one kubeconfig.
pub(crate) struct Plugin {
    binary: PathBuf,
    kubeconfig: PathBuf,
    /// Searched for programs before those of the machine.
    programs: Option<PathBuf>,
}

impl Plugin {
    pub(crate) fn new(kubeconfig: PathBuf) -> anyhow::Result<Self> {
        Ok(Self {
            binary: find_binary("kubectl-baremetal", "kubectl-baremetal")?,
            kubeconfig,
            programs: None,
        })
    }

    pub(crate) fn with_programs(mut self, directory: &Path) -> Self {
        self.programs = Some(directory.to_owned());
        self
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(line.split(' ')).env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null());
        command.kill_on_drop(true);
        if let Some(programs) = &self.programs {
            let machine = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{machine}", programs.display()));
        }
        command
    }

    /// Runs a command line; the answer is what it wrote. It has to end with `code` and to
    /// have written each of `parts`.
    pub(crate) async fn expect(&self, line: &str, code: i32, parts: &[&str]) -> anyhow::Result<String> {
        let output = timeout(DEADLINE, self.command(line).output()).await;
        let output = output.with_context(|| format!("`{line}` does not end"))??;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let all = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
        ensure!(
            output.status.code() == Some(code),
            "`{line}` ended with {}, wanted {code}:\n{all}",
            output.status
        );
        for part in parts {
            ensure!(all.contains(part), "`{line}` did not write {part:?}:\n{all}");
        }
        ensure!(!all.contains('\u{1b}'), "`{line}` wrote colours where no terminal is:\n{all}");
        Ok(text)
    }

    /// What kubectl would offer for the last word.
    pub(crate) async fn complete(&self, line: &str) -> anyhow::Result<String> {
        let output = self.command(line).arg0("kubectl_complete-baremetal").output().await?;
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Starts a command line that goes on; it ends with the answer.
    pub(crate) fn start(&self, line: &str) -> anyhow::Result<Following> {
        let mut child = self.command(line).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("a child without stdout")?;
        Ok(Following { _child: child, lines: BufReader::new(stdout).lines() })
    }
}

/// A command that goes on.
pub(crate) struct Following {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Following {
    /// Reads until a line is as wanted; the answer is that line.
    pub(crate) async fn until_line(
        &mut self,
        what: &str,
        is: impl Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        let mut last = String::new();
        let read = timeout(DEADLINE, async {
            while let Some(line) = self.lines.next_line().await? {
                if is(&line) {
                    return Ok(line);
                }
                last = line;
            }
            anyhow::bail!("the command ended")
        });
        let found = read.await.context("nothing more was written").and_then(|read| read);
        found.with_context(|| format!("wait for {what}; the last line was {last:?}"))
    }
}
