//! How often one host may make the coordinator write.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::identity::Call;
use crate::ca::HostKey;

/// Hosts between two removals of full buckets.
const PRUNE_EVERY: usize = 1024;

/// A token bucket: `burst` calls at once, then one every `interval`.
#[derive(Clone, Copy, Debug)]
struct Rate {
    interval: Duration,
    burst: u32,
}

/// The buckets of all hosts, each as the time at which it is full again
/// (generic cell rate algorithm).
#[derive(Default)]
pub(super) struct RateLimits(Mutex<Buckets>);

#[derive(Default)]
struct Buckets {
    full_at: HashMap<(HostKey, Call), Instant>,
    insertions: usize,
}

const fn rate_of(call: Call) -> Option<Rate> {
    match call {
        Call::ReportObserved | Call::RenewCertificate => {
            Some(Rate { interval: Duration::from_secs(10), burst: 12 })
        }
        Call::ReportInstall => Some(Rate { interval: Duration::from_secs(5), burst: 24 }),
        Call::Begin | Call::Complete | Call::Attach | Call::ReportStep => None,
    }
}

impl RateLimits {
    /// Takes one token; whether there was one.
    pub(super) fn take_token(&self, key: &HostKey, call: Call, now: Instant) -> bool {
        let Some(rate) = rate_of(call) else { return true };
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = (key.clone(), call);
        let full_at = buckets.full_at.get(&bucket).map_or(now, |full_at| (*full_at).max(now));
        let next = full_at + rate.interval;
        if next.duration_since(now) > rate.interval * rate.burst {
            return false;
        }
        buckets.insertions += 1;
        if buckets.insertions.is_multiple_of(PRUNE_EVERY) {
            buckets.full_at.retain(|_, full_at| *full_at > now);
        }
        buckets.full_at.insert(bucket, next);
        true
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
        assert!((0..100).all(|_| limits.take_token(&key(1), Call::ReportStep, start)), "not limited");
    }

    #[tokio::test(start_paused = true)]
    async fn full_buckets_are_removed() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        for host in 0..5 * PRUNE_EVERY {
            let now = start + Duration::from_secs(host as u64);
            assert!(limits.take_token(&key(host), Call::ReportObserved, now));
        }
        assert!(limits.0.lock().unwrap().full_at.len() < 2 * PRUNE_EVERY);
    }
}
