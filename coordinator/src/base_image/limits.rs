//! Limits of base ISOs, as flags of the coordinator.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use crate::egress::{Target, parse_network};
use crate::quantities::{GI, parse_bytes, parse_duration};

/// Limits of base ISOs.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct BaseImageLimits {
    /// Largest base ISO; bytes, or with Ki, Mi, Gi.
    #[arg(long, env = "BASE_IMAGE_SIZE", default_value = "8Gi", value_parser = parse_bytes)]
    pub base_image_size: u64,
    /// Directory of the base ISOs that a `SeedImage` may name by `file:///`: a volume
    /// of every replica.
    #[arg(long, env = "BASE_IMAGE_DIRECTORY")]
    pub base_image_directory: Option<PathBuf>,
    /// Socket of `fetch-base-images`, the process that fetches base images and reads
    /// their layers. Without the flag the coordinator does so itself. The Deployment sets it.
    #[arg(long, env = "BASE_IMAGE_SOCKET")]
    pub base_image_socket: Option<PathBuf>,
    /// Time in which a base ISO has to arrive.
    #[arg(long, env = "BASE_IMAGE_TIMEOUT", default_value = "1h", value_parser = parse_duration)]
    pub base_image_timeout: Duration,
    /// Size of all base ISOs together. Above it the least recently used base ISO is
    /// removed, and fetched again on demand.
    #[arg(long, env = "CACHE_SIZE", default_value = "20Gi", value_parser = parse_bytes)]
    pub cache_size: u64,
    /// Addresses, CIDRs and host names that base ISOs may come from although
    /// they are loopback, link-local, multicast, names of the cluster, the API
    /// server, a Service of the coordinator's namespace, or refused by
    /// `--refuse-base` and `--own-address`.
    #[arg(long, env = "ALLOW_BASE", value_delimiter = ',')]
    pub allow_base: Vec<Target>,
    /// CIDRs that base ISOs may not come from, such as those of Services and pods.
    #[arg(long, env = "REFUSE_BASE", value_delimiter = ',', value_parser = parse_network)]
    pub refuse_base: Vec<IpNet>,
    /// Addresses of the pod and of its node: base ISOs may not come from them,
    /// and kubeconfigs may not name them. The
    /// Deployment sets it.
    #[arg(long = "own-address", env = "OWN_ADDRESSES", value_delimiter = ',', value_parser = parse_network)]
    pub own_addresses: Vec<IpNet>,
}

impl Default for BaseImageLimits {
    fn default() -> Self {
        Self {
            base_image_size: 8 * GI,
            base_image_directory: None,
            base_image_socket: None,
            base_image_timeout: Duration::from_hours(1),
            cache_size: 20 * GI,
            allow_base: vec![],
            refuse_base: vec![],
            own_addresses: vec![],
        }
    }
}
