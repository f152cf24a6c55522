//! What there is to build, at which version. The `go.mod` files are the one source of versions.

/// A Go module that holds some of the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Module {
    /// `k8s.io/kubernetes`.
    Kubernetes,
    /// An earlier patch release of it, for hosts that are upgraded: see [`Parts::earlier`](super::Parts::earlier).
    EarlierKubernetes,
    /// etcd's server and its tools.
    Etcd,
    /// `sigs.k8s.io/cluster-api`.
    ClusterApi,
    /// containerd 2.
    Containerd,
    /// The registry of `github.com/distribution`.
    Distribution,
    /// Helm 4.
    Helm,
    /// Prometheus 3.
    Prometheus,
    /// Our program that runs the specs of `sigs.k8s.io/cluster-api/test`.
    ClusterApiSuite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Etcd,
    /// Makes snapshots of it.
    Etcdctl,
    Etcdutl,
    KubeApiserver,
    /// Garbage collector, namespaces, certificate signing and the rest.
    KubeControllerManager,
    /// Runs on control planes.
    KubeScheduler,
    /// Applies and renders manifests.
    Kubectl,
    Kubeadm,
    Kubelet,
    /// The first process of every pod; the only part that is written in C.
    Pause,
    /// Cluster API's core manager.
    ClusterApiCore,
    /// Cluster API's manager of bootstrap data for kubeadm.
    ClusterApiBootstrap,
    /// Cluster API's manager of control planes by kubeadm.
    ClusterApiControlPlane,
    Containerd,
    ContainerdShim,
    Ctr,
    Registry,
    /// Installs Cluster API's providers, and moves what they keep.
    Clusterctl,
    /// Renders charts.
    Helm,
    Promtool,
    /// Runs Cluster API's own specs.
    ClusterApiSuite,
}

impl Module {
    pub const ALL: [Self; 9] = [
        Self::Kubernetes,
        Self::EarlierKubernetes,
        Self::Etcd,
        Self::ClusterApi,
        Self::Containerd,
        Self::Distribution,
        Self::Helm,
        Self::Prometheus,
        Self::ClusterApiSuite,
    ];

    /// Its directory below `tests/control-plane/parts`, and the first half of its name in the cache.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::EarlierKubernetes => "kubernetes-earlier",
            Self::Etcd => "etcd",
            Self::ClusterApi => "cluster-api",
            Self::Containerd => "containerd",
            Self::Distribution => "distribution",
            Self::Helm => "helm",
            Self::Prometheus => "prometheus",
            Self::ClusterApiSuite => "cluster-api-suite",
        }
    }

    /// The version that its `go.mod` requires, as in `v1.36.3`.
    pub fn version(self) -> &'static str {
        parse_requirement(self.go_mod(), self.path()).unwrap_or("unknown")
    }

    /// The Go version that its `go.mod` asks for, as in `1.26.0`.
    pub(super) fn go_version(self) -> &'static str {
        let lines = self.go_mod().lines();
        let mut versions = lines.filter_map(|line| line.strip_prefix("go "));
        versions.next().unwrap_or("1.26.0").trim()
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Kubernetes | Self::EarlierKubernetes => "k8s.io/kubernetes",
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::ClusterApi => "sigs.k8s.io/cluster-api",
            Self::Containerd => "github.com/containerd/containerd/v2",
            Self::Distribution => "github.com/distribution/distribution/v3",
            Self::Helm => "helm.sh/helm/v4",
            Self::Prometheus => "github.com/prometheus/prometheus",
            Self::ClusterApiSuite => "sigs.k8s.io/cluster-api/test",
        }
    }

    fn go_mod(self) -> &'static str {
        match self {
            Self::Kubernetes => include_str!("../../parts/kubernetes/go.mod"),
            Self::EarlierKubernetes => include_str!("../../parts/kubernetes-earlier/go.mod"),
            Self::Etcd => include_str!("../../parts/etcd/go.mod"),
            Self::ClusterApi => include_str!("../../parts/cluster-api/go.mod"),
            Self::Containerd => include_str!("../../parts/containerd/go.mod"),
            Self::Distribution => include_str!("../../parts/distribution/go.mod"),
            Self::Helm => include_str!("../../parts/helm/go.mod"),
            Self::Prometheus => include_str!("../../parts/prometheus/go.mod"),
            Self::ClusterApiSuite => include_str!("../../parts/cluster-api-suite/go.mod"),
        }
    }

    /// Build tags: without what would need C headers, and what no test of ours uses.
    pub(super) fn tags(self) -> &'static str {
        match self {
            Self::Containerd => "no_btrfs,no_devmapper,no_zfs",
            Self::Prometheus => "remove_all_sd",
            Self::Kubernetes
            | Self::EarlierKubernetes
            | Self::Etcd
            | Self::ClusterApi
            | Self::ClusterApiSuite
            | Self::Distribution
            | Self::Helm => "",
        }
    }

    /// Linker flags. Without its version a Kubernetes server reports v0.0.0-master, and clients
    /// refuse it; the other modules do without.
    pub(super) fn linker_flags(self) -> String {
        match self {
            Self::Kubernetes | Self::EarlierKubernetes => format!("-s -w {}", stamp(self.version())),
            Self::Etcd
            | Self::ClusterApi
            | Self::ClusterApiSuite
            | Self::Containerd
            | Self::Distribution
            | Self::Helm
            | Self::Prometheus => "-s -w".to_owned(),
        }
    }
}

fn stamp(version: &str) -> String {
    let package = "k8s.io/component-base/version";
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or(""), numbers.next().unwrap_or(""));
    format!("-X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}")
}

impl Part {
    /// Every part, in the order in which building them shares most work.
    pub const ALL: [Self; 21] = [
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kubectl,
        Self::Kubeadm,
        Self::Kubelet,
        Self::Pause,
        Self::Etcd,
        Self::Etcdctl,
        Self::Etcdutl,
        Self::ClusterApiCore,
        Self::ClusterApiBootstrap,
        Self::ClusterApiControlPlane,
        Self::Clusterctl,
        Self::Containerd,
        Self::ContainerdShim,
        Self::Ctr,
        Self::Registry,
        Self::Helm,
        Self::Promtool,
        Self::ClusterApiSuite,
    ];

    /// The binary's file name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Etcdctl => "etcdctl",
            Self::Etcdutl => "etcdutl",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Kubeadm => "kubeadm",
            Self::Kubelet => "kubelet",
            Self::Pause => "pause",
            Self::ClusterApiCore => "cluster-api-core",
            Self::ClusterApiBootstrap => "cluster-api-bootstrap",
            Self::ClusterApiControlPlane => "cluster-api-control-plane",
            Self::Containerd => "containerd",
            Self::ContainerdShim => "containerd-shim-runc-v2",
            Self::Ctr => "ctr",
            Self::Registry => "registry",
            Self::Clusterctl => "clusterctl",
            Self::Helm => "helm",
            Self::Promtool => "promtool",
            Self::ClusterApiSuite => "cluster-api-suite",
        }
    }

    /// The module that it is built from; the newest release of it.
    pub fn module(self) -> Module {
        match self {
            Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubectl
            | Self::Kubeadm
            | Self::Kubelet
            | Self::Pause => Module::Kubernetes,
            Self::Etcd | Self::Etcdctl | Self::Etcdutl => Module::Etcd,
            Self::ClusterApiCore
            | Self::ClusterApiBootstrap
            | Self::ClusterApiControlPlane
            | Self::Clusterctl => Module::ClusterApi,
            Self::Containerd | Self::ContainerdShim | Self::Ctr => Module::Containerd,
            Self::Registry => Module::Distribution,
            Self::Helm => Module::Helm,
            Self::Promtool => Module::Prometheus,
            Self::ClusterApiSuite => Module::ClusterApiSuite,
        }
    }

    pub(super) fn package(self) -> String {
        let module = self.module().path();
        match self {
            Self::Etcd => module.to_owned(),
            Self::Etcdctl | Self::Etcdutl => format!("go.etcd.io/etcd/{}/v3", self.name()),
            Self::ClusterApiSuite => ".".to_owned(),
            Self::ClusterApiCore => format!("{module}/core"),
            Self::ClusterApiBootstrap => format!("{module}/bootstrap/kubeadm"),
            Self::ClusterApiControlPlane => format!("{module}/controlplane/kubeadm"),
            _ => format!("{module}/cmd/{}", self.name()),
        }
    }

    /// Wall seconds on two quiet cores, built in the order of [`Part::ALL`].
    pub(super) fn seconds(self) -> u64 {
        match self {
            Self::KubeApiserver => 390,
            Self::ClusterApiCore => 180,
            Self::ClusterApiSuite => 240,
            Self::KubeControllerManager => 100,
            Self::Containerd | Self::Registry | Self::Helm | Self::Promtool => 90,
            Self::Etcd => 45,
            Self::ClusterApiControlPlane => 40,
            Self::ClusterApiBootstrap | Self::Clusterctl => 20,
            Self::KubeScheduler | Self::Kubectl | Self::Kubeadm | Self::Kubelet => 30,
            Self::Etcdctl | Self::Etcdutl => 10,
            Self::ContainerdShim | Self::Ctr | Self::Pause => 5,
        }
    }
}

/// The version at which `go_mod` requires `module`.
fn parse_requirement<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let line = line.trim().trim_start_matches("require ");
        let rest = line.strip_prefix(module)?.strip_prefix(' ')?;
        rest.split_whitespace().next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_that_of_exact_module() {
        let block = "require (\n\tk8s.io/kubernetes v1.36.3 // indirect\n)";
        let cases = [
            ("in a block", block, "k8s.io/kubernetes", Some("v1.36.3")),
            ("alone", "require a/b v2.0.0", "a/b", Some("v2.0.0")),
            ("a longer path", "\ta/b/api v1.0.0\n\ta/b v1.1.0", "a/b", Some("v1.1.0")),
            ("missing", block, "a/b", None),
        ];
        for (name, given, module, want) in cases {
            assert_eq!(parse_requirement(given, module), want, "{name}");
        }
    }

    #[test]
    fn every_module_names_its_versions() {
        for module in Module::ALL {
            assert!(module.version().starts_with('v'), "{module:?}");
            assert!(module.go_version().starts_with("1."), "{module:?}");
        }
    }
}
