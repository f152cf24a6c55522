//! The parts of an object that a version cannot express: the places at which the object would return
//! changed, each with the value that would return and the value that is right.
//!
//! The right value is put back where the value that returns is the expected one. Where it is another
//! one, somebody edited the object at the other version, and the edit stays.

use serde_json::{Map, Value, json};

/// A place, the value that returns, and the right value; `None` is a field that is not set.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference {
    path: Vec<String>,
    returned: Option<Value>,
    right: Option<Value>,
}

impl Difference {
    /// The annotations of an object that has none and an empty map of them.
    pub(super) fn empty_annotations() -> Self {
        let path = ["metadata", "annotations"].map(str::to_owned).to_vec();
        Self { path, returned: None, right: Some(json!({})) }
    }
}

/// The differences between what returns and what is right. Lists are compared as a whole, because items
/// may move, and so are references, because their other fields belong to the name.
pub(super) fn find_differences(returned: &Map<String, Value>, right: &Map<String, Value>) -> Vec<Difference> {
    let mut found = vec![];
    compare_objects(&mut vec![], returned, right, &mut found);
    found
}

fn compare_objects(
    path: &mut Vec<String>,
    returned: &Map<String, Value>,
    right: &Map<String, Value>,
    found: &mut Vec<Difference>,
) {
    let added = right.keys().filter(|name| !returned.contains_key(*name));
    for name in returned.keys().chain(added) {
        let (returned, right) = (returned.get(name), right.get(name));
        if returned == right {
            continue;
        }
        path.push(name.clone());
        match (returned, right) {
            (Some(Value::Object(returned)), Some(Value::Object(right)))
                if !has_name(returned) && !has_name(right) =>
            {
                compare_objects(path, returned, right, found);
            }
            _ => found.push(Difference {
                path: path.clone(),
                returned: returned.cloned(),
                right: right.cloned(),
            }),
        }
        path.pop();
    }
}

fn has_name(object: &Map<String, Value>) -> bool {
    object.get("name").is_some_and(Value::is_string)
}

/// Puts the right value back, unless the value is another one than expected.
pub(super) fn apply_differences(difference: &Difference, content: &mut Map<String, Value>) {
    let Some((name, parents)) = difference.path.split_last() else { return };
    let parent = parents.iter().try_fold(content, |object, name| object.get_mut(name)?.as_object_mut());
    let Some(parent) = parent.filter(|parent| parent.get(name) == difference.returned.as_ref()) else {
        return;
    };
    match &difference.right {
        Some(right) => parent.insert(name.clone(), right.clone()),
        None => parent.remove(name),
    };
}

/// The text of the annotation: by the version that the differences are for, a list of path, value that
/// returns and right value. A value that is not set is an empty list, and a value that is set a list of
/// one, because null is a value.
pub(super) fn render_differences(version: &str, differences: &[Difference]) -> String {
    let list = |value: &Option<Value>| value.iter().cloned().collect::<Vec<_>>();
    let render = |difference: &Difference| {
        json!([difference.path, list(&difference.returned), list(&difference.right)])
    };
    json!({ version: differences.iter().map(render).collect::<Vec<_>>() }).to_string()
}

/// Reads the annotation. A text that is not ours, or is for another version, has no differences: an
/// operator may have copied it, and the object is converted as one without the annotation.
pub(super) fn read_differences(text: &str, version: &str) -> Option<Vec<Difference>> {
    type Row = (Vec<String>, Vec<Value>, Vec<Value>);
    let mut versions: Map<String, Value> = serde_json::from_str(text).ok()?;
    let rows: Vec<Row> = serde_json::from_value(versions.remove(version)?).ok()?;
    let read = |(path, returned, right): Row| Difference {
        path,
        returned: returned.into_iter().next(),
        right: right.into_iter().next(),
    };
    Some(rows.into_iter().map(read).collect())
}
