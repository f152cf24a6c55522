//! Streams of this replica by host, and the rule for a host that opens another stream.
//!
//! The same boot id is the same system, so that the newer stream wins. Another boot id is either a
//! reboot whose old connection is not closed yet, or a second host with a copied key. A dead
//! connection does not answer HTTP/2 pings and is closed after [`KEEPALIVE`] and
//! [`KEEPALIVE_ANSWER`]. The new stream waits for this time, without a plan. If the old stream is open
//! even then, it belongs to a second live host, and both are quarantined.
//!
//! Only the session in `status.host.session` counts, because replicas learn of each other's streams
//! there ([`super::host`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::{KEEPALIVE, KEEPALIVE_ANSWER};
use crate::ca::HostKey;
use crate::metrics::Metrics;

/// Time for which a new stream waits for the end of an old one.
pub const PROBE: Duration = KEEPALIVE.saturating_add(KEEPALIVE_ANSWER).saturating_add(Duration::from_secs(5));

/// The reason to close a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The same system opened a newer stream.
    Replaced,
    /// Two live hosts claim the identity.
    Quarantined,
    ShuttingDown,
    /// This replica does not reach the API server.
    Isolated,
}

type Closer = Arc<watch::Sender<Option<CloseReason>>>;

struct SessionEntry {
    boot_id: String,
    number: u64,
    closer: Closer,
}

#[derive(Default)]
struct Sessions {
    open: HashMap<HostKey, SessionEntry>,
    /// Tasks that record the end of a session, at most one for each host.
    pending_ends: HashMap<HostKey, AbortHandle>,
    next_number: u64,
    /// New streams are closed at once.
    is_isolated: bool,
}

impl Sessions {
    fn close_open(&self, reason: CloseReason) {
        for entry in self.open.values() {
            entry.closer.send_replace(Some(reason));
        }
    }

    /// Forgets a recorded end, unless a newer one of the same host is pending.
    fn forget_end(&mut self, key: &HostKey, task: tokio::task::Id) {
        if self.pending_ends.get(key).is_some_and(|pending| pending.id() == task) {
            self.pending_ends.remove(key);
        }
    }
}

/// Streams of this replica.
#[derive(Default)]
pub struct SessionTable {
    sessions: Mutex<Sessions>,
    metrics: Metrics,
}

/// An open stream. Dropping the guard removes the stream from the table.
pub struct SessionGuard {
    table: Arc<SessionTable>,
    key: HostKey,
    number: u64,
    closing: watch::Receiver<Option<CloseReason>>,
}

/// The open stream of another boot of the same host.
pub struct SessionConflict {
    pub boot_id: String,
    closer: Closer,
}

impl SessionTable {
    fn lock_sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A table that shows its size in `metrics`.
    pub fn counted_in(metrics: Metrics) -> Self {
        Self { metrics, ..Self::default() }
    }

    pub fn count_sessions(&self) -> usize {
        self.lock_sessions().open.len()
    }

    /// The host has a stream in this replica.
    pub fn contains_host(&self, key: &HostKey) -> bool {
        self.lock_sessions().open.contains_key(key)
    }

    /// Sessions that ended and are not recorded yet.
    #[cfg(test)]
    pub(super) fn pending_ends(&self) -> usize {
        self.lock_sessions().pending_ends.len()
    }

    /// Registers a stream, and closes an older stream of the same boot.
    ///
    /// # Errors
    /// [`SessionConflict`] if another boot of the host has a stream.
    pub fn open_session(
        self: &Arc<Self>,
        key: &HostKey,
        boot_id: &str,
    ) -> Result<SessionGuard, SessionConflict> {
        let mut sessions = self.lock_sessions();
        if let Some(old) = sessions.open.get(key) {
            if old.boot_id != boot_id {
                return Err(SessionConflict { boot_id: old.boot_id.clone(), closer: old.closer.clone() });
            }
            old.closer.send_replace(Some(CloseReason::Replaced));
        }
        if let Some(pending) = sessions.pending_ends.remove(key) {
            pending.abort();
        }
        sessions.next_number += 1;
        let number = sessions.next_number;
        let (closer, closing) = watch::channel(sessions.is_isolated.then_some(CloseReason::Isolated));
        let entry = SessionEntry { boot_id: boot_id.to_owned(), number, closer: Arc::new(closer) };
        sessions.open.insert(key.clone(), entry);
        self.metrics.set_sessions(sessions.open.len());
        Ok(SessionGuard { table: self.clone(), key: key.clone(), number, closing })
    }

    /// Closes every stream at the end of the process, so that hosts attach to another replica without
    /// waiting for a broken connection.
    pub fn close_all(&self) {
        self.lock_sessions().close_open(CloseReason::ShuttingDown);
    }

    /// Closes every stream and each new one while this replica does not reach the API server, because
    /// the hosts can attach to another replica.
    pub fn set_isolated(&self, is_isolated: bool) {
        let mut sessions = self.lock_sessions();
        sessions.is_isolated = is_isolated;
        if is_isolated {
            sessions.close_open(CloseReason::Isolated);
        }
    }

    /// Runs `record` after `delay`, unless the host opens a session before. An end that is pending
    /// stays, so that repeated events do not put it off.
    pub(super) fn schedule_end(
        self: &Arc<Self>,
        key: &HostKey,
        delay: Duration,
        record: impl Future<Output = ()> + Send + 'static,
    ) {
        // The process is ending if there is no runtime, and its Lease shows the end.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut sessions = self.lock_sessions();
        // A task that panicked is finished, and pends no more.
        let is_pending = sessions.pending_ends.get(key).is_some_and(|task| !task.is_finished());
        if sessions.open.contains_key(key) || is_pending {
            return;
        }
        let (table, ended) = (Arc::downgrade(self), key.clone());
        let task = runtime.spawn(async move {
            tokio::time::sleep(delay).await;
            record.await;
            if let Some(table) = table.upgrade() {
                table.lock_sessions().forget_end(&ended, tokio::task::id());
            }
        });
        sessions.pending_ends.insert(key.clone(), task.abort_handle());
    }
}

impl SessionGuard {
    /// Waits until the stream has to end.
    pub async fn wait_closed(&mut self) -> CloseReason {
        match self.closing.wait_for(Option::is_some).await {
            Ok(reason) => reason.unwrap_or(CloseReason::Replaced),
            // The sender lives as long as its entry, so that a newer entry has replaced it.
            Err(_) => CloseReason::Replaced,
        }
    }

    /// Removes the session; `true` if it was the newest of its host.
    pub fn close_session(&self) -> bool {
        let mut sessions = self.table.lock_sessions();
        let is_newest = sessions.open.get(&self.key).is_some_and(|entry| entry.number == self.number);
        if is_newest {
            sessions.open.remove(&self.key);
            self.table.metrics.set_sessions(sessions.open.len());
        }
        is_newest
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let _ = self.close_session();
    }
}

impl SessionConflict {
    /// Waits for the end of the other stream; `false` if it does not end within `probe`.
    pub async fn ends_within(&self, probe: Duration) -> bool {
        tokio::time::timeout(probe, self.closer.closed()).await.is_ok()
    }

    /// Closes the other stream.
    pub fn close_other(&self) {
        self.closer.send_replace(Some(CloseReason::Quarantined));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::Instant;

    fn key() -> HostKey {
        HostKey { namespace: "fleet".into(), tpm_hash: "0a".into() }
    }

    fn open(table: &Arc<SessionTable>, boot_id: &str) -> SessionGuard {
        table.open_session(&key(), boot_id).ok().unwrap()
    }

    #[tokio::test]
    async fn newer_stream_of_one_boot_wins() {
        let table = Arc::<SessionTable>::default();
        let mut old = open(&table, "a");
        let new = open(&table, "a");
        assert_eq!(old.wait_closed().await, CloseReason::Replaced);
        assert!(!old.close_session() && table.contains_host(&key()), "the newer one stays");
        assert!(new.close_session() && !table.contains_host(&key()));
    }

    #[tokio::test(start_paused = true)]
    async fn other_boot_waits_for_the_dead_stream() {
        let table = Arc::<SessionTable>::default();
        let old = open(&table, "a");
        let conflict = table.open_session(&key(), "b").err().unwrap();
        let start = Instant::now();
        tokio::spawn(async move {
            tokio::time::sleep(KEEPALIVE + KEEPALIVE_ANSWER).await;
            drop(old);
        });
        assert!(conflict.ends_within(PROBE).await);
        assert_eq!(start.elapsed(), KEEPALIVE + KEEPALIVE_ANSWER);
        assert!(table.open_session(&key(), "b").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn live_stream_of_another_boot_is_quarantined() {
        let table = Arc::<SessionTable>::default();
        let mut old = open(&table, "a");
        let conflict = table.open_session(&key(), "b").err().unwrap();
        assert_eq!(conflict.boot_id, "a");
        assert!(!conflict.ends_within(PROBE).await, "it answers pings");
        conflict.close_other();
        assert_eq!(old.wait_closed().await, CloseReason::Quarantined);
    }

    #[tokio::test(start_paused = true)]
    async fn session_end_is_recorded_once_and_late() {
        let (table, ends) = (Arc::<SessionTable>::default(), Arc::<AtomicUsize>::default());
        let schedule = || {
            let ends = ends.clone();
            let record = async move {
                ends.fetch_add(1, Ordering::SeqCst);
            };
            table.schedule_end(&key(), Duration::from_secs(10), record);
        };
        let wait = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        for _ in 0..3 {
            drop(open(&table, "a"));
            schedule();
            wait(9).await;
        }
        assert_eq!((ends.load(Ordering::SeqCst), table.pending_ends()), (0, 1));
        wait(2).await;
        assert_eq!((ends.load(Ordering::SeqCst), table.pending_ends()), (1, 0));
        schedule();
        let back = open(&table, "a");
        schedule();
        wait(60).await;
        assert_eq!(ends.load(Ordering::SeqCst), 1, "the host is back");
        drop(back);
        table.schedule_end(&key(), Duration::from_secs(1), async { panic!("a defect") });
        wait(2).await;
        schedule();
        wait(60).await;
        assert_eq!(ends.load(Ordering::SeqCst), 2, "the end is recorded after a panic");
    }
}
