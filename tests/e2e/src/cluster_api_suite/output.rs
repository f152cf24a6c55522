//! What is shown of the output of the specs; all of it is in a log.

use std::path::Path;

use anyhow::Context as _;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader};

use crate::progress::Progress;

/// Copies `output` to `log` and shows what is worth it, until it ends.
pub(super) async fn follow(
    output: impl AsyncRead + Unpin,
    log: &Path,
    progress: &Progress,
) -> anyhow::Result<()> {
    let mut file =
        File::options().create(true).append(true).open(log).await.context("the log of the specs")?;
    let mut lines = BufReader::new(output).lines();
    let mut reader = Reader::default();
    while let Some(line) = lines.next_line().await? {
        file.write_all(format!("{line}\n").as_bytes()).await?;
        if let Some(shown) = reader.read(&line) {
            progress.detail(shown);
        }
    }
    Ok(())
}

/// Where in the output a line stands.
#[derive(Default)]
struct Reader {
    is_behind_rule: bool,
    is_summary: bool,
}

impl Reader {
    /// The part of the line that is shown: names of specs, their steps and results, and the summary.
    fn read<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        let is_name = std::mem::replace(&mut self.is_behind_rule, line.starts_with("-----"));
        self.is_summary |= line.starts_with("Summarizing") || line.starts_with("Ran ");
        let text = line.trim();
        if let Some(step) = text.strip_prefix("STEP: ") {
            return Some(step.split(" @ ").next().unwrap_or(step));
        }
        let is_result = line.starts_with('•') || text.starts_with("[FAILED]");
        let is_shown = is_result || self.is_summary || is_name && !self.is_behind_rule;
        (is_shown && !text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_steps_results_and_summary_are_shown() {
        let output = "Running Suite: S
------------------------------
Quick start Should create a workload cluster
sigs.k8s.io/cluster-api/test/e2e/quick_start.go:143
  STEP: Creating a workload cluster @ 11/23/26 04:05:42.505
  INFO: Getting the cluster template yaml
  [FAILED] Timed out after 60.001s.
  a long error
• [FAILED] [147.230 seconds]
------------------------------

Summarizing 1 Failure:
  [FAIL] Quick start
Ran 1 of 3 Specs in 147.230 seconds
FAIL!";
        let mut reader = Reader::default();
        let shown: Vec<&str> = output.lines().filter_map(|line| reader.read(line)).collect();
        let want = [
            "Quick start Should create a workload cluster",
            "Creating a workload cluster",
            "[FAILED] Timed out after 60.001s.",
            "• [FAILED] [147.230 seconds]",
            "Summarizing 1 Failure:",
            "[FAIL] Quick start",
            "Ran 1 of 3 Specs in 147.230 seconds",
            "FAIL!",
        ];
        assert_eq!(shown, want);
    }
}
