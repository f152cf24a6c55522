//! The environment files that the kubelet's unit reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use proto::distribution::KUBELET_STATE;

use super::environment;
use crate::ground::paths::{Root, read_or_empty};

/// The files in which packages of the kubelet look for `KUBELET_EXTRA_ARGS`.
const USUAL: [&str; 2] = ["/etc/default/kubelet", "/etc/sysconfig/kubelet"];

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EnvironmentFiles {
    /// The files that get the identity.
    pub(super) chosen: Vec<PathBuf>,
    /// Further files that the unit reads.
    pub(super) others: Vec<PathBuf>,
}

/// The files that packages use; a file may be missing.
pub(super) fn usual_files(root: &Root) -> [PathBuf; 2] {
    USUAL.map(|path| root.join(path))
}

/// Chooses one of the files that the unit names: the last one that sets the variable, because its
/// value counts, else the last one. If the unit names no file, all usual files with an existing
/// directory are chosen.
pub(super) fn find_files(root: &Root) -> EnvironmentFiles {
    let named: Vec<_> = ask_systemd(root)
        .unwrap_or_else(|| parse_unit(&read_unit(root)))
        .into_iter()
        // kubeadm writes its file there when a node joins, and a wipe empties the directory.
        .filter(|path| !Path::new(path).starts_with(KUBELET_STATE) && !path.contains(['*', '?', '[']))
        .map(|path| root.join(path))
        .collect();
    let counting = named.iter().rposition(|path| environment::sets_variable(&read_or_empty(path)));
    let Some(chosen) = counting.or(named.len().checked_sub(1)) else {
        let usual = usual_files(root).into_iter();
        let chosen = usual.filter(|path| path.parent().is_some_and(Path::is_dir)).collect();
        return EnvironmentFiles { chosen, others: Vec::new() };
    };
    let mut others = named;
    let chosen = others.remove(chosen);
    others.retain(|path| *path != chosen);
    EnvironmentFiles { chosen: vec![chosen], others }
}

/// The files that systemd has loaded, because systemd knows the drop-ins, their order and their
/// resets.
fn ask_systemd(root: &Root) -> Option<Vec<String>> {
    if !root.join("/run/systemd/system").is_dir() {
        return None;
    }
    let shown = Command::new(root.join("/usr/bin/systemctl"))
        .args(["show", "--property=EnvironmentFiles", "kubelet.service"])
        .output()
        .inspect_err(|error| tracing::warn!(%error, "cannot ask systemd for the kubelet's unit"))
        .ok()
        .filter(|output| output.status.success())?;
    Some(parse_shown(&String::from_utf8_lossy(&shown.stdout))).filter(|files| !files.is_empty())
}

/// Parses lines such as `EnvironmentFiles=/etc/default/kubelet (ignore_errors=yes)`.
fn parse_shown(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("EnvironmentFiles="))
        .map(|value| value.rsplit_once(" (ignore_errors=").map_or(value, |(path, _)| path).to_owned())
        .filter(|path| !path.is_empty())
        .collect()
}

/// The text of the kubelet's unit with its drop-ins.
fn read_unit(root: &Root) -> String {
    const DIRECTORIES: [&str; 5] = [
        "/lib/systemd/system",
        "/usr/lib/systemd/system",
        "/usr/local/lib/systemd/system",
        "/run/systemd/system",
        "/etc/systemd/system",
    ];
    let mut text = String::new();
    for directory in DIRECTORIES.map(|path| root.join(path)) {
        let mut paths = vec![directory.join("kubelet.service")];
        if let Ok(entries) = fs::read_dir(directory.join("kubelet.service.d")) {
            paths.extend(entries.flatten().map(|entry| entry.path()));
        }
        paths.sort();
        for path in paths {
            text.push_str(&read_or_empty(path));
            text.push('\n');
        }
    }
    text
}

/// The files that `EnvironmentFile=` of a unit names; a leading dash only means that the file may
/// be missing.
fn parse_unit(unit: &str) -> Vec<String> {
    let names = unit.lines().filter_map(|line| line.trim().strip_prefix("EnvironmentFile="));
    names.map(|name| name.trim().trim_start_matches('-').to_owned()).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A host with these files, and a systemd that shows this.
    fn host(files: &[(&str, &str)], shown: Option<&str>) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (path, text) in files {
            put(path, text);
        }
        if let Some(shown) = shown {
            fs::create_dir_all(root.join("/run/systemd/system")).unwrap();
            put("/usr/bin/systemctl", &format!("#!/bin/sh\ncat <<'END'\n{shown}\nEND\n"));
            let executable = fs::Permissions::from_mode(0o755);
            fs::set_permissions(root.join("/usr/bin/systemctl"), executable).unwrap();
        }
        (directory, root)
    }

    #[test]
    fn the_file_that_counts_is_chosen() {
        const KUBEADM: &str = "EnvironmentFiles=/var/lib/kubelet/kubeadm-flags.env (ignore_errors=yes)";
        let shown = |paths: &[&str]| {
            let line = |path: &&str| format!("EnvironmentFiles={path} (ignore_errors=no)");
            format!("{KUBEADM}\n{}", paths.iter().map(line).collect::<Vec<_>>().join("\n"))
        };
        let debian = ("/etc/default/other", "");
        let drop_in = "EnvironmentFile=-/etc/sysconfig/kubelet\n";
        let unit = ("/usr/lib/systemd/system/kubelet.service.d/10.conf", drop_in);
        let other = "/etc/kubernetes/kubelet.env";
        for (name, files, systemd, chosen, others) in [
            ("another file", vec![debian], Some(shown(&[other])), vec![other], vec![]),
            (
                "the last",
                vec![],
                Some(shown(&["/etc/a", "/etc/default/kubelet"])),
                vec!["/etc/default/kubelet"],
                vec!["/etc/a"],
            ),
            (
                "the one that sets it",
                vec![("/etc/a", "KUBELET_EXTRA_ARGS=--v=2\n"), ("/etc/b", "OTHER=x\n")],
                Some(shown(&["/etc/a", "/etc/b"])),
                vec!["/etc/a"],
                vec!["/etc/b"],
            ),
            ("a pattern", vec![], Some(shown(&["/etc/kubelet.d/*.env", other])), vec![other], vec![]),
            ("only kubeadm's", vec![debian], Some(shown(&[])), vec!["/etc/default/kubelet"], vec![]),
            ("nothing shown", vec![unit], Some(String::new()), vec!["/etc/sysconfig/kubelet"], vec![]),
            ("no systemd", vec![unit], None, vec!["/etc/sysconfig/kubelet"], vec![]),
            ("nothing at all", vec![debian], None, vec!["/etc/default/kubelet"], vec![]),
        ] {
            let (_directory, root) = host(&files, systemd.as_deref());
            let place = |paths: Vec<&str>| paths.iter().map(|path| root.join(path)).collect::<Vec<_>>();
            let want = EnvironmentFiles { chosen: place(chosen), others: place(others) };
            assert_eq!(find_files(&root), want, "{name}");
        }
    }

    #[test]
    fn an_identity_follows_the_kubelets_unit() {
        let shown = "EnvironmentFiles=/etc/kubernetes/kubelet.env (ignore_errors=yes)";
        let flags = "KUBELET_EXTRA_ARGS=\"--v=2\"\n";
        let (_directory, root) =
            host(&[("/etc/kubernetes/kubelet.env", flags), ("/etc/default/x", "")], Some(shown));
        let identity = proto::plan::NodeIdentity {
            uuid: "0a1b".into(),
            provider_id: "baremetal:///host-1".into(),
            owner: String::new(),
        };
        super::super::apply_identity(&root, &identity).unwrap();
        let read = || fs::read_to_string(root.join("/etc/kubernetes/kubelet.env")).unwrap();
        assert!(read().contains("\"--v=2 --node-labels=metal3.io/uuid=0a1b"), "{}", read());
        assert!(!root.join("/etc/default/kubelet").exists(), "the unit does not read it");
        super::super::forget_identity(&root).unwrap();
        assert_eq!(read(), flags);
    }
}
