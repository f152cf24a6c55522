//! The owner of the objects: it follows the watches, sends changes to all pages, and answers their
//! questions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{broadcast, mpsc, oneshot};

use super::model::{Delta, Model, show_cluster};
use crate::cluster::{Cluster, Live};
use crate::failure::{Failure, explain_error, is_forbidden};
use crate::fleet::{Id, Kind};
use crate::why::follow_causes;

/// Messages that a slow page may be behind; after more it starts again.
const BEHIND: usize = 64;
/// Lines of a change that are sent one by one; after a larger change every page starts again.
const LARGE: usize = 500;
/// Pause between two requests to an API server that did not answer.
const PROBE: Duration = Duration::from_secs(2);
/// Only the Events of the coordinator are watched, because a cluster has many others.
const EVENTS: &str = "reportingController=baremetal-coordinator";

type EventChange = Result<watcher::Event<Event>, watcher::Error>;

/// A message to all pages.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// A change, as JSON.
    Lines(Arc<str>),
    /// Notes about objects that are left out or out of date, as JSON.
    Notes(Arc<str>),
    /// The page starts again, because too much changed.
    Restart,
}

/// The start of a page.
#[derive(Debug)]
pub(super) struct Subscription {
    /// The first lists are complete.
    pub(super) is_complete: bool,
    pub(super) lines: Vec<Arc<str>>,
    pub(super) notes: Arc<str>,
    pub(super) messages: broadcast::Receiver<Message>,
}

enum Question {
    Subscribe(oneshot::Sender<Subscription>),
    Show(Id, oneshot::Sender<Option<String>>),
    Explain(Id, oneshot::Sender<Option<String>>),
}

#[derive(Clone)]
pub(crate) struct Followed(mpsc::Sender<Question>);

impl Followed {
    pub(super) async fn subscribe(&self) -> Option<Subscription> {
        let (sender, answer) = oneshot::channel();
        self.0.send(Question::Subscribe(sender)).await.ok()?;
        answer.await.ok()
    }

    /// The view of a host or a Cluster, as JSON.
    pub(super) async fn show(&self, id: Id) -> Option<String> {
        let (sender, answer) = oneshot::channel();
        self.0.send(Question::Show(id, sender)).await.ok()?;
        answer.await.ok()?
    }

    /// The chain of causes of any object, as JSON.
    pub(super) async fn explain(&self, id: Id) -> Option<String> {
        let (sender, answer) = oneshot::channel();
        self.0.send(Question::Explain(id, sender)).await.ok()?;
        answer.await.ok()?
    }
}

pub(crate) struct Follower {
    client: Client,
    live: Live,
    events: BoxStream<'static, Vec<EventChange>>,
    model: Model,
    is_complete: bool,
    /// The cause for which Events are not shown.
    no_events: Option<String>,
    notes: Arc<str>,
    questions: mpsc::Receiver<Question>,
    messages: broadcast::Sender<Message>,
}

impl Follower {
    /// Follows every kind. Hosts have to be served and allowed.
    pub(crate) fn new(cluster: &Cluster) -> Result<(Self, Followed), Failure> {
        let kinds: Vec<_> = Kind::all().collect();
        let live = cluster.watch(&kinds, &[Kind::MachineInventory])?;
        let events = watcher(cluster.events(), watcher::Config::default().fields(EVENTS)).default_backoff();
        let events = events.ready_chunks(1024).boxed();
        Ok(Self::of(cluster.client.clone(), live, events))
    }

    fn of(client: Client, live: Live, events: BoxStream<'static, Vec<EventChange>>) -> (Self, Followed) {
        let (sender, questions) = mpsc::channel(BEHIND);
        let owner = Self {
            client,
            live,
            events,
            model: Model::default(),
            is_complete: false,
            no_events: None,
            notes: "[]".into(),
            questions,
            messages: broadcast::Sender::new(BEHIND),
        };
        (owner, Followed(sender))
    }

    /// Follows until the watches end.
    pub(crate) async fn run(mut self) -> Result<(), Failure> {
        loop {
            let wake = sleep_until(self.model.next_wake());
            let is_interrupted = self.live.interruption().is_some();
            tokio::select! {
                changed = self.live.next() => {
                    let Some(changed) = changed? else { return Ok(()) };
                    let delta = self.model.refresh(&self.live.fleet, &changed, Timestamp::now());
                    if std::mem::replace(&mut self.is_complete, true) {
                        self.send_delta(&delta);
                    } else {
                        self.send(Message::Restart);
                    }
                }
                Some(changes) = self.events.next() => self.take_events(changes),
                Some(question) = self.questions.recv() => self.answer(question),
                () = wake => {
                    let now = Timestamp::now();
                    let due = self.model.take_due(now);
                    let delta = self.model.refresh(&self.live.fleet, &due, now);
                    self.send_delta(&delta);
                }
                is_well = probe(&self.client), if is_interrupted => {
                    if is_well {
                        self.live.clear_interruption();
                    }
                }
            }
            self.send_notes();
        }
    }

    fn take_events(&mut self, changes: Vec<EventChange>) {
        let mut touched = BTreeSet::new();
        for change in changes {
            match change {
                Ok(watcher::Event::Init) => self.model.clear_events(),
                Ok(watcher::Event::InitApply(event) | watcher::Event::Apply(event)) => {
                    touched.extend(self.model.insert_event(&event).touched);
                }
                Ok(watcher::Event::Delete(event)) => self.model.remove_event(&event),
                Ok(watcher::Event::InitDone) => self.no_events = None,
                Err(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error))
                    if is_forbidden(&error) =>
                {
                    self.no_events = Some(explain_error(&error));
                }
                // The watches of the objects show that the API server does not answer.
                Err(_) => {}
            }
        }
        self.send_delta(&Delta { touched, ..Delta::default() });
    }

    fn answer(&self, question: Question) {
        let (fleet, now) = (&self.live.fleet, Timestamp::now());
        // An answer is dropped if its page is closed.
        match question {
            Question::Subscribe(sender) => {
                let messages = self.messages.subscribe();
                let (lines, notes) = (self.model.lines(), self.notes.clone());
                drop(sender.send(Subscription { is_complete: self.is_complete, lines, notes, messages }));
            }
            Question::Show(id, sender) => drop(sender.send(match id.kind {
                Kind::MachineInventory => to_json(self.model.show_host(fleet, &id, now)),
                Kind::Cluster => to_json(show_cluster(fleet, &id, now)),
                _ => None,
            })),
            Question::Explain(id, sender) => {
                let object = fleet.get(&id);
                drop(sender.send(to_json(object.map(|object| follow_causes(fleet, object, now)))));
            }
        }
    }

    fn send_delta(&self, delta: &Delta) {
        if delta.changed.len() > LARGE || delta.touched.len() > LARGE {
            self.send(Message::Restart);
        } else if *delta != Delta::default() {
            self.send(Message::Lines(write_lines(&delta.changed, delta).into()));
        }
    }

    fn send_notes(&mut self) {
        let events = self.no_events.iter().map(String::as_str);
        let left_out = self.live.left_out().chain(events).map(|text| format!("left out: {text}"));
        let notes: Vec<_> = self.live.interruption().map(str::to_owned).into_iter().chain(left_out).collect();
        let Ok(text) = serde_json::to_string(&notes) else { return };
        if *self.notes != *text {
            self.notes = text.into();
            self.send(Message::Notes(self.notes.clone()));
        }
    }

    fn send(&self, message: Message) {
        // The message is dropped if no page is open.
        drop(self.messages.send(message));
    }
}

/// Lines, and the keys of removed and touched objects, as JSON.
pub(super) fn write_lines(lines: &[Arc<str>], delta: &Delta) -> String {
    let (gone, touched) = (json!(delta.gone), json!(delta.touched));
    format!(r#"{{"changed":[{}],"gone":{gone},"touched":{touched}}}"#, lines.join(","))
}

fn to_json(value: Option<impl Serialize>) -> Option<String> {
    serde_json::to_string(&value?).ok()
}

async fn sleep_until(time: Option<Timestamp>) {
    let Some(time) = time else { return std::future::pending().await };
    // A time that is past has a negative duration, which is no `Duration`.
    if let Ok(left) = Duration::try_from(time.duration_since(Timestamp::now())) {
        tokio::time::sleep(left).await;
    }
}

/// Asks the API server after a pause, and returns `true` if it answers.
async fn probe(client: &Client) -> bool {
    tokio::time::sleep(PROBE).await;
    client.apiserver_version().await.is_ok()
}

#[cfg(test)]
pub(super) mod tests;
