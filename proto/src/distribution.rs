//! The table of node distributions: the only place that names the units, directories and files of
//! a node (decision 78). Agent and coordinator read it, and a test compares the units with it.
//!
//! An image may ship images of an air gap (`agent/images`), manifests and configuration, so a joined
//! node is proven by files that only a join writes, never by a directory.

use self::Extent::{Files, Nothing, Tree};

/// A distribution of Kubernetes whose nodes a host can run and lose again.
#[derive(Debug)]
pub struct Distribution {
    /// The name in messages.
    pub name: &'static str,
    /// The services that run the kubelet, without `.service`.
    pub kubelets: &'static [&'static str],
    /// The services of a container runtime of its own, without `.service`. Empty if the service of
    /// the kubelet runs the container runtime, and leaves its shims behind.
    pub runtimes: &'static [&'static str],
    /// Directories that a node must find again after a reboot.
    pub kept: &'static [&'static str],
    /// Directories that belong to a node.
    pub directories: &'static [Directory],
    /// Files with secrets in directories that belong to the image. A clean removes them.
    pub secret_files: &'static [&'static str],
    /// Files that only a join writes.
    pub joined_by: &'static [&'static str],
    /// The directory of configuration fragments that the kubelet's service reads.
    pub fragments: Option<&'static str>,
    /// The socket of the container runtime.
    pub socket: &'static str,
    /// The directory of its own `crictl` and `ctr`.
    pub programs: Option<&'static str>,
    /// Directories in which the container runtime mounts the file systems of pods.
    pub runtime_mounts: &'static [&'static str],
    /// The certificates of the authority that signs the API server's certificate. The first one that
    /// exists counts.
    pub authorities: &'static [&'static str],
    /// The kubelet's client certificate.
    pub kubelet_certificate: &'static str,
    /// The key of the kubelet's client certificate.
    pub kubelet_key: &'static str,
}

/// A directory of a node, and the part of it that each operation concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The absolute path.
    pub path: &'static str,
    /// The part that early boot removes before another node starts. An image of an air gap stays.
    pub wiped: Extent,
    /// The part that a clean removes.
    pub cleaned: Extent,
    /// The part that a clean overwrites before it is removed.
    pub secret: Extent,
}

/// A part of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// No part.
    Nothing,
    /// The files directly in the directory; subdirectories stay.
    Files,
    /// All content.
    Tree,
}

const fn directory(path: &'static str, wiped: Extent, cleaned: Extent, secret: Extent) -> Directory {
    Directory { path, wiped, cleaned, secret }
}

/// The kubelet's own directory in every distribution, with the volumes of pods.
pub const KUBELET_STATE: &str = "/var/lib/kubelet";

/// Directories of the kubelet and its network plugins in every distribution.
const KUBELET: Directory = directory(KUBELET_STATE, Tree, Tree, Nothing);
const KUBELET_PKI: Directory = directory("/var/lib/kubelet/pki", Tree, Tree, Tree);
const CNI: Directory = directory("/var/lib/cni", Tree, Tree, Nothing);
/// RKE2 and k3s share the node's password and the runtime's state.
const RANCHER_NODE: Directory = directory("/etc/rancher/node", Tree, Tree, Tree);
const RANCHER_RUN: Directory = directory("/run/k3s", Nothing, Tree, Nothing);
const RANCHER_SOCKET: &str = "/run/k3s/containerd/containerd.sock";
const RANCHER_KEPT: &[&str] = &[KUBELET_STATE, "/var/lib/rancher", "/etc/rancher"];

/// A row of RKE2 or k3s, which have the same files below directories of their own names.
macro_rules! rancher {
    (
        $name:literal at $path:literal,
        kubelets: $kubelets:expr,
        programs: $programs:expr,
        further_directories: [$($further:expr)?],
        secret_files: $secret_files:expr,
    ) => {
        Distribution {
            name: $name,
            kubelets: $kubelets,
            runtimes: &[],
            kept: RANCHER_KEPT,
            directories: &[
                KUBELET,
                KUBELET_PKI,
                CNI,
                RANCHER_NODE,
                directory(concat!("/etc/rancher/", $path, "/config.yaml.d"), Nothing, Tree, Tree),
                RANCHER_RUN,
                directory(concat!("/var/lib/rancher/", $path), Nothing, Tree, Nothing),
                directory(concat!("/var/lib/rancher/", $path, "/agent"), Files, Tree, Files),
                directory(concat!("/var/lib/rancher/", $path, "/agent/containerd"), Tree, Tree, Nothing),
                directory(concat!("/var/lib/rancher/", $path, "/agent/etc"), Tree, Tree, Tree),
                directory(concat!("/var/lib/rancher/", $path, "/agent/pod-manifests"), Tree, Tree, Tree),
                directory(concat!("/var/lib/rancher/", $path, "/server"), Tree, Tree, Tree),
                directory(concat!("/var/lib/rancher/", $path, "/server/db"), Tree, Tree, Tree),
                $($further,)?
            ],
            secret_files: $secret_files,
            joined_by: &[
                "/etc/rancher/node/password",
                concat!("/etc/rancher/", $path, "/", $path, ".yaml"),
                concat!("/var/lib/rancher/", $path, "/agent/client-ca.crt"),
                concat!("/var/lib/rancher/", $path, "/agent/client-kubelet.crt"),
                concat!("/var/lib/rancher/", $path, "/agent/client-kubelet.key"),
                concat!("/var/lib/rancher/", $path, "/agent/kubelet.kubeconfig"),
                concat!("/var/lib/rancher/", $path, "/agent/serving-kubelet.key"),
                concat!("/var/lib/rancher/", $path, "/server/cred/passwd"),
                concat!("/var/lib/rancher/", $path, "/server/db/etcd/name"),
                concat!("/var/lib/rancher/", $path, "/server/db/state.db"),
                concat!("/var/lib/rancher/", $path, "/server/node-token"),
                concat!("/var/lib/rancher/", $path, "/server/tls/server-ca.key"),
                concat!("/var/lib/rancher/", $path, "/server/token"),
            ],
            fragments: Some(concat!("/etc/rancher/", $path, "/config.yaml.d")),
            socket: RANCHER_SOCKET,
            programs: $programs,
            runtime_mounts: &[],
            authorities: &[
                concat!("/var/lib/rancher/", $path, "/server/tls/server-ca.crt"),
                concat!("/var/lib/rancher/", $path, "/agent/server-ca.crt"),
            ],
            kubelet_certificate: concat!("/var/lib/rancher/", $path, "/agent/client-kubelet.crt"),
            kubelet_key: concat!("/var/lib/rancher/", $path, "/agent/client-kubelet.key"),
        }
    };
}

/// All distributions. A node of another one is refused.
pub static DISTRIBUTIONS: [Distribution; 3] = [
    Distribution {
        name: "kubeadm",
        kubelets: &["kubelet"],
        runtimes: &["containerd"],
        kept: &[KUBELET_STATE, "/var/lib/containerd", "/var/lib/etcd", "/etc/kubernetes"],
        directories: &[
            KUBELET,
            KUBELET_PKI,
            directory("/var/lib/containerd", Tree, Nothing, Nothing),
            directory("/var/lib/etcd", Tree, Tree, Tree),
            directory("/etc/kubernetes", Tree, Tree, Tree),
            CNI,
            directory("/run/kubeadm", Nothing, Tree, Nothing),
        ],
        secret_files: &[],
        joined_by: &[
            "/etc/kubernetes/kubelet.conf",
            "/etc/kubernetes/bootstrap-kubelet.conf",
            "/etc/kubernetes/admin.conf",
            "/etc/kubernetes/super-admin.conf",
            "/etc/kubernetes/controller-manager.conf",
            "/etc/kubernetes/scheduler.conf",
            "/etc/kubernetes/pki/ca.key",
            "/etc/kubernetes/manifests/etcd.yaml",
            "/etc/kubernetes/manifests/kube-apiserver.yaml",
            "/etc/kubernetes/manifests/kube-controller-manager.yaml",
            "/etc/kubernetes/manifests/kube-scheduler.yaml",
            "/var/lib/kubelet/pki/kubelet-client-current.pem",
            "/var/lib/etcd/member/snap/db",
        ],
        fragments: None,
        socket: "/run/containerd/containerd.sock",
        programs: None,
        runtime_mounts: &[
            "/run/containerd/io.containerd.grpc.v1.cri",
            "/run/containerd/io.containerd.runtime.v2.task/k8s.io",
        ],
        authorities: &["/etc/kubernetes/pki/ca.crt"],
        kubelet_certificate: "/var/lib/kubelet/pki/kubelet-client-current.pem",
        kubelet_key: "/var/lib/kubelet/pki/kubelet-client-current.pem",
    },
    rancher! {
        "RKE2" at "rke2",
        kubelets: &["rke2-server", "rke2-agent"],
        programs: Some("/var/lib/rancher/rke2/bin"),
        further_directories: [],
        secret_files: &[
            "/etc/default/rke2-agent",
            "/etc/default/rke2-server",
            "/etc/rancher/rke2/config.yaml",
            "/etc/rancher/rke2/registries.yaml",
            "/etc/rancher/rke2/rke2.yaml",
            "/etc/sysconfig/rke2-agent",
            "/etc/sysconfig/rke2-server",
        ],
    },
    rancher! {
        "k3s" at "k3s",
        kubelets: &["k3s", "k3s-agent"],
        programs: None,
        further_directories: [directory("/var/lib/rancher/k3s/storage", Tree, Tree, Nothing)],
        secret_files: &[
            "/etc/default/k3s",
            "/etc/default/k3s-agent",
            "/etc/rancher/k3s/config.yaml",
            "/etc/rancher/k3s/k3s.yaml",
            "/etc/rancher/k3s/registries.yaml",
            "/etc/sysconfig/k3s",
            "/etc/sysconfig/k3s-agent",
            "/etc/systemd/system/k3s-agent.service.env",
            "/etc/systemd/system/k3s.service.env",
        ],
    },
];

/// A distribution that this table has no row for.
#[derive(Debug)]
pub struct Unsupported {
    /// The name in messages.
    pub name: &'static str,
    /// The services that run the kubelet, without `.service`.
    pub kubelets: &'static [&'static str],
    /// Files that only a join writes.
    pub joined_by: &'static [&'static str],
    /// The program by which bootstrap data starts a node.
    pub program: &'static str,
    /// Directories that its nodes alone have.
    pub directories: &'static [&'static str],
}

/// Distributions whose nodes are known and refused: a clean would leave their credentials.
pub static UNSUPPORTED: [Unsupported; 2] = [
    Unsupported {
        name: "k0s",
        kubelets: &["k0scontroller", "k0sworker"],
        joined_by: &[
            "/etc/k0s/k0stoken",
            "/var/lib/k0s/kubelet-bootstrap.conf",
            "/var/lib/k0s/kubelet.conf",
            "/var/lib/k0s/kubelet/pki/kubelet-client-current.pem",
            "/var/lib/k0s/pki/admin.conf",
            "/var/lib/k0s/pki/ca.crt",
            "/var/lib/k0s/pki/ca.key",
        ],
        program: "k0s",
        directories: &["/etc/k0s", "/var/lib/k0s"],
    },
    Unsupported {
        name: "MicroK8s",
        kubelets: &["snap.microk8s.daemon-kubelite"],
        joined_by: &[
            "/var/snap/microk8s/current/certs/ca.key",
            "/var/snap/microk8s/current/credentials/client.config",
            "/var/snap/microk8s/current/credentials/kubelet.config",
        ],
        program: "microk8s",
        directories: &["/var/snap/microk8s"],
    },
];

impl Distribution {
    /// The distribution that this service starts a part of.
    pub fn of_unit(unit: &str) -> Option<&'static Self> {
        DISTRIBUTIONS.iter().find(|row| row.units().any(|name| name == unit))
    }

    /// All services that start a part of a node, without `.service`.
    pub fn units(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.kubelets.iter().chain(self.runtimes).copied()
    }
}

fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for item in items {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}

/// The directories of all distributions, each once, a parent before its subdirectories.
pub fn directories() -> Vec<Directory> {
    unique(DISTRIBUTIONS.iter().flat_map(|row| row.directories).copied())
}

/// The paths of the directories with this part; a path inside of another one is left out.
fn outermost(extent: Extent, part: impl Fn(&Directory) -> Extent) -> Vec<&'static str> {
    let paths: Vec<_> =
        directories().iter().filter(|found| part(found) == extent).map(|found| found.path).collect();
    let is_inside = |path: &str| {
        paths.iter().any(|above| path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/')))
    };
    paths.iter().copied().filter(|path| !is_inside(path)).collect()
}

/// The paths of which early boot removes this part.
pub fn wiped_directories(extent: Extent) -> Vec<&'static str> {
    outermost(extent, |directory| directory.wiped)
}

/// The paths that a clean empties.
pub fn cleaned_directories() -> Vec<&'static str> {
    outermost(Tree, |directory| directory.cleaned)
}

/// The paths of which this part holds secrets.
pub fn secret_directories(extent: Extent) -> Vec<&'static str> {
    outermost(extent, |directory| directory.secret)
}

/// The persistent directories, which have to be mounted before early boot: a wipe of an empty mount
/// point would be a wipe of nothing.
pub fn mounted_directories() -> Vec<&'static str> {
    let kept = DISTRIBUTIONS.iter().flat_map(|row| row.kept).copied();
    let directories = directories().into_iter().map(|directory| directory.path);
    unique(kept.chain(directories).filter(|path| !path.starts_with("/run/")))
}

/// All services that start a part of a node, without `.service`.
pub fn units() -> Vec<&'static str> {
    unique(DISTRIBUTIONS.iter().flat_map(Distribution::units))
}

/// The services that run a kubelet, without `.service`.
pub fn kubelets() -> Vec<&'static str> {
    unique(DISTRIBUTIONS.iter().flat_map(|row| row.kubelets).copied())
}

/// The services that run the kubelet and the container runtime together, without `.service`.
pub fn joint_units() -> Vec<&'static str> {
    let joint = DISTRIBUTIONS.iter().filter(|row| row.runtimes.is_empty());
    unique(joint.flat_map(|row| row.kubelets).copied())
}

/// Files with secrets outside of the directories of a node.
pub fn secret_files() -> Vec<&'static str> {
    unique(DISTRIBUTIONS.iter().flat_map(|row| row.secret_files).copied())
}

/// Files that only a join writes, also that of an unsupported distribution.
pub fn joined_by() -> Vec<&'static str> {
    let unsupported = UNSUPPORTED.iter().flat_map(|row| row.joined_by);
    unique(DISTRIBUTIONS.iter().flat_map(|row| row.joined_by).chain(unsupported).copied())
}

/// The directories of configuration fragments.
pub fn fragments() -> Vec<&'static str> {
    unique(DISTRIBUTIONS.iter().filter_map(|row| row.fragments))
}

/// Directories in which container runtimes mount.
pub fn runtime_mounts() -> Vec<&'static str> {
    unique(DISTRIBUTIONS.iter().flat_map(|row| row.runtime_mounts).copied())
}

/// The directories of `crictl` and `ctr` that distributions bring.
pub fn programs() -> Vec<&'static str> {
    unique(DISTRIBUTIONS.iter().filter_map(|row| row.programs))
}

/// The sockets of container runtimes.
pub fn sockets() -> Vec<&'static str> {
    unique(DISTRIBUTIONS.iter().map(|row| row.socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if a directory of the row holds the file, or the file is among its secrets.
    fn is_removed(row: &Distribution, file: &str) -> bool {
        let is_inside = |directory: &&Directory| {
            directory.cleaned == Tree
                && file.strip_prefix(directory.path).is_some_and(|rest| rest.starts_with('/'))
        };
        row.directories.iter().any(|directory| is_inside(&directory)) || row.secret_files.contains(&file)
    }

    #[test]
    fn a_clean_removes_every_proof_and_credential() {
        for row in &DISTRIBUTIONS {
            let credentials = [row.kubelet_certificate, row.kubelet_key];
            for file in row.joined_by.iter().chain(&credentials).chain(row.authorities) {
                assert!(is_removed(row, file), "{}: {file}", row.name);
            }
        }
    }

    #[test]
    fn images_of_an_air_gap_survive_a_wipe() {
        for row in ["rke2", "k3s"] {
            let images = format!("/var/lib/rancher/{row}/agent/images/x.tar.zst");
            for path in wiped_directories(Tree) {
                assert!(!images.starts_with(path), "{path}");
            }
            assert!(!joined_by().iter().any(|file| file.contains("/images")));
        }
    }

    #[test]
    fn container_stores_are_not_overwritten() {
        let store = "/var/lib/rancher/k3s/agent/containerd";
        assert!(!secret_directories(Tree).iter().any(|path| store.starts_with(path)));
        for (one, other) in [("rke2", "k3s"), ("k3s", "rke2")] {
            for path in secret_directories(Tree) {
                let twin = path.replace(one, other);
                assert!(secret_directories(Tree).contains(&twin.as_str()), "{twin}");
            }
        }
    }

    #[test]
    fn lists_are_unique_and_cover_all_rows() {
        assert_eq!(units(), ["kubelet", "containerd", "rke2-server", "rke2-agent", "k3s", "k3s-agent"]);
        assert_eq!(joint_units(), ["rke2-server", "rke2-agent", "k3s", "k3s-agent"]);
        assert_eq!(sockets().len(), 2);
        assert_eq!(fragments().len(), 2);
        assert_eq!(Distribution::of_unit("k3s-agent").unwrap().name, "k3s");
        let cleaned = cleaned_directories();
        assert!(cleaned.contains(&"/var/lib/rancher/k3s"), "{cleaned:?}");
        assert!(!cleaned.contains(&"/var/lib/rancher/k3s/agent"), "{cleaned:?}");
    }
}
