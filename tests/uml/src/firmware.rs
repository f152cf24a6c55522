//! The firmware: boots the disk where it has a boot loader, else the ISO, or the other way round.

use guest::LabError;

use crate::config::HostConfig;
use crate::grub::{self, Devices, Entry};
use crate::volumes::Volume;

/// The boot loader on the EFI system partition of a disk that boots.
const LOADER: &str = "/EFI/BOOT/BOOTX64.EFI";
/// Configuration of the boot loader of a disk.
const OF_DISK: &str = "/grub/grub.cfg";
/// Configuration of the boot loader of an ISO.
const OF_ISO: &str = "/EFI/BOOT/grub.cfg";

/// The system that a host boots.
pub(crate) fn find_system(config: &HostConfig, is_cd_first: bool) -> Result<Entry, LabError> {
    let mut volumes = Volume::of_disk(&config.system_disk())?;
    let boots =
        |volume: &Volume| volume.is_efi_system && volume.read(LOADER).is_some_and(|it| !it.is_empty());
    let disk = volumes.iter().position(boots).map(|index| (index, OF_DISK));
    let mut cd = None;
    if let Some(iso) = &config.cd {
        cd = Some((volumes.len(), OF_ISO));
        volumes.push(Volume::of_iso(iso)?);
    }
    let chosen = if is_cd_first { cd.or(disk) } else { disk.or(cd) };
    run_loader(chosen, volumes).map_err(|said| LabError::PowerOn { host: config.name.clone(), said })
}

fn run_loader(chosen: Option<(usize, &str)>, volumes: Vec<Volume>) -> Result<Entry, String> {
    let (index, path) = chosen.ok_or("neither disk nor ISO boots")?;
    let script = volumes[index].read(path).ok_or_else(|| format!("{path} cannot be read"))?;
    grub::boot(&String::from_utf8_lossy(&script), &index.to_string(), &Volumes(volumes))
}

/// The name of a device is its number.
struct Volumes(Vec<Volume>);

impl Volumes {
    fn get(&self, device: &str) -> Option<&Volume> {
        self.0.get(device.parse::<usize>().ok()?)
    }
}

impl Devices for Volumes {
    fn find_label(&self, label: &str) -> Option<String> {
        self.0.iter().position(|volume| volume.label == label).map(|index| index.to_string())
    }

    fn read(&self, device: &str, path: &str) -> Option<Vec<u8>> {
        self.get(device)?.read(path)
    }

    fn overwrite(&self, device: &str, path: &str, content: &[u8]) -> Option<()> {
        self.get(device)?.overwrite(path, content)
    }
}
