//! What an object shows of a failed effect, and how often in a row it failed or waited.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coordinator_api::conditions::{ConditionUpdate, set_conditions};
use coordinator_core::assignment::effect_failed;
use coordinator_core::retry;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use kube::core::object::HasStatus;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::context::Context;
use crate::key::Key;
use crate::store::{Class, StoreError, status};
use crate::telemetry::chain;

/// What to show of a failed effect; what a conflict interrupted shows itself with the next
/// reconcile.
pub(super) fn shown_failure(error: &StoreError) -> Option<ConditionUpdate> {
    (error.class() != Class::Conflict).then(|| effect_failed(&chain(error)))
}

/// Shows an effect that failed in the conditions of its object.
pub(super) async fn show_result<K, T>(
    context: &Context,
    object: &K,
    applied: Result<T, StoreError>,
    conditions: fn(&mut K::Status) -> &mut Vec<Condition>,
) -> Result<T, StoreError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + HasStatus<Status: Clone + Default + Serialize>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    let Some(failed) = applied.as_ref().err().and_then(shown_failure) else { return applied };
    let mut projected = object.status().cloned().unwrap_or_default();
    let (generation, now) = (object.meta().generation, context.clock.now());
    set_conditions(conditions(&mut projected), &[failed], generation, now);
    status::write_status(&context.client, object, &projected).await?;
    applied
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

/// How long a change of the counters waits for those that follow it: one write is for all.
const WRITE_DELAY: Duration = Duration::from_millis(500);
/// What waits longer belongs to a pool that is gone.
const FORGOTTEN: Duration = Duration::from_mins(1);

/// Since when the counters of each pool wait for their write.
#[derive(Clone, Debug, Default)]
pub struct Throttle(Arc<Mutex<HashMap<Key, Instant>>>);

impl Throttle {
    /// How long a change still has to wait; `None` when it is to be written.
    pub(super) fn remaining(&self, pool: &Key) -> Option<Duration> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|other, since| other == pool || since.elapsed() < FORGOTTEN);
        let since = *waiting.entry(pool.clone()).or_insert_with(Instant::now);
        let remaining = WRITE_DELAY.saturating_sub(since.elapsed());
        if remaining.is_zero() {
            waiting.remove(pool);
        }
        (!remaining.is_zero()).then_some(remaining)
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

    #[tokio::test(start_paused = true)]
    async fn change_waits_for_those_that_follow() {
        let (throttle, pool, gone) =
            (Throttle::default(), Key::new("fleet", "workers"), Key::new("fleet", "gone"));
        assert_eq!(throttle.remaining(&pool), Some(WRITE_DELAY), "the first change");
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(
            throttle.remaining(&pool),
            Some(Duration::from_millis(300)),
            "a later one waits no longer"
        );
        assert_eq!(throttle.remaining(&gone), Some(WRITE_DELAY), "another pool");
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(throttle.remaining(&pool), None, "written for both");
        assert_eq!(throttle.remaining(&pool), Some(WRITE_DELAY), "the next change");
        tokio::time::advance(FORGOTTEN).await;
        assert_eq!(throttle.remaining(&pool), None, "late, and not forgotten");
        assert_eq!(throttle.0.lock().unwrap().len(), 0);
    }
}
