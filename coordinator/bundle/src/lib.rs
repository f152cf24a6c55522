//! What an operator installs: the image of the coordinator, and its manifests for `clusterctl` and Helm, and
//! the plugin of kubectl.
//! All of it is made from the checkout alone, without a container daemon, and twice the same bytes from
//! the same input.

pub mod archive;
pub mod bill;
pub mod chart;
pub mod components;
pub mod contents;
pub mod image;
pub mod plugin;

/// The version of everything that is made here.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The image where no registry is named: tools that load archives put such names there, and
/// `clusterctl` takes none without a registry.
pub const IMAGE: &str = concat!("localhost/baremetal-coordinator:", env!("CARGO_PKG_VERSION"));
