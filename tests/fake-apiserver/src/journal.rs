//! Every request that reached the server, so that tests can assert how many a scenario takes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::request::{Request, Verb};

/// Requests at one moment that are taken without a pause.
const MOST_AT_ONCE: usize = 500;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered with this HTTP status.
    Answered(u16),
    /// Done, but the answer was lost.
    Lost,
    /// Never reached the store: outage, or a stopped caller.
    Undelivered,
}

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Since the server started, by tokio's clock.
    pub at: Duration,
    /// Who asked for what.
    pub request: Request,
    /// How it ended.
    pub outcome: Outcome,
    /// It made a new resource version. False for a write that changed nothing.
    pub changed: bool,
}

/// How many, and of what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All requests, watches included.
    pub requests: usize,
    /// Those that may change something (`Verb::is_write`), whether or not they did.
    pub writes: usize,
    /// Those that changed something.
    pub changes: usize,
    /// By verb and resource (`machineinventories/status` for a subresource).
    pub by_resource: BTreeMap<(Verb, String), usize>,
}

impl Counts {
    pub fn of<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut counts = Self::default();
        for Entry { request, changed, .. } in entries {
            counts.requests += 1;
            counts.writes += usize::from(request.verb.is_write());
            counts.changes += usize::from(*changed);
            let mut resource = request.resource.clone();
            if !request.subresource.is_empty() {
                resource = format!("{resource}/{}", request.subresource);
            }
            *counts.by_resource.entry((request.verb, resource)).or_default() += 1;
        }
        counts
    }

    /// Requests of this verb on this resource.
    pub fn on(&self, verb: Verb, resource: &str) -> usize {
        self.by_resource.get(&(verb, resource.to_owned())).copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { requests, writes, changes, by_resource } = self;
        writeln!(f, "{requests} requests, {writes} writes, {changes} changes")?;
        for ((verb, resource), count) in by_resource {
            writeln!(f, "{count:6} {} {resource}", verb.as_str())?;
        }
        Ok(())
    }
}

/// A handle to the journal; clones share it.
#[derive(Clone, Debug)]
pub struct Journal {
    started: Instant,
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), entries: Arc::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record_request(&self, request: Request, outcome: Outcome, changed: bool) {
        let at = self.started.elapsed();
        self.lock().push(Entry { at, request, outcome, changed });
    }

    /// Whether so many requests came at this moment of tokio's clock that it stands still for them.
    pub(crate) fn is_crowded(&self) -> bool {
        let now = self.started.elapsed();
        self.lock().iter().rev().take_while(|entry| entry.at == now).count() >= MOST_AT_ONCE
    }

    /// Everything so far, in the order in which the server finished it (a watch: began it).
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().clone()
    }

    /// Everything since a [`Journal::mark`].
    pub fn since(&self, mark: usize) -> Vec<Entry> {
        self.lock().iter().skip(mark).cloned().collect()
    }

    /// The index of the next entry.
    pub fn mark(&self) -> usize {
        self.lock().len()
    }

    /// Of everything so far.
    pub fn counts(&self) -> Counts {
        Counts::of(&*self.lock())
    }

    pub fn counts_of(&self, user: &str) -> Counts {
        Counts::of(self.lock().iter().filter(|entry| entry.request.user == user))
    }

    pub fn clear(&self) {
        self.lock().clear();
    }
}
