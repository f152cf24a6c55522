//! Processes of Kubernetes, found through control groups: containers run on after their runtime has
//! stopped, and the socket of some runtimes is unknown.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto::distribution;

use crate::ground::paths::{Root, read_or_empty};
use crate::host::command::{CommandError, Invocation};
use crate::host::system::{Job, Output, deadlines};
use crate::host::units;

const CGROUPS: &str = "/sys/fs/cgroup";
/// Killed processes end after milliseconds, unless a disk holds them.
const POLLS: u32 = 50;
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// True for control groups of pods or containers, and for services of distributions, which leave
/// their shims behind when they are stopped.
fn is_workload(name: &str) -> bool {
    let unit = name.strip_suffix(".service").unwrap_or_default();
    name.contains("kubepods")
        || name.starts_with("cri-containerd-")
        || distribution::joint_units().contains(&unit)
}

/// True if only shims run in a service of containerd. The service leaves shims behind that did not
/// end with their pods.
fn is_left_by_containerd(root: &Root, cgroup: &Path) -> bool {
    let processes = read_or_empty(cgroup.join("cgroup.procs"));
    let mut names = processes.split_whitespace().map(|process| root.join("/proc").join(process).join("comm"));
    cgroup.ends_with("containerd.service") && !names.any(|name| read_or_empty(name).trim() == "containerd")
}

/// The topmost control groups of the workload that hold a process.
pub(super) fn list_cgroups(root: &Root) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    let mut pending = vec![root.join(CGROUPS)];
    while let Some(directory) = pending.pop() {
        for path in list_directories(&directory) {
            let is_ours = path.file_name().is_some_and(|name| is_workload(&name.to_string_lossy()));
            if !is_ours && !is_left_by_containerd(root, &path) {
                pending.push(path);
            } else if has_process(&path) {
                found.insert(path);
            }
        }
    }
    found.into_iter().collect()
}

/// A directory that disappears meanwhile counts as empty.
fn list_directories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn has_process(cgroup: &Path) -> bool {
    let processes = read_or_empty(cgroup.join("cgroup.procs"));
    !processes.trim().is_empty() || list_directories(cgroup).iter().any(|child| has_process(child))
}

/// Kills the processes of all these groups, and waits a moment for their end.
pub(super) async fn kill_cgroups(root: &Root) -> Result<Output, CommandError> {
    let output = send_kill(root).await?;
    for _ in 0..POLLS {
        if list_cgroups(root).is_empty() {
            break;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(output)
}

/// Kills the processes of each control group and of its children. Control groups of version 1, and
/// kernels before 5.14, have no `cgroup.kill`: there the group is frozen so that no process escapes
/// by a fork, and each process is killed, until none is left.
const KILL: &str = r#"
list() { find "$1" -name cgroup.procs -exec cat {} + 2>/dev/null; }
for cgroup; do
  { echo 1 >"$cgroup/cgroup.kill"; } 2>/dev/null && continue
  for round in 1 2 3 4 5 6 7 8 9 10; do
    processes=$(list "$cgroup")
    [ -n "$processes" ] || break
    { echo 1 >"$cgroup/cgroup.freeze" || echo FROZEN >"$cgroup/freezer.state"; } 2>/dev/null
    for process in $processes $(list "$cgroup"); do kill -9 "$process" 2>/dev/null; done
    # A frozen process of version 1 ends only after the thaw.
    { echo 0 >"$cgroup/cgroup.freeze" || echo THAWED >"$cgroup/freezer.state"; } 2>/dev/null
    sleep 0.1
  done
done
exit 0"#;

/// Kills as a job, because the agent's own view of /sys is read-only.
async fn send_kill(root: &Root) -> Result<Output, CommandError> {
    let cgroups = list_cgroups(root);
    if cgroups.is_empty() {
        return Ok(Output::default());
    }
    let paths: Vec<_> = cgroups.iter().map(|path| path.display().to_string()).collect();
    let mut args = vec!["-c", KILL, "sh"];
    args.extend(paths.iter().map(String::as_str));
    let kill = Invocation::new("/bin/sh", &args, deadlines::QUERY);
    units::run_unit(root, &Job::named("kill-workload"), &kill).await?;
    Ok(Output(format!("killed what ran in {}\n", paths.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn workload_of_every_runtime_found_and_killed() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let put = |path: &str, processes: &str| {
            let path = root.join(CGROUPS).join(path);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cgroup.procs"), processes).unwrap();
        };
        put("system.slice/sshd.service", "1\n");
        put("kubepods.slice/kubepods-pod1.slice", "");
        assert!(list_cgroups(&root).is_empty(), "an empty slice stays");
        kill_cgroups(&root).await.unwrap();
        put("kubepods.slice/kubepods-pod1.slice/cri-containerd-a.scope", "2\n3\n");
        put("system.slice/k3s.service", "4\n");
        put("system.slice/cri-containerd-b.scope", "5\n");
        put("kubepods/burstable/pod2/c", "6\n");
        let names: Vec<_> =
            list_cgroups(&root).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["kubepods", "kubepods.slice", "cri-containerd-b.scope", "k3s.service"]);
        send_kill(&root).await.unwrap();
        for path in ["kubepods", "kubepods.slice", "system.slice/k3s.service"] {
            let kill = root.join(CGROUPS).join(path).join("cgroup.kill");
            assert_eq!(fs::read_to_string(kill).unwrap(), "1\n", "{path}");
        }
        assert!(!root.join(CGROUPS).join("system.slice/sshd.service/cgroup.kill").exists());
    }

    // Fault: the kernel has no `cgroup.kill` (control groups of version 1, or a kernel before 5.14).
    // Shown: nothing: the processes are killed one by one.
    #[tokio::test]
    async fn workload_dies_without_a_kill_file() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let service = root.join(CGROUPS).join("system.slice/k3s.service");
        // The kernel refuses to make a file, and this directory refuses to be one.
        fs::create_dir_all(service.join("cgroup.kill")).unwrap();
        fs::create_dir_all(service.join("child")).unwrap();
        let mut children: Vec<_> = [service.clone(), service.join("child")]
            .iter()
            .map(|cgroup| {
                let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
                fs::write(cgroup.join("cgroup.procs"), format!("{}\n", child.id())).unwrap();
                child
            })
            .collect();
        send_kill(&root).await.unwrap();
        for child in &mut children {
            let ended = std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap());
            assert_eq!(ended, Some(9));
        }
    }

    #[test]
    fn shim_counts_as_workload_only_without_containerd() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let service = root.join(CGROUPS).join("system.slice/containerd.service");
        let put = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(&root.join("/proc/7/comm"), "containerd\n");
        put(&root.join("/proc/8/comm"), "containerd-shim\n");
        for (processes, want) in [("7\n8\n", false), ("8\n", true), ("", false)] {
            put(&service.join("cgroup.procs"), processes);
            assert_eq!(!list_cgroups(&root).is_empty(), want, "{processes:?}");
        }
    }
}
