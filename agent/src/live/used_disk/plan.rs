//! Decides how a disk is emptied: which devices on it are taken apart, or why none is.

use std::collections::BTreeSet;

use super::layers::{Kind, Layer, Layers, SetKind};
use crate::host::facts::disks::Disk;

/// One change, in the order of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A pool of ZFS with this name and id is exported.
    Export { pool: String, id: String },
    /// A device of the device mapper with this name is removed.
    Remove(String),
    /// An array with this kernel name is stopped.
    Stop(String),
    /// Everything that tells what is on a disk or a partition is erased.
    Erase(String),
    /// The kernel reads the partition table of a disk again.
    Reread(String),
}

/// Why a disk is not emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// A device on the disk also lies on other disks.
    Spans { what: String, disks: BTreeSet<String> },
    /// The live system uses a device on the disk.
    InUse { name: String, uses: Vec<String> },
    /// The disk is a path of a multipath device.
    PathOf(String),
    /// A device on the disk is of a kind that the agent cannot take apart.
    Unknown(String),
}

/// Empties `targets` and nothing else.
pub(super) fn plan_steps(layers: &Layers, targets: &[&Disk]) -> Result<Vec<Step>, Obstacle> {
    let own = list_own(layers, targets);
    let built = list_built(layers, &own);
    let all: BTreeSet<_> = own.union(&built).cloned().collect();
    for name in &all {
        let layer = layers.get(name).ok_or_else(|| Obstacle::Unknown(name.clone()))?;
        check_layer(layers, layer, &own, &all)?;
        check_membership(layers, layer, &own, &all)?;
    }
    let mut steps: Vec<_> = all.iter().filter_map(|name| export(layers.get(name)?)).collect();
    steps.dedup();
    for name in order_deepest_first(layers, &built) {
        steps.extend(layers.get(&name).and_then(take_apart));
    }
    for disk in targets {
        let partitions = layers.partitions(&disk.name);
        steps.extend(partitions.map(|partition| Step::Erase(partition.name.clone())));
        steps.push(Step::Erase(disk.name.clone()));
        // The kernel looks for no partitions on a multipath device.
        let is_read = |name: &&str| layers.get(name).is_some_and(|layer| layer.kind != Kind::Multipath);
        steps.extend(disk.names().filter(is_read).map(|name| Step::Reread(name.to_owned())));
    }
    Ok(steps)
}

/// The disks, by all their paths, with their partitions.
fn list_own(layers: &Layers, targets: &[&Disk]) -> BTreeSet<String> {
    let mut own = BTreeSet::new();
    for name in targets.iter().flat_map(|disk| disk.names()) {
        own.insert(name.to_owned());
        own.extend(layers.partitions(name).map(|partition| partition.name.clone()));
    }
    own
}

/// Every device that is built on these, directly or not.
fn list_built(layers: &Layers, own: &BTreeSet<String>) -> BTreeSet<String> {
    let mut built = BTreeSet::new();
    let mut pending: Vec<_> = own.iter().cloned().collect();
    while let Some(name) = pending.pop() {
        let holders = layers.get(&name).map_or(&[][..], |layer| layer.holders.as_slice());
        for holder in holders.iter().filter(|holder| !own.contains(*holder)) {
            if built.insert(holder.clone()) {
                pending.push(holder.clone());
            }
        }
    }
    built
}

fn check_layer(
    layers: &Layers,
    layer: &Layer,
    own: &BTreeSet<String>,
    all: &BTreeSet<String>,
) -> Result<(), Obstacle> {
    if !layer.uses.is_empty() {
        return Err(Obstacle::InUse { name: layer.name.clone(), uses: layer.uses.clone() });
    }
    if own.contains(&layer.name) {
        return Ok(());
    }
    if layer.kind == Kind::Multipath {
        return Err(Obstacle::PathOf(layer.name.clone()));
    }
    let foreign = layer.slaves.iter().filter(|slave| !all.contains(*slave));
    let foreign: BTreeSet<_> = foreign.flat_map(|slave| layers.base_disks(slave)).collect();
    if !foreign.is_empty() {
        return Err(Obstacle::Spans { what: layer.name.clone(), disks: foreign });
    }
    match layer.kind {
        Kind::Plain | Kind::Other => Err(Obstacle::Unknown(layer.name.clone())),
        Kind::Mapped(_) | Kind::Multipath | Kind::Array | Kind::Container => Ok(()),
    }
}

/// A set whose other members are not assembled spans their disks all the same.
fn check_membership(
    layers: &Layers,
    layer: &Layer,
    own: &BTreeSet<String>,
    all: &BTreeSet<String>,
) -> Result<(), Obstacle> {
    let Some(set) = &layer.membership else { return Ok(()) };
    // The paths of a multipath device show the content of the device.
    let below: BTreeSet<_> = own.iter().flat_map(|name| layers.base_disks(name)).collect();
    let is_other = |other: &&Layer| {
        let is_member =
            other.membership.as_ref().is_some_and(|found| found.kind == set.kind && found.id == set.id);
        is_member && !all.contains(&other.name)
    };
    let others = layers.0.iter().filter(is_other).flat_map(|other| layers.base_disks(&other.name));
    let disks: BTreeSet<_> = others.filter(|disk| !below.contains(disk)).collect();
    if disks.is_empty() {
        return Ok(());
    }
    let name = if set.name.is_empty() { &set.id } else { &set.name };
    Err(Obstacle::Spans { what: format!("the {} {name}", set.kind.noun()), disks })
}

fn export(layer: &Layer) -> Option<Step> {
    let set = layer.membership.as_ref().filter(|set| set.kind == SetKind::Pool)?;
    Some(Step::Export { pool: set.name.clone(), id: set.id.clone() })
}

fn take_apart(layer: &Layer) -> Option<Step> {
    match &layer.kind {
        Kind::Mapped(name) => Some(Step::Remove(name.clone())),
        Kind::Array | Kind::Container => Some(Step::Stop(layer.name.clone())),
        Kind::Plain | Kind::Multipath | Kind::Other => None,
    }
}

/// A device comes after everything that is built on it.
fn order_deepest_first(layers: &Layers, built: &BTreeSet<String>) -> Vec<String> {
    let mut left: BTreeSet<_> = built.clone();
    let mut order = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let is_free = |name: &&String| {
            layers.get(name).is_none_or(|layer| layer.holders.iter().all(|holder| !left.contains(holder)))
        };
        let mut free: Vec<_> = left.iter().filter(is_free).cloned().collect();
        if free.is_empty() {
            // sysfs has no circles; a model that has one is taken in any order.
            free = left.iter().cloned().collect();
        }
        free.sort_by_key(|name| layers.get(name).is_some_and(|layer| layer.kind == Kind::Container));
        left.retain(|name| !free.contains(name));
        order.extend(free);
    }
    order
}

#[cfg(test)]
mod tests;
