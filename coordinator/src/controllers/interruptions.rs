//! Machines that are deleted while their hosts are installed, as a health check does whose time is shorter
//! than a reprovision: each replacement wipes a host again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::key::Key;

/// Deletions within this time are counted together.
const WINDOW: Duration = Duration::from_hours(24);
/// A machine may be deleted for any reason. More in a day have a cause.
const ANNOUNCED: u32 = 2;

/// The deletions of each Cluster. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Interruptions(Arc<Mutex<HashMap<Key, Count>>>);

#[derive(Clone, Copy, Debug)]
struct Count {
    since: Instant,
    number: u32,
}

impl Interruptions {
    /// Counts one more, and tells whether it is to be announced: once a day, for the second one.
    pub(super) fn note(&self, cluster: Key) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|_, count| count.since.elapsed() < WINDOW);
        let count = counts.entry(cluster).or_insert_with(|| Count { since: Instant::now(), number: 0 });
        count.number = count.number.saturating_add(1);
        count.number == ANNOUNCED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn second_deletion_of_a_day_is_announced() {
        let (interruptions, key) = (Interruptions::default(), |name: &str| Key::new("fleet", name));
        assert_eq!([0; 4].map(|_| interruptions.note(key("c1"))), [false, true, false, false]);
        assert!(!interruptions.note(key("c2")), "of another Cluster");
        tokio::time::advance(WINDOW).await;
        assert_eq!([0; 2].map(|_| interruptions.note(key("c1"))), [false, true], "the next day");
    }
}
