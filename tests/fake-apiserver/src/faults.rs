//! What can go wrong between a client and its API server, on request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::matching::Matching;
use crate::request::Request;
use crate::rules::{Action, Effect, Rule, State, Stop};

/// How the server, or the network before it, rejects a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 409: the write of another client came first.
    Conflict,
    /// 429 with `Retry-After`.
    TooManyRequests {
        /// Seconds.
        retry_after: u32,
    },
    /// 403.
    Forbidden,
    /// 500.
    Internal,
    /// 503.
    Unavailable,
    /// 504.
    Timeout,
    /// No answer at all: the connection broke before the request arrived.
    Disconnected,
}

/// Whether the server can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    Over,
    /// Connections are refused; watches break.
    Refused,
    /// Requests hang until the outage is over, and fail then; watches go silent.
    Hanging,
}

/// How running watches end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Cleanly, as the server does after `timeoutSeconds`.
    Closed,
    Broken,
    /// A 410 event: the client must list again.
    Expired,
    /// No event and no end comes any more: a half-open connection.
    Silent,
}

/// Where a process stops, relative to one of its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The write never reached the server.
    Before,
    /// The write took effect; its answer never came.
    After,
}

/// A handle to the faults of a server; clones share them.
#[derive(Clone)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    outage: watch::Sender<Outage>,
    sessions: watch::Sender<u64>,
}

/// Tells when a planned stop was reached.
#[derive(Clone, Debug)]
pub struct Stopped(watch::Receiver<bool>);

impl Stopped {
    /// Whether the write was reached.
    pub fn is_reached(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for it; forever if it never comes.
    pub async fn reached(&mut self) {
        if self.0.wait_for(|reached| *reached).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Tells whether an injected fault was met.
#[derive(Clone, Debug, Default)]
pub struct Fault(Arc<AtomicUsize>);

impl Fault {
    /// Whether a request has met the fault. A test asserts this: a fault that no request meets
    /// proves nothing.
    pub fn is_met(&self) -> bool {
        self.times_met() > 0
    }

    /// How many requests have met the fault.
    pub fn times_met(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Faults {
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::default(),
            outage: watch::Sender::new(Outage::Over),
            sessions: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inject(&self, matching: Matching, left: usize, effect: Effect) -> Fault {
        let fault = Fault::default();
        let skip = matching.skip;
        let mut state = self.lock();
        state.injected.push((format!("{effect:?} of {matching:?}"), fault.clone()));
        state.rules.push(Rule { matching, skip, left, effect, fault: fault.clone() });
        fault
    }

    /// Every fault that no request or watch has met, those that were cleared included.
    pub fn list_unmet(&self) -> Vec<String> {
        let state = self.lock();
        let unmet = state.injected.iter().filter(|(_, fault)| !fault.is_met());
        unmet.map(|(description, _)| description.clone()).collect()
    }

    /// The next `times` matching requests, reads included, are rejected without effect.
    pub fn fail(&self, matching: Matching, times: usize, refusal: Refusal) -> Fault {
        self.inject(matching, times, Effect::Fail(refusal))
    }

    /// The next `times` matching requests are done, but their callers see the connection break.
    pub fn lose_responses(&self, matching: Matching, times: usize) -> Fault {
        self.inject(matching, times, Effect::LoseResponse)
    }

    /// The next `times` matching requests take this much longer to arrive. Other faults apply to
    /// them too.
    pub fn delay(&self, matching: Matching, times: usize, delay: Duration) -> Fault {
        self.inject(matching, times, Effect::Delay(delay))
    }

    /// Just before the next matching request is served, `act` runs: what another client did
    /// between a read and the write that came of it. It may use [`crate::FakeApi::edit`] and its
    /// like, and must not wait.
    pub fn interrupt(&self, matching: Matching, act: impl FnOnce() + Send + 'static) -> Fault {
        self.inject(matching, 1, Effect::Interrupt(Box::new(act)))
    }

    /// The user's process stops at its `write`th matching write from now, counted from 1: that
    /// request and every later one of its present clients hang forever, as they would for a
    /// process that was killed. Drop it and start another one with a new
    /// [`crate::FakeApi::client`], which is not affected.
    pub fn stop(&self, user: &str, matching: Matching, write: usize, side: Side) -> Stopped {
        let (reached, receiver) = watch::channel(false);
        let matching = matching.user(user);
        self.lock().stops.push(Stop { matching, write, side, reached });
        Stopped(receiver)
    }

    /// Begins or ends an outage. Its begin reaches running watches too.
    pub fn outage(&self, outage: Outage) {
        match outage {
            Outage::Over => {}
            Outage::Refused => drop(self.lock().end_watches(&Matching::any(), End::Broken)),
            Outage::Hanging => drop(self.lock().end_watches(&Matching::any(), End::Silent)),
        }
        self.outage.send_replace(outage);
    }

    /// Watches see every change this much later. Reads do not: a stale cache.
    pub fn lag(&self, lag: Duration) {
        self.lock().lag = lag;
    }

    /// As [`Faults::lag`], for the watches of one user: caches of two processes are apart.
    pub fn lag_of(&self, user: &str, lag: Duration) {
        self.lock().lag_of_users.insert(user.to_owned(), lag);
    }

    /// As [`Faults::lag_of`], for one kind: events of two kinds come in another order than their changes.
    pub fn lag_of_kind(&self, user: &str, plural: &str, lag: Duration) {
        self.lock().lag_of_kinds.insert((user.to_owned(), plural.to_owned()), lag);
    }

    /// No request of this user arrives from now on, and its watches break; others are served.
    pub fn isolate(&self, user: &str) {
        let mut state = self.lock();
        state.isolated.insert(user.to_owned());
        state.end_watches(&Matching::any().user(user), End::Broken);
    }

    /// Requests of an isolated user arrive again.
    pub fn rejoin(&self, user: &str) {
        self.lock().isolated.remove(user);
    }

    /// Every request takes this long to arrive, and its answer as long to return.
    /// [`Faults::clear`] keeps it: it is no fault.
    pub fn latency(&self, latency: Duration) {
        self.lock().latency = latency;
    }

    /// Ends the running watches that match.
    pub fn end_watches(&self, matching: &Matching, end: End) -> Fault {
        let mut state = self.lock();
        let fault = state.end_watches(matching, end);
        state.injected.push((format!("{end:?} watches of {matching:?}"), fault.clone()));
        fault
    }

    /// Watches that are running now.
    pub fn running_watches(&self) -> Vec<Request> {
        let state = self.lock();
        let open = state.watches.iter().filter(|(_, order)| order.receiver_count() > 0);
        open.map(|(request, _)| request.clone()).collect()
    }

    /// Ends every fault that was not met yet, the outage, lag and latency. Stopped processes stay
    /// stopped.
    pub fn clear(&self) {
        self.outage(Outage::Over);
        let mut state = self.lock();
        state.rules.clear();
        state.stops.clear();
        state.lag = Duration::ZERO;
        state.lag_of_users.clear();
        state.lag_of_kinds.clear();
        state.isolated.clear();
    }

    pub(crate) fn new_session(&self) -> u64 {
        self.sessions.send_modify(|session| *session += 1);
        *self.sessions.borrow()
    }

    /// How much later the watch of this request sees a change.
    pub(crate) fn current_lag(&self, request: &Request) -> Duration {
        let state = self.lock();
        let of_kind = state.lag_of_kinds.get(&(request.user.clone(), request.resource.clone()));
        of_kind.or_else(|| state.lag_of_users.get(&request.user)).copied().unwrap_or(state.lag)
    }

    pub(crate) fn current_latency(&self) -> Duration {
        self.lock().latency
    }

    pub(crate) fn current_outage(&self) -> watch::Receiver<Outage> {
        self.outage.subscribe()
    }

    pub(crate) fn open_watch(&self, request: &Request) -> watch::Receiver<Option<End>> {
        let (order, receiver) = watch::channel(None);
        let mut state = self.lock();
        state.watches.retain(|(_, order)| order.receiver_count() > 0);
        state.watches.push((request.clone(), order));
        receiver
    }

    pub(crate) fn is_stopped(&self, user: &str, session: u64) -> bool {
        self.lock().stopped_sessions.get(user).is_some_and(|last| session <= *last)
    }

    /// How much later this request arrives.
    pub(crate) fn take_delay(&self, request: &Request) -> Duration {
        self.lock().take_delay(request)
    }

    /// Decides about one request. Interrupts run in here, in no lock.
    pub(crate) fn choose_action(&self, request: &Request, session: u64) -> Action {
        if self.is_stopped(&request.user, session) {
            return Action::HangBefore;
        }
        // Out of the lock first: what they do may be faults too.
        let due = self.lock().due_interrupts(request);
        for act in due {
            act();
        }
        let newest = *self.sessions.borrow();
        self.lock().choose_action(request, newest)
    }
}
