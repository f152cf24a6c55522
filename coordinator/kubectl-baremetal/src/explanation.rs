//! `why` about objects that are already here.

use coordinator_api::explain::Attention;
use jiff::Timestamp;
use kube::core::{DynamicObject, GroupVersionKind};

use crate::commands::{find_object, parse_object};
use crate::fleet::{Fleet, Id, Object};
use crate::kind::Kind;
use crate::text::format_chain;
use crate::why::follow_causes;

/// What `why` answers.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// What it asks of an operator.
    pub attention: Attention,
    /// What is printed, without colours.
    pub text: String,
}

impl Explanation {
    /// Whether it names this reason, with these words of its cause, and as the next action
    /// these.
    pub fn names(&self, reason: &str, cause: &str, action: &str) -> bool {
        let (told, next) = self.text.split_once("\n  next ").unwrap_or_default();
        let mut words = told.split(|letter: char| !letter.is_alphanumeric());
        words.any(|word| word == reason) && told.contains(cause) && next.contains(action)
    }
}

/// The kinds that are looked at, each by its preferred version.
pub fn list_kinds() -> impl Iterator<Item = GroupVersionKind> {
    Kind::all().filter_map(|kind| kind.resources().next())
}

/// What `why KIND/NAME` answers, by the objects of each kind that is served.
///
/// # Errors
///
/// The object does not exist, or its kind is not looked at.
pub fn explain(
    object: &str,
    namespace: &str,
    lists: impl IntoIterator<Item = (GroupVersionKind, Vec<DynamicObject>)>,
    now: Timestamp,
) -> Result<Explanation, Box<dyn std::error::Error + Send + Sync>> {
    let (kind, name) = parse_object(&[object.to_owned()])?;
    let mut fleet = Fleet::new(Some(namespace));
    for (served, objects) in lists {
        let Some(kind) = Kind::of(&served.kind) else { continue };
        fleet.set_listed(kind);
        for object in objects {
            fleet.insert(Object::new(kind, object));
        }
    }
    let chain = follow_causes(&fleet, find_object(&fleet, &Id::new(kind, namespace, &name))?, now);
    let text = anstream::adapter::strip_str(&format_chain(&chain, now)).to_string();
    Ok(Explanation { attention: chain.attention(), text })
}
