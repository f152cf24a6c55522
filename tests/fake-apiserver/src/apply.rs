//! Server-side apply: merge what is applied, drop what its owner no longer applies.

use std::cmp::Reverse;

use serde_json::Value;

use crate::fields::{Fields, Path, Step, display, key_of, leaves, remove};
use crate::owners::{Owners, Writer};
use crate::shape::{Merge, Shape};

/// May an apply take fields that others own with another value?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    Yes,
    No,
}

/// What is applied, and by whom.
pub(crate) struct Application<'a> {
    pub(crate) config: &'a Value,
    pub(crate) writer: &'a Writer,
    pub(crate) force: Force,
    pub(crate) now: &'a str,
}

/// Applies to `live`. `Err`: the owners in conflict, and their fields.
pub(crate) fn apply(
    live: &Value,
    owners: &Owners,
    application: &Application<'_>,
    shape: &Shape,
) -> Result<(Value, Owners), Vec<(String, String)>> {
    let &Application { config, writer, force, now } = application;
    let applied: Fields = leaves(config, shape).into_keys().collect();
    let mut object = live.clone();
    merge(&mut object, config, shape);
    prune(&mut object, &applied, (owners, writer), shape);

    let (before, after) = (leaves(live, shape), leaves(&object, shape));
    let changed: Fields = after
        .iter()
        .filter(|(path, value)| before.get(*path) != Some(*value))
        .map(|(path, _)| path.clone())
        .collect();
    let removed: Fields = before.into_keys().filter(|path| !after.contains_key(path)).collect();
    let conflicts: Vec<_> = owners
        .others(writer)
        .flat_map(|owner| {
            let taken = owner.fields.intersection(&changed);
            taken.map(|path| (owner.writer.manager.clone(), display(path)))
        })
        .collect();
    if force == Force::No && !conflicts.is_empty() {
        return Err(conflicts);
    }
    let mut owners = owners.clone();
    owners.take_from_others(writer, &changed);
    owners.forget(&removed);
    owners.set(writer, applied, now);
    Ok((object, owners))
}

/// Merges what can be merged; everything else is replaced.
fn merge(live: &mut Value, config: &Value, shape: &Shape) {
    match (live, config, &shape.merge) {
        (Value::Object(live), Value::Object(config), merges) if *merges != Merge::Atomic => {
            for (name, value) in config {
                let member = live.entry(name.clone()).or_insert(Value::Null);
                merge(member, value, shape.member(name));
            }
        }
        (Value::Array(live), Value::Array(config), Merge::ByKeys(keys)) => {
            for item in config {
                let key = key_of(item, keys);
                match live.iter_mut().find(|old| key_of(old, keys) == key) {
                    Some(old) => merge(old, item, shape.item()),
                    None => live.push(item.clone()),
                }
            }
        }
        (Value::Array(live), Value::Array(config), Merge::Set) => {
            let new: Vec<_> = config.iter().filter(|item| !live.contains(item)).cloned().collect();
            live.extend(new);
        }
        (live, config, _) => *live = config.clone(),
    }
}

/// Fields that this writer applied last time, does not apply now, and nobody else owns.
fn prune(object: &mut Value, applied: &Fields, (owners, writer): (&Owners, &Writer), shape: &Shape) {
    let mut dropped: Vec<Path> = owners.fields_of(writer).difference(applied).cloned().collect();
    dropped.retain(|path| {
        let own = |fields: &Fields| fields.iter().any(|owned| owned.starts_with(path));
        !is_key_member(path, shape) && !own(applied) && !owners.others(writer).any(|o| own(&o.fields))
    });
    // Members before the item that holds them.
    dropped.sort_by_key(|path| Reverse(path.len()));
    for path in dropped {
        remove(object, &path, shape);
    }
}

/// The key of an item goes with the item, or the list would hold an item that nothing can name.
fn is_key_member(path: &[Step], shape: &Shape) -> bool {
    match path {
        [Step::Key(_), Step::Field(name)] => {
            matches!(&shape.merge, Merge::ByKeys(keys) if keys.contains(name))
        }
        [Step::Field(name), rest @ ..] => is_key_member(rest, shape.member(name)),
        [Step::Key(_), rest @ ..] => is_key_member(rest, shape.item()),
        _ => false,
    }
}
