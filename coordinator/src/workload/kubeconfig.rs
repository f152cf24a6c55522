//! A kubeconfig from a Secret, of which only embedded contents are used.

use coordinator_api::cluster::Endpoint;
use http::Uri;
use http::uri::Scheme;
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use proto::plan::Secret;

use crate::client::build_workload_client;
use crate::egress::Targets;

/// The cause for which a kubeconfig is not used. It shows nothing of the content.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error("it is no kubeconfig")]
    Unreadable,
    #[error(
        "{0} is set, and a Secret must not name files, programs or proxies of the coordinator: put certificates, keys and tokens into it"
    )]
    Refused(&'static str),
    #[error(
        "its server is loopback, link-local, a metadata service, the coordinator itself or refused by a flag: correct the address, or name it in --allow-workload"
    )]
    Target,
    #[error("its server is no https URL: correct it, or name its host in --allow-workload")]
    Plain,
    #[error("it has no usable context, address or certificate")]
    Unusable,
}

/// A client whose requests have a deadline.
pub(super) async fn connect_workload(
    kubeconfig: Secret,
    targets: Targets,
) -> Result<Client, KubeconfigError> {
    let parsed = parse_kubeconfig(kubeconfig.expose())?;
    let config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await;
    let config = config.map_err(|_| KubeconfigError::Unusable)?;
    let server = &config.cluster_url;
    if !targets.allows_uri(server) {
        return Err(KubeconfigError::Target);
    }
    // Without TLS the server could be any web server, and the token would be readable on the way.
    if server.scheme_str() != Some("https") && !targets.names_uri(server) {
        return Err(KubeconfigError::Plain);
    }
    build_workload_client(config, targets).map_err(|_| KubeconfigError::Unusable)
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

/// The server of the current context.
pub(super) fn find_server(text: &[u8]) -> Option<Endpoint> {
    let parsed = parse_kubeconfig(text).ok()?;
    let current = parsed.current_context.as_ref()?;
    let context = parsed.contexts.iter().find(|named| named.name == *current)?.context.as_ref()?;
    let cluster = parsed.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()?;
    let server: Uri = cluster.server.as_ref()?.parse().ok()?;
    let default = if server.scheme() == Some(&Scheme::HTTP) { 80 } else { 443 };
    Some(Endpoint { host: server.host()?.to_owned(), port: server.port_u16().unwrap_or(default).into() })
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
    use crate::egress::WorkloadTargets;

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nclusters: [{{name: c, cluster: {{server: 'https://192.0.2.1:6443'{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    async fn connect(text: String) -> Result<Client, KubeconfigError> {
        let targets =
            WorkloadTargets { allow_workload: vec!["192.0.2.9".parse().unwrap()], ..Default::default() };
        connect_workload(Secret::new(text.into_bytes()), targets.into_targets(&[])).await
    }

    #[tokio::test]
    async fn refused_servers_are_not_connected() {
        for (server, want) in [
            ("https://192.0.2.1:6443", "ok"),
            ("https://192.0.2.1/k8s/clusters/c-1", "ok"),
            ("http://192.0.2.1/admin?x=", "plain"),
            ("http://192.0.2.9:8080", "ok"),
            ("https://127.0.0.1:6443", "target"),
            ("https://169.254.169.254/latest/meta-data", "target"),
            ("http://169.254.169.254/latest/meta-data", "target"),
            ("https://[64:ff9b::a9fe:a9fe]", "target"),
        ] {
            let text = kubeconfig("", "token: t").replace("https://192.0.2.1:6443", server);
            let shown = match connect(text).await {
                Ok(_) => "ok",
                Err(KubeconfigError::Target) => "target",
                Err(KubeconfigError::Plain) => "plain",
                Err(_) => "other",
            };
            assert_eq!(shown, want, "{server}");
        }
    }

    #[test]
    fn server_is_that_of_current_context() {
        let found = |text: &str| find_server(text.as_bytes()).map(|found| (found.host, found.port));
        let text = kubeconfig("", "token: t");
        assert_eq!(found(&text), Some(("192.0.2.1".into(), 6443)));
        assert_eq!(found(&text.replace(":6443", "/path")), Some(("192.0.2.1".into(), 443)));
        assert_eq!(found(&text.replace("current-context: c", "current-context: d")), None);
        assert_eq!(found("workload"), None);
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
            let made = connect(kubeconfig(cluster, user)).await;
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
            let error = connect(text.to_owned()).await.err().unwrap();
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
