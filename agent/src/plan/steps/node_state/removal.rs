//! Removes the files of a node, and overwrites those that are known to hold secrets.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use proto::distribution::{self, Extent};

use super::{list_directories, list_files};
use crate::ground::failure::{Failure, FailureClass, OnPath as _};
use crate::ground::overwrite::{Flush, Readable, overwrite_directory, overwrite_files, overwrite_path};
use crate::ground::paths::Root;
use crate::host::wipe;

/// cloud-init's copy of the bootstrap data.
const BOOTSTRAP: &str = "/var/lib/cloud/instances";

/// Directories of single files that the step removes.
const FLUSHED: [&str; 8] = [
    "/etc",
    "/etc/default",
    "/etc/rancher",
    "/etc/sysconfig",
    "/etc/systemd/system",
    "/run/cloud-init",
    "/var/log",
    NETWORKS,
];

/// Network plugins write here; the image has files here as well.
const NETWORKS: &str = "/etc/cni/net.d";
/// Parts of the names of files that network plugins write.
const PLUGINS: [&str; 12] = [
    "antrea",
    "calico",
    "canal",
    "cilium",
    "flannel",
    "kube-ovn",
    "kube-router",
    "kubeconfig",
    "multus",
    "ovn",
    "weave",
    "whereabouts",
];

/// Held while files are removed, because the work of a step goes on after the step's deadline and
/// the next plan starts it again.
static REMOVAL: Mutex<()> = Mutex::new(());

/// Secrets that are named in a message; the others are counted.
const NAMED: usize = 5;

/// Removes all files durably. Returns the mount points that are left.
///
/// A secret that cannot be overwritten fails the step. Its directory stays, so that the next attempt
/// finds the secret again instead of a host that looks clean.
pub(super) fn remove_all(root: &Root) -> Result<Vec<PathBuf>, Failure> {
    let _alone = REMOVAL.lock();
    let readable = overwrite_secrets(root)?;
    let is_clear = |path: &Path| !readable.iter().any(|secret| secret.path.starts_with(path));
    let mut kept = Vec::new();
    for directory in list_directories() {
        if is_clear(&root.join(directory)) {
            kept.extend(wipe::empty_directory(root, directory)?);
        }
    }
    let files = list_files().into_iter().map(|file| root.join(file));
    for path in files.chain(list_plugin_files(root)).filter(|path| is_clear(path)) {
        remove_entry(&path)?;
    }
    // The files must be removed on the disk before the plan's journal says so.
    wipe::flush_directories(root, &list_directories())?;
    wipe::flush_directories(root, &FLUSHED)?;
    if readable.is_empty() { Ok(kept) } else { Err(readable_failure(&readable)) }
}

/// Overwrites all secrets, and flushes their file systems, whatever the number of files. The flush
/// precedes the removal, because the zeros of a file without a name do not reach the disk.
fn overwrite_secrets(root: &Root) -> Result<Vec<Readable>, Failure> {
    let trees: Vec<_> =
        distribution::secret_directories(Extent::Tree).into_iter().chain([BOOTSTRAP]).collect();
    let with_files = distribution::secret_directories(Extent::Files);
    let mut readable = Vec::new();
    for directory in &trees {
        readable.extend(overwrite_directory(&root.join(directory), Flush::Later));
    }
    for directory in &with_files {
        readable.extend(overwrite_files(&root.join(directory), Flush::Later));
    }
    let files = list_files().into_iter().map(|file| root.join(file));
    for path in files.chain(list_plugin_files(root)) {
        readable.extend(overwrite_path(&path, Flush::Later));
        readable.extend(overwrite_directory(&path, Flush::Later));
    }
    wipe::flush_directories(root, &trees)?;
    wipe::flush_directories(root, &with_files)?;
    wipe::flush_directories(root, &FLUSHED)?;
    Ok(readable)
}

fn readable_failure(readable: &[Readable]) -> Failure {
    let named = readable.iter().take(NAMED);
    let named: Vec<_> =
        named.map(|Readable { path, error }| format!("{} ({error})", path.display())).collect();
    let more = readable.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let message = format!("secrets cannot be overwritten, so they stay: {}{more}", named.join(", "));
    let action = "look on the host at what protects these files (lsattr, a read-only mount) and undo it, then let the clean run again";
    Failure::input_output(message, action).with_class(FailureClass::Unknown)
}

/// Files that exist again after their removal.
pub(super) fn list_left(root: &Root) -> Vec<PathBuf> {
    let directories = list_directories().into_iter().map(|path| root.join(path));
    let directories =
        directories.filter(|path| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()));
    let files = list_files().into_iter().map(|path| root.join(path));
    let files = files.filter(|path| path.symlink_metadata().is_ok());
    directories.chain(files).chain(list_plugin_files(root)).collect()
}

fn list_plugin_files(root: &Root) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join(NETWORKS)).into_iter().flatten().flatten();
    let written = entries.filter(|entry| {
        let name = entry.file_name().to_string_lossy().to_lowercase();
        PLUGINS.iter().any(|plugin| name.contains(plugin))
    });
    written.map(|entry| entry.path()).collect()
}

fn remove_entry(path: &Path) -> Result<(), Failure> {
    let is_directory = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
    let removed = if is_directory { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.on("remove", path),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::ground::limited::is_limited;

    struct Host(tempfile::TempDir);

    impl Host {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn root(&self) -> Root {
            Root::at(self.0.path())
        }

        fn put(&self, path: &str) -> PathBuf {
            let path = self.root().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "secret").unwrap();
            path
        }
    }

    // Fault: the disk of a cleaned host cannot discard.
    // Shown: output of the step `remove-node-state`: `not trimmed`; the contents of files are overwritten.
    #[test]
    fn secrets_are_overwritten_before_removal() {
        let host = Host::new();
        let key = host.put("/etc/kubernetes/pki/deep/ca.key");
        // A process that has the file open sees what is on the disk.
        let opened = File::open(&key).unwrap();
        let mut log = File::open(host.put("/var/log/cloud-init-output.log")).unwrap();
        let precious = host.put("/srv/precious");
        symlink(&precious, host.root().join("/etc/kubernetes/link")).unwrap();
        symlink(precious.parent().unwrap(), host.root().join("/etc/kubernetes/directory")).unwrap();
        let linked = host.put("/etc/kubernetes/linked");
        fs::hard_link(&linked, host.root().join("/srv/linked")).unwrap();
        assert_eq!(remove_all(&host.root()).unwrap(), Vec::<PathBuf>::new());
        for file in [&mut &opened, &mut &log] {
            let mut content = Vec::new();
            io::Read::read_to_end(file, &mut content).unwrap();
            assert_eq!(content, [0; 6]);
        }
        io::Seek::rewind(&mut log).unwrap();
        assert_eq!(fs::read_to_string(precious).unwrap(), "secret");
        assert_eq!(fs::read_to_string(host.root().join("/srv/linked")).unwrap(), "secret");
        assert!(list_left(&host.root()).is_empty());
    }

    #[test]
    fn every_distribution_is_removed_image_is_kept() {
        let host = Host::new();
        let removed = [
            "/etc/cni/net.d/10-calico.conflist",
            "/etc/cni/net.d/calico-kubeconfig",
            "/etc/default/rke2-server",
            "/etc/rancher/k3s/config.yaml.d/10-token.yaml",
            "/etc/rancher/node/password",
            "/etc/rancher/rke2/config.yaml",
            "/etc/rancher/rke2/config.yaml.d/50-server.yaml",
            "/etc/rancher/rke2/registries.yaml",
            "/etc/systemd/system/k3s.service.env",
            "/run/k3s/containerd/x",
            "/var/lib/cni/networks/x",
            "/var/lib/etcd/member/snap/db",
            "/var/lib/rancher/k3s/server/db/state.db",
            "/var/lib/rancher/rke2/server/token",
        ]
        .map(|path| host.put(path));
        let kept =
            ["/etc/cni/net.d/99-loopback.conf", "/etc/systemd/system/k3s.service", "/var/lib/rancher/x"]
                .map(|path| host.put(path));
        assert_eq!(list_left(&host.root()).len(), 14, "{:?}", list_left(&host.root()));
        remove_all(&host.root()).unwrap();
        assert!(removed.iter().all(|path| !path.exists()), "{removed:?}");
        assert!(kept.iter().all(|path| path.exists()), "{kept:?}");
        assert!(list_left(&host.root()).is_empty());
    }

    // Fault: a file with secrets is immutable.
    // Shown: the step `remove-node-state` fails and names the file; the file stays for the next attempt.
    #[test]
    fn a_protected_secret_fails_by_name() {
        let host = Host::new();
        let token = host.put("/var/lib/rancher/k3s/server/token");
        let other = host.put("/etc/kubernetes/pki/ca.key");
        let set = |flag: &str| std::process::Command::new("chattr").arg(flag).arg(&token).status();
        if !set("+i").is_ok_and(|status| status.success()) {
            assert!(std::env::var_os("NO_SKIPS").is_none(), "chattr is needed");
            return;
        }
        let results = [remove_all(&host.root()), remove_all(&host.root())];
        set("-i").unwrap();
        for result in results {
            let failure = result.unwrap_err();
            assert!(failure.message.contains(&*token.to_string_lossy()), "{failure}");
            assert!(!failure.next_action.is_empty());
        }
        assert!(token.exists() && !other.exists());
        remove_all(&host.root()).unwrap();
        assert!(!token.exists());
    }

    #[test]
    fn many_deep_secrets_need_few_descriptors() {
        if !is_limited("plan::steps::node_state::removal::tests::many_deep_secrets_need_few_descriptors") {
            return;
        }
        let host = Host::new();
        let top = host.root().join("/var/lib/rancher/k3s/server");
        // Links keep the former contents in sight after the removal of the names.
        let seen: Vec<_> = (0..6000)
            .map(|number| {
                let path = host.put(&format!("/var/lib/rancher/k3s/server/{number}/secret"));
                fs::metadata(path).unwrap().len()
            })
            .collect();
        let mut deep = top.clone();
        for _ in 0..1500 {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("s"), "secret").unwrap();
        let opened = File::open(deep.join("s")).unwrap();
        let last = File::open(top.join("5999/secret")).unwrap();
        assert_eq!(remove_all(&host.root()).unwrap(), Vec::<PathBuf>::new());
        assert_eq!(seen.len(), 6000);
        for file in [opened, last] {
            assert_eq!(io::read_to_string(file).unwrap(), "\0".repeat(6));
        }
        assert!(fs::read_dir(&top).is_err(), "the clean removes /var/lib/rancher/k3s");
    }

    #[test]
    fn all_that_is_removed_is_writable() {
        let unit = include_str!("../../../../../systemd/baremetal-agent.service");
        let line = unit.lines().find_map(|line| line.strip_prefix("ReadWritePaths=")).unwrap();
        let writable: Vec<_> = line.split(' ').map(|path| Path::new(path.trim_start_matches('-'))).collect();
        for path in list_directories().iter().chain(&list_files()).chain([&NETWORKS]) {
            assert!(writable.iter().any(|above| Path::new(path).starts_with(above)), "{path}");
        }
    }

    #[test]
    fn mount_point_keeps_its_content() {
        let host = Host::new();
        let data = host.put("/var/lib/rancher/k3s/storage/volume/data");
        let line = "36 35 98:0 / /var/lib/rancher/k3s/storage/volume rw - ext4 /dev/x rw\n";
        fs::write(host.put("/proc/1/mountinfo"), line).unwrap();
        assert_eq!(remove_all(&host.root()).unwrap(), [data.parent().unwrap()]);
        assert!(data.exists());
    }
}
