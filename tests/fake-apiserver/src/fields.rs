//! Paths of fields, as managed fields know them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::shape::{Merge, Shape};

/// One step from a value into it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// A member of an object.
    Field(String),
    /// An item of a list, by the JSON of its key members.
    Key(String),
    /// A scalar in a set, by its JSON.
    Value(String),
}

/// From the object to a field. The path of a keyed item stands for the item's existence.
pub(crate) type Path = Vec<Step>;

/// The fields that somebody owns.
pub(crate) type Fields = BTreeSet<Path>;

static EXISTS: Value = Value::Null;

/// Every field that can be owned, with its value.
pub(crate) fn leaves<'a>(object: &'a Value, shape: &Shape) -> BTreeMap<Path, &'a Value> {
    let mut found = BTreeMap::new();
    walk(object, shape, &mut Vec::new(), &mut found);
    found.retain(|path, _| !is_the_servers(path));
    found
}

/// Fields that the server alone writes, or that identify the object, have no owner.
fn is_the_servers(path: &[Step]) -> bool {
    const METADATA: [&str; 10] = [
        "name",
        "namespace",
        "creationTimestamp",
        "uid",
        "generation",
        "resourceVersion",
        "managedFields",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ];
    match path {
        [Step::Field(top)] => ["apiVersion", "kind", "metadata"].contains(&top.as_str()),
        [Step::Field(top), Step::Field(name), ..] if top == "metadata" => METADATA.contains(&name.as_str()),
        _ => false,
    }
}

fn walk<'a>(value: &'a Value, shape: &Shape, path: &mut Path, found: &mut BTreeMap<Path, &'a Value>) {
    match (value, &shape.merge) {
        (Value::Object(members), Merge::Default | Merge::ByKeys(_) | Merge::Set) if !members.is_empty() => {
            for (name, member) in members {
                path.push(Step::Field(name.clone()));
                walk(member, shape.member(name), path, found);
                path.pop();
            }
        }
        (Value::Array(items), Merge::ByKeys(keys)) if !items.is_empty() => {
            for item in items {
                path.push(key_of(item, keys));
                found.insert(path.clone(), &EXISTS);
                if shape.item().merge == Merge::Atomic {
                    found.insert(path.clone(), item);
                } else {
                    walk(item, shape.item(), path, found);
                }
                path.pop();
            }
        }
        (Value::Array(items), Merge::Set) if !items.is_empty() => {
            for item in items {
                path.push(Step::Value(item.to_string()));
                found.insert(path.clone(), item);
                path.pop();
            }
        }
        _ => {
            found.insert(path.clone(), value);
        }
    }
}

/// How a keyed list knows this item.
pub(crate) fn key_of(item: &Value, keys: &[String]) -> Step {
    let members: Map<_, _> = keys.iter().map(|key| (key.clone(), item[key].clone())).collect();
    Step::Key(Value::Object(members).to_string())
}

/// Takes a field out, and every object and list that it leaves empty.
/// Returns whether `value` is empty now.
pub(crate) fn remove(value: &mut Value, path: &[Step], shape: &Shape) -> bool {
    let Some((step, rest)) = path.split_first() else {
        return true;
    };
    match (step, value) {
        (Step::Field(name), Value::Object(members)) => {
            if let Some(member) = members.get_mut(name)
                && remove(member, rest, shape.member(name))
            {
                members.remove(name);
            }
            members.is_empty()
        }
        (Step::Key(_), Value::Array(items)) => {
            let Merge::ByKeys(keys) = &shape.merge else {
                return false;
            };
            let place = items.iter().position(|item| key_of(item, keys) == *step);
            if let Some(place) = place
                && remove(&mut items[place], rest, shape.item())
            {
                items.remove(place);
            }
            items.is_empty()
        }
        (Step::Value(_), Value::Array(items)) => {
            items.retain(|item| Step::Value(item.to_string()) != *step);
            items.is_empty()
        }
        _ => false,
    }
}

/// `.metadata.labels.a`, as the real server names fields in conflicts.
pub(crate) fn display(path: &[Step]) -> String {
    let steps = path.iter().map(|step| match step {
        Step::Field(name) => format!(".{name}"),
        Step::Key(json) => {
            let keys: Map<_, _> = serde_json::from_str(json).unwrap_or_default();
            let keys: Vec<_> = keys.iter().map(|(name, of)| format!("{name}={of}")).collect();
            format!("[{}]", keys.join(","))
        }
        Step::Value(json) => format!("[={json}]"),
    });
    steps.collect()
}

/// The `fieldsV1` of managed fields.
pub(crate) fn fields_v1(fields: &Fields) -> Value {
    let mut root = json!({});
    for path in fields {
        let mut node = &mut root;
        for step in path {
            let name = match step {
                Step::Field(name) => format!("f:{name}"),
                Step::Key(json) => format!("k:{json}"),
                Step::Value(json) => format!("v:{json}"),
            };
            node = &mut node[name];
            if node.is_null() {
                *node = json!({});
            }
        }
        if matches!(path.last(), Some(Step::Key(_))) {
            node["."] = json!({});
        }
    }
    root
}
