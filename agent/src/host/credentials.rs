//! Credentials that a kubelet got when it joined a cluster: in this system, or in a system on a
//! disk.

use std::io;
use std::path::{Path, PathBuf};

use proto::distribution::{self, UNSUPPORTED, Unsupported};

use crate::ground::paths::Root;

pub fn are_in_system(root: &Root) -> bool {
    are_found(|path| vec![root.join(path)])
}

/// The distribution without a row whose node has joined in this system.
pub fn find_unsupported(root: &Root) -> Option<&'static Unsupported> {
    let has_joined = |row: &&Unsupported| row.joined_by.iter().any(|path| may_exist(&root.join(path)));
    UNSUPPORTED.iter().find(has_joined)
}

/// True if the system on this persistent partition keeps credentials, in the directory of a
/// persistent path or in the upper layer of one.
pub fn are_on_disk(partition: &Path) -> bool {
    are_found(|path| kept_places(partition, Path::new(path)))
}

/// Only a join writes these files; an image may ship each directory.
fn are_found(places: impl Fn(&str) -> Vec<PathBuf>) -> bool {
    distribution::joined_by().into_iter().flat_map(places).any(|path| may_exist(&path))
}

/// A path that cannot be read counts as found, because it may hold credentials. Links are not
/// followed, because the target of a link on another system's disk is not on this system.
fn may_exist(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// The places of a path on the partition. The path itself or a parent directory is persistent:
/// `/etc/kubernetes` is kept in `.state/etc-kubernetes.bind` or in
/// `.state/etc-kubernetes.overlay/upper`.
fn kept_places(partition: &Path, path: &Path) -> Vec<PathBuf> {
    let mut places = vec![];
    for persistent in path.ancestors() {
        let name = persistent.to_string_lossy().trim_start_matches('/').replace('/', "-");
        let below = path.strip_prefix(persistent).unwrap_or(path);
        for directory in [format!("{name}.bind"), format!("{name}.overlay/upper")] {
            let kept = partition.join(".state").join(directory);
            places.push(kept.components().chain(below.components()).collect());
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn credentials_are_found_where_persistent_paths_are_kept() {
        for (kept, is_found) in [
            (".state/etc-kubernetes.bind/kubelet.conf", true),
            (".state/etc-kubernetes.bind/manifests/etcd.yaml", true),
            (".state/etc-kubernetes.overlay/upper/kubelet.conf", true),
            (".state/etc.overlay/upper/kubernetes/kubelet.conf", true),
            (".state/etc-kubernetes-manifests.bind/etcd.yaml", true),
            (".state/var-lib.bind/rancher/rke2/agent/client-ca.crt", true),
            (".state/var-lib-rancher.bind/k3s/server/token", true),
            (".state/var-lib-rancher-k3s-agent.bind/client-kubelet.crt", true),
            (".state/etc-rancher.bind/node/password", true),
            (".state/var-lib-rancher.bind/rke2/agent/images/rke2-images.linux-amd64.tar.zst", false),
            (".state/var-lib-rancher.bind/k3s/agent/images/k3s-airgap-images-amd64.tar.zst", false),
            (".state/var-lib-rancher.bind/k3s/server/manifests/own.yaml", false),
            (".state/etc-kubernetes.bind/manifests/kube-vip.yaml", false),
            (".state/var-lib-k0s.bind/kubelet.conf", true),
            (".state/etc-kubernetes.bind/patches/etcd.yaml", false),
            (".state/etc-kubernetes.overlay/work/kubelet.conf", false),
            (".state/var-lib-rancher.bind/x", false),
            ("etc/kubernetes/kubelet.conf", false),
        ] {
            let partition = tempfile::tempdir().unwrap();
            let path = partition.path().join(kept);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "x").unwrap();
            assert_eq!(are_on_disk(partition.path()), is_found, "{kept}");
        }
    }

    #[test]
    fn cleaned_directories_hold_no_credentials() {
        let partition = tempfile::tempdir().unwrap();
        for empty in ["etc-kubernetes.bind/manifests", "var-lib-rancher.bind"] {
            fs::create_dir_all(partition.path().join(".state").join(empty)).unwrap();
        }
        assert!(!are_on_disk(partition.path()));
    }
}
