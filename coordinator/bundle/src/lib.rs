//! The files that an operator installs: the image of the coordinator, its manifests for `clusterctl`
//! and Helm, and the plugin of kubectl. They are made from the checkout alone, without a container
//! daemon, and the same input gives the same bytes.

pub mod archive;
pub mod bill;
pub mod chart;
pub mod components;
pub mod contents;
pub mod image;
pub mod packages;
pub mod plugin;
pub mod signature;

/// The version of all these files.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The default reference of the image. Its registry is the one that tools give to images from
/// archives, because `clusterctl` takes no reference without a registry.
pub const IMAGE: &str = concat!("localhost/baremetal-coordinator:", env!("CARGO_PKG_VERSION"));
