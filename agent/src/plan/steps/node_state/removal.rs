//! Removes the files of a node, and overwrites those that are known to hold secrets.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{DIRECTORIES, FILES};
use crate::ground::durable;
use crate::ground::failure::{Failure, OnPath as _};
use crate::ground::overwrite::{overwrite_directory, overwrite_path};
use crate::ground::paths::Root;
use crate::host::wipe;

/// Directories whose files are known to hold secrets.
const SECRETS: [&str; 12] = [
    "/etc/kubernetes",
    "/etc/rancher/k3s/config.yaml.d",
    "/etc/rancher/node",
    "/etc/rancher/rke2/config.yaml.d",
    "/var/lib/cloud/instances",
    "/var/lib/etcd",
    "/var/lib/kubelet/pki",
    "/var/lib/rancher/k3s/agent",
    "/var/lib/rancher/k3s/server",
    "/var/lib/rancher/rke2/agent/etc",
    "/var/lib/rancher/rke2/agent/pod-manifests",
    "/var/lib/rancher/rke2/server",
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

/// Removes all files durably. Returns the mount points that are left.
pub(super) fn remove_all(root: &Root) -> Result<Vec<PathBuf>, Failure> {
    for directory in SECRETS {
        overwrite_directory(&root.join(directory));
    }
    let mut kept = Vec::new();
    for directory in DIRECTORIES {
        kept.extend(wipe::empty_directory(root, directory)?);
    }
    for file in FILES {
        let path = root.join(file);
        overwrite_path(&path);
        durable::remove(&path)?;
    }
    for path in list_plugin_files(root) {
        remove_entry(&path)?;
    }
    // The files must be removed on the disk before the plan's journal says so.
    wipe::flush_directories(root, &DIRECTORIES)?;
    wipe::flush_directories(root, &[NETWORKS])?;
    Ok(kept)
}

/// Files that exist again after their removal.
pub(super) fn list_left(root: &Root) -> Vec<PathBuf> {
    let directories = DIRECTORIES.iter().map(|path| root.join(path));
    let directories =
        directories.filter(|path| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()));
    let files = FILES.iter().map(|path| root.join(path)).filter(|path| path.symlink_metadata().is_ok());
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

    #[test]
    fn all_that_is_removed_is_writable() {
        let unit = include_str!("../../../../../systemd/baremetal-agent.service");
        let line = unit.lines().find_map(|line| line.strip_prefix("ReadWritePaths=")).unwrap();
        let writable: Vec<_> = line.split(' ').map(|path| Path::new(path.trim_start_matches('-'))).collect();
        for path in DIRECTORIES.iter().chain(&FILES).chain(&SECRETS).chain([&NETWORKS]) {
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
