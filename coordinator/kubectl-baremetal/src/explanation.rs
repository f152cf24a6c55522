//! `why` and `clean` about given objects, for tests that have no API server.

use coordinator_api::explain::Attention;
use jiff::Timestamp;
use kube::core::{DynamicObject, GroupVersionKind};

use crate::change::{Request, clean};
use crate::fleet::{Fleet, Id, Kind, Object, parse_object};
use crate::view::format_chain;
use crate::why::follow_causes;

/// The answer of `why`.
#[derive(Clone, Debug)]
pub struct Explanation {
    pub attention: Attention,
    /// The text without colours.
    pub text: String,
}

impl Explanation {
    /// `true` if the text names this reason, these words of the cause, and these words of the next
    /// action.
    pub fn names(&self, reason: &str, cause: &str, action: &str) -> bool {
        let Some((told, next)) = self.text.split_once("\n  next ") else { return false };
        let mut words = told.split(|letter: char| !letter.is_alphanumeric());
        words.any(|word| word == reason) && told.contains(cause) && next.contains(action)
    }
}

/// The kinds that the plugin reads, each by its preferred version.
pub fn list_kinds() -> impl Iterator<Item = GroupVersionKind> {
    Kind::all().filter_map(|kind| kind.resources().next())
}

fn gather(namespace: &str, lists: impl IntoIterator<Item = (GroupVersionKind, Vec<DynamicObject>)>) -> Fleet {
    let mut fleet = Fleet::new(Some(namespace));
    for (served, objects) in lists {
        let Some(kind) = Kind::of(&served.kind) else { continue };
        fleet.set_listed(kind);
        for object in objects {
            fleet.insert(Object::new(kind, object));
        }
    }
    fleet
}

/// The answer of `why KIND/NAME` from the objects of each served kind; an error for an object that
/// is not among these.
pub fn explain(
    object: &str,
    namespace: &str,
    lists: impl IntoIterator<Item = (GroupVersionKind, Vec<DynamicObject>)>,
    now: Timestamp,
) -> Result<Explanation, Box<dyn std::error::Error + Send + Sync>> {
    let (kind, name) = parse_object(&[object.to_owned()])?;
    let fleet = gather(namespace, lists);
    let chain = follow_causes(&fleet, fleet.require(&Id::new(kind, namespace, &name))?, now);
    let text = anstream::adapter::strip_str(&format_chain(&chain, now)).to_string();
    Ok(Explanation { attention: chain.attention(), text })
}

/// The annotations that `clean HOST --owner OWNER` writes into the inventory, in their order; an error
/// where it refuses.
pub fn annotations_of_clean(
    (host, owner): (&str, &str),
    namespace: &str,
    lists: impl IntoIterator<Item = (GroupVersionKind, Vec<DynamicObject>)>,
    now: Timestamp,
) -> Result<Vec<(&'static str, String)>, String> {
    let fleet = gather(namespace, lists);
    let id = Id::new(Kind::MachineInventory, namespace, host);
    let host = fleet.require(&id).map_err(|failure| failure.to_string())?;
    let requests = clean(&fleet, host, owner, now)?.requests;
    let annotations = requests.into_iter().map(|request| match request {
        Request::Annotate { object, key, value } if object == id => Ok((key, value)),
        other => Err(format!("{} is no annotation of the host", other.describe())),
    });
    annotations.collect()
}
