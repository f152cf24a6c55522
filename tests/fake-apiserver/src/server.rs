//! From an HTTP request to its answer, through all the faults.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::Value;
use tokio::sync::watch;
use tower::BoxError;

use crate::access::Access;
use crate::clock::Clock;
use crate::discovery::find_document;
use crate::failure::Failure;
use crate::faults::{Faults, Outage};
use crate::garbage::GarbageCollection;
use crate::journal::{Journal, Outcome};
use crate::metadata::check_body_size;
use crate::read::Done;
use crate::request::{Call, Request, Verb};
use crate::rules::Action;
use crate::store::Store;
use crate::watch::Watch;

/// What a request waits while the clock stands still for requests: clients that answer each
/// other without end must not hold up the deadline of a test.
const CROWD_PAUSE: Duration = Duration::from_secs(1);

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// All of the server.
pub(crate) struct Server {
    store: Mutex<Store>,
    pub(crate) faults: Faults,
    pub(crate) journal: Journal,
    /// The newest resource version: wakes watches.
    pub(crate) revisions: watch::Sender<u64>,
    garbage_collection: Mutex<GarbageCollection>,
    access: Mutex<Access>,
}

impl Server {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            store: Mutex::new(Store::new(clock)),
            faults: Faults::new(),
            journal: Journal::new(),
            revisions: watch::Sender::new(0),
            garbage_collection: Mutex::default(),
            access: Mutex::default(),
        }
    }

    /// Serves a request whose answer is lost. Returns whether it changed anything.
    fn apply_write(self: &Arc<Self>, target: &Target) -> bool {
        match target {
            Target::Objects(call) => self.serve(call).is_ok_and(|done| done.changed),
            Target::Document(..) => false,
        }
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn garbage_collection(&self) -> GarbageCollection {
        *self.garbage_collection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_garbage_collection(&self, collection: GarbageCollection) {
        *self.garbage_collection.lock().unwrap_or_else(PoisonError::into_inner) = collection;
    }

    pub(crate) fn lock_access(&self) -> MutexGuard<'_, Access> {
        self.access.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn authorize(&self, call: &Call) -> Result<(), Failure> {
        self.lock_access().check(call)
    }

    /// Serves everything but watches.
    pub(crate) fn serve(self: &Arc<Self>, call: &Call) -> Result<Done, Failure> {
        self.authorize(call)?;
        let mut store = self.store();
        let done = match call.request.verb {
            Verb::Get => store.get_object(call),
            Verb::List => store.list_objects(call),
            Verb::Create => store.create_object(call),
            Verb::Update => store.update_object(call),
            Verb::Patch => store.patch_object(call),
            Verb::Delete => store.delete_object(call),
            Verb::DeleteCollection => store.delete_collection(call),
            Verb::Watch => Err(Failure::not_allowed()),
        }?;
        if done.changed {
            self.publish(&mut store);
        }
        Ok(done)
    }
}

/// What `kube::Client` talks to: one connection of one user.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) server: Arc<Server>,
    pub(crate) user: String,
    pub(crate) session: u64,
}

impl tower::Service<http::Request<Body>> for Connection {
    type Response = Answer;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let connection = self.clone();
        Box::pin(async move { connection.answer_request(request).await })
    }
}

impl Connection {
    async fn answer_request(self, request: http::Request<Body>) -> Result<Answer, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let target = match self.find_target(&parts, body) {
            Ok(target) => target,
            Err(failure) => return Ok(reject(&failure)),
        };
        if self.server.journal.is_crowded() {
            tokio::time::sleep(CROWD_PAUSE).await;
        }
        let latency = self.server.faults.current_latency();
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let answer = self.pass_faults(target).await?;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        Ok(answer)
    }

    fn find_target(&self, parts: &Parts, body: Bytes) -> Result<Target, Failure> {
        check_body_size(body.len())?;
        let store = self.server.store();
        if let Some((request, document)) = find_document(&store.kinds, &self.user, parts.uri.path()) {
            return Ok(Target::Document(request, document));
        }
        let mut call = Call::parse(&store.kinds, &self.user, parts, body)?;
        if let Some(name) = self.server.lock_access().find_username(&self.user) {
            call.username = name;
        }
        Ok(Target::Objects(call))
    }

    /// The way through outages and planned faults.
    async fn pass_faults(self, target: Target) -> Result<Answer, BoxError> {
        let Server { faults, journal, .. } = &*self.server;
        let request = target.request().clone();
        if faults.is_stopped(&self.user, self.session) {
            std::future::pending::<()>().await;
        }
        let mut outage = faults.current_outage();
        let now = *outage.borrow_and_update();
        if now != Outage::Over {
            journal.record_request(request, Outcome::Undelivered, false);
            if now == Outage::Hanging {
                // Fails only if the server is gone, and then so is this future.
                let _gone = outage.wait_for(|outage| *outage == Outage::Over).await;
                return Err("connection reset by peer".into());
            }
            return Err("connection refused".into());
        }
        let delay = faults.take_delay(&request);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match faults.choose_action(&request, self.session) {
            Action::Serve => Ok(self.serve(target)),
            Action::Fail(failure) => {
                journal.record_request(request, Outcome::Answered(failure.code), false);
                Ok(reject(&failure))
            }
            Action::Disconnect => {
                journal.record_request(request, Outcome::Undelivered, false);
                Err("connection reset by peer".into())
            }
            Action::LoseResponse => {
                let changed = self.server.apply_write(&target);
                journal.record_request(request, Outcome::Lost, changed);
                Err("connection reset by peer".into())
            }
            Action::HangBefore => {
                journal.record_request(request, Outcome::Undelivered, false);
                std::future::pending().await
            }
            Action::HangAfter => {
                let changed = self.server.apply_write(&target);
                journal.record_request(request, Outcome::Lost, changed);
                std::future::pending().await
            }
        }
    }

    fn serve(self, target: Target) -> Answer {
        let request = target.request().clone();
        let journal = self.server.journal.clone();
        let (answer, changed) = match target {
            Target::Document(_, document) => (respond(200, &document), false),
            Target::Objects(call) if request.verb == Verb::Watch => match Watch::open(&self.server, call) {
                Ok(watch) => (stream_watch(watch), false),
                Err(failure) => (reject(&failure), false),
            },
            Target::Objects(call) => match self.server.serve(&call) {
                Ok(done) => (respond(done.code, &done.body), done.changed),
                Err(failure) => (reject(&failure), false),
            },
        };
        journal.record_request(request, Outcome::Answered(answer.status().as_u16()), changed);
        answer
    }
}

/// What a request is for.
enum Target {
    Objects(Call),
    Document(Request, Value),
}

impl Target {
    fn request(&self) -> &Request {
        match self {
            Self::Objects(call) => &call.request,
            Self::Document(request, _) => request,
        }
    }
}

fn respond(code: u16, body: &Value) -> Answer {
    let full = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
    let mut answer = Response::new(full.boxed_unsync());
    *answer.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    let json = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, json);
    answer
}

fn reject(failure: &Failure) -> Answer {
    let mut answer = respond(failure.code, &failure.status());
    if let Some(seconds) = failure.retry_after_seconds() {
        answer.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
    }
    answer
}

fn stream_watch(watch: Watch) -> Answer {
    let frames = futures::StreamExt::map(watch.lines(), |line| line.map(http_body::Frame::data));
    let mut answer = Response::new(BodyExt::boxed_unsync(StreamBody::new(frames)));
    let json = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, json);
    answer
}
