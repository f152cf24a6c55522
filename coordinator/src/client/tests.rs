use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::time::sleep;

use super::*;

/// Answers after `head`, and ends its body never.
#[derive(Clone)]
struct Server {
    head: Duration,
}

impl Service<Request<RequestBody>> for Server {
    type Response = Response<Box<DynBody>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<RequestBody>) -> Self::Future {
        let head = self.head;
        Box::pin(async move {
            sleep(head).await;
            let body: Box<DynBody> =
                Box::new(StreamBody::new(stream::pending::<Result<Frame<Bytes>, BoxError>>()));
            Ok(Response::new(body))
        })
    }
}

async fn send(head: Duration, uri: &str) -> Result<Response<DeadlineBody>, BoxError> {
    let request = Request::get(uri).body(RequestBody::empty()).unwrap();
    DeadlineLayer.layer(Server { head }).call(request).await
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

#[tokio::test(start_paused = true)]
async fn a_watch_may_last() {
    let response = send(Duration::ZERO, "/api/v1/configmaps?limit=1&watch=true").await.unwrap();
    let end = tokio::time::timeout(REQUEST_TIMEOUT * 100, response.into_body().collect()).await;
    assert!(end.is_err());
}
