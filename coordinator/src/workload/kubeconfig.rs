//! A kubeconfig from a Secret, of which only embedded contents are used.

use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use proto::plan::Secret;

use crate::client::build_workload_client;

/// The cause for which a kubeconfig is not used. It shows nothing of the content.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error("it is no kubeconfig")]
    Unreadable,
    #[error(
        "{0} is set, and a Secret must not name files, programs or proxies of the coordinator: put certificates, keys and tokens into it"
    )]
    Refused(&'static str),
    #[error("it has no usable context, address or certificate")]
    Unusable,
}

/// A client whose requests have a deadline.
pub(super) async fn connect_workload(kubeconfig: Secret) -> Result<Client, KubeconfigError> {
    let parsed = parse_kubeconfig(kubeconfig.expose())?;
    let config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await;
    build_workload_client(config.map_err(|_| KubeconfigError::Unusable)?)
        .map_err(|_| KubeconfigError::Unusable)
}

pub(super) fn parse_kubeconfig(text: &[u8]) -> Result<Kubeconfig, KubeconfigError> {
    let text = std::str::from_utf8(text).map_err(|_| KubeconfigError::Unreadable)?;
    let parsed = Kubeconfig::from_yaml(text).map_err(|_| KubeconfigError::Unreadable)?;
    let clusters = parsed.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let users = parsed.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    match clusters.filter_map(find_outside).chain(users.filter_map(find_outside_user)).next() {
        Some(field) => Err(KubeconfigError::Refused(field)),
        None => Ok(parsed),
    }
}

fn find_outside(cluster: &Cluster) -> Option<&'static str> {
    let fields = [
        ("certificate-authority", cluster.certificate_authority.is_some()),
        ("proxy-url", cluster.proxy_url.is_some()),
    ];
    fields.into_iter().find_map(|(field, is_set)| is_set.then_some(field))
}

fn find_outside_user(user: &AuthInfo) -> Option<&'static str> {
    let fields = [
        ("tokenFile", user.token_file.is_some()),
        ("client-certificate", user.client_certificate.is_some()),
        ("client-key", user.client_key.is_some()),
        ("exec", user.exec.is_some()),
        ("auth-provider", user.auth_provider.is_some()),
    ];
    fields.into_iter().find_map(|(field, is_set)| is_set.then_some(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nclusters: [{{name: c, cluster: {{server: 'https://192.0.2.1:6443'{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    #[tokio::test]
    async fn files_programs_and_proxies_are_refused() {
        for (cluster, user, want) in [
            ("", "token: t", "ok"),
            ("", "tokenFile: /var/run/secrets/token", "tokenFile"),
            ("", "client-certificate: /tls.crt", "client-certificate"),
            ("", "client-key: /tls.key", "client-key"),
            ("", "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}", "exec"),
            ("", "auth-provider: {name: gcp, config: {}}", "auth-provider"),
            (", certificate-authority: /ca.crt", "token: t", "certificate-authority"),
            (", proxy-url: 'http://192.0.2.2'", "token: t", "proxy-url"),
        ] {
            let made = connect_workload(Secret::new(kubeconfig(cluster, user).into_bytes())).await;
            let shown = match made {
                Ok(_) => "ok".to_owned(),
                Err(KubeconfigError::Refused(field)) => field.to_owned(),
                Err(error) => error.to_string(),
            };
            assert_eq!(shown, want, "{cluster} {user}");
        }
    }

    #[tokio::test]
    async fn what_is_no_kubeconfig_is_not_quoted() {
        for text in ["canary: [", "", "\u{1}canary", "clusters: []\ncurrent-context: canary"] {
            let error = connect_workload(Secret::new(text.as_bytes().to_vec())).await.err().unwrap();
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
