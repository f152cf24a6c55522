//! Rate limits of a host, and of a source without a certificate.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::identity::Call;
use crate::ca::HostKey;

/// Calls between two removals of full buckets.
const PRUNE_EVERY: usize = 1024;

/// A token bucket: `burst` calls at once, then one every `interval`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) interval: Duration,
    pub(crate) burst: u32,
}

impl Rate {
    /// `count` calls a minute, at any time within the minute.
    pub(crate) fn per_minute(count: u32) -> Self {
        Self { interval: Duration::from_mins(1) / count.max(1), burst: count }
    }
}

/// Buckets. Each is stored as the time at which it is full again (generic cell rate algorithm).
pub(crate) struct Buckets<K>(Mutex<State<K>>);

struct State<K> {
    full_at: HashMap<K, Instant>,
    insertions: usize,
}

impl<K> Default for Buckets<K> {
    fn default() -> Self {
        Self(Mutex::new(State { full_at: HashMap::new(), insertions: 0 }))
    }
}

impl<K: Hash + Eq> Buckets<K> {
    /// Takes a token; `false` if the bucket is empty.
    pub(crate) fn take_token(&self, key: K, rate: Rate, now: Instant) -> bool {
        self.take_tokens(key, 1, rate, now)
    }

    /// Takes several tokens, or none and `false`.
    pub(crate) fn take_tokens(&self, key: K, count: u32, rate: Rate, now: Instant) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = state.full_at.get(&key).map_or(now, |full_at| (*full_at).max(now));
        let next = full_at + rate.interval * count;
        if next.duration_since(now) > rate.interval * rate.burst {
            return false;
        }
        state.insertions += 1;
        if state.insertions.is_multiple_of(PRUNE_EVERY) {
            state.full_at.retain(|_, full_at| *full_at > now);
        }
        state.full_at.insert(key, next);
        true
    }
}

/// The buckets of all hosts.
#[derive(Default)]
pub(super) struct RateLimits(Buckets<(HostKey, Call)>);

const fn rate_of(call: Call) -> Rate {
    let (interval, burst) = match call {
        Call::ReportObserved | Call::RenewCertificate | Call::Complete => (10_000, 12),
        Call::ReportInstall => (5000, 24),
        Call::Attach => (2000, 30),
        Call::Acknowledge => (1000, 60),
        // All messages of a stream, those that are dropped included.
        Call::Message => (100, 600),
        // A burst is enough for the whole agent.
        Call::ReadAgent => (100, 60),
        // A host reports its whole journal at once.
        Call::ReportStep | Call::ReportProgress => (500, 120),
        // The limit of the source counts here, because the key is not proven.
        Call::Begin => (0, 1),
    };
    Rate { interval: Duration::from_millis(interval), burst }
}

impl RateLimits {
    /// Takes a token; `false` if the bucket is empty.
    pub(super) fn take_token(&self, key: &HostKey, call: Call, now: Instant) -> bool {
        self.0.take_token((key.clone(), call), rate_of(call), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(hash: usize) -> HostKey {
        HostKey { namespace: "fleet".into(), tpm_hash: hash.to_string() }
    }

    #[tokio::test(start_paused = true)]
    async fn burst_is_allowed_and_then_the_rate() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let allowed = |host, second| {
            limits.take_token(&key(host), Call::ReportObserved, start + Duration::from_secs(second))
        };
        assert_eq!((0..20).filter(|_| allowed(1, 0)).count(), 12);
        assert!(allowed(2, 0), "another host");
        assert_eq!((0..20).filter(|_| allowed(1, 10)).count(), 1);
        assert_eq!((0..20).filter(|_| allowed(1, 1000)).count(), 12);
        assert!(limits.take_token(&key(1), Call::ReportStep, start), "another call");
    }

    #[tokio::test(start_paused = true)]
    async fn every_call_with_a_proven_key_is_limited() {
        for call in [
            Call::Complete,
            Call::Attach,
            Call::Acknowledge,
            Call::Message,
            Call::ReportProgress,
            Call::ReportStep,
            Call::ReportInstall,
            Call::ReportObserved,
            Call::RenewCertificate,
            Call::ReadAgent,
        ] {
            let (limits, start) = (RateLimits::default(), Instant::now());
            let allowed = (0..1000).filter(|_| limits.take_token(&key(1), call, start)).count();
            assert!((1..=600).contains(&allowed), "{call:?}: {allowed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn full_buckets_are_removed() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        for host in 0..5 * PRUNE_EVERY {
            let now = start + Duration::from_secs(host as u64);
            assert!(limits.take_token(&key(host), Call::ReportObserved, now));
        }
        assert!(limits.0.0.lock().unwrap().full_at.len() < 2 * PRUNE_EVERY);
    }
}
