//! The server of the page.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use futures::Stream;
use futures::stream;
use tokio::net::TcpListener;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::assets::{ASSETS, Asset, INDEX};
use super::follow::{Followed, Message, Subscription, write_lines};
use super::gate::{Gate, guard, random_token};
use super::model::Delta;
use crate::failure::Failure;
use crate::fleet::{Id, Kind};

/// Lines of an event at the start of a page.
const CHUNK: usize = 250;
/// Bound of the open pages.
const PAGES: usize = 32;

/// A page that is being served.
pub(crate) struct Page {
    listener: TcpListener,
    router: Router,
    /// The link for the user of the program.
    pub(crate) url: String,
    /// The link for the browser. It works once, because other users of the machine see the arguments
    /// of the browser's process.
    pub(crate) once: String,
}

#[derive(Clone)]
struct Shared {
    followed: Followed,
    /// Context and namespace, which the page shows.
    place: Arc<str>,
    pages: Arc<Semaphore>,
    token: Arc<str>,
    /// The code that opens the page once; `None` after that.
    code: Arc<Mutex<Option<String>>>,
}

impl Page {
    /// Takes the port; zero stands for a free one.
    pub(crate) async fn open(followed: Followed, place: &str, port: u16) -> Result<Self, Failure> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let failed = || Failure::file(format!("listen on {address}; choose another --port"));
        let listener = TcpListener::bind(address).await.map_err(failed())?;
        let address = listener.local_addr().map_err(failed())?;
        let tokens = random_token().zip(random_token());
        let (token, code) = tokens
            .ok_or_else(|| Failure::Refused("the system gives no random numbers: try again".to_owned()))?;
        let shared = Shared {
            followed,
            place: place.into(),
            pages: Arc::new(Semaphore::new(PAGES)),
            token: token.as_str().into(),
            code: Arc::new(Mutex::new(Some(code.clone()))),
        };
        let router = route(&token, shared);
        let (url, once) = (format!("http://{address}/{token}/"), format!("http://{address}/open/{code}"));
        Ok(Self { listener, router, url, once })
    }
}

/// Serves the page until the program ends.
pub(crate) async fn serve(page: Page) -> Result<(), Failure> {
    axum::serve(page.listener, page.router).await.map_err(Failure::file("serve the page"))
}

fn route(token: &str, shared: Shared) -> Router {
    let below = |path: &str| format!("/{token}/{path}");
    let mut router = Router::new()
        .route("/open/{code}", get(open_once))
        .route(&below(""), get(async || send_asset(&INDEX)))
        .route(&below("live"), get(follow_fleet))
        .route(&below("object/{kind}/{namespace}/{name}"), get(show_object))
        .route(&below("why/{kind}/{namespace}/{name}"), get(explain_object));
    for asset in ASSETS {
        router = router.route(&below(asset.name), get(async || send_asset(asset)));
    }
    router.layer(axum::middleware::from_fn_with_state(Gate::new(token), guard)).with_state(shared)
}

fn send_asset(asset: &'static Asset) -> Response {
    ([(header::CONTENT_TYPE, asset.kind)], asset.text).into_response()
}

/// Redirects to the page, once.
async fn open_once(State(shared): State<Shared>, Path(code): Path<String>) -> Response {
    let mut known = shared.code.lock().unwrap_or_else(PoisonError::into_inner);
    if known.take_if(|known| *known == code).is_none() {
        let text = "this link was used before: open the link that `kubectl baremetal ui` printed";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    Redirect::to(&format!("/{}/", shared.token)).into_response()
}

async fn show_object(State(shared): State<Shared>, Path(path): Path<[String; 3]>) -> Response {
    let Some(id) = read_id(&path) else { return send_json(None) };
    send_json(shared.followed.show(id).await)
}

async fn explain_object(State(shared): State<Shared>, Path(path): Path<[String; 3]>) -> Response {
    let Some(id) = read_id(&path) else { return send_json(None) };
    send_json(shared.followed.explain(id).await)
}

fn read_id([kind, namespace, name]: &[String; 3]) -> Option<Id> {
    Some(Id::new(Kind::parse(kind)?, namespace, name))
}

fn send_json(text: Option<String>) -> Response {
    match text {
        Some(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        None => (StatusCode::NOT_FOUND, "the object does not exist or cannot be read").into_response(),
    }
}

/// Name and data of a server-sent event.
type Told = (&'static str, Arc<str>);

/// The connection of an open page.
struct Reader {
    shared: Shared,
    pending: VecDeque<Told>,
    subscription: Option<Subscription>,
    _permit: OwnedSemaphorePermit,
}

/// Sends all lines to a page, and then the changes.
async fn follow_fleet(State(shared): State<Shared>) -> Response {
    let Ok(permit) = shared.pages.clone().try_acquire_owned() else {
        let text = "too many pages are open: close some";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let reader = Reader { shared, pending: VecDeque::new(), subscription: None, _permit: permit };
    Sse::new(read_events(reader)).keep_alive(KeepAlive::default()).into_response()
}

/// The events of a page. An event is made when the one before was taken, so that a page that does
/// not read holds no more than its start.
fn read_events(reader: Reader) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(reader, async |mut reader| {
        let (name, data) = reader.next().await?;
        Some((Ok(Event::default().event(name).data(data)), reader))
    })
}

impl Reader {
    async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            let Some(subscription) = &mut self.subscription else {
                self.begin().await?;
                continue;
            };
            match subscription.messages.recv().await {
                Ok(Message::Lines(text)) => return Some(("lines", text)),
                Ok(Message::Notes(text)) => return Some(("notes", text)),
                Ok(Message::Restart) | Err(RecvError::Lagged(_)) => self.subscription = None,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// Queues all lines. After `complete` the page drops the lines that were not among these.
    async fn begin(&mut self) -> Option<()> {
        let mut subscription = self.shared.followed.subscribe().await?;
        let lines = std::mem::take(&mut subscription.lines);
        self.pending.push_back(("begin", self.shared.place.clone()));
        self.pending.push_back(("notes", subscription.notes.clone()));
        let chunks = lines.chunks(CHUNK).map(|lines| write_lines(lines, &Delta::default()));
        self.pending.extend(chunks.map(|text| ("lines", text.into())));
        if subscription.is_complete {
            self.pending.push_back(("complete", "{}".into()));
        }
        self.subscription = Some(subscription);
        Some(())
    }
}

#[cfg(test)]
mod tests;
