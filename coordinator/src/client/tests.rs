use futures::stream;
use http::header;
use http_body_util::{BodyExt as _, StreamBody};
use kube::client::DynBody;
use tokio::time::sleep;

use super::*;

/// Answers after `head`, and ends its body never.
#[derive(Clone)]
struct Server {
    head: Duration,
    retry_after: Option<&'static str>,
}

impl Service<Request<RequestBody>> for Server {
    type Response = Response<Box<DynBody>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<RequestBody>) -> Self::Future {
        let Self { head, retry_after } = *self;
        Box::pin(async move {
            sleep(head).await;
            let body: Box<DynBody> =
                Box::new(StreamBody::new(stream::pending::<Result<Frame<Bytes>, BoxError>>()));
            let mut answer = Response::new(body);
            let asked = retry_after.map(|value| (header::RETRY_AFTER, value.parse().unwrap()));
            answer.headers_mut().extend(asked);
            Ok(answer)
        })
    }
}

async fn send(head: Duration, uri: &str) -> Result<Response<DeadlineBody<Box<DynBody>>>, BoxError> {
    let request = Request::get(uri).body(RequestBody::empty()).unwrap();
    DeadlineLayer::default().layer(Server { head, retry_after: None }).call(request).await
}

#[tokio::test(start_paused = true)]
async fn a_request_without_answer_ends_at_its_deadline() {
    let started = Instant::now();
    for uri in ["/api/v1/secrets/a", "/api/v1/secrets?watch=true"] {
        let error = send(Duration::from_hours(1), uri).await.err().unwrap();
        assert!(error.is::<DeadlineExceeded>(), "{uri}: {error}");
    }
    assert_eq!(started.elapsed(), 2 * REQUEST_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_hangs_ends_at_its_deadline() {
    let started = Instant::now();
    let response = send(Duration::from_secs(4), "/api/v1/secrets/a?limit=1").await.unwrap();
    let error = response.into_body().collect().await.err().unwrap();
    assert!(error.is::<DeadlineExceeded>(), "{error}");
    assert_eq!(started.elapsed(), REQUEST_TIMEOUT);
}

#[tokio::test]
async fn a_response_is_bounded() {
    for (most_bytes, is_read) in [(None, true), (Some(6), true), (Some(5), false)] {
        let frames = ["abc", "def"].map(|text| Ok::<_, BoxError>(Frame::data(Bytes::from(text))));
        let inner = StreamBody::new(stream::iter(frames));
        let body = DeadlineBody { inner, expiry: None, bytes_left: most_bytes };
        let read = body.collect().await;
        assert_eq!(read.is_ok(), is_read, "{most_bytes:?}");
        assert!(read.err().is_none_or(|error| error.is::<TooLarge>()), "{most_bytes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_last() {
    let response = send(Duration::ZERO, "/api/v1/configmaps?limit=1&watch=true").await.unwrap();
    let end = tokio::time::timeout(REQUEST_TIMEOUT * 100, response.into_body().collect()).await;
    assert!(end.is_err());
}

#[test]
fn requests_are_described_without_names() {
    let uri = |path: &str| path.parse::<Uri>().unwrap();
    for (method, path, want) in [
        (Method::GET, "/api/v1/namespaces/fleet/secrets/host-1", ("get", "secrets")),
        (Method::GET, "/api/v1/namespaces/fleet/secrets?limit=500", ("list", "secrets")),
        (Method::GET, "/api/v1/namespaces/fleet", ("get", "namespaces")),
        (Method::POST, "/api/v1/namespaces/fleet/events?", ("create", "events")),
        (
            Method::GET,
            "/apis/elemental.cattle.io/v1beta1/machineinventories?&watch=true&resourceVersion=1",
            ("watch", "machineinventories"),
        ),
        (
            Method::PATCH,
            "/apis/elemental.cattle.io/v1beta1/namespaces/fleet/machineinventories/host-1/status?",
            ("patch", "machineinventories/status"),
        ),
        (
            Method::PUT,
            "/apis/coordination.k8s.io/v1/namespaces/own/leases/baremetal-coordinator?",
            ("update", "leases"),
        ),
        (Method::GET, "/api/v1/nodes/n1/status", ("get", "nodes/status")),
        (Method::DELETE, "/api/v1/nodes/n1", ("delete", "nodes")),
        (Method::GET, "/apis/cluster.x-k8s.io", ("get", "none")),
        (Method::GET, "/version", ("get", "none")),
        (Method::HEAD, "/api/v1/nodes", ("other", "nodes")),
    ] {
        let (verb, resource) = describe_request(&method, &uri(path));
        assert_eq!((verb, resource.as_str()), want, "{method} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_request_is_counted_by_its_answer() {
    let metrics = Metrics::default();
    let layer = DeadlineLayer { metrics: Some(metrics.clone()), ..DeadlineLayer::default() };
    for head in [Duration::ZERO, Duration::from_mins(1)] {
        let request = Request::get("/api/v1/nodes?watch=true").body(RequestBody::empty()).unwrap();
        let _ = layer.layer(Server { head, retry_after: None }).call(request).await;
    }
    let text = metrics.encode_text().unwrap();
    for code in ["200", "none"] {
        let line = format!("api_requests_total{{verb=\"watch\",resource=\"nodes\",code=\"{code}\"}} 1");
        assert!(text.contains(&line), "{line}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_an_opened_watch_has_an_age() {
    for (uri, head, is_noted) in [
        ("/api/v1/nodes?watch=true", Duration::ZERO, true),
        ("/api/v1/nodes?watch=true", Duration::from_mins(1), false),
        ("/api/v1/nodes", Duration::ZERO, false),
    ] {
        let metrics = Metrics::default();
        let layer = DeadlineLayer { metrics: Some(metrics.clone()), ..DeadlineLayer::default() };
        let request = Request::get(uri).body(RequestBody::empty()).unwrap();
        let _ = layer.layer(Server { head, retry_after: None }).call(request).await;
        let text = metrics.encode_text().unwrap();
        let opened = "watch_opened_timestamp_seconds{resource=\"nodes\"}";
        assert_eq!(text.contains(opened), is_noted, "{uri} {head:?}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_wait_as_the_api_server_asks() {
    const HEAD: Duration = Duration::from_secs(8);
    let date = "Wed, 25 Nov 2026 12:00:00 GMT";
    for (retry_after, hold) in [("10", 10), ("3600", 30), ("0", 0), (date, 0), ("-1", 0)] {
        let layer = DeadlineLayer::default();
        let server = Server { head: HEAD, retry_after: Some(retry_after) };
        let started = Instant::now();
        for (uri, begins) in [
            ("/api/v1/namespaces/fleet/events", 0),
            ("/apis/coordination.k8s.io/v1/namespaces/own/leases/a", 8),
            ("/api/v1/namespaces/other/events", 16.max(8 + hold)),
        ] {
            let request = Request::get(uri).body(RequestBody::empty()).unwrap();
            let answer = layer.layer(server.clone()).call(request).await;
            assert!(answer.is_ok(), "the deadline counts from the end of the wait");
            assert_eq!(started.elapsed(), Duration::from_secs(begins) + HEAD, "{retry_after}: {uri}");
        }
    }
}
