//! What an object shows of a failed effect, and how often in a row it failed or waited.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coordinator_api::conditions::ConditionUpdate;
use coordinator_core::assignment::effect_failed;
use coordinator_core::retry;

use crate::key::Key;
use crate::store::{Class, StoreError};
use crate::telemetry::chain;

/// What to show of a failed effect; what a conflict interrupted shows itself with the next
/// reconcile.
pub(super) fn shown_failure(error: &StoreError) -> Option<ConditionUpdate> {
    (error.class() != Class::Conflict).then(|| effect_failed(&chain(error)))
}

/// Failures in a row by object. Conflicts and other failures are counted apart.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures(Arc<Mutex<HashMap<Key, Count>>>);

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    conflicts: u32,
    failures: u32,
}

impl Failures {
    fn lock_counts(&self) -> MutexGuard<'_, HashMap<Key, Count>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which attempt failed, counted from one.
    pub(super) fn count_failure(&self, key: &Key, class: Class) -> u32 {
        let mut counts = self.lock_counts();
        let count = counts.entry(key.clone()).or_default();
        let attempt = match class {
            Class::Conflict => &mut count.conflicts,
            Class::Transient | Class::Terminal => &mut count.failures,
        };
        *attempt = attempt.saturating_add(1);
        *attempt
    }

    /// Forgets the object; whether there were failures other than conflicts.
    pub(super) fn reset_count(&self, key: &Key) -> bool {
        self.lock_counts().remove(key).is_some_and(|count| count.failures > 0)
    }
}

/// Growing intervals by kind and object, for what nothing announces.
#[derive(Clone, Debug, Default)]
pub struct Intervals(Arc<Mutex<HashMap<(&'static str, Key), u32>>>);

impl Intervals {
    fn lock_counts(&self) -> MutexGuard<'_, HashMap<(&'static str, Key), u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn next_interval(&self, kind: &'static str, key: &Key) -> Duration {
        let mut attempts = self.lock_counts();
        let attempt = attempts.entry((kind, key.clone())).or_default();
        *attempt = attempt.saturating_add(1);
        retry::failure_backoff(*attempt)
    }

    pub fn reset_count(&self, kind: &'static str, key: &Key) {
        self.lock_counts().remove(&(kind, key.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_do_not_lengthen_other_intervals() {
        let (failures, key) = (Failures::default(), Key::new("fleet", "host-1"));
        assert_eq!(failures.count_failure(&key, Class::Conflict), 1);
        assert_eq!(failures.count_failure(&key, Class::Conflict), 2);
        assert!(!failures.clone().reset_count(&Key::new("fleet", "host-2")));
        assert_eq!(failures.count_failure(&key, Class::Transient), 1);
        assert!(failures.reset_count(&key));
        assert_eq!(failures.count_failure(&key, Class::Conflict), 1);
        assert!(!failures.reset_count(&key), "a conflict alone is no failure");
    }

    #[test]
    fn intervals_grow_until_reset() {
        let (intervals, key) = (Intervals::default(), Key::new("fleet", "machine-1"));
        let next = |kind| intervals.next_interval(kind, &key).as_secs();
        assert_eq!([next("BaremetalMachine"), next("BaremetalMachine")], [1, 2]);
        assert_eq!(next("Metal3Machine"), 1, "another object of that name");
        intervals.reset_count("BaremetalMachine", &key);
        assert_eq!([next("BaremetalMachine"), next("Metal3Machine")], [1, 2]);
    }
}
