//! The command lines of a control plane's parts.

use std::path::PathBuf;

use super::Role;

pub(super) const AUTHORITY: &str = "ca.crt";
pub(super) const AUTHORITY_KEY: &str = "ca.key";
pub(super) const SERVER: &str = "server.crt";
pub(super) const SERVER_KEY: &str = "server.key";
pub(super) const TOKENS: &str = "sa.pub";
pub(super) const TOKENS_KEY: &str = "sa.key";
pub(super) const CONTROLLERS: &str = "controllers.kubeconfig";
pub(super) const AUDIT_POLICY: &str = "audit-policy.yaml";

/// Addresses of Services, as kubeadm has them by default.
pub(crate) const SERVICE_SUBNET: &str = "10.96.0.0/16";

#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) role: Role,
    pub(super) directory: PathBuf,
    pub(super) port: u16,
    pub(super) etcd_port: u16,
    pub(super) etcd_peer_port: u16,
}

impl Layout {
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Without fsync: a killed etcd loses nothing then, only a machine without power does.
    pub(super) fn etcd_flags(&self) -> Vec<String> {
        let clients = format!("http://127.0.0.1:{}", self.etcd_port);
        let peers = format!("http://127.0.0.1:{}", self.etcd_peer_port);
        vec![
            "--name=default".to_owned(),
            self.flag("data-dir", "etcd"),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ]
    }

    pub(super) fn api_server_flags(&self) -> Vec<String> {
        let mut flags = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--secure-port={}", self.port),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            // Endpoints may not be loopback addresses, and nothing uses the Service.
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--service-cluster-ip-range={SERVICE_SUBNET}"),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            // Pods that a test makes need no token.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--profiling=false".to_owned(),
            "--audit-log-format=json".to_owned(),
            // In megabytes: a rotated log would be half of a count.
            "--audit-log-maxsize=100000".to_owned(),
            self.flag("audit-log-path", "audit.jsonl"),
            self.flag("audit-policy-file", AUDIT_POLICY),
            self.flag("cert-dir", "run"),
            self.flag("client-ca-file", AUTHORITY),
            self.flag("tls-cert-file", SERVER),
            self.flag("tls-private-key-file", SERVER_KEY),
            self.flag("service-account-key-file", TOKENS),
            self.flag("service-account-signing-key-file", TOKENS_KEY),
        ];
        let of_role: &[&str] = match self.role {
            Role::Management => &["--authorization-mode=RBAC"],
            Role::Workload => &[
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--enable-bootstrap-token-auth=true",
            ],
        };
        flags.extend(of_role.iter().map(|flag| (*flag).to_owned()));
        flags
    }

    pub(super) fn controller_flags(&self) -> Vec<String> {
        let controllers = match self.role {
            Role::Management => "--controllers=*",
            Role::Workload => "--controllers=*,bootstrapsigner,tokencleaner",
        };
        vec![
            controllers.to_owned(),
            // One instance needs no lease, and starts seconds earlier without.
            "--leader-elect=false".to_owned(),
            // It serves nothing: its effects show that it runs.
            "--secure-port=0".to_owned(),
            // An emulated host under load misses heartbeats for longer than the usual 40 s, and a
            // simulated one sends none, for as long as the longest test.
            "--node-monitor-grace-period=1h".to_owned(),
            self.flag("kubeconfig", CONTROLLERS),
            self.flag("root-ca-file", AUTHORITY),
            self.flag("service-account-private-key-file", TOKENS_KEY),
            self.flag("cluster-signing-cert-file", AUTHORITY),
            self.flag("cluster-signing-key-file", AUTHORITY_KEY),
        ]
    }

    fn flag(&self, name: &str, file: &str) -> String {
        format!("--{name}={}", self.file(file).display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_workload_clusters_accept_hosts() {
        let flags = |role| {
            let layout = Layout { role, directory: "/d".into(), port: 1, etcd_port: 2, etcd_peer_port: 3 };
            [layout.api_server_flags(), layout.controller_flags()].concat()
        };
        for flag in [
            "--authorization-mode=Node,RBAC",
            "--enable-bootstrap-token-auth=true",
            "--controllers=*,bootstrapsigner,tokencleaner",
        ] {
            assert!(flags(Role::Workload).iter().any(|it| it == flag), "{flag}");
            assert!(!flags(Role::Management).iter().any(|it| it == flag), "{flag}");
        }
    }
}
