//! Projects of which the chart writes objects, and whose pools data may name: their definitions, out of their modules.

/// One of them. Nothing of it is built or run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Definitions {
    /// The Certificate of the coordinator's authority.
    CertManager,
    /// The standard channel: Gateways and `TLSRoutes`.
    GatewayApi,
    /// The pools of the in-cluster IPAM provider.
    InClusterIpam,
    /// What Prometheus reads, and alert rules.
    PrometheusOperator,
}

impl Definitions {
    /// The projects of which the chart writes objects.
    pub const CHART: [Self; 3] = [Self::CertManager, Self::GatewayApi, Self::PrometheusOperator];

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::CertManager => "github.com/cert-manager/cert-manager",
            Self::GatewayApi => "sigs.k8s.io/gateway-api",
            Self::InClusterIpam => "sigs.k8s.io/cluster-api-ipam-provider-in-cluster",
            Self::PrometheusOperator => "github.com/prometheus-operator/prometheus-operator",
        }
    }

    pub(super) fn files(self) -> &'static [&'static str] {
        match self {
            Self::CertManager => &["deploy/crds/crd-certificates.yaml"],
            Self::GatewayApi => &[
                "config/crd/standard/gateway.networking.k8s.io_gateways.yaml",
                "config/crd/standard/gateway.networking.k8s.io_tlsroutes.yaml",
            ],
            Self::InClusterIpam => &[
                "config/crd/bases/ipam.cluster.x-k8s.io_globalinclusterippools.yaml",
                "config/crd/bases/ipam.cluster.x-k8s.io_inclusterippools.yaml",
            ],
            Self::PrometheusOperator => &[
                "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
                "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
            ],
        }
    }

    /// cert-manager's files are templates of its chart: a condition around each, and labels.
    pub(super) fn remove_markers(self, text: &str) -> String {
        match self {
            Self::CertManager => {
                let is_yaml = |line: &&str| !line.contains("{{");
                text.lines().filter(is_yaml).flat_map(|line| [line, "\n"]).collect()
            }
            Self::GatewayApi | Self::InClusterIpam | Self::PrometheusOperator => text.to_owned(),
        }
    }
}
