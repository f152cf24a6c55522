//! Cluster API's providers that are run: a manager and the components that it needs.

use super::Part;

/// One of Cluster API's providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Clusters, Machines, `MachineDeployments`, `MachineHealthChecks`.
    Core,
    /// Bootstrap data for kubeadm.
    Bootstrap,
    /// Control planes by kubeadm.
    ControlPlane,
}

impl Provider {
    /// Every provider, core first: the others need its kinds.
    pub const ALL: [Self; 3] = [Self::Core, Self::Bootstrap, Self::ControlPlane];

    pub fn part(self) -> Part {
        match self {
            Self::Core => Part::ClusterApiCore,
            Self::Bootstrap => Part::ClusterApiBootstrap,
            Self::ControlPlane => Part::ClusterApiControlPlane,
        }
    }

    /// The namespace of its manager.
    pub fn namespace(self) -> &'static str {
        match self {
            Self::Core => "capi-system",
            Self::Bootstrap => "capi-kubeadm-bootstrap-system",
            Self::ControlPlane => "capi-kubeadm-control-plane-system",
        }
    }

    /// The user of its manager: the service account that its own manifest binds.
    pub fn user(self) -> String {
        let account = match self {
            Self::Core => "capi-manager",
            Self::Bootstrap => "capi-kubeadm-bootstrap-manager",
            Self::ControlPlane => "capi-kubeadm-control-plane-manager",
        };
        format!("system:serviceaccount:{}:{account}", self.namespace())
    }

    /// The `ClusterRole` whose rules kube-controller-manager collects, where it has one.
    pub(crate) fn aggregated_role(self) -> Option<&'static str> {
        match self {
            Self::Core => Some("capi-aggregated-manager-role"),
            Self::Bootstrap => None,
            Self::ControlPlane => Some("capi-kubeadm-control-plane-aggregated-manager-role"),
        }
    }

    /// The flag that serves `ClusterClasses` and taints of machines, where it has one.
    pub(crate) fn feature_gates(self) -> Option<&'static str> {
        match self {
            Self::Core | Self::ControlPlane => {
                Some("--feature-gates=ClusterTopology=true,MachineTaintPropagation=true")
            }
            Self::Bootstrap => None,
        }
    }

    /// File name of its rendered components.
    pub(super) fn components(self) -> String {
        let name = match self {
            Self::Core => "core",
            Self::Bootstrap => "bootstrap",
            Self::ControlPlane => "control-plane",
        };
        format!("{name}-components.yaml")
    }

    /// Its kustomization in Cluster API's module.
    pub(super) fn kustomization(self) -> &'static str {
        match self {
            Self::Core => "core/config/default",
            Self::Bootstrap => "bootstrap/kubeadm/config/default",
            Self::ControlPlane => "controlplane/kubeadm/config/default",
        }
    }
}
