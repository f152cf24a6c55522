//! A client that dies with its process: what a dead coordinator still asks for
//! is never sent, though its tasks may live on in this one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tower::Service;

/// Whether a process lives.
#[derive(Clone, Default)]
pub(crate) struct Life(Arc<AtomicBool>);

impl Life {
    pub(crate) fn end(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn has_ended(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[derive(Clone)]
struct Mortal {
    life: Life,
    client: Client,
}

/// `client`, for as long as `life` lasts.
pub(crate) fn mortal(client: Client, life: Life) -> Client {
    Client::new(Mortal { life, client }, "default")
}

impl Service<Request<Body>> for Mortal {
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
