//! Empties a used disk by an explicit act of the operator (decision 77): takes apart what lies
//! entirely on the disk, and erases the labels of its partitions and its own. Another disk is never
//! written to.

mod layers;
mod plan;
mod signatures;
mod typed;
mod volume_group;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use self::layers::{Layers, read_layers};
use self::plan::{Obstacle, Step, plan_steps};
pub use self::typed::erase_typed;
use super::disk_choice::must_be_emptied;
use super::installed_disk::Mounts;
use crate::ground::failure::Failure;
use crate::ground::paths::Root;
use crate::host::command::{CommandError, Invocation, SYSTEM_LOG};
use crate::host::facts::disks::{Disk, look_at_disks};
use crate::host::facts::probe::run_within;
use crate::host::system::deadlines;

/// udev may assemble an array again between two steps, so the steps are repeated.
const ROUNDS: u32 = 5;
const ROUND_PAUSE: Duration = Duration::from_secs(1);
/// A format has fewer labels than this.
const LABELS: u32 = 64;
const OTHER_DISK: &str = "name another disk in the annotation baremetal.cluster.io/install-device on the MachineInventory, or erase this one in another system";

/// Fails if the disks cannot be emptied; nothing is changed.
pub async fn check_disks(root: &Root, disks: &[Disk], targets: &[&Disk]) -> Result<(), Failure> {
    let layers = look(root).await?;
    plan_steps(&layers, targets).map(drop).map_err(|obstacle| refuse(disks, targets, &obstacle))
}

/// Empties the disks. Succeeds once udev finds nothing on them.
pub async fn empty_disks(root: &Root, mounts: &impl Mounts, targets: &[&Disk]) -> Result<(), Failure> {
    let mut last = None;
    for _ in 0..ROUNDS {
        let layers = look(root).await?;
        let steps = match plan_steps(&layers, targets) {
            Ok(steps) => steps,
            Err(obstacle) => return Err(refuse(&look_at_disks(root).await, targets, &obstacle)),
        };
        last = run_steps(root, mounts, &layers, &steps).await.err();
        mounts.settle(ROUND_PAUSE).await;
        let disks = look_at_disks(root).await;
        // By kernel name, as the steps: another disk may have the same serial number.
        let is_target =
            |disk: &Disk| targets.iter().any(|target| target.names().any(|name| disk.has_name(name)));
        let left: Vec<_> = disks
            .iter()
            .filter(|disk| is_target(disk) && must_be_emptied(disk))
            .map(Disk::name_and_path)
            .collect();
        if left.is_empty() && last.is_none() {
            return Ok(());
        }
        last = last.or_else(|| {
            Some(Failure::input_output(
                format!("{} still carries what was to be erased", left.join(", ")),
                "check the disk and its kernel log (`journalctl -k`); another program may write to it",
            ))
        });
    }
    let failure = last.unwrap_or_else(|| Failure::input_output("the disk was not emptied", OTHER_DISK));
    Err(failure.context("cannot empty the disk for the install"))
}

/// Reads on a thread of its own, because a dying disk is waited for.
async fn look(root: &Root) -> Result<Layers, Failure> {
    let root = root.clone();
    tokio::task::spawn_blocking(move || read_layers(&root)).await.map_err(|error| {
        let message = format!("cannot look at the block devices of this host: {error}");
        Failure::input_output(message, SYSTEM_LOG)
    })
}

async fn run_steps(
    root: &Root,
    mounts: &impl Mounts,
    layers: &Layers,
    steps: &[Step],
) -> Result<(), Failure> {
    for step in steps {
        tracing::info!(?step, "emptying a used disk");
        match step {
            Step::Export { pool, id } => export_pool(mounts, pool, id).await?,
            Step::Remove(name) => run(mounts, "dmsetup", &["remove", "--retry", name]).await?,
            Step::Stop(name) => run(mounts, "mdadm", &["--stop", &format!("/dev/{name}")]).await?,
            Step::Erase(name) => erase(root, mounts, layers, name).await?,
            Step::Reread(name) => run(mounts, "blockdev", &["--rereadpt", &format!("/dev/{name}")]).await?,
        }
    }
    Ok(())
}

async fn run(mounts: &impl Mounts, program: &str, args: &[&str]) -> Result<(), Failure> {
    let ran = mounts.run_tool(&Invocation::new(program, args, deadlines::QUERY)).await;
    ran.map(drop).map_err(|error| explain(error, args))
}

fn explain(error: CommandError, args: &[&str]) -> Failure {
    let failure = Failure::from(error);
    let output = failure.output.trim().to_owned();
    let failure = failure.context(args.join(" "));
    if output.is_empty() {
        return failure;
    }
    Failure { message: format!("{}: {output}", failure.message), ..failure }
}

/// Exports the pool if it is imported. Another pool of the same name has another id.
async fn export_pool(mounts: &impl Mounts, pool: &str, id: &str) -> Result<(), Failure> {
    let list = Invocation::new("zpool", &["list", "-H", "-o", "guid", pool], deadlines::QUERY);
    match mounts.run_tool(&list).await {
        Ok(found) if found.stdout.trim() == id => run(mounts, "zpool", &["export", "-f", pool]).await,
        // No pool is imported where the program is missing.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Erases until nothing is found, because a format may have several labels.
async fn erase(root: &Root, mounts: &impl Mounts, layers: &Layers, name: &str) -> Result<(), Failure> {
    let device = format!("/dev/{name}");
    for _ in 0..LABELS {
        run(mounts, "wipefs", &["--all", &device]).await?;
        let list = Invocation::new("wipefs", &["--noheadings", "--parsable", &device], deadlines::QUERY);
        let found = mounts.run_tool(&list).await.map_err(|error| explain(error, &[&device]))?;
        if found.stdout.trim().is_empty() {
            break;
        }
    }
    let size = layers.get(name).map_or(0, |layer| layer.size_bytes);
    let path = root.join(Path::new(&device));
    let written = run_within(deadlines::QUERY, move || signatures::overwrite(&path, size)).await;
    let written = written.ok_or_else(|| {
        Failure::input_output(
            format!("{device} did not take writes within a minute"),
            "replace the disk; the kernel log (`journalctl -k`) has the cause",
        )
    })?;
    written.map_err(|error| Failure::of_file("erase the labels of", Path::new(&device), &error))
}

fn refuse(disks: &[Disk], targets: &[&Disk], obstacle: &Obstacle) -> Failure {
    let names: Vec<_> = targets.iter().map(|disk| disk.name.as_str()).collect();
    let names = names.join(", ");
    let (reason, next_action) = match obstacle {
        Obstacle::Spans { what, disks: others } => (
            format!("{what}, which lies on it, spans other disks: {}", show_disks(disks, others)),
            "where nothing on those disks is needed either, give them up as well (`kubectl baremetal install-on` with --erase); else name another disk".to_owned(),
        ),
        Obstacle::InUse { name, uses } => (
            format!("the live system uses {name} ({})", uses.join(", ")),
            "correct the cloud-config of the seed ISO that mounts it, or name another disk".to_owned(),
        ),
        Obstacle::PathOf(name) => (
            format!("it is a path of {name}"),
            format!("name /dev/{name} by its stable path (/dev/disk/by-id/dm-uuid-mpath-…)"),
        ),
        Obstacle::Unknown(name) => {
            (format!("{name} lies on it, which this live system cannot take apart"), OTHER_DISK.to_owned())
        }
    };
    Failure::refused(format!("{names} is not emptied: {reason}"), next_action)
}

fn show_disks(disks: &[Disk], names: &BTreeSet<String>) -> String {
    let shown = names.iter().map(|name| {
        let disk = disks.iter().find(|disk| disk.has_name(name));
        disk.map_or_else(|| name.clone(), Disk::name_and_path)
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
