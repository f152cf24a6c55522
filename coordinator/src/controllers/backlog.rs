//! The objects of one kind that wait for their reconcile.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::key::Key;
use crate::metrics::Metrics;

/// The metrics show it while this replica leads.
#[derive(Debug)]
pub(super) struct Backlog {
    kind: &'static str,
    metrics: Metrics,
    waiting: Mutex<HashSet<Key>>,
}

impl Backlog {
    pub(super) fn new(kind: &'static str, metrics: Metrics) -> Self {
        metrics.set_queue_depth(kind, 0);
        Self { kind, metrics, waiting: Mutex::default() }
    }

    pub(super) fn note_queued(&self, key: Key) {
        self.change(|waiting| waiting.insert(key));
    }

    /// The reconcile of the object has begun, or the object does not exist.
    pub(super) fn note_begun(&self, key: &Key) {
        self.change(|waiting| waiting.remove(key));
    }

    fn change(&self, apply: impl FnOnce(&mut HashSet<Key>) -> bool) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if apply(&mut waiting) {
            self.metrics.set_queue_depth(self.kind, waiting.len());
        }
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.metrics.set_queue_depth(self.kind, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_waits_once_until_it_begins() {
        let metrics = Metrics::default();
        let shows = |depth: usize| {
            let line = format!("queue_depth{{kind=\"Host\"}} {depth}\n");
            assert!(metrics.encode_text().unwrap().contains(&line), "{line}");
        };
        let backlog = Backlog::new("Host", metrics.clone());
        shows(0);
        for name in ["a", "b", "a"] {
            backlog.note_queued(Key::new("fleet", name));
        }
        shows(2);
        backlog.note_begun(&Key::new("fleet", "a"));
        backlog.note_begun(&Key::new("fleet", "unknown"));
        shows(1);
        drop(backlog);
        shows(0);
    }
}
