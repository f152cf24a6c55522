//! A host in its live system, which waits for a disk: what operators and the tests of disks do with it.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ::qemu::{Bus, DataDisk};
use anyhow::{Context as _, ensure};
use coordinator_api::conditions::{Reason, Type, find_condition};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use coordinator_api::registration::MachineRegistration;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::host::disk_hash::{Hash, hash_disk};
use crate::host::{GuestHost, Host as _};
use crate::lifecycle::{Lifecycle, NAMESPACE, await_attached};
use crate::progress::Progress;
use crate::watching::until;

/// The longest wait for what a live system says.
const PATIENCE: Duration = Duration::from_mins(12);
/// Size of a data disk.
const DISK_BYTES: u64 = 1 << 30;

/// A host that is to be installed.
pub struct Installing<'a> {
    environment: &'a Environment,
    pub lifecycle: Lifecycle<'a>,
    name: String,
}

impl<'a> Installing<'a> {
    pub fn new(environment: &'a Environment, host: &'a mut GuestHost, progress: Arc<Progress>) -> Self {
        let name = host.inventory();
        Self { environment, lifecycle: Lifecycle::new(environment, host, progress), name }
    }

    fn inventories(&self) -> Api<MachineInventory> {
        Api::namespaced(self.environment.management.admin.clone(), NAMESPACE)
    }

    /// Merges into `install` of the registration.
    pub async fn set_install(&self, install: Value) -> anyhow::Result<()> {
        let registrations: Api<MachineRegistration> =
            Api::namespaced(self.environment.management.admin.clone(), NAMESPACE);
        let patch = json!({ "spec": { "config": { "elemental": { "install": install } } } });
        registrations.patch("lab", &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Names the disks of this host, by its annotation.
    pub async fn name_device(&self, paths: &str) -> anyhow::Result<()> {
        let change = json!({ "metadata": { "annotations": { annotation::INSTALL_DEVICE: paths } } });
        self.inventories().patch(&self.name, &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(())
    }

    /// The cause for which the host waits, once it says `text`.
    pub async fn await_waiting(&self, text: &str) -> anyhow::Result<String> {
        let message = |inventory: &MachineInventory| {
            let condition = find_condition(inventory.conditions(), Type::Installed)?;
            let is_waiting = condition.reason == Reason::InstallWaiting.as_str();
            (is_waiting && condition.message.contains(text)).then(|| condition.message.clone())
        };
        let inventories = self.inventories();
        let seen = until(&inventories, &self.name, PATIENCE, |inventory| message(inventory).is_some()).await;
        message(&seen.with_context(|| format!("wait for {text:?}"))?).context("the condition is gone")
    }

    /// The disk on which its system is, once that is attached.
    pub async fn await_installed(&self, limit: Duration) -> anyhow::Result<String> {
        let attached = await_attached(&self.inventories(), &self.name, limit).await?;
        let install = attached.status.and_then(|status| status.host).and_then(|host| host.install);
        Ok(install.context("it states no install")?.device)
    }

    /// Has the agent look at the disks again.
    pub async fn look_again(&mut self) -> anyhow::Result<()> {
        self.inside("systemctl restart baremetal-agent-register").await.map(drop)
    }

    /// The trimmed output of a command inside.
    pub async fn inside(&mut self, script: &str) -> anyhow::Result<String> {
        Ok(self.lifecycle.guest()?.inside(script).await?.trim().to_owned())
    }
}

/// Makes LVM with a file system on an array of the first two partitions of `$disk`, as installers do.
pub const LVM_ON_MD: &str =
    "mdadm --create /dev/md100 --quiet --run --level=1 --metadata=1.2 --raid-devices=2 ${disk}1 ${disk}2
pvcreate -qy /dev/md100
vgcreate -q vg_old /dev/md100
lvcreate -qy -L 64M -n root vg_old
mkfs.ext4 -q /dev/vg_old/root
udevadm settle";

/// A disk of zeros beside that of the system.
pub fn make_data_disk(directory: &Path, serial: &str, bus: Bus) -> anyhow::Result<DataDisk> {
    let path = directory.join(serial);
    make_disk(&path, DISK_BYTES)?;
    Ok(DataDisk { serial: serial.to_owned(), path, bus })
}

/// A new file of zeros.
pub fn make_disk(path: &Path, bytes: u64) -> anyhow::Result<()> {
    Ok(File::create_new(path)?.set_len(bytes)?)
}

/// An ext4 on the whole disk.
pub fn make_file_system(disk: &Path) -> anyhow::Result<()> {
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(disk).status()?;
    ensure!(made.success(), "{} has no file system", disk.display());
    Ok(())
}

/// The hash of each disk, by its serial number.
pub fn hash_disks(disks: &[DataDisk]) -> anyhow::Result<Vec<(&str, Hash)>> {
    disks.iter().map(|disk| Ok((disk.serial.as_str(), hash_disk(&disk.path)?))).collect()
}
