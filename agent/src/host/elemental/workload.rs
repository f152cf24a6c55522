//! Pods and containers of Kubernetes: through the CRI with `crictl` if it is installed, else
//! through containerd's `ctr`; the rest through control groups.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use super::cgroup;
use crate::ground::paths::Root;
use crate::host::command::{CommandError, Invocation};
use crate::host::system::{Output, deadlines};

const SOCKET: &str = "/run/containerd/containerd.sock";
/// Deadline of one answer, so that a hanging runtime does not hold the plan.
const ANSWER: Duration = Duration::from_secs(30);

enum Client {
    /// The path of the program, because systemd's PATH lacks some of the directories.
    Crictl(PathBuf),
    Ctr,
    /// There is no socket, so no runtime can be asked.
    None,
}

fn runtime_client(root: &Root) -> Client {
    let installed = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/opt/bin"]
        .iter()
        .map(|directory| root.join(directory).join("crictl"))
        .find(|program| program.exists());
    match installed {
        _ if !root.join(SOCKET).exists() => Client::None,
        Some(program) => Client::Crictl(program),
        None => Client::Ctr,
    }
}

/// The workload that the runtime knows, and control groups with processes. The control groups cover
/// a runtime that does not answer.
pub(super) async fn list_workload(root: &Root) -> Vec<String> {
    let known = match runtime_client(root) {
        Client::None => Ok(Vec::new()),
        Client::Crictl(program) => list_names(crictl_command(&program, &["pods", "--quiet"], ANSWER)).await,
        Client::Ctr => list_names(ctr_command(&["containers", "list", "--quiet"])).await,
    };
    let mut names = known.unwrap_or_else(|error| {
        tracing::warn!(%error, "container runtime does not answer");
        Vec::new()
    });
    names.extend(cgroup::list_cgroups(root).iter().map(|path| path.display().to_string()));
    names
}

pub(super) async fn remove_workload(root: &Root) -> Result<Output, CommandError> {
    let mut output = String::new();
    match runtime_client(root) {
        Client::None => output.push_str("the container runtime is not running\n"),
        Client::Crictl(program) => {
            let remove = crictl_command(&program, &["rmp", "--force", "--all"], deadlines::REMOVE_WORKLOAD);
            append_output(&mut output, remove).await;
        }
        Client::Ctr => match remove_by_ctr().await {
            Ok(Output(text)) => output.push_str(&text),
            Err(error) => drop(writeln!(output, "{error}")),
        },
    }
    output.push_str(&cgroup::kill_cgroups(root).await?.0);
    Ok(Output(output))
}

async fn remove_by_ctr() -> Result<Output, CommandError> {
    let mut output = String::new();
    for task in list_names(ctr_command(&["tasks", "list", "--quiet"])).await? {
        let kill = ctr_command(&["tasks", "kill", "--signal", "SIGKILL", "--all", &task]);
        append_output(&mut output, kill).await;
        append_output(&mut output, ctr_command(&["tasks", "delete", "--force", &task])).await;
    }
    for container in list_names(ctr_command(&["containers", "list", "--quiet"])).await? {
        append_output(&mut output, ctr_command(&["containers", "delete", &container])).await;
    }
    Ok(Output(output))
}

/// A container that ended in between causes an error. The caller checks afterwards that nothing is
/// left.
async fn append_output(output: &mut String, command: Invocation) {
    match command.run().await {
        Ok(captured) => output.push_str(&captured.shown.0),
        Err(error) => drop(writeln!(output, "{}: {error}", command.args.join(" "))),
    }
}

async fn list_names(command: Invocation) -> Result<Vec<String>, CommandError> {
    let captured = command.run().await?;
    Ok(captured.stdout.split_whitespace().map(str::to_owned).collect())
}

fn crictl_command(program: &std::path::Path, args: &[&str], deadline: Duration) -> Invocation {
    let endpoint = format!("--runtime-endpoint=unix://{SOCKET}");
    let mut all = vec![endpoint.as_str(), "--timeout=30s"];
    all.extend(args);
    Invocation::new(&program.display().to_string(), &all, deadline)
}

fn ctr_command(args: &[&str]) -> Invocation {
    let mut all = vec!["--address", SOCKET, "--namespace", "k8s.io"];
    all.extend(args);
    Invocation::new("ctr", &all, ANSWER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_runtime_there_is_no_workload() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(list_workload(&root).await, Vec::<String>::new());
        remove_workload(&root).await.unwrap();
    }

    #[tokio::test]
    async fn control_groups_show_a_silent_runtimes_workload() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let pods = root.join("/sys/fs/cgroup/kubepods.slice");
        std::fs::create_dir_all(&pods).unwrap();
        std::fs::write(pods.join("cgroup.procs"), "7\n").unwrap();
        assert_eq!(list_workload(&root).await, [pods.display().to_string()]);
    }

    #[test]
    fn the_command_lines_name_the_socket() {
        let crictl = crictl_command("/opt/bin/crictl".as_ref(), &["pods", "--quiet"], ANSWER);
        assert_eq!(crictl.program, "/opt/bin/crictl");
        assert_eq!(
            crictl.args,
            ["--runtime-endpoint=unix:///run/containerd/containerd.sock", "--timeout=30s", "pods", "--quiet"]
        );
        let ctr = ctr_command(&["tasks", "list"]);
        assert_eq!(ctr.args, ["--address", SOCKET, "--namespace", "k8s.io", "tasks", "list"]);
    }
}
