//! The host under test: QEMU, or files that simulate one.

pub mod disk_hash;
pub mod disk_search;
pub mod qemu;
pub mod simulated;

use std::path::Path;
use std::time::Duration;

pub use disk_search::Secret;
pub use qemu::Qemu;
pub use simulated::{Disk, Simulated};

pub enum Host {
    /// The real agent engine on a simulated operating system, the real
    /// protocol, a simulated kubelet.
    Simulated(Simulated),
    /// A virtual machine: real firmware, systemd, cloud-init, kubeadm.
    Qemu(Box<Qemu>),
}

impl Host {
    /// Powers the host on with the ISO in its drive.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn boot(&mut self, iso: &Path) -> anyhow::Result<()> {
        match self {
            Self::Simulated(host) => host.boot(iso).await,
            Self::Qemu(host) => host.boot(iso).await,
        }
    }

    /// What install device the registration names.
    pub fn device(&self) -> &'static str {
        "/dev/vda"
    }

    /// Whether its identity is in a TPM.
    pub fn has_tpm(&self) -> bool {
        match self {
            Self::Simulated(_) => false,
            Self::Qemu(host) => host.has_tpm(),
        }
    }

    /// Name of its inventory, from the registration's `machineName`.
    pub fn inventory(&self) -> String {
        match self {
            Self::Simulated(host) => format!("host-{}", host.uuid()),
            Self::Qemu(host) => format!("host-{}", host.uuid()),
        }
    }

    /// MAC address of the NIC that the seed gives a static address.
    pub fn static_mac(&self) -> String {
        match self {
            Self::Simulated(host) => host.static_mac(),
            Self::Qemu(host) => host.static_mac(),
        }
    }

    /// The images of both versions, as the catalog names them, and what
    /// os-release calls them.
    pub fn images(&self) -> [Image; 2] {
        match self {
            // Its kubelet is of the version that the tag names.
            Self::Simulated(_) => ["v1.36.3", "v1.36.3-2"].map(|tag| Image {
                catalog: format!("registry.example/os:{tag}"),
                runs: format!("registry.example/os:{tag}"),
            }),
            Self::Qemu(_) => ["v1", "v2"].map(|tag| Image {
                catalog: format!("file:/run/os-images/{tag}.squashfs"),
                runs: format!("lab.example/os:{tag}"),
            }),
        }
    }

    /// What a step may take: an emulated host is slow.
    pub fn limit(&self) -> Duration {
        match self {
            // Long enough for an API server that is away for a minute.
            Self::Simulated(_) => Duration::from_mins(3),
            Self::Qemu(_) => Duration::from_mins(30),
        }
    }

    /// Checks what only the host itself knows of its network.
    pub async fn check_network(&self) -> anyhow::Result<()> {
        match self {
            Self::Simulated(host) => host.check_network(),
            Self::Qemu(host) => host.check_network().await,
        }
    }

    /// Checks the name that the host has.
    ///
    /// # Errors
    /// When it has another one.
    pub async fn check_name(&self, name: &str) -> anyhow::Result<()> {
        match self {
            Self::Simulated(host) => host.check_name(name),
            Self::Qemu(host) => {
                let found = host.inside("hostname").await?;
                anyhow::ensure!(found.trim() == name, "the host is named {found:?}, wanted {name}");
                Ok(())
            }
        }
    }

    /// Secrets that its disk holds while it is a node; none of a simulated host.
    ///
    /// # Errors
    /// When one is not there.
    pub async fn note_secrets(&self, token: &str) -> anyhow::Result<Vec<Secret>> {
        match self {
            Self::Simulated(_) => Ok(vec![]),
            Self::Qemu(host) => host.note_secrets(token).await,
        }
    }

    /// Checks that nothing of the node is left: no file with `token` of its bootstrap
    /// data, and none of the secrets anywhere on the disk.
    pub async fn check_clean(&self, token: &str, secrets: &[Secret]) -> anyhow::Result<()> {
        match self {
            Self::Simulated(host) => host.check_clean(token),
            Self::Qemu(host) => {
                host.check_clean(token).await?;
                host.check_disk(secrets).await
            }
        }
    }

    /// The simulation, where the host is one.
    ///
    /// # Errors
    /// When it is a virtual machine.
    pub fn simulated(&mut self) -> anyhow::Result<&mut Simulated> {
        match self {
            Self::Simulated(host) => Ok(host),
            Self::Qemu(_) => anyhow::bail!("the host is a virtual machine"),
        }
    }

    /// Where its console is, for errors.
    pub fn log(&self) -> String {
        match self {
            Self::Simulated(host) => host.log(),
            Self::Qemu(host) => host.log(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Image {
    /// As the catalog names it.
    pub catalog: String,
    /// As os-release names it.
    pub runs: String,
}
