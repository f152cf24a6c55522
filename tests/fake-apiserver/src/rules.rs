//! Which fault the next request meets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tokio::sync::watch;

use crate::failure::Failure;
use crate::faults::{End, Fault, Refusal, Side};
use crate::matching::Matching;
use crate::request::Request;

/// What the next request of a rule meets.
pub(crate) enum Effect {
    Fail(Refusal),
    LoseResponse,
    Delay(Duration),
    Interrupt(Box<dyn FnOnce() + Send>),
}

/// A fault that waits for its requests.
pub(crate) struct Rule {
    pub(crate) matching: Matching,
    /// Matching requests to let through first.
    pub(crate) skip: usize,
    pub(crate) left: usize,
    pub(crate) effect: Effect,
    pub(crate) fault: Fault,
}

/// A process that stops at a write.
pub(crate) struct Stop {
    pub(crate) matching: Matching,
    pub(crate) write: usize,
    pub(crate) side: Side,
    pub(crate) reached: watch::Sender<bool>,
}

/// How one request is handled.
pub(crate) enum Action {
    Serve,
    Fail(Failure),
    Disconnect,
    LoseResponse,
    /// The process of the caller has stopped: neither answer nor effect.
    HangBefore,
    /// The process of the caller stops when this write is done.
    HangAfter,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) rules: Vec<Rule>,
    /// Every fault so far, with its description.
    pub(crate) injected: Vec<(String, Fault)>,
    pub(crate) stops: Vec<Stop>,
    /// Clients of a user up to this session get no answers.
    pub(crate) stopped_sessions: BTreeMap<String, u64>,
    pub(crate) watches: Vec<(Request, watch::Sender<Option<End>>)>,
    pub(crate) lag: Duration,
    pub(crate) lag_of_users: BTreeMap<String, Duration>,
    /// By user and plural of the kind.
    pub(crate) lag_of_kinds: BTreeMap<(String, String), Duration>,
    /// Users whose requests do not arrive.
    pub(crate) isolated: BTreeSet<String>,
    pub(crate) latency: Duration,
}

impl Rule {
    fn is_interrupt(&self) -> bool {
        matches!(self.effect, Effect::Interrupt(_))
    }

    fn is_answer(&self) -> bool {
        matches!(self.effect, Effect::Fail(_) | Effect::LoseResponse)
    }

    /// Counts the request; true if the fault is for it.
    fn meets(&mut self, request: &Request) -> bool {
        if self.left == 0 || !self.matching.fits(request) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.left -= 1;
        self.fault.count();
        true
    }
}

impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail(refusal) => write!(f, "{refusal:?}"),
            Self::LoseResponse => f.write_str("LoseResponse"),
            Self::Delay(delay) => write!(f, "{delay:?} of delay"),
            Self::Interrupt(_) => f.write_str("Interrupt"),
        }
    }
}

impl State {
    /// Ends running watches; each meets the returned fault.
    pub(crate) fn end_watches(&mut self, matching: &Matching, end: End) -> Fault {
        let fault = Fault::default();
        self.watches.retain(|(_, order)| order.receiver_count() > 0);
        for (_, order) in self.watches.iter().filter(|(request, _)| matching.fits(request)) {
            order.send_replace(Some(end));
            fault.count();
        }
        fault
    }

    /// Interrupts whose request this is.
    pub(crate) fn due_interrupts(&mut self, request: &Request) -> Vec<Box<dyn FnOnce() + Send>> {
        for rule in self.rules.iter_mut().filter(|rule| rule.is_interrupt()) {
            rule.meets(request);
        }
        let spent = |rule: &mut Rule| rule.is_interrupt() && rule.left == 0;
        let due = self.rules.extract_if(.., spent);
        due.filter_map(|rule| match rule.effect {
            Effect::Interrupt(act) => Some(act),
            Effect::Fail(_) | Effect::LoseResponse | Effect::Delay(_) => None,
        })
        .collect()
    }

    /// The sum of the delays that this request meets.
    pub(crate) fn take_delay(&mut self, request: &Request) -> Duration {
        let mut sum = Duration::ZERO;
        for rule in &mut self.rules {
            if let Effect::Delay(delay) = rule.effect
                && rule.meets(request)
            {
                sum += delay;
            }
        }
        sum
    }

    /// Decides about one request. `newest`: the newest session of all.
    pub(crate) fn choose_action(&mut self, request: &Request, newest: u64) -> Action {
        if let Some(side) = self.take_stop(request) {
            self.stopped_sessions.insert(request.user.clone(), newest);
            return match side {
                Side::Before => Action::HangBefore,
                Side::After => Action::HangAfter,
            };
        }
        if self.isolated.contains(&request.user) {
            return Action::Disconnect;
        }
        let mut faults = self.rules.iter_mut().filter(|rule| rule.is_answer());
        match faults.find_map(|rule| rule.meets(request).then_some(&rule.effect)) {
            Some(Effect::Fail(Refusal::Disconnected)) => Action::Disconnect,
            Some(Effect::Fail(refusal)) => Action::Fail(refusal.to_failure(request)),
            Some(Effect::LoseResponse) => Action::LoseResponse,
            Some(Effect::Delay(_) | Effect::Interrupt(_)) | None => Action::Serve,
        }
    }

    fn take_stop(&mut self, request: &Request) -> Option<Side> {
        let mut side = None;
        self.stops.retain_mut(|stop| {
            if !request.verb.is_write() || !stop.matching.fits(request) {
                return true;
            }
            stop.write = stop.write.saturating_sub(1);
            if stop.write > 0 {
                return true;
            }
            stop.reached.send_replace(true);
            side = Some(stop.side);
            false
        });
        side
    }
}

impl Refusal {
    fn to_failure(self, request: &Request) -> Failure {
        let (code, reason, message) = match self {
            Self::Conflict => (409, "Conflict", "Operation cannot be fulfilled"),
            Self::TooManyRequests { .. } => (429, "TooManyRequests", "too many requests"),
            Self::Forbidden => (403, "Forbidden", "forbidden"),
            Self::Internal => (500, "InternalError", "Internal error occurred"),
            Self::Unavailable | Self::Disconnected => {
                (503, "ServiceUnavailable", "the server is currently unable to handle the request")
            }
            Self::Timeout => (504, "Timeout", "request did not complete within the allotted time"),
        };
        let failure = Failure::injected(code, reason, &format!("{message}: {request}"));
        match self {
            Self::TooManyRequests { retry_after } => failure.retry_after(retry_after),
            _ => failure,
        }
    }
}
