//! The texts that hosts and Cluster API are given.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::control_plane::SERVICE_SUBNET;

/// A bootstrap token, `<6>.<16>` letters and digits.
#[derive(Clone)]
pub(super) struct Token(String);

impl Token {
    pub(super) fn new() -> Self {
        let random = uuid::Uuid::new_v4().simple().to_string();
        // The digits at 12 and 16 of a UUID are not random.
        Self(format!("{}.{}", &random[..6], &random[16..]))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// kubeadm refuses a loopback address as its own; nothing that these phases write contains it.
const NOT_LOOPBACK: &str = "192.0.2.1";

/// The configuration of the phases of `kubeadm init`. `certificatesDir` stays the default: it is
/// where a joining host's kubelet reads the authority.
pub(super) fn init(endpoint: SocketAddr, version: &str, token: &Token) -> String {
    let Token(token) = token;
    format!(
        "apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens:
- token: {token}
  ttl: 24h0m0s
  usages: [signing, authentication]
  groups: [system:bootstrappers:kubeadm:default-node-token]
localAPIEndpoint:
  advertiseAddress: {NOT_LOOPBACK}
nodeRegistration:
  name: workload
  criSocket: unix:///run/containerd/containerd.sock
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
clusterName: workload
kubernetesVersion: {version}
controlPlaneEndpoint: {endpoint}
certificatesDir: /etc/kubernetes/pki
networking:
  serviceSubnet: {SERVICE_SUBNET}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
failSwapOn: false
"
    )
}

/// Bootstrap data as Cluster API's kubeadm provider writes it for a worker.
pub(super) fn join(endpoint: &str, pin: &str, token: &Token) -> String {
    let Token(token) = token;
    // As authors add keys to their nodes: it must not be left on a host that was cleaned either.
    let key = uuid::Uuid::new_v4();
    format!(
        "## template: jinja
#cloud-config

write_files:
-   path: /run/kubeadm/kubeadm-join-config.yaml
    owner: root:root
    permissions: '0640'
    content: |
      ---
      apiVersion: kubeadm.k8s.io/v1beta4
      discovery:
        bootstrapToken:
          apiServerEndpoint: {endpoint}
          caCertHashes:
          - {pin}
          token: {token}
      kind: JoinConfiguration
      nodeRegistration:
        imagePullPolicy: IfNotPresent
        taints:
        - effect: NoSchedule
          key: node.cluster.x-k8s.io/uninitialized
      
-   path: /etc/kubernetes/encryption-config.yaml
    owner: root:root
    permissions: '0600'
    content: \"{key}\"
-   path: /run/cluster-api/placeholder
    owner: root:root
    permissions: '0640'
    content: \"makes the directory\"
runcmd:
  - kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml  && echo success > /run/cluster-api/bootstrap-success.complete
"
    )
}

pub(super) fn kubeconfig_secret(namespace: &str, cluster: &str, kubeconfig: &str) -> Secret {
    cluster_secret(namespace, cluster, "kubeconfig", &[("value", kubeconfig)])
}

/// A Secret `<cluster>-<name>` as Cluster API reads it.
pub(super) fn cluster_secret(namespace: &str, cluster: &str, name: &str, values: &[(&str, &str)]) -> Secret {
    let label = ("cluster.x-k8s.io/cluster-name".to_owned(), cluster.to_owned());
    let values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Secret {
        metadata: ObjectMeta {
            name: Some(format!("{cluster}-{name}")),
            namespace: Some(namespace.to_owned()),
            labels: Some(BTreeMap::from([label])),
            ..ObjectMeta::default()
        },
        type_: Some("cluster.x-k8s.io/secret".to_owned()),
        string_data: Some(values.collect()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_data_is_jinja_and_names_no_host() {
        let data = join("10.0.2.100:6443", "sha256:00", &Token::new());
        assert!(data.starts_with("## template: jinja\n#cloud-config\n"));
        let cloud_config: serde_json::Value = serde_norway::from_str(&data).unwrap();
        let kubeadm = cloud_config["write_files"][0]["content"].as_str().unwrap();
        let kubeadm: serde_json::Value = serde_norway::from_str(kubeadm).unwrap();
        assert_eq!(kubeadm["kind"], "JoinConfiguration");
        let registration = kubeadm["nodeRegistration"].as_object().unwrap();
        let keys: Vec<&String> = registration.keys().collect();
        assert_eq!(keys, ["imagePullPolicy", "taints"]);
    }

    #[test]
    fn a_token_has_the_shape_that_kubeadm_wants() {
        let Token(token) = Token::new();
        let (id, secret) = token.split_once('.').unwrap();
        assert_eq!((id.len(), secret.len()), (6, 16));
    }
}
