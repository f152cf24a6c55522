//! Hardware of a guest, in QEMU or in User Mode Linux.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use guest::{Guest, ImageInputs, Kernel, LabError};
use qemu::{BootOrder, ImageDisk, Qemu, Tpm};
use uml::Uml;

/// What runs the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HostKind {
    /// QEMU: with firmware and a TPM, and slow without KVM.
    Qemu,
    /// User Mode Linux: fast, one CPU.
    Uml,
}

impl HostKind {
    /// The same parts, with the kernel of such hosts.
    pub fn adapt(self, inputs: ImageInputs) -> ImageInputs {
        match self {
            Self::Qemu => inputs,
            Self::Uml => ImageInputs { kernel: Kernel::Uml, ..inputs },
        }
    }

    /// Name of the system disk in the host.
    pub const fn system_device(self) -> &'static str {
        match self {
            Self::Qemu => "/dev/vda",
            Self::Uml => "/dev/ubda",
        }
    }
}

/// A host that is not powered on.
#[derive(Clone, Debug)]
pub enum Hardware {
    Qemu(Box<qemu::HostConfig>),
    Uml(uml::HostConfig),
}

impl Hardware {
    /// Makes the machine and powers the host on. The machine is given for [`Qemu`], which has methods of its own.
    pub(super) async fn power_on(&self) -> Result<(Guest, Option<Arc<Qemu>>), LabError> {
        match self {
            Self::Qemu(config) => {
                let machine = Qemu::new((**config).clone())?;
                Ok((Guest::start(machine.clone()).await?, Some(machine)))
            }
            Self::Uml(config) => Ok((Uml::start(config.clone()).await?, None)),
        }
    }

    /// A host for which nothing but the guest matters.
    pub async fn start(&self) -> Result<Guest, LabError> {
        Ok(self.power_on().await?.0)
    }

    /// Puts an ISO into the drive, and lets the disk boot as soon as it can.
    pub fn set_cd(&mut self, iso: &Path) {
        match self {
            Self::Qemu(config) => {
                config.cd = Some(iso.to_owned());
                config.boot_order = BootOrder::Variables;
            }
            Self::Uml(config) => config.cd = Some(iso.to_owned()),
        }
    }

    /// Plugs the disk with the OS images in.
    pub fn set_images(&mut self, images: &Path) {
        match self {
            Self::Qemu(config) => {
                config.images = vec![ImageDisk { serial: "os-images".to_owned(), path: images.to_owned() }];
            }
            Self::Uml(config) => config.images = vec![images.to_owned()],
        }
    }

    pub(super) fn remove_tpm(&mut self) {
        if let Self::Qemu(config) = self {
            config.tpm = Tpm::Absent;
        }
    }

    pub(super) fn has_tpm(&self) -> bool {
        matches!(self, Self::Qemu(config) if config.tpm != Tpm::Absent)
    }

    pub fn uuid(&self) -> &str {
        match self {
            Self::Qemu(config) => &config.uuid,
            Self::Uml(config) => &config.uuid,
        }
    }

    /// MAC address of its second card.
    pub(super) fn second_mac(&self) -> Option<&str> {
        match self {
            Self::Qemu(config) => config.nics.get(1).map(|nic| &*nic.mac),
            Self::Uml(config) => config.nics.get(1).map(|nic| &*nic.mac),
        }
    }

    /// The file that is its system disk.
    pub fn system_disk(&self) -> PathBuf {
        match self {
            Self::Qemu(config) => config.system_disk(),
            Self::Uml(config) => config.system_disk(),
        }
    }

    pub(super) const fn kind(&self) -> HostKind {
        match self {
            Self::Qemu(_) => HostKind::Qemu,
            Self::Uml(_) => HostKind::Uml,
        }
    }
}
