//! The number of times in a row that an object failed or waited, and the delay of a write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coordinator_core::retry;
use tokio::time::Instant;

use super::spread;
use crate::key::{Key, Kind};

/// The cause of a retry. Each cause is counted for itself, so that conflicts do not lengthen the
/// intervals after other failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    Conflict,
    Failure,
    /// No watch announces the object that is waited for.
    Wait,
}

/// Attempts in a row by object and cause. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Backoffs(Arc<Mutex<Attempts>>);

type Attempts = HashMap<(Kind, Key, Cause), InRow>;

/// Attempts in a row.
#[derive(Debug)]
struct InRow {
    count: u32,
    since: Instant,
    /// The last time that the object showed them.
    shown: Option<Instant>,
}

/// A race with another writer or a late cache is over after this time.
const RACE: Duration = Duration::from_secs(15);

impl Backoffs {
    fn lock_counts(&self) -> MutexGuard<'_, Attempts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more attempt; the first is 1.
    pub(super) fn count_attempt(&self, kind: Kind, key: &Key, cause: Cause) -> u32 {
        let mut counts = self.lock_counts();
        let first = || InRow { count: 0, since: Instant::now(), shown: None };
        let attempts = counts.entry((kind, key.clone(), cause)).or_insert_with(first);
        attempts.count = attempts.count.saturating_add(1);
        attempts.count
    }

    /// Tells whether an object had conflicts for so long that they are no race with another writer: a
    /// missing subresource or CRD answers 404 each time.
    pub(super) fn is_conflict_lasting(&self, kind: Kind, key: &Key) -> bool {
        self.lock_counts().get(&(kind, key.clone(), Cause::Conflict)).is_some_and(InRow::is_lasting)
    }

    /// Tells whether an object shows its lasting conflict now. Two replicas that lead at once answer each
    /// other's status: each shows its own at the intervals of its attempts.
    pub(super) fn shows_conflict(&self, kind: Kind, key: &Key) -> bool {
        let mut counts = self.lock_counts();
        let lasting = counts.get_mut(&(kind, key.clone(), Cause::Conflict)).filter(|row| row.is_lasting());
        let Some(row) = lasting else { return false };
        let interval = retry::conflict_backoff(row.count);
        if row.shown.is_some_and(|shown| shown.elapsed() < interval) {
            return false;
        }
        row.shown = Some(Instant::now());
        true
    }

    /// The interval until an object is looked for again that no watch announces.
    pub(super) fn next_wait(&self, kind: Kind, key: &Key) -> Duration {
        spread(retry::failure_backoff(self.count_attempt(kind, key, Cause::Wait)), key)
    }

    pub(super) fn reset_waits(&self, kind: Kind, key: &Key) {
        self.lock_counts().remove(&(kind, key.clone(), Cause::Wait));
    }

    /// Forgets conflicts and failures, and tells whether there were failures.
    pub(super) fn reset_failures(&self, kind: Kind, key: &Key) -> bool {
        let mut counts = self.lock_counts();
        counts.remove(&(kind, key.clone(), Cause::Conflict));
        counts.remove(&(kind, key.clone(), Cause::Failure)).is_some()
    }

    /// The object is gone.
    pub(super) fn forget_object(&self, kind: Kind, key: &Key) {
        self.reset_failures(kind, key);
        self.reset_waits(kind, key);
    }

    /// Another replica led meanwhile.
    pub(super) fn clear(&self) {
        self.lock_counts().clear();
    }
}

impl InRow {
    /// Events of other objects cause attempts too, so that their number alone is no time.
    fn is_lasting(&self) -> bool {
        self.count >= retry::CONFLICTS_IN_A_RACE && self.since.elapsed() >= RACE
    }
}

/// The delay of a change of a pool's counters: one write is for all changes of this time.
const WRITE_DELAY: Duration = Duration::from_millis(500);
/// A pool that waits longer is gone.
const FORGOTTEN: Duration = Duration::from_mins(1);

/// The times since which the counters of each pool wait for their write.
#[derive(Clone, Debug, Default)]
pub struct Throttle(Arc<Mutex<HashMap<Key, Instant>>>);

impl Throttle {
    /// The rest of a change's delay; `None` once it is to be written.
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
        let (backoffs, key) = (Backoffs::default(), Key::new("fleet", "host-1"));
        let count = |cause| backoffs.count_attempt(Kind::MachineInventory, &key, cause);
        let reset = |name| backoffs.clone().reset_failures(Kind::MachineInventory, &Key::new("fleet", name));
        assert_eq!([count(Cause::Conflict), count(Cause::Conflict)], [1, 2]);
        assert!(!reset("host-2"));
        assert_eq!(count(Cause::Failure), 1);
        assert!(reset("host-1"));
        assert_eq!(count(Cause::Conflict), 1);
        assert!(!reset("host-1"), "a conflict alone is no failure");
    }

    #[tokio::test(start_paused = true)]
    async fn lasting_conflict_is_shown_at_intervals() {
        let (backoffs, key) = (Backoffs::default(), Key::new("fleet", "host-1"));
        let conflict = || backoffs.count_attempt(Kind::BaremetalMachine, &key, Cause::Conflict);
        let shows = || backoffs.shows_conflict(Kind::BaremetalMachine, &key);
        for attempt in 1..=20 {
            assert_eq!(conflict(), attempt);
        }
        assert!(!shows(), "many conflicts at once are a race");
        tokio::time::advance(RACE).await;
        assert!(shows());
        conflict();
        assert!(!shows(), "the answer to its own status");
        tokio::time::advance(retry::conflict_backoff(21)).await;
        assert!(shows(), "it lasts");
        backoffs.reset_failures(Kind::BaremetalMachine, &key);
        assert!(!shows());
    }

    #[test]
    fn intervals_grow_until_reset() {
        let (backoffs, key) = (Backoffs::default(), Key::new("fleet", "machine-1"));
        let next = |kind| backoffs.next_wait(kind, &key).as_secs();
        assert_eq!([next(Kind::BaremetalMachine), next(Kind::BaremetalMachine)], [1, 2]);
        assert_eq!(next(Kind::Metal3Machine), 1, "another object of that name");
        backoffs.reset_failures(Kind::BaremetalMachine, &key);
        assert_eq!(next(Kind::BaremetalMachine), 4, "a wait is no failure");
        backoffs.reset_waits(Kind::BaremetalMachine, &key);
        assert_eq!([next(Kind::BaremetalMachine), next(Kind::Metal3Machine)], [1, 2]);
    }

    #[test]
    fn objects_that_wait_do_not_return_together() {
        let backoffs = Backoffs::default();
        let wait = |name| backoffs.next_wait(Kind::Metal3Machine, &Key::new("fleet", name));
        let waits = ["a", "b", "c"].map(wait);
        assert!(waits.windows(2).any(|two| two[0] != two[1]), "{waits:?}");
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
