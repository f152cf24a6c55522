//! From an HTTP request to its answer, through all the faults.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

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
use crate::rules::Plan;
use crate::store::Store;
use crate::watch::Watch;

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
    fn change(self: &Arc<Self>, target: &Target) -> bool {
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

    pub(crate) fn access(&self) -> MutexGuard<'_, Access> {
        self.access.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn authorize(&self, call: &Call) -> Result<(), Failure> {
        self.access().check(call)
    }

    /// Serves everything but watches.
    pub(crate) fn serve(self: &Arc<Self>, call: &Call) -> Result<Done, Failure> {
        self.authorize(call)?;
        let mut store = self.store();
        let done = match call.request.verb {
            Verb::Get => store.read(call),
            Verb::List => store.read_all(call),
            Verb::Create => store.create(call),
            Verb::Update => store.replace(call),
            Verb::Patch => store.patch(call),
            Verb::Delete => store.delete(call),
            Verb::DeleteCollection => store.delete_all(call),
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
        Box::pin(async move { connection.answer(request).await })
    }
}

impl Connection {
    async fn answer(self, request: http::Request<Body>) -> Result<Answer, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let target = match self.find_target(&parts, body) {
            Ok(target) => target,
            Err(failure) => return Ok(refuse(&failure)),
        };
        let latency = self.server.faults.present_latency();
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let answer = self.reach(target).await?;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        Ok(answer)
    }

    fn find_target(&self, parts: &Parts, body: Bytes) -> Result<Target, Failure> {
        check_body_size(body.len())?;
        let store = self.server.store();
        match find_document(&store.kinds, &self.user, parts.uri.path()) {
            Some((request, document)) => Ok(Target::Document(request, document)),
            None => Call::parse(&store.kinds, &self.user, parts, body).map(Target::Objects),
        }
    }

    /// The way through outages and planned faults.
    async fn reach(self, target: Target) -> Result<Answer, BoxError> {
        let Server { faults, journal, .. } = &*self.server;
        let request = target.request().clone();
        if faults.is_dead(&self.user, self.session) {
            std::future::pending::<()>().await;
        }
        let mut outage = faults.present_outage();
        let now = *outage.borrow_and_update();
        if now != Outage::Over {
            journal.note(request, Outcome::Unheard, false);
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
        match faults.plan(&request, self.session) {
            Plan::Serve => Ok(self.serve(target)),
            Plan::Fail(failure) => {
                journal.note(request, Outcome::Answered(failure.code), false);
                Ok(refuse(&failure))
            }
            Plan::Disconnect => {
                journal.note(request, Outcome::Unheard, false);
                Err("connection reset by peer".into())
            }
            Plan::LoseResponse => {
                let changed = self.server.change(&target);
                journal.note(request, Outcome::Lost, changed);
                Err("connection reset by peer".into())
            }
            Plan::HangBefore => {
                journal.note(request, Outcome::Unheard, false);
                std::future::pending().await
            }
            Plan::HangAfter => {
                let changed = self.server.change(&target);
                journal.note(request, Outcome::Lost, changed);
                std::future::pending().await
            }
        }
    }

    fn serve(self, target: Target) -> Answer {
        let request = target.request().clone();
        let journal = self.server.journal.clone();
        let (answer, changed) = match target {
            Target::Document(_, document) => (reply(200, &document), false),
            Target::Objects(call) if request.verb == Verb::Watch => match Watch::open(&self.server, call) {
                Ok(watch) => (stream(watch), false),
                Err(failure) => (refuse(&failure), false),
            },
            Target::Objects(call) => match self.server.serve(&call) {
                Ok(done) => (reply(done.code, &done.body), done.changed),
                Err(failure) => (refuse(&failure), false),
            },
        };
        journal.note(request, Outcome::Answered(answer.status().as_u16()), changed);
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

fn reply(code: u16, body: &Value) -> Answer {
    let full = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
    let mut answer = Response::new(full.boxed_unsync());
    *answer.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    let json = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, json);
    answer
}

fn refuse(failure: &Failure) -> Answer {
    let mut answer = reply(failure.code, &failure.status());
    if let Some(seconds) = failure.retry_after_seconds() {
        answer.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
    }
    answer
}

fn stream(watch: Watch) -> Answer {
    let frames = futures::StreamExt::map(watch.lines(), |line| line.map(http_body::Frame::data));
    let mut answer = Response::new(BodyExt::boxed_unsync(StreamBody::new(frames)));
    let json = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, json);
    answer
}
