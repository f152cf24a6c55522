//! A client that stops with its coordinator: after the kill no request is sent
//! and no response is delivered, though tasks of it may still run.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use coordinator::client::DeadlineLayer;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tower::{Layer as _, Service};

/// Whether a simulated process runs.
#[derive(Clone, Default)]
pub(crate) struct Liveness(Arc<AtomicBool>);

impl Liveness {
    pub(crate) fn kill(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn has_ended(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[derive(Clone)]
struct KillableClient {
    life: Liveness,
    client: Client,
}

/// `client`, until `life` is killed, with what the coordinator puts around its own.
pub(crate) fn killable_client(client: Client, life: Liveness) -> Client {
    Client::new(DeadlineLayer::default().layer(KillableClient { life, client }), "default")
}

impl Service<Request<Body>> for KillableClient {
    type Response = Response<Body>;
    type Error = tower::BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { life, client } = self.clone();
        Box::pin(async move {
            if life.has_ended() {
                std::future::pending::<()>().await;
            }
            let answer = client.send(request).await;
            if life.has_ended() {
                std::future::pending::<()>().await;
            }
            answer.map_err(Into::into)
        })
    }
}
