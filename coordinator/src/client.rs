//! The client of the API server: every request has a deadline, is counted, and waits when the API
//! server asks for it.

mod hold;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use kube::client::{Body as RequestBody, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tower::{BoxError, Layer, Service, ServiceBuilder};

use self::hold::Holds;
use crate::egress::Targets;
use crate::metrics::Metrics;

/// The time from the request to the end of the response. For a watch it ends with the beginning of
/// the response, and an idle timeout of kube-runtime follows.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes of an answer of a workload cluster, whose control plane is not trusted. A page of its
/// Nodes is below half of it even if each Node lists its images.
pub(crate) const WORKLOAD_BYTES: usize = 4 << 20;

/// A client for the kubeconfig or service account of the environment. Its requests are counted in
/// `metrics`.
///
/// # Errors
/// When neither is usable.
pub async fn connect_api(metrics: Metrics) -> Result<Client, ConnectError> {
    Ok(build_client(Config::infer().await?, Some(metrics))?)
}

/// A client of a workload cluster, whose answers are bounded in time and in size.
///
/// # Errors
/// When the certificates of the configuration are not usable.
pub fn build_workload_client(config: Config, targets: Targets) -> Result<Client, kube::Error> {
    let layer = DeadlineLayer { most_bytes: Some(WORKLOAD_BYTES), ..DeadlineLayer::default() };
    let mut connector = HttpConnector::new_with_resolver(targets);
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let client = legacy::Client::builder(TokioExecutor::new()).build::<_, RequestBody>(connector);
    let service = ServiceBuilder::new()
        .layer(layer)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(Client::new(service, config.default_namespace))
}

/// A client whose requests have a deadline.
///
/// # Errors
/// When the certificates of the configuration are not usable.
pub fn build_client(config: Config, metrics: Option<Metrics>) -> Result<Client, kube::Error> {
    build_with(config, &DeadlineLayer { metrics, ..DeadlineLayer::default() })
}

fn build_with(mut config: Config, layer: &DeadlineLayer) -> Result<Client, kube::Error> {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // A retry within the client would hide the API server's answer for minutes; every caller
    // retries and shows the cause.
    config.default_retry = false;
    Ok(ClientBuilder::try_from(config)?.with_layer(layer).build())
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("neither a kubeconfig nor a service account is usable")]
    Config(#[from] kube::config::InferConfigError),
    #[error("the configuration of the client is not usable")]
    Client(#[from] kube::Error),
}

/// The deadline of a request passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API server did not answer within {} s", REQUEST_TIMEOUT.as_secs())]
pub struct DeadlineExceeded;

/// A response is larger than its sender may make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer of the API server is larger than {} MiB", WORKLOAD_BYTES >> 20)]
pub struct TooLarge;

/// The settings around the requests of a client.
#[derive(Clone, Debug, Default)]
pub struct DeadlineLayer {
    /// The metrics that count requests.
    metrics: Option<Metrics>,
    holds: Holds,
    /// Most bytes of a response.
    most_bytes: Option<usize>,
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline {
            inner,
            metrics: self.metrics.clone(),
            holds: self.holds.clone(),
            most_bytes: self.most_bytes,
        }
    }
}

/// A service with deadlines: see [`build_client`].
#[derive(Clone, Debug)]
pub struct Deadline<S> {
    inner: S,
    metrics: Option<Metrics>,
    holds: Holds,
    most_bytes: Option<usize>,
}

impl<S, B> Service<Request<RequestBody>> for Deadline<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<DeadlineBody<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let (verb, resource) = describe_request(request.method(), request.uri());
        let (is_watch, metrics, holds) = (verb == "watch", self.metrics.clone(), self.holds.clone());
        let bytes_left = self.most_bytes;
        // The request is sent when the response is polled.
        let response = self.inner.call(request);
        Box::pin(async move {
            holds.wait(&resource).await;
            let deadline = Instant::now() + REQUEST_TIMEOUT;
            let response = timeout_at(deadline, response).await;
            let answer = response.as_ref().ok().and_then(|answer| answer.as_ref().ok());
            if let Some(answer) = answer {
                holds.note(&resource, answer.headers());
            }
            let code = answer.map(Response::status);
            if let Some(metrics) = metrics {
                if is_watch && code.is_some_and(|code| code.is_success()) {
                    metrics.note_watch(resource.clone(), Timestamp::now());
                }
                metrics.count_request(verb, resource, code);
            }
            let response = response.map_err(|_| DeadlineExceeded)??;
            let expiry = (!is_watch).then(|| Box::pin(sleep_until(deadline)));
            Ok(response.map(|inner| DeadlineBody { inner, expiry, bytes_left }))
        })
    }
}

/// Verb and resource of a request, as Kubernetes names them. A name of an object is never part of
/// them, because it is unbounded.
fn describe_request(method: &Method, uri: &Uri) -> (&'static str, String) {
    let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    let below = match parts.as_slice() {
        ["api", _, below @ ..] | ["apis", _, _, below @ ..] => below,
        _ => &[],
    };
    let (resource, name) = match below {
        ["namespaces", _, plural, _, part, ..] => (format!("{plural}/{part}"), true),
        ["namespaces", _, plural, rest @ ..] => ((*plural).to_owned(), !rest.is_empty()),
        [plural, _, part, ..] => (format!("{plural}/{part}"), true),
        [plural, rest @ ..] => ((*plural).to_owned(), !rest.is_empty()),
        [] => ("none".to_owned(), true),
    };
    let mut query = uri.query().into_iter().flat_map(|query| query.split('&'));
    let is_watch = query.any(|pair| matches!(pair, "watch=true" | "watch=1"));
    let verb = match *method {
        Method::GET if is_watch => "watch",
        Method::GET if name => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    };
    (verb, resource)
}

/// A response that must end before the deadline.
pub struct DeadlineBody<B> {
    inner: B,
    expiry: Option<Pin<Box<Sleep>>>,
    bytes_left: Option<usize>,
}

impl<B> DeadlineBody<B> {
    fn count_bytes(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BoxError> {
        let length = frame.data_ref().map_or(0, Bytes::len);
        if let Some(left) = &mut self.bytes_left {
            *left = left.checked_sub(length).ok_or(TooLarge)?;
        }
        Ok(frame)
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for DeadlineBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| self.count_bytes(frame.map_err(Into::into)?)));
        }
        match self.expiry.as_mut().map(|expiry| expiry.as_mut().poll(context)) {
            Some(Poll::Ready(())) => Poll::Ready(Some(Err(DeadlineExceeded.into()))),
            Some(Poll::Pending) | None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests;
