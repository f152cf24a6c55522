//! Chooses the disk for the install: two equal answers, and a third one directly before the first
//! write.

use std::path::Path;
use std::time::Duration;

use proto::v1alpha1::install_report::Outcome;
use proto::v1alpha1::{Install, InstallStarted};
use tokio::time::{Instant, sleep};

use super::attempts::Attempts;
use super::{Flow, REPORT_INTERVAL, STARTS_AGAIN, show_path};
use crate::client::transport::Transport;
use crate::ground::failure::Failure;
use crate::ground::paths::Root;
use crate::host::facts::disks::{self, Disk};
use crate::host::facts::smbios;
use crate::host::system::System;
use crate::live::disk_choice::{DiskRequest, Rules, choose_disk};
use crate::live::installed_disk::{self, InstalledDisk, Mounts};

/// Interval of the attempts while no disk can be chosen.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Controllers find their disks one after the other.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

type Choice = Result<Disk, Failure>;

impl<S: System, M: Mounts, N: Transport> Flow<'_, S, M, N> {
    /// Chooses a disk and reports that the install starts. Returns the disk and the current
    /// annotation `install-device`.
    pub(super) async fn choose_disk(
        &mut self,
        request: &Install,
        attempts: &Attempts,
    ) -> Result<(Disk, String), Failure> {
        let mut annotation = String::new();
        let mut reported: Option<(Failure, Instant)> = None;
        loop {
            let refusal = match self.evaluate_twice(request, &annotation).await? {
                Ok(disk) => {
                    let device = show_path(&disk.stable_path());
                    let started = InstallStarted { device, attempt: attempts.next(&annotation) };
                    let response = self.report_outcome(Outcome::Started(started)).await?;
                    let named = response.install_device;
                    if !named.is_empty() && named != annotation && named != request.device {
                        annotation = named;
                        continue;
                    }
                    // The report may have taken hours.
                    match compare_choices(&disk, self.evaluate_disks(request, &annotation)?) {
                        Ok(disk) => return Ok((disk, named)),
                        Err(changed) => changed,
                    }
                }
                Err(refusal) => refusal,
            };
            let is_due = reported
                .as_ref()
                .is_none_or(|(last, at)| *last != refusal || at.elapsed() >= REPORT_INTERVAL);
            if is_due {
                self.live.console.print_failure(&refusal);
                let response = self.report_outcome(Outcome::Waiting(refusal.clone().into())).await?;
                reported = Some((refusal, Instant::now()));
                if response.install_device != annotation {
                    annotation = response.install_device;
                    continue;
                }
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn evaluate_twice(&self, request: &Install, annotation: &str) -> Result<Choice, Failure> {
        self.live.mounts.settle(Duration::ZERO).await;
        let first = match self.evaluate_disks(request, annotation)? {
            Ok(disk) => disk,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.live.mounts.settle(RECHECK_INTERVAL).await;
        Ok(compare_choices(&first, self.evaluate_disks(request, annotation)?))
    }

    fn evaluate_disks(&self, request: &Install, annotation: &str) -> Result<Choice, Failure> {
        let root = self.live.root;
        let disks = disks::read_disks(root);
        let uuid = smbios::read_uuid(root);
        let found = installed_disk::find_installed_disks(&disks, self.live.mounts, uuid.as_deref())?;
        if let Some(InstalledDisk { disk, .. }) = found.own
            && !is_named(root, &disks, &request.reinstall, &disk)
        {
            let message =
                format!("{disk} carries an installed system and came up late, so nothing is installed");
            return Err(Failure::refused(message, STARTS_AGAIN));
        }
        let rules = Rules {
            allow_erase: request.allow_erase,
            is_annotated: !annotation.is_empty() || !request.reinstall.is_empty(),
            foreign: &found.foreign,
            used: &found.used,
        };
        Ok(choose_disk(&disks, &request_disk(root, annotation, request), &rules).cloned())
    }
}

/// The second answer, if it equals the first one.
fn compare_choices(first: &Disk, second: Choice) -> Choice {
    let second = second?;
    if first.is_same(&second) {
        return Ok(second);
    }
    let [first, second] =
        [first, &second].map(|disk| format!("{} (serial {}, wwn {})", disk.name, disk.serial, disk.wwn));
    Err(Failure::refused(
        format!("the disks of this host are still changing: {first} was to be installed on, then {second}"),
        "none: the host checks again; if it persists, check cables and controller",
    ))
}

/// True if the path leads to the disk with this kernel name.
pub(super) fn is_named(root: &Root, disks: &[Disk], path: &str, disk: &str) -> bool {
    let Some(name) = Some(path).filter(|path| !path.is_empty()).and_then(|path| resolve_link(root, path))
    else {
        return false;
    };
    name == disk || disks.iter().any(|known| known.has_name(&name) && known.has_name(disk))
}

/// The first of these that is set: the disk that is installed again, the inventory's annotation,
/// the registration's device; else the selector.
fn request_disk(root: &Root, annotation: &str, install: &Install) -> DiskRequest {
    match [&install.reinstall, annotation, &install.device].into_iter().find(|path| !path.is_empty()) {
        Some(path) => DiskRequest::Device { path: path.to_owned(), name: resolve_link(root, path) },
        None => DiskRequest::Selector(install.device_selector.clone()),
    }
}

/// Kernel name of the device to which the path leads.
fn resolve_link(root: &Root, path: &str) -> Option<String> {
    let device = root.join(Path::new(path)).canonicalize().ok()?;
    Some(device.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::v1alpha1::DeviceRequirement;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn annotation_then_device_then_selector() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        fs::create_dir_all(root.join("/dev/disk/by-id")).unwrap();
        fs::write(root.join("/dev/sdb"), "").unwrap();
        symlink("../../sdb", root.join("/dev/disk/by-id/one")).unwrap();
        let selector =
            DeviceRequirement { key: "Name".into(), operator: "In".into(), values: vec!["sda".into()] };
        let install = |device: &str| Install {
            device: device.into(),
            device_selector: vec![selector.clone()],
            ..Install::default()
        };
        let device = |path: &str, name: Option<&str>| DiskRequest::Device {
            path: path.into(),
            name: name.map(str::to_owned),
        };
        for (name, annotation, given, want) in [
            ("selector", "", install(""), DiskRequest::Selector(vec![selector.clone()])),
            ("device", "", install("/dev/disk/by-id/one"), device("/dev/disk/by-id/one", Some("sdb"))),
            ("not there", "", install("/dev/target"), device("/dev/target", None)),
            ("annotation", "/dev/sdb", install("/dev/target"), device("/dev/sdb", Some("sdb"))),
            (
                "the disk that is installed again",
                "/dev/target",
                Install { reinstall: "/dev/sdb".into(), ..install("") },
                device("/dev/sdb", Some("sdb")),
            ),
        ] {
            assert_eq!(request_disk(&root, annotation, &given), want, "{name}");
        }
    }
}
