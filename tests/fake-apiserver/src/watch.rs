//! WATCH: lines of JSON from the history, with resume, bookmarks and initial events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tower::BoxError;

use crate::failure::Failure;
use crate::faults::End;
use crate::object::set_metadata;
use crate::request::Call;
use crate::selector::Selector;
use crate::server::Server;
use crate::store::{Change, Store};

/// The real server sends one about once a minute.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// When the client names none; the real server picks one between 30 and 60 minutes.
const DEFAULT_TIMEOUT: u64 = 1800;

pub(crate) struct Watch {
    server: Arc<Server>,
    call: Call,
    selector: Selector,
    /// Everything up to this resource version was sent.
    seen: u64,
    ready: VecDeque<Bytes>,
    deadline: Instant,
    bookmark: Option<Instant>,
    order: watch::Receiver<Option<End>>,
    revisions: watch::Receiver<u64>,
    ended: bool,
}

impl Watch {
    pub(crate) fn open(server: &Arc<Server>, call: Call) -> Result<Self, Failure> {
        server.authorize(&call)?;
        let selector = call.selector()?;
        let from: u64 = match call.query("resourceVersion") {
            "" => 0,
            version => version
                .parse()
                .map_err(|_| Failure::bad_request(format!("Invalid resource version: {version}")))?,
        };
        let initial = call.query("sendInitialEvents") == "true";
        if initial && call.query("resourceVersionMatch") != "NotOlderThan" {
            return Err(Failure::unprocessable(
                "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                 sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        let bookmarks = call.query("allowWatchBookmarks") == "true";
        let timeout = call.query("timeoutSeconds").parse().unwrap_or(DEFAULT_TIMEOUT);
        let order = server.faults.open_watch(&call.request);
        let revisions = server.revisions.subscribe();
        let mut watch = Self {
            server: server.clone(),
            call,
            selector,
            seen: from,
            ready: VecDeque::new(),
            deadline: Instant::now() + Duration::from_secs(timeout),
            bookmark: bookmarks.then(|| Instant::now() + BOOKMARK_EVERY),
            order,
            revisions,
            ended: false,
        };
        let store = server.store();
        if initial || from == 0 {
            watch.send_present(&store);
            if bookmarks {
                watch.send_bookmark(json!({ "k8s.io/initial-events-end": "true" }));
            }
        } else if from < store.oldest() {
            watch.send_expired(&store);
        }
        drop(store);
        Ok(watch)
    }

    /// The body of the response.
    pub(crate) fn lines(self) -> impl Stream<Item = Result<Bytes, BoxError>> + Send {
        futures::stream::unfold(self, |mut watch| async {
            let line = watch.next().await?;
            Some((line, watch))
        })
    }

    fn send_present(&mut self, store: &Store) {
        for object in store.select(&self.call, &self.selector) {
            let line = format_line("ADDED", &self.call.present_object(&object));
            self.ready.push_back(line);
        }
        self.seen = store.revision();
    }

    fn send_expired(&mut self, store: &Store) {
        let status = Failure::expired(self.seen, store.oldest()).status();
        self.ready.push_back(format_line("ERROR", &status));
        self.ended = true;
    }

    fn send_bookmark(&mut self, annotations: Value) {
        let mut bookmark = self.call.present_object(&json!({ "kind": self.call.kind.name }));
        bookmark["metadata"] = json!({ "creationTimestamp": null });
        set_metadata(&mut bookmark, "resourceVersion", json!(self.seen.to_string()));
        if annotations.is_object() {
            set_metadata(&mut bookmark, "annotations", annotations);
        }
        self.ready.push_back(format_line("BOOKMARK", &bookmark));
    }

    /// `None` at the end of the body.
    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            let order = *self.order.borrow_and_update();
            match order {
                Some(End::Closed) => return None,
                Some(End::Broken) if self.ended => return None,
                Some(End::Broken) => {
                    self.ended = true;
                    return Some(Err("connection reset by peer".into()));
                }
                Some(End::Silent) => std::future::pending().await,
                Some(End::Expired) if !self.ended => {
                    let server = self.server.clone();
                    self.send_expired(&server.store());
                }
                Some(End::Expired) | None => {}
            }
            if let Some(line) = self.ready.pop_front() {
                return Some(Ok(line));
            }
            if self.ended || Instant::now() >= self.deadline {
                return None;
            }
            self.wait_for_change().await;
        }
    }

    /// Makes the next line ready, or waits for something that could.
    async fn wait_for_change(&mut self) {
        let server = self.server.clone();
        let (change, revision) = {
            let store = server.store();
            // What a slow watch has not sent is gone with the history.
            if self.seen < store.oldest() {
                self.send_expired(&store);
                return;
            }
            let resource = self.call.kind.resource();
            let change = store.next_change(self.seen, &resource, self.call.namespace());
            (change.cloned(), store.revision())
        };
        let due =
            change.as_ref().map(|change| change.at + self.server.faults.current_lag(&self.call.request));
        if let Some(change) = change
            && due.is_none_or(|due| due <= Instant::now())
        {
            self.seen = change.revision;
            self.ready.extend(self.format_event(&change));
            return;
        }
        if due.is_none() {
            self.seen = revision;
        }
        let wake = [due, self.bookmark].into_iter().flatten().fold(self.deadline, Instant::min);
        tokio::select! {
            _ = self.order.changed() => {}
            _ = self.revisions.changed(), if due.is_none() => {}
            () = sleep_until(wake) => {}
        }
        if let Some(at) = self.bookmark
            && at <= Instant::now()
        {
            self.bookmark = Some(Instant::now() + BOOKMARK_EVERY);
            self.send_bookmark(Value::Null);
        }
    }

    /// What the change is to a watch that sees only the objects it selects.
    fn format_event(&self, change: &Change) -> Option<Bytes> {
        let chosen =
            |object: &Option<Arc<Value>>| object.clone().filter(|object| self.selector.matches(object));
        match (chosen(&change.before), chosen(&change.now)) {
            (None, None) => None,
            (None, Some(now)) => Some(format_line("ADDED", &self.call.present_object(&now))),
            (Some(_), Some(now)) => Some(format_line("MODIFIED", &self.call.present_object(&now))),
            (Some(before), None) => {
                // The last state that was selected, at the version that took it away.
                let mut last = self.call.present_object(&before);
                set_metadata(&mut last, "resourceVersion", json!(change.revision.to_string()));
                Some(format_line("DELETED", &last))
            }
        }
    }
}

fn format_line(what: &str, object: &Value) -> Bytes {
    let mut line = json!({ "type": what, "object": object }).to_string();
    line.push('\n');
    line.into()
}
