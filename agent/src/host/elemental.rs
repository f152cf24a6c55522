//! The driver for real hosts: the command lines of `elemental`, `cloud-init`, `systemctl`, `umount`
//! and the container runtime. Both generations of `elemental` take the same command lines.

mod cgroup;
pub mod failure;
mod flush;
pub mod registry;
mod room;
mod snapshot;
mod state;
mod workload;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use proto::plan::{CustomInstruction, Image, RegistryAccess, Upgrade, to_source};
use proto::v1alpha1::{BootMode, FailureReason, Install, SystemState};

use self::registry::RegistryFiles;
use super::command::{CommandError, Invocation};
use super::proxy::ProxySettings;
use super::system::{
    CloudInit, Installation, Job, Output, Placement, PlacementAction, RebootAsked, RebootMethod, Snapshot,
    System, UpgradeRoom, deadlines,
};
use super::{kernel_log, kernel_state, observed, units};
use crate::ground::durable;
use crate::ground::failure::{Failure, FailureClass};
use crate::ground::paths::Root;
use crate::state::before_node::{KernelItem, OwnItems};

/// Attempts to run `elemental` until udev has filled in the labels.
const LABEL_ATTEMPTS: u32 = 5;

const BOOTED_SNAPSHOT: &str = "booted-snapshot";

#[derive(Clone, Debug)]
pub struct Elemental {
    root: Root,
    booted_snapshot: Arc<OnceLock<u32>>,
}

impl Elemental {
    pub fn new(root: Root) -> Self {
        Self { root, booted_snapshot: Arc::default() }
    }

    /// Runs `elemental` after the labels of its partitions are known.
    async fn run_elemental(&self, job: &Job, work: &Invocation) -> Result<Output, Failure> {
        for _ in 1..LABEL_ATTEMPTS {
            settle_devices().await;
            match self.run_job(job, work).await {
                Err(error) if failure::are_labels_missing(&error) => {
                    tracing::info!("elemental does not see its partitions yet, retrying");
                    tokio::time::sleep(Duration::from_secs(3)).await;
                }
                ended => return ended,
            }
        }
        self.run_job(job, work).await
    }

    /// Runs `elemental` with the access to its registry, which is removed from the host afterwards.
    async fn pull(
        &self,
        job: &Job,
        mut work: Invocation,
        registry: Option<&RegistryAccess>,
    ) -> Result<Output, Failure> {
        // A job of an earlier agent may still read its own files.
        self.earlier_jobs().await?;
        let files = registry.map(|access| RegistryFiles::write(&self.root, access)).transpose();
        let files = files.map_err(|source| CommandError::Run { program: work.program.clone(), source })?;
        work.env.extend(files.iter().flat_map(RegistryFiles::environment));
        work.env.extend(choose_proxy(&self.root, registry).variables());
        self.run_elemental(job, &work).await
    }

    async fn run_job(&self, job: &Job, work: &Invocation) -> Result<Output, Failure> {
        units::run_unit(&self.root, job, work).await.map_err(failure::diagnose)
    }
}

impl Elemental {
    /// Number of the snapshot that booted in active mode, `None` if it is unknown.
    ///
    /// `elemental state` names the snapshot that boots next, which is the booted one until an
    /// upgrade. So the answer is kept for this boot, for agents that start later in the same boot
    /// as well.
    async fn booted_snapshot(&self) -> Option<u32> {
        if let Some(number) = self.booted_snapshot.get() {
            return Some(*number);
        }
        let kept = fs::read_to_string(self.root.runtime().join(BOOTED_SNAPSHOT)).ok();
        let number = match kept.and_then(|text| text.trim().parse().ok()) {
            Some(number) => number,
            None => match list_snapshots().await {
                Ok(snapshots) => snapshots.iter().find(|snapshot| snapshot.active)?.number,
                Err(error) => {
                    tracing::warn!(%error, "cannot tell which snapshot booted");
                    return None;
                }
            },
        };
        self.keep_booted_snapshot(number);
        Some(number)
    }

    fn keep_booted_snapshot(&self, number: u32) {
        let _ = self.booted_snapshot.set(number);
        self.root.write_runtime_file(BOOTED_SNAPSHOT, &number.to_string());
    }
}

/// The proxy that the Secret of the registry names, else the proxy of the host: a unit that systemd
/// starts inherits nothing of the agent's environment.
fn choose_proxy(root: &Root, registry: Option<&RegistryAccess>) -> ProxySettings {
    let named = registry.map(ProxySettings::from).filter(|settings| !settings.is_empty());
    named.unwrap_or_else(|| ProxySettings::read(root))
}

async fn settle_devices() {
    let settle = Invocation::new("udevadm", &["settle", "--timeout=50"], deadlines::QUERY);
    if let Err(error) = settle.run().await {
        tracing::warn!(%error, "cannot wait for udev");
    }
}

impl System for Elemental {
    async fn install(&self, installation: Installation<'_>) -> Result<Output, Failure> {
        let job = Job::named("install");
        self.pull(&job, install_command(&installation), installation.registry).await
    }

    async fn upgrade(&self, job: &Job, upgrade: &Upgrade) -> Result<Output, Failure> {
        // After the upgrade no source names the booted snapshot any more.
        if self.booted_snapshot().await.is_none() {
            self.keep_booted_snapshot(0);
        }
        self.pull(job, upgrade_command(&upgrade.image), upgrade.registry.as_deref()).await
    }

    async fn upgrade_room(&self) -> Option<UpgradeRoom> {
        let booted = self.booted_snapshot().await.filter(|number| *number > 0);
        room::measure_room(&self.root, booted)
    }

    async fn write_errors(&self, since: Duration) -> Vec<String> {
        let args = ["--quiet", "--no-pager", "--boot", "--dmesg", "--output=short-monotonic", "--lines=5000"];
        match Invocation::new("journalctl", &args, deadlines::QUERY).run().await {
            Ok(captured) => kernel_log::find_write_errors(&captured.stdout, since),
            Err(error) => {
                tracing::warn!(%error, "cannot read the kernel's log, so write errors are not seen");
                Vec::new()
            }
        }
    }

    async fn check_snapshot(&self, snapshot: &Snapshot) -> Result<Output, Failure> {
        let check = snapshot::check_command(&self.root, snapshot.number);
        // The output of the upgrade is in the journal under the name of the step.
        let job = Job::named("check-snapshot");
        units::run_unit(&self.root, &job, &check).await.map_err(snapshot::diagnose)
    }

    async fn snapshots(&self) -> Result<Vec<Snapshot>, Failure> {
        list_snapshots().await
    }

    async fn earlier_jobs(&self) -> Result<(), Failure> {
        units::wait_for_earlier(&self.root).await?;
        registry::remove_files(&self.root);
        Ok(())
    }

    async fn running(&self) -> Result<SystemState, Failure> {
        let mut state = observed::system_state(&self.root)?;
        if state.boot_mode() == BootMode::Active {
            state.snapshot = self.booted_snapshot().await.unwrap_or(0);
        }
        Ok(state)
    }

    async fn reboot(&self, method: RebootMethod) -> Result<RebootAsked, Failure> {
        Ok(reboot_command(method).run().await.map(|_| RebootAsked)?)
    }

    async fn sync(&self) -> Result<(), Failure> {
        let root = self.root.clone();
        // The flush may take minutes on a slow disk, so it does not run on the runtime's thread.
        match tokio::task::spawn_blocking(move || flush::flush_disks(&root)).await {
            Ok(Err(error)) => {
                Err(Failure { reason: FailureReason::Command, ..error }.with_class(FailureClass::Transient))
            }
            Ok(Ok(())) => Ok(()),
            Err(error) => {
                let source = io::Error::other(error);
                Err(CommandError::Run { program: "syncfs".to_owned(), source }.into())
            }
        }
    }

    async fn cloud_init_clean(&self, job: &Job) -> Result<Output, Failure> {
        let clean =
            Invocation::new("cloud-init", &["clean", "--logs", "--seed"], deadlines::CLEAN_CLOUD_INIT);
        self.run_job(job, &clean).await
    }

    async fn cloud_init(&self) -> Result<CloudInit, Failure> {
        observed::cloud_init(&self.root)
    }

    async fn stop_unit(&self, unit: &str) -> Result<Output, Failure> {
        if show_property(unit, "LoadState").await? == "not-found" {
            return Ok(Output(format!("there is no {unit}")));
        }
        let stop = Invocation::new("systemctl", &["stop", unit], deadlines::STOP_UNIT);
        stop.run().await.map(|captured| captured.shown).map_err(failure::diagnose)
    }

    async fn unit_runs(&self, unit: &str) -> Result<bool, Failure> {
        let state = show_property(unit, "ActiveState").await?;
        Ok(!matches!(state.as_str(), "inactive" | "failed"))
    }

    async fn workload(&self) -> Result<Vec<String>, Failure> {
        Ok(workload::list_workload(&self.root).await)
    }

    async fn remove_workload(&self) -> Result<Output, Failure> {
        Ok(workload::remove_workload(&self.root).await?)
    }

    async fn kernel_items(&self) -> Result<BTreeSet<KernelItem>, Failure> {
        kernel_state::list_items(&self.root)
    }

    async fn remove_foreign_items(&self, job: &Job, own: &OwnItems) -> Result<(), Failure> {
        for name in kernel_state::list_foreign_namespaces(&self.root, own) {
            let path = self.root.join(kernel_state::NAMESPACES).join(name);
            // A name without a mount is only a file.
            if let Err(error) = self.unmount(job, &path).await {
                tracing::info!(%error, "network namespace not unmounted");
            }
            durable::remove(&path)?;
        }
        kernel_state::remove_foreign(&self.root, own)
    }

    async fn unmount(&self, job: &Job, path: &Path) -> Result<Output, Failure> {
        let path = path.display().to_string();
        let plain = Invocation::new("umount", &[&path], deadlines::QUERY);
        if let Ok(output) = self.run_job(job, &plain).await {
            return Ok(output);
        }
        // A mount of an unreachable server stays busy.
        let lazy = Invocation::new("umount", &["--lazy", &path], deadlines::QUERY);
        self.run_job(job, &lazy).await
    }

    async fn trim(&self, job: &Job) -> Result<Output, Failure> {
        let path = self.root.state().path().display().to_string();
        self.run_job(job, &Invocation::new("fstrim", &["--verbose", &path], deadlines::TRIM)).await
    }

    async fn clear_journal(&self, job: &Job) -> Result<Output, Failure> {
        self.run_job(job, &clear_journal_command()).await
    }

    async fn place_file(&self, job: &Job, placement: &Placement<'_>) -> Result<Output, Failure> {
        self.run_job(job, &place_command(&self.root, placement)).await
    }

    async fn run_custom(&self, job: &Job, instruction: &CustomInstruction) -> Result<Output, Failure> {
        Ok(units::run_unit(&self.root, job, &custom_command(instruction)).await?)
    }
}

async fn list_snapshots() -> Result<Vec<Snapshot>, Failure> {
    let printed = Invocation::new("elemental", &["state"], deadlines::QUERY).run().await;
    state::parse_snapshots(&printed.map_err(failure::diagnose)?.stdout)
}

async fn show_property(unit: &str, property: &str) -> Result<String, Failure> {
    let property = format!("--property={property}");
    let args = ["show", &property, "--value", unit];
    let captured = Invocation::new("systemctl", &args, deadlines::QUERY).run().await;
    Ok(captured.map_err(failure::diagnose)?.stdout.trim().to_owned())
}

fn upgrade_command(image: &Image) -> Invocation {
    let image = to_source(image.as_str());
    // The reboot of `elemental upgrade` is forced and stops no service, so the plan reboots by a
    // step of its own.
    let args = ["upgrade", "--reboot=false", "--system", &image];
    Invocation::new("elemental", &args, deadlines::UPGRADE)
}

fn install_command(installation: &Installation<'_>) -> Invocation {
    let Install { system_uri, snapshotter_type, snapshotter_max_snaps, debug, eject_cd, no_format, .. } =
        installation.request;
    let mut args = Vec::new();
    args.extend(debug.then(|| "--debug".to_owned()));
    // An interrupted install leaves a disk that looks installed, hence `--force`. An earlier check made
    // sure that the disk holds no install of this agent.
    args.extend(["install", "--reboot=false", "--poweroff=false", "--force"].map(str::to_owned));
    args.extend((!system_uri.is_empty()).then(|| format!("--system={}", to_source(system_uri))));
    args.extend((!snapshotter_type.is_empty()).then(|| format!("--snapshotter.type={snapshotter_type}")));
    args.extend(eject_cd.then(|| "--eject-cd".to_owned()));
    args.extend(no_format.then(|| "--no-format".to_owned()));
    // The agent makes the boot entry itself, after the installed system has everything that it needs
    // (decision 60).
    args.push("--disable-boot-entry".to_owned());
    args.extend(installation.cloud_init.iter().map(|file| format!("--cloud-init={}", file.display())));
    args.push(installation.device.display().to_string());
    let mut command =
        Invocation { program: "elemental".to_owned(), args, env: Vec::new(), deadline: deadlines::INSTALL };
    if *snapshotter_max_snaps > 0 {
        // `elemental` has no flag for this value.
        let name = "ELEMENTAL_SNAPSHOTTER_MAX_SNAPS".to_owned();
        command.env.push((name, snapshotter_max_snaps.to_string()));
    }
    command
}

fn reboot_command(method: RebootMethod) -> Invocation {
    let args: &[&str] = match method {
        RebootMethod::Orderly => &["reboot"],
        RebootMethod::Forced => &["reboot", "--force"],
        RebootMethod::Immediate => &["reboot", "--force", "--force"],
    };
    Invocation::new("systemctl", args, deadlines::QUERY)
}

/// Rotates first, because journald does not remove the file that it writes to.
fn clear_journal_command() -> Invocation {
    Invocation::new("journalctl", &["--rotate", "--vacuum-time=1s"], deadlines::CLEAR_JOURNAL)
}

/// Places the file outside of the agent's sandbox. The file is complete and durable, or missing.
fn place_command(root: &Root, placement: &Placement<'_>) -> Invocation {
    let Placement { path, mode, uid, gid, action } = placement;
    let (script, staged) = match action {
        PlacementAction::Delete => (r#"rm -rf -- "$4""#, Path::new("")),
        PlacementAction::Directory => (r#"install -d -m "$1" -o "$2" -g "$3" -- "$4""#, Path::new("")),
        PlacementAction::File { staged } => (
            r#"mkdir -p -- "${4%/*}/"
install -T -m "$1" -o "$2" -g "$3" -- "$5" "$4.baremetal-new"
sync -- "$4.baremetal-new"
mv -fT -- "$4.baremetal-new" "$4""#,
            *staged,
        ),
    };
    let script = format!("set -e\n{script}\nsync -f -- \"${{4%/*}}/\"");
    let (path, staged) = (root.join(path).display().to_string(), staged.display().to_string());
    let (mode, uid, gid) = (format!("{mode:o}"), uid.to_string(), gid.to_string());
    let args = ["-c", &script, "place-file", &mode, &uid, &gid, &path, &staged];
    Invocation::new("/bin/sh", &args, deadlines::QUERY)
}

fn custom_command(instruction: &CustomInstruction) -> Invocation {
    let pairs = instruction.env.iter().filter_map(|text| text.split_once('='));
    Invocation {
        program: instruction.command.clone(),
        args: instruction.args.clone(),
        env: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        deadline: deadlines::CUSTOM,
    }
}

#[cfg(test)]
mod tests;
