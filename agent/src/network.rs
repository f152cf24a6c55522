//! What the kernel, the resolver and `NetworkManager` say of the network.
//!
//! Reading is here and in [`kernel`]; what is kept and how it is told is
//! decided in [`translate`], from messages alone.

pub mod connections;
pub mod kernel;
pub mod resolver;
pub mod translate;

use std::io;

use proto::limits;
use proto::v1alpha1::ObservedNetwork;

use crate::paths::Root;

/// Why the network cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The netlink socket gave no answer.
    #[error("cannot ask the kernel for {what}")]
    Dump {
        /// Which table.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Word of changes, from now on; nothing where the host has no kernel.
///
/// # Errors
/// When the kernel gives no socket.
#[cfg_attr(not(feature = "simulation"), expect(unused_variables, reason = "there is one kernel"))]
pub fn changes(root: &Root) -> io::Result<Option<kernel::Changes>> {
    #[cfg(feature = "simulation")]
    if crate::simulation::outside(&root.join("/etc")).is_some() {
        return Ok(None);
    }
    kernel::Changes::watch().map(Some)
}

/// The network as it is now. Files that cannot be read are absent facts, never
/// errors: a host without `NetworkManager` is a usual one.
///
/// # Errors
/// [`NetworkError::Dump`] when the kernel cannot be asked.
pub fn observe(root: &Root) -> Result<ObservedNetwork, NetworkError> {
    #[cfg(feature = "simulation")]
    if let Some(outside) = crate::simulation::outside(&root.join("/etc")) {
        return Ok(outside.network());
    }
    let dump = kernel::dump()?;
    let mut network = translate::translate(&dump);
    network.interfaces.truncate(limits::INTERFACES);
    network.routes.truncate(limits::ROUTES);
    let resolver = resolver::read(root);
    network.dns_servers = resolver.servers;
    network.search_domains = resolver.search;
    network.connections = connections::read(root);
    Ok(network)
}
