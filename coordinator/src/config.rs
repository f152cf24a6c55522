//! Command line and environment.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use coordinator_api::names;

use crate::base_image::limits::BaseImageLimits;
use crate::egress::WorkloadTargets;
use crate::key::Key;
use crate::lease::ElectionTimes;
use crate::quantities::{parse_bytes, parse_duration};
use crate::telemetry::LoggingFormat;

/// Turns bare metal into Kubernetes nodes.
#[derive(Clone, Debug, Parser)]
#[command(name = "baremetal-coordinator", version)]
pub struct Config {
    /// https URL under which hosts reach this coordinator; its host must be a
    /// name or address of the server certificate.
    #[arg(long, env = "SERVER_URL", value_parser = parse_server_url)]
    pub server_url: String,
    /// Address of gRPC and ISO downloads.
    #[arg(long, env = "LISTEN", default_value = "[::]:8443")]
    pub listen: SocketAddr,
    /// Address of `/healthz` and `/readyz`, without TLS.
    #[arg(long, env = "HEALTH_LISTEN", default_value = "[::]:8080")]
    pub health_listen: SocketAddr,
    /// Address of `/metrics`, over TLS with a self-signed certificate and for callers
    /// whose bearer token the API server allows `get` on the path.
    #[arg(long, env = "DIAGNOSTICS_ADDRESS", default_value = "[::]:8444")]
    pub diagnostics_address: SocketAddr,
    /// Serves `/metrics` without TLS, to everybody who reaches the address.
    #[arg(long, env = "INSECURE_DIAGNOSTICS")]
    pub insecure_diagnostics: bool,
    /// Namespace of the coordinator: its CA and its Leases.
    #[arg(long, env = "POD_NAMESPACE")]
    pub own_namespace: String,
    /// Watches only this namespace; may be repeated. Without the flag every namespace is
    /// watched, which needs `all-namespaces.yaml`; with it, a `RoleBinding` in each
    /// (`one-namespace.yaml`) is enough.
    #[arg(
        long = "namespace",
        env = "WATCH_NAMESPACES",
        value_delimiter = ',',
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    pub namespaces: Vec<String>,
    /// Reconciles only those machines and clusters whose label
    /// `cluster.x-k8s.io/watch-filter` has this value, as Cluster API's own flag does.
    #[arg(long, env = "WATCH_FILTER", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub watch_filter: Option<String>,
    /// Name of this replica, unique among those that run at a time.
    #[arg(long, env = "POD_NAME", default_value = "baremetal-coordinator")]
    pub instance: String,
    /// `ConfigMap` from Kubernetes versions to OS images, as NAMESPACE/NAME;
    /// without a namespace it is in the coordinator's own.
    #[arg(long, env = "IMAGE_CATALOG", value_parser = parse_catalog, default_value = names::IMAGE_CATALOG)]
    pub image_catalog: CatalogName,
    /// Which kinds of Metal3 are served: `off`; `hosts`, `BareMetalHosts` that name an
    /// inventory alone, beside Cluster API Provider Metal3; `full`, its kinds too. The
    /// roles, and for `full` the definitions, are in `config/metal3`.
    #[arg(long, env = "METAL3", value_enum, default_value = "off")]
    pub metal3: Metal3,
    /// Address of the webhook, with `--metal3=full` alone, by which the API server converts
    /// Metal3 objects between v1beta1 and v1beta2.
    #[arg(long, env = "CONVERSION_ADDRESS", default_value = "[::]:9443")]
    pub conversion_address: SocketAddr,
    /// https URL under which the API server reaches the webhook of a coordinator outside of
    /// the cluster. Absent: the Service `baremetal-coordinator-conversion` of its namespace.
    #[arg(long, env = "CONVERSION_URL", value_parser = parse_server_url)]
    pub conversion_url: Option<String>,
    /// Create a new certificate authority although hosts are registered. They
    /// trust the former one: each has to boot a new seed ISO.
    #[arg(long, env = "CREATE_AUTHORITY")]
    pub create_authority: bool,
    /// The certificate authority comes from outside, as from cert-manager: `tls.crt` and
    /// `tls.key` of the Secret `baremetal-coordinator-ca`, which is awaited and never created.
    #[arg(long, env = "PROVIDED_AUTHORITY", conflicts_with = "create_authority")]
    pub provided_authority: bool,
    /// Further names and addresses of the server certificate.
    #[arg(long = "server-name", env = "SERVER_NAMES", value_delimiter = ',')]
    pub server_names: Vec<String>,
    /// Directory of base ISOs.
    #[arg(long, env = "CACHE_DIRECTORY", default_value = "/var/cache/baremetal-coordinator")]
    pub cache_directory: PathBuf,
    /// The static agent (`make agent`): every seed ISO brings it, for live
    /// systems and images that do not carry it.
    #[arg(long, env = "AGENT_PATH")]
    pub agent_path: Option<PathBuf>,
    /// Format of log lines.
    #[arg(long, env = "LOGGING_FORMAT", value_enum, default_value = "text")]
    pub logging_format: LoggingFormat,
    #[command(flatten)]
    pub election: ElectionTimes,
    #[command(flatten)]
    pub base_images: BaseImageLimits,
    #[command(flatten)]
    pub workload_targets: WorkloadTargets,
    #[command(flatten)]
    pub connections: ConnectionLimits,
}

/// Fetches base images for a coordinator, and reads their layers, without access to Kubernetes
/// and without the certificate authority.
#[derive(Clone, Debug, Parser)]
#[command(name = "fetch-base-images")]
pub struct FetcherConfig {
    /// Socket on which the coordinator is served, and beside which base images arrive until the
    /// coordinator has copied them.
    #[arg(long, env = "BASE_IMAGE_SOCKET")]
    pub base_image_socket: PathBuf,
    /// Size of all base images together that arrive at a time; bytes, or with Ki, Mi, Gi.
    #[arg(long, env = "ARRIVING_SIZE", default_value = "16Gi", value_parser = parse_bytes)]
    pub arriving_size: u64,
    /// Asks the process at the socket if it answers, and ends.
    #[arg(long)]
    pub check: bool,
    /// Format of log lines.
    #[arg(long, env = "LOGGING_FORMAT", value_enum, default_value = "text")]
    pub logging_format: LoggingFormat,
}

/// The two programs of the binary.
#[derive(Clone, Debug)]
pub enum Program {
    Coordinator(Box<Config>),
    Fetcher(FetcherConfig),
}

impl Program {
    /// Parses the arguments of a process, the name of its binary first.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        // The flags that the coordinator needs are none of the subcommand.
        let command = Config::command().subcommand(FetcherConfig::command()).subcommand_negates_reqs(true);
        let matches = command.try_get_matches_from(arguments)?;
        match matches.subcommand() {
            Some((_, matches)) => FetcherConfig::from_arg_matches(matches).map(Self::Fetcher),
            None => Config::from_arg_matches(&matches).map(|config| Self::Coordinator(config.into())),
        }
    }
}

/// The kinds of Cluster API Provider Metal3 that are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Metal3 {
    #[default]
    Off,
    Hosts,
    Full,
}

/// Limits of the port for one address, one host, and all together.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct ConnectionLimits {
    /// Open connections of one address (of a /64 in IPv6). Each host that is known
    /// at the address adds four to this and the next two limits.
    #[arg(long, env = "SOURCE_CONNECTIONS", default_value = "1024")]
    pub source_connections: usize,
    /// Open connections of one address without a client certificate: registrations
    /// and ISO downloads. Raise it if many new hosts share an address.
    #[arg(long, env = "SOURCE_ANONYMOUS", default_value = "256")]
    pub source_anonymous: usize,
    /// Open connections of one address whose TLS handshake is not complete.
    #[arg(long, env = "SOURCE_HANDSHAKES", default_value = "64")]
    pub source_handshakes: usize,
    /// New connections a minute from one address. Each host that is known at the
    /// address adds four.
    #[arg(long, env = "SOURCE_RATE", default_value = "1200")]
    pub source_rate: usize,
    /// Connections without a client certificate from all addresses at which no host
    /// is known.
    #[arg(long, env = "ANONYMOUS_CONNECTIONS", default_value = "2048")]
    pub anonymous_connections: usize,
    /// Open connections of one host, by its certificate.
    #[arg(long, env = "HOST_CONNECTIONS", default_value = "8")]
    pub host_connections: usize,
    /// TLS handshakes at a time, from addresses without a known host, and as many
    /// from the others.
    #[arg(long, env = "HANDSHAKES", default_value = "256")]
    pub handshakes: usize,
    /// Longest time of a connection until its `ClientHello`, and again until the end
    /// of the handshake.
    #[arg(long, env = "HANDSHAKE_TIMEOUT", default_value = "5s", value_parser = parse_duration)]
    pub handshake_timeout: Duration,
    /// Longest time of a connection between its handshake and its first request.
    #[arg(long, env = "FIRST_REQUEST_TIMEOUT", default_value = "10s", value_parser = parse_duration)]
    pub first_request_timeout: Duration,
    /// A connection without a client certificate and without a request is closed
    /// after this time.
    #[arg(long, env = "IDLE_TIMEOUT", default_value = "1m", value_parser = parse_duration)]
    pub idle_timeout: Duration,
    /// Requests a minute from one address without a client certificate. Each
    /// host that is known at the address adds four.
    #[arg(long, env = "SOURCE_REQUESTS", default_value = "1200")]
    pub source_requests: usize,
    /// Registrations that are read and decoded at a time; one address has a
    /// quarter of them.
    #[arg(long, env = "REGISTRATIONS", default_value = "64")]
    pub registrations: usize,
    /// Longest duration of a call, except for the stream of a host.
    #[arg(long, env = "CALL_TIMEOUT", default_value = "30s", value_parser = parse_duration)]
    pub call_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            source_connections: 1024,
            source_anonymous: 256,
            source_handshakes: 64,
            source_rate: 1200,
            anonymous_connections: 2048,
            host_connections: 8,
            handshakes: 256,
            handshake_timeout: Duration::from_secs(5),
            first_request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(1),
            source_requests: 1200,
            registrations: 64,
            call_timeout: Duration::from_secs(30),
        }
    }
}

/// The place of the image catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogName {
    pub namespace: Option<String>,
    pub name: String,
}

impl Config {
    pub fn catalog_key(&self) -> Key {
        let namespace = self.image_catalog.namespace.as_ref().unwrap_or(&self.own_namespace);
        Key::new(&**namespace, &*self.image_catalog.name)
    }

    /// Names and addresses of the server certificate.
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

pub(crate) fn url_host(url: &str) -> &str {
    let authority = url.trim_start_matches("https://");
    let (address, end) = authority.strip_prefix('[').map_or((authority, ':'), |address| (address, ']'));
    address.split_once(end).map_or(address, |(host, _)| host)
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
            let own = ["coordinator", "--server-url=https://c", "--own-namespace=own"];
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
    fn limits_are_flags() {
        let parse = |flags: &[&str]| {
            let own = ["coordinator", "--server-url=https://c", "--own-namespace=own"];
            Config::try_parse_from(own.iter().chain(flags))
        };
        assert_eq!(parse(&[]).unwrap().connections, ConnectionLimits::default());
        assert_eq!(parse(&[]).unwrap().base_images, BaseImageLimits::default());
        assert_eq!(parse(&["--cache-size=3Mi"]).unwrap().base_images.cache_size, 3 << 20);
        assert!(parse(&["--cache-size=3M"]).is_err());
        let limits = parse(&["--source-handshakes=7", "--idle-timeout=90s"]).unwrap().connections;
        assert_eq!((limits.source_handshakes, limits.idle_timeout), (7, Duration::from_secs(90)));
        assert!(parse(&["--idle-timeout=-1s"]).is_err());
    }

    #[test]
    fn subcommand_needs_no_flag_of_the_coordinator() {
        let parse = |arguments: &[&str]| Program::parse(["c"].iter().chain(arguments).map(OsString::from));
        let fetcher = parse(&["fetch-base-images", "--base-image-socket=/a/b", "--arriving-size=1Gi"]);
        let Ok(Program::Fetcher(fetcher)) = fetcher else { panic!("{fetcher:?}") };
        assert_eq!((fetcher.base_image_socket, fetcher.arriving_size), ("/a/b".into(), 1 << 30));
        let coordinator = parse(&["--server-url=https://c", "--own-namespace=own"]);
        assert!(matches!(coordinator, Ok(Program::Coordinator(_))), "{coordinator:?}");
        assert!(parse(&["--server-url=https://c"]).is_err(), "a coordinator has a namespace");
        assert!(parse(&["fetch-base-images"]).is_err(), "a fetcher has a socket");
        assert!(parse(&["fetch-base-images", "--base-image-socket=/a", "--listen=[::]:1"]).is_err());
    }

    #[test]
    fn a_url_that_hosts_cannot_use_is_rejected() {
        assert_eq!(parse_server_url("https://c:1/").as_deref(), Ok("https://c:1"));
        for url in ["http://c", "c:8443", "https://c/path", "https://"] {
            assert!(parse_server_url(url).is_err(), "{url}");
        }
    }
}
