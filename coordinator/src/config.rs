//! Command line and environment.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

use crate::controllers::index::Key;

/// Turns bare metal into Kubernetes nodes.
#[derive(Clone, Debug, Parser)]
#[command(name = "baremetal-coordinator", version)]
pub struct Config {
    /// https URL under which hosts reach this coordinator; its host must be a
    /// name or address of the server certificate.
    #[arg(long, env = "SERVER_URL", value_parser = parse_server_url)]
    pub server_url: String,
    /// Where gRPC and ISO downloads are served.
    #[arg(long, env = "LISTEN", default_value = "[::]:8443")]
    pub listen: SocketAddr,
    /// Where health and metrics are served, without TLS.
    #[arg(long, env = "HEALTH_LISTEN", default_value = "[::]:8080")]
    pub health_listen: SocketAddr,
    /// Namespace of the coordinator: its CA and its Leases.
    #[arg(long, env = "POD_NAMESPACE")]
    pub namespace: String,
    /// Name of this replica, unique among those that run at a time.
    #[arg(long, env = "POD_NAME", default_value = "baremetal-coordinator")]
    pub instance: String,
    /// `ConfigMap` from Kubernetes versions to OS images, as NAMESPACE/NAME;
    /// without a namespace it is in the coordinator's own.
    #[arg(long, env = "IMAGE_CATALOG", value_name = "NAMESPACE/NAME", value_parser = parse_catalog,
        default_value = coordinator_api::names::IMAGE_CATALOG)]
    pub image_catalog: CatalogName,
    /// Create a new certificate authority although hosts are registered. They
    /// trust the former one: each has to boot a new seed ISO.
    #[arg(long, env = "CREATE_AUTHORITY")]
    pub create_authority: bool,
    /// Further names and addresses of the server certificate.
    #[arg(long = "server-name", env = "SERVER_NAMES", value_delimiter = ',')]
    pub server_names: Vec<String>,
    /// Where base ISOs are kept.
    #[arg(long, env = "CACHE_DIRECTORY", default_value = "/var/cache/baremetal-coordinator")]
    pub cache_directory: PathBuf,
}

/// Where the image catalog is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogName {
    pub namespace: Option<String>,
    pub name: String,
}

impl Config {
    /// Where the image catalog is.
    #[must_use]
    pub fn catalog_key(&self) -> Key {
        let namespace = self.image_catalog.namespace.as_ref().unwrap_or(&self.namespace);
        Key::new(&**namespace, &*self.image_catalog.name)
    }

    /// Names and addresses of the server certificate.
    #[must_use]
    pub fn certificate_names(&self) -> Vec<String> {
        let mut names = vec![url_host(&self.server_url).to_owned()];
        for name in &self.server_names {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }
}

fn parse_catalog(text: &str) -> Result<CatalogName, String> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    if name.is_empty() || name.contains('/') || namespace.is_some_and(str::is_empty) {
        return Err("give NAMESPACE/NAME of a ConfigMap, or NAME".to_owned());
    }
    Ok(CatalogName { namespace: namespace.map(str::to_owned), name: name.to_owned() })
}

fn parse_server_url(text: &str) -> Result<String, String> {
    let text = text.trim_end_matches('/');
    let uri: http::Uri = text.parse().map_err(|error| format!("{error}"))?;
    if uri.scheme_str() != Some("https") || uri.host().is_none_or(str::is_empty) || uri.path() != "/" {
        return Err("give https://host or https://host:port without a path".to_owned());
    }
    Ok(text.to_owned())
}

fn url_host(url: &str) -> &str {
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
            assert_eq!(url_host(url), want);
        }
    }

    #[test]
    fn the_catalog_defaults_to_the_own_namespace() {
        let config = |catalog: &[&str]| {
            let own = ["coordinator", "--server-url=https://c", "--namespace=own"];
            Config::try_parse_from(own.iter().chain(catalog)).map(|config| config.catalog_key())
        };
        assert_eq!(config(&[]).unwrap(), Key::new("own", "elemental-image-catalog"));
        assert_eq!(config(&["--image-catalog=images"]).unwrap(), Key::new("own", "images"));
        assert_eq!(config(&["--image-catalog=shared/images"]).unwrap(), Key::new("shared", "images"));
        for text in ["--image-catalog=", "--image-catalog=/images", "--image-catalog=a/b/c"] {
            assert!(config(&[text]).is_err(), "{text}");
        }
    }

    #[test]
    fn a_url_that_hosts_cannot_use_is_rejected() {
        assert_eq!(parse_server_url("https://c:1/").as_deref(), Ok("https://c:1"));
        for url in ["http://c", "c:8443", "https://c/path", "https://"] {
            assert!(parse_server_url(url).is_err(), "{url}");
        }
    }
}
