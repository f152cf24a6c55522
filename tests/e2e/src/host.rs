//! The host under test: a guest of this machine, or files that simulate one.

pub mod disk_hash;
pub mod disk_search;
pub mod guest;
mod hardware;
pub mod simulated;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;

pub use disk_search::Secret;
pub use guest::GuestHost;
pub use hardware::{Hardware, HostKind};
pub use simulated::{Disk, Simulated};

/// What the steps of a lifecycle need of a host.
#[async_trait]
pub trait Host: Send + Sync {
    /// Powers the host on with the ISO in its drive.
    async fn boot(&mut self, iso: &Path) -> anyhow::Result<()>;

    /// The install device that the registration names.
    fn device(&self) -> &'static str {
        "/dev/vda"
    }

    /// Whether its identity is in a TPM.
    fn has_tpm(&self) -> bool {
        false
    }

    /// UUID of its firmware.
    fn uuid(&self) -> String;

    /// Name of its inventory, from the registration's `machineName`.
    fn inventory(&self) -> String {
        format!("host-{}", self.uuid())
    }

    /// MAC address of the NIC that the seed gives a static address.
    fn static_mac(&self) -> String;

    /// The images of both versions.
    fn images(&self) -> [Image; 2];

    /// The longest time that a step may take.
    fn limit(&self) -> Duration;

    /// Checks the network that the host itself sees.
    async fn check_network(&self) -> anyhow::Result<()>;

    /// Checks the name that the host has.
    async fn check_name(&self, name: &str) -> anyhow::Result<()>;

    /// Secrets that its disk holds while it is a node; none of a simulated host.
    async fn note_secrets(&self, _token: &str) -> anyhow::Result<Vec<Secret>> {
        Ok(vec![])
    }

    /// Checks that nothing of the node is left: no file with `token` of its bootstrap
    /// data, and none of the secrets anywhere on the disk.
    async fn check_clean(&self, token: &str, secrets: &[Secret]) -> anyhow::Result<()>;

    /// The guest, where the host is one.
    fn guest(&mut self) -> anyhow::Result<&mut GuestHost> {
        anyhow::bail!("the host is simulated")
    }

    /// Whether it has an operating system of its own.
    fn is_real(&self) -> bool {
        false
    }

    /// Where its console is, for errors.
    fn log(&self) -> String;
}

#[derive(Clone, Debug)]
pub struct Image {
    /// As the catalog names it.
    pub catalog: String,
    /// As os-release names it.
    pub runs: String,
}
