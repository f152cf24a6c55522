//! Pods and containers of Kubernetes: through the CRI with `crictl` if it is installed, else
//! through containerd's `ctr`; the rest through control groups.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use proto::distribution;

use super::cgroup;
use crate::ground::paths::Root;
use crate::host::command::{CommandError, Invocation};
use crate::host::system::{Output, deadlines};

/// Deadline of one answer, so that a hanging runtime does not hold the plan.
const ANSWER: Duration = Duration::from_secs(30);

/// A container runtime that can be asked, with the path of the program because systemd's PATH lacks
/// some of the directories.
struct Client {
    socket: &'static str,
    program: Program,
}

enum Program {
    Crictl(PathBuf),
    Ctr(PathBuf),
}

/// Directories in which packages put the clients.
const PROGRAMS: [&str; 5] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/opt/bin"];

fn find_program(root: &Root, name: &str) -> Option<PathBuf> {
    let directories = PROGRAMS.into_iter().chain(distribution::programs());
    directories.map(|directory| root.join(directory).join(name)).find(|program| program.exists())
}

/// The runtimes of all distributions whose socket exists; without a socket no runtime can be asked.
fn list_clients(root: &Root) -> Vec<Client> {
    let sockets = distribution::sockets().into_iter().filter(|socket| root.join(socket).exists());
    let to_client = |socket| {
        let ctr = || Program::Ctr(find_program(root, "ctr").unwrap_or_else(|| PathBuf::from("ctr")));
        Client { socket, program: find_program(root, "crictl").map_or_else(ctr, Program::Crictl) }
    };
    sockets.map(to_client).collect()
}

/// The workload that the runtimes know, and control groups with processes. The control groups cover
/// a runtime that does not answer.
pub(super) async fn list_workload(root: &Root) -> Vec<String> {
    let mut names = Vec::new();
    for client in list_clients(root) {
        let command = match &client.program {
            Program::Crictl(_) => client.command(&["pods", "--quiet"], ANSWER),
            Program::Ctr(_) => client.command(&["containers", "list", "--quiet"], ANSWER),
        };
        match list_names(command).await {
            Ok(known) => names.extend(known),
            Err(error) => tracing::warn!(socket = client.socket, %error, "container runtime does not answer"),
        }
    }
    names.extend(cgroup::list_cgroups(root).iter().map(|path| path.display().to_string()));
    names
}

pub(super) async fn remove_workload(root: &Root) -> Result<Output, CommandError> {
    let mut output = String::new();
    let clients = list_clients(root);
    if clients.is_empty() {
        output.push_str("the container runtime is not running\n");
    }
    for client in clients {
        match &client.program {
            Program::Crictl(_) => {
                let remove = client.command(&["rmp", "--force", "--all"], deadlines::REMOVE_WORKLOAD);
                append_output(&mut output, remove).await;
            }
            Program::Ctr(_) => remove_by_ctr(&client, &mut output).await,
        }
    }
    output.push_str(&cgroup::kill_cgroups(root).await?.0);
    Ok(Output(output))
}

/// All tasks are deleted by one command, and all containers by another one, so that their number does not
/// multiply the deadline of a runtime that hangs.
async fn remove_by_ctr(client: &Client, output: &mut String) {
    for (list, delete) in [
        (&["tasks", "list", "--quiet"], &["tasks", "delete", "--force"][..]),
        (&["containers", "list", "--quiet"], &["containers", "delete"]),
    ] {
        match list_names(client.command(list, ANSWER)).await {
            Ok(names) if names.is_empty() => {}
            Ok(names) => {
                let args: Vec<_> = delete.iter().copied().chain(names.iter().map(String::as_str)).collect();
                append_output(output, client.command(&args, deadlines::REMOVE_WORKLOAD / 2)).await;
            }
            Err(error) => drop(writeln!(output, "{error}")),
        }
    }
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

impl Client {
    fn command(&self, args: &[&str], deadline: Duration) -> Invocation {
        let endpoint = format!("--runtime-endpoint=unix://{}", self.socket);
        let (program, mut all) = match &self.program {
            Program::Crictl(program) => (program, vec![endpoint.as_str(), "--timeout=30s"]),
            Program::Ctr(program) => (program, vec!["--address", self.socket, "--namespace", "k8s.io"]),
        };
        all.extend(args);
        Invocation::new(&program.display().to_string(), &all, deadline)
    }
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
    fn command_lines_name_each_socket() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let put = |path: &str| {
            std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            std::fs::write(root.join(path), "").unwrap();
        };
        for socket in distribution::sockets() {
            put(socket);
        }
        let shown = |args: &[&str]| -> Vec<Vec<String>> {
            let clients = list_clients(&root);
            clients.iter().map(|client| client.command(args, ANSWER).args).collect()
        };
        let (containerd, k3s) = ("/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock");
        let ctr = |socket| ["--address", socket, "--namespace", "k8s.io", "tasks", "list"].map(str::to_owned);
        assert_eq!(shown(&["tasks", "list"]), [ctr(containerd), ctr(k3s)]);
        put("/var/lib/rancher/rke2/bin/crictl");
        let crictl = |socket| {
            [&format!("--runtime-endpoint=unix://{socket}"), "--timeout=30s", "pods"].map(str::to_owned)
        };
        assert_eq!(shown(&["pods"]), [crictl(containerd), crictl(k3s)]);
    }
}
