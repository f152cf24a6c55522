//! Chooses the disk for the install: two equal answers, and a third one directly before the first
//! write.

use std::time::Duration;

use proto::v1alpha1::install_report::Outcome;
use proto::v1alpha1::{Install, InstallStarted};
use tokio::time::{Instant, sleep};

use super::attempts::Attempts;
use super::{Flow, REPORT_INTERVAL, STARTS_AGAIN, show_path};
use crate::client::transport::Transport;
use crate::ground::failure::Failure;
use crate::ground::paths::Root;
use crate::host::facts::disks::{self, Disk, DiskState};
use crate::host::facts::smbios;
use crate::host::system::System;
use crate::live::disk_choice::{DiskRequest, Rules, choose_disk, must_be_emptied};
use crate::live::installed_disk::{self, InstalledDisk, Mounts};
use crate::live::used_disk;

/// Interval of the attempts while no disk can be chosen.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Controllers find their disks one after the other.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

type Choice = Result<Chosen, Failure>;

/// The disk for the system.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chosen {
    pub(super) disk: Disk,
    /// The disks that are emptied before the install, by an explicit act of the operator.
    pub(super) emptied: Vec<Disk>,
}

impl<S: System, M: Mounts, N: Transport> Flow<'_, S, M, N> {
    /// Chooses a disk and reports that the install starts. Also returns the current annotation
    /// `install-device`.
    pub(super) async fn choose_disk(
        &mut self,
        request: &Install,
        attempts: &Attempts,
    ) -> Result<(Chosen, String), Failure> {
        // Only the annotation has several paths.
        let is_list = split_paths(&request.device).len() > 1;
        let mut annotation = if is_list { request.device.clone() } else { String::new() };
        let mut reported: Option<(Failure, Instant)> = None;
        loop {
            let refusal = match self.evaluate_twice(request, &annotation).await? {
                Ok(chosen) => {
                    let device = show_path(&chosen.disk.stable_path());
                    let started = InstallStarted { device, attempt: attempts.next(&annotation) };
                    let response = self.report_outcome(Outcome::Started(started)).await?;
                    let named = response.install_device;
                    if !named.is_empty() && named != annotation && named != request.device {
                        annotation = named;
                        continue;
                    }
                    // The report may have taken hours.
                    match compare_choices(&chosen, self.evaluate_disks(request, &annotation).await?) {
                        Ok(chosen) => return Ok((chosen, named)),
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
        let first = match self.evaluate_disks(request, annotation).await? {
            Ok(chosen) => chosen,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.live.mounts.settle(RECHECK_INTERVAL).await;
        Ok(compare_choices(&first, self.evaluate_disks(request, annotation).await?))
    }

    async fn evaluate_disks(&self, request: &Install, annotation: &str) -> Result<Choice, Failure> {
        let root = self.live.root;
        let disks = disks::look_at_disks(root).await;
        let uuid = smbios::read_uuid(root);
        let found = installed_disk::find_installed_disks(&disks, self.live.mounts, uuid.as_deref()).await?;
        if let Some(InstalledDisk { disk, .. }) = found.own
            && !is_named(root, &disks, &request.reinstall, &disk)
        {
            let message =
                format!("{disk} carries an installed system and came up late, so nothing is installed");
            return Err(Failure::refused(message, STARTS_AGAIN));
        }
        let wish = request_disk(root, annotation, request);
        let given_up = match find_given_up(root, &disks, annotation) {
            Ok(given_up) => given_up,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let names: Vec<_> = given_up.iter().map(|disk| disk.name.clone()).collect();
        let rules = Rules {
            allow_erase: request.allow_erase,
            is_annotated: !annotation.is_empty() || !request.reinstall.is_empty(),
            foreign: &found.foreign,
            used: &found.used,
            given_up: &names,
            silent: &found.silent,
        };
        let disk = match choose_disk(&disks, &wish, &rules) {
            Ok(disk) => disk.clone(),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let is_explicit = rules.is_annotated || (rules.allow_erase && wish.is_device());
        let is_used = is_explicit && must_be_emptied(&disk);
        let others = given_up.into_iter().filter(|other| other.name != disk.name);
        let emptied: Vec<_> = is_used.then(|| disk.clone()).into_iter().chain(others).collect();
        if !emptied.is_empty() {
            let targets: Vec<_> = emptied.iter().collect();
            if let Err(refusal) = used_disk::check_disks(root, &disks, &targets).await {
                return Ok(Err(refusal));
            }
        }
        Ok(Ok(Chosen { disk, emptied }))
    }
}

/// The paths in the annotation: the install device, and disks that are given up with it. A comma
/// within a path does not end it.
fn split_paths(annotation: &str) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for part in annotation.split(',') {
        match paths.last_mut() {
            Some(path) if !part.trim_start().starts_with('/') => {
                path.push(',');
                path.push_str(part);
            }
            _ => paths.push(part.trim().to_owned()),
        }
    }
    paths
}

/// The disks that the annotation gives up beside the install device.
fn find_given_up(root: &Root, disks: &[Disk], annotation: &str) -> Result<Vec<Disk>, Failure> {
    let find = |path: String| {
        let found = disks::find_by_path(root, disks, &path);
        let disk = found.filter(|disk| !disk.live_medium && disk.state != DiskState::ReadOnly);
        disk.cloned().ok_or_else(|| {
            Failure::refused(
                format!("the annotation baremetal.cluster.io/install-device gives up {path}, which leads to no whole disk of this host that can be written"),
                "correct the path, or remove it from the annotation",
            )
        })
    };
    split_paths(annotation).into_iter().skip(1).map(find).collect()
}

/// The second answer, if it equals the first one.
fn compare_choices(first: &Chosen, second: Choice) -> Choice {
    let second = second?;
    if first.disk.is_same(&second.disk) {
        return Ok(second);
    }
    let [first, second] = [&first.disk, &second.disk]
        .map(|disk| format!("{} (serial {}, wwn {})", disk.name, disk.serial, disk.wwn));
    Err(Failure::refused(
        format!("the disks of this host are still changing: {first} was to be installed on, then {second}"),
        "none: the host checks again; if it persists, check cables and controller",
    ))
}

/// True if the path leads to the disk with this kernel name.
pub(super) fn is_named(root: &Root, disks: &[Disk], path: &str, disk: &str) -> bool {
    let named = disks::find_by_path(root, disks, path);
    !path.is_empty() && named.is_some_and(|named| named.has_name(disk))
}

/// The first of these that is set: the disk that is installed again, the inventory's annotation,
/// the registration's device; else the selector.
fn request_disk(root: &Root, annotation: &str, install: &Install) -> DiskRequest {
    let annotated = split_paths(annotation).swap_remove(0);
    match [&install.reinstall, &annotated, &install.device].into_iter().find(|path| !path.is_empty()) {
        Some(path) => DiskRequest::Device { path: path.to_owned(), name: disks::resolve_path(root, path) },
        None => DiskRequest::Selector(install.device_selector.clone()),
    }
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
                "annotation with a disk that is given up",
                "/dev/sdb,/dev/sdc",
                install(""),
                device("/dev/sdb", Some("sdb")),
            ),
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

    #[test]
    fn annotation_lists_disks_by_path() {
        for (annotation, want) in [
            ("", vec![""]),
            ("/dev/sda", vec!["/dev/sda"]),
            ("/dev/sda, /dev/sdb,/dev/sdc", vec!["/dev/sda", "/dev/sdb", "/dev/sdc"]),
            ("/dev/disk/by-path/pci,1,/dev/sdb", vec!["/dev/disk/by-path/pci,1", "/dev/sdb"]),
        ] {
            assert_eq!(split_paths(annotation), want, "{annotation}");
        }
    }
}
