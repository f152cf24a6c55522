//! What the coordinator is told at its start.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

/// Turns bare metal into Kubernetes nodes.
#[derive(Clone, Debug, Parser)]
#[command(name = "baremetal-coordinator", version)]
pub struct Config {
    /// https URL under which hosts reach this coordinator; its host must be a
    /// name or address of the server certificate.
    #[arg(long, env = "SERVER_URL", value_parser = server_url)]
    pub server_url: String,
    /// Where gRPC and ISO downloads are served.
    #[arg(long, env = "LISTEN", default_value = "[::]:8443")]
    pub listen: SocketAddr,
    /// Where health and metrics are served, without TLS.
    #[arg(long, env = "HEALTH_LISTEN", default_value = "[::]:8080")]
    pub health_listen: SocketAddr,
    /// Namespace of the coordinator: its CA, its lease, the image catalog.
    #[arg(long, env = "POD_NAMESPACE")]
    pub namespace: String,
    /// Name of this replica.
    #[arg(long, env = "POD_NAME", default_value = "baremetal-coordinator")]
    pub instance: String,
    /// `ConfigMap` from Kubernetes versions to OS images.
    #[arg(long, env = "IMAGE_CATALOG", default_value = coordinator_api::names::IMAGE_CATALOG)]
    pub image_catalog: String,
    /// Further names and addresses of the server certificate.
    #[arg(long = "server-name", env = "SERVER_NAMES", value_delimiter = ',')]
    pub server_names: Vec<String>,
    /// Where base ISOs are kept.
    #[arg(long, env = "CACHE_DIRECTORY", default_value = "/var/cache/baremetal-coordinator")]
    pub cache_directory: PathBuf,
}

impl Config {
    /// Names and addresses of the server certificate.
    #[must_use]
    pub fn certificate_names(&self) -> Vec<String> {
        let mut names = vec![host(&self.server_url).to_owned()];
        for name in &self.server_names {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }
}

fn server_url(text: &str) -> Result<String, String> {
    let text = text.trim_end_matches('/');
    let uri: http::Uri = text.parse().map_err(|error| format!("{error}"))?;
    if uri.scheme_str() != Some("https") || uri.host().is_none_or(str::is_empty) || uri.path() != "/" {
        return Err("give https://host or https://host:port without a path".to_owned());
    }
    Ok(text.to_owned())
}

fn host(url: &str) -> &str {
    let authority = url.trim_start_matches("https://");
    match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_names_the_host_of_the_url() {
        for (url, want) in [
            ("https://10.0.2.100:8443", "10.0.2.100"),
            ("https://coordinator.example", "coordinator.example"),
            ("https://[2001:db8::1]:8443", "2001:db8::1"),
        ] {
            assert_eq!(host(url), want);
        }
    }

    #[test]
    fn a_url_that_hosts_cannot_use_is_refused() {
        assert_eq!(server_url("https://c:1/").as_deref(), Ok("https://c:1"));
        for url in ["http://c", "c:8443", "https://c/path", "https://"] {
            assert!(server_url(url).is_err(), "{url}");
        }
    }
}
