//! A fleet that follows its changes, by one watch for each kind.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::core::DynamicObject;
use kube::runtime::watcher::{self, Event};

use crate::failure::{Failure, explain_error, is_forbidden};
use crate::fleet::{Fleet, Id, Kind, Object};

/// A message of the watch of a kind.
pub(crate) type Change = (Kind, Result<Event<DynamicObject>, watcher::Error>);

pub(crate) struct Live {
    events: BoxStream<'static, Vec<Change>>,
    pub(crate) fleet: Fleet,
    /// Kinds whose first list is not complete.
    pending: BTreeSet<Kind>,
    listed: BTreeMap<Kind, Vec<DynamicObject>>,
    changed: BTreeSet<Id>,
    /// Kinds that have to be allowed. Another kind is left out if it is forbidden.
    needed: BTreeSet<Kind>,
    /// The causes for which kinds are left out.
    left_out: BTreeMap<Kind, String>,
    /// The error that was shown last.
    interruption: Option<String>,
}

impl Live {
    pub(crate) fn new(
        events: BoxStream<'static, Vec<Change>>,
        kinds: BTreeSet<Kind>,
        namespace: Option<&str>,
    ) -> Self {
        Self {
            events,
            fleet: Fleet::new(namespace),
            needed: kinds.clone(),
            pending: kinds,
            listed: BTreeMap::new(),
            changed: BTreeSet::new(),
            left_out: BTreeMap::new(),
            interruption: None,
        }
    }

    /// Requires only these kinds to be allowed.
    pub(crate) fn needing(mut self, kinds: &[Kind]) -> Self {
        self.needed = kinds.iter().copied().collect();
        self
    }

    /// Waits until every kind was listed and an object changed, and returns the changed objects;
    /// `None` when the watches have ended. A call that is dropped loses no change.
    pub(crate) async fn next(&mut self) -> Result<Option<BTreeSet<Id>>, Failure> {
        loop {
            let Some(changes) = self.events.next().await else { return Ok(None) };
            for change in changes {
                self.take(change)?;
            }
            if self.pending.is_empty() {
                return Ok(Some(std::mem::take(&mut self.changed)));
            }
        }
    }

    pub(crate) fn left_out(&self) -> impl Iterator<Item = &str> {
        self.left_out.values().map(String::as_str)
    }

    /// The cause for which a watch was interrupted, until [`Self::clear_interruption`].
    pub(crate) fn interruption(&self) -> Option<&str> {
        self.interruption.as_deref()
    }

    /// The API server answers again.
    pub(crate) fn clear_interruption(&mut self) {
        self.interruption = None;
    }

    fn take(&mut self, (kind, event): Change) -> Result<(), Failure> {
        match event {
            Ok(Event::Init) => drop(self.listed.insert(kind, vec![])),
            Ok(Event::InitApply(object)) => self.listed.entry(kind).or_default().push(object),
            Ok(Event::InitDone) => self.replace_kind(kind),
            Ok(Event::Apply(object)) => self.insert(Object::new(kind, object)),
            Ok(Event::Delete(object)) => {
                let id = Object::new(kind, object).id;
                self.fleet.remove(&id);
                self.changed.insert(id);
            }
            Err(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error))
                if is_forbidden(&error) =>
            {
                if self.needed.contains(&kind) {
                    return Err(Failure::request(format!("watch {}", kind.name()))(error));
                }
                self.leave_out(kind, explain_error(&error));
            }
            // The stream connects again by itself, and a resource version that is too old is no fault.
            Err(watcher::Error::WatchError(_)) => {}
            Err(error) => self.show_interruption(kind, &error),
        }
        Ok(())
    }

    fn insert(&mut self, object: Object) {
        self.changed.insert(object.id.clone());
        self.fleet.insert(object);
    }

    fn replace_kind(&mut self, kind: Kind) {
        self.changed.extend(self.fleet.of(kind).map(|object| object.id.clone()));
        self.fleet.remove_kind(kind);
        for object in self.listed.remove(&kind).into_iter().flatten() {
            self.insert(Object::new(kind, object));
        }
        self.fleet.set_listed(kind);
        self.left_out.remove(&kind);
        self.pending.remove(&kind);
    }

    fn leave_out(&mut self, kind: Kind, cause: String) {
        self.pending.remove(&kind);
        // The watch is tried again and again, and the same cause is shown once.
        if self.left_out.get(&kind) != Some(&cause) {
            anstream::eprintln!("left out: {cause}");
            self.left_out.insert(kind, cause);
        }
    }

    fn show_interruption(&mut self, kind: Kind, error: &watcher::Error) {
        let cause = explain_watch_error(error);
        let text = format!("the watch of {} was interrupted and is tried again: {cause}", kind.name());
        if self.interruption.as_ref() != Some(&text) {
            anstream::eprintln!("{text}");
            self.interruption = Some(text);
        }
    }
}

fn explain_watch_error(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => explain_error(error),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use kube::core::Status;
    use serde_json::json;

    use super::*;
    use crate::samples::{id, object};

    fn inventory(name: &str) -> DynamicObject {
        object(Kind::MachineInventory, name, json!({})).data
    }

    fn refused() -> watcher::Error {
        let status = Status::failure("seedimages is forbidden", "Forbidden").with_code(403);
        watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()))
    }

    fn follow(batches: Vec<Vec<Change>>) -> Live {
        let kinds = [Kind::MachineInventory, Kind::SeedImage].into();
        Live::new(stream::iter(batches).boxed(), kinds, None)
    }

    fn first_lists() -> Vec<Vec<Change>> {
        let host = Kind::MachineInventory;
        vec![
            vec![(host, Ok(Event::Init)), (host, Ok(Event::InitApply(inventory("a"))))],
            vec![(host, Ok(Event::InitDone)), (Kind::SeedImage, Err(refused()))],
        ]
    }

    #[tokio::test]
    async fn changes_are_told_once_all_kinds_were_listed() {
        let host = Kind::MachineInventory;
        let mut batches = first_lists();
        batches
            .push(vec![(host, Ok(Event::Apply(inventory("b")))), (host, Ok(Event::Delete(inventory("a"))))]);
        batches.push(vec![(host, Ok(Event::Init)), (host, Ok(Event::InitDone))]);
        let mut live = follow(batches).needing(&[host]);
        let of = |names: &[&str]| names.iter().map(|name| id(host, name)).collect::<BTreeSet<_>>();
        for names in [&["a"][..], &["a", "b"], &["b"]] {
            assert_eq!(live.next().await.unwrap(), Some(of(names)));
        }
        assert_eq!(live.next().await.unwrap(), None);
        assert!(live.left_out().all(|text| text.contains("ask for a role")) && live.left_out().count() == 1);
        assert_eq!(live.fleet.of(host).count(), 0);
    }

    #[tokio::test]
    async fn kind_that_is_needed_has_to_be_allowed() {
        let failure = follow(first_lists()).next().await.unwrap_err();
        assert!(failure.to_string().contains("watch SeedImage"), "{failure}");
    }
}
