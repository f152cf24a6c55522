//! Real Kubernetes parts on loopback: etcd, kube-apiserver, kube-controller-manager, Cluster API's
//! core manager, a workload cluster that a real host can join, and a registry of images.
//!
//! [`parts`] finds or builds the binaries, [`ControlPlane`] starts one cluster's control plane,
//! [`ClusterApi`] puts Cluster API beside it, [`Clusterctl`] installs providers and moves objects,
//! [`Workload`] is the cluster that hosts join, [`Registry`] keeps images.
//! Used by integration tests and by the demo. Whatever is started here dies with its value, and
//! with the process that holds it.

pub mod apply;
pub mod audit;
pub mod cluster_api;
pub mod clusterctl;
pub mod control_plane;
pub mod directory;
pub mod etcd;
pub mod kubeconfig;
pub mod parts;
pub mod pki;
pub mod ports;
pub mod process;
pub mod registry;
pub mod shell;
pub mod workload;

pub use cluster_api::ClusterApi;
pub use clusterctl::Clusterctl;
pub use control_plane::{ControlPlane, Role, Settings};
pub use parts::{Definitions, Part, Parts};
pub use registry::Registry;
pub use shell::Shell;
pub use workload::Workload;
