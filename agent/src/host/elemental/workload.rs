//! Pods and containers of Kubernetes, through the CRI with `crictl` where it
//! is installed, else through containerd's own `ctr`.

use std::fmt::Write as _;
use std::time::Duration;

use crate::host::command::Invocation;
use crate::host::system::{Output, SystemError, deadlines};
use crate::paths::Root;

const SOCKET: &str = "/run/containerd/containerd.sock";
/// One answer of the runtime; a wedged one must not hold the plan.
const ANSWER: Duration = Duration::from_secs(30);

enum Client {
    Crictl,
    Ctr,
    /// No socket: nothing runs that could be asked.
    None,
}

fn runtime_client(root: &Root) -> Client {
    let installed = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/opt/bin"]
        .iter()
        .any(|directory| root.join(directory).join("crictl").exists());
    if !root.join(SOCKET).exists() {
        Client::None
    } else if installed {
        Client::Crictl
    } else {
        Client::Ctr
    }
}

pub(super) async fn list_workload(root: &Root) -> Result<Vec<String>, SystemError> {
    match runtime_client(root) {
        Client::None => Ok(Vec::new()),
        Client::Crictl => list_names(crictl_command(&["pods", "--quiet"], ANSWER)).await,
        Client::Ctr => list_names(ctr_command(&["containers", "list", "--quiet"])).await,
    }
}

pub(super) async fn remove_workload(root: &Root) -> Result<Output, SystemError> {
    match runtime_client(root) {
        Client::None => Ok(Output("the container runtime is not running".to_owned())),
        Client::Crictl => {
            let remove = crictl_command(&["rmp", "--force", "--all"], deadlines::REMOVE_WORKLOAD);
            remove.run().await.map(|captured| captured.shown)
        }
        Client::Ctr => remove_by_ctr().await,
    }
}

async fn remove_by_ctr() -> Result<Output, SystemError> {
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

/// One that ended in between answers with an error; whether all are gone is
/// asked afterwards.
async fn append_output(output: &mut String, command: Invocation) {
    if let Err(error) = command.run().await {
        let _ = writeln!(output, "{}: {error}", command.args.join(" "));
    }
}

async fn list_names(command: Invocation) -> Result<Vec<String>, SystemError> {
    let captured = command.run().await?;
    Ok(captured.stdout.split_whitespace().map(str::to_owned).collect())
}

fn crictl_command(args: &[&str], deadline: Duration) -> Invocation {
    let endpoint = format!("--runtime-endpoint=unix://{SOCKET}");
    let mut all = vec![endpoint.as_str(), "--timeout=30s"];
    all.extend(args);
    Invocation::new("crictl", &all, deadline)
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
        assert_eq!(list_workload(&root).await.unwrap(), Vec::<String>::new());
        remove_workload(&root).await.unwrap();
    }

    #[test]
    fn the_command_lines_name_the_socket() {
        let crictl = crictl_command(&["pods", "--quiet"], ANSWER);
        assert_eq!(
            crictl.args,
            ["--runtime-endpoint=unix:///run/containerd/containerd.sock", "--timeout=30s", "pods", "--quiet"]
        );
        let ctr = ctr_command(&["tasks", "list"]);
        assert_eq!(ctr.args, ["--address", SOCKET, "--namespace", "k8s.io", "tasks", "list"]);
    }
}
