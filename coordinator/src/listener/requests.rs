//! The requests of a connection. They are limited before their message is read.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use proto::limits;
use proto::v1alpha1::{host_server, registration_server};
use tokio::time::Instant;
use tonic::Status;
use tower::ServiceExt as _;

use super::activity::Activity;
use super::admission::Admission;
use super::failure::{Failure, record_failure};
use crate::rpc::Rejections;
use crate::tls::Session;

/// Longest time of the message of a registration.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of gRPC before a message.
const FRAME_BYTES: usize = 5;

type Answer = Result<Response<Body>, Infallible>;

/// Answers the requests of a connection.
#[derive(Clone)]
pub(super) struct Requests {
    pub(super) router: Router,
    pub(super) admission: Arc<Admission>,
    pub(super) rejections: Arc<Rejections>,
    pub(super) session: Session,
    pub(super) activity: Activity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A call without certificate, which is the most expensive one.
    Registration,
    /// A stream without end.
    Attach,
    /// Any other unary call.
    Call,
    /// A download, or a path that is not served.
    Other,
}

fn classify_path(path: &str) -> Kind {
    let Some((service, method)) = path.trim_start_matches('/').split_once('/') else { return Kind::Other };
    match (service, method) {
        (registration_server::SERVICE_NAME, _) => Kind::Registration,
        (host_server::SERVICE_NAME, "Attach") => Kind::Attach,
        (host_server::SERVICE_NAME, _) => Kind::Call,
        _ => Kind::Other,
    }
}

impl Requests {
    pub(super) fn answer_request(self, request: Request<Incoming>) -> BoxFuture<'static, Answer> {
        // Counted before the future is polled, because the connection is in use from now on.
        let running = self.activity.start_request();
        Box::pin(async move {
            let response = self.limit_request(request).await;
            drop(running);
            let response = response?;
            if !self.is_anonymous() {
                return Ok(response);
            }
            let activity = self.activity.clone();
            Ok(response.map(|body| Body::new(body.inspect_frame(move |_| activity.note_progress()))))
        })
    }

    fn is_anonymous(&self) -> bool {
        self.session.peer().is_none()
    }

    fn remote(&self) -> IpAddr {
        self.session.remote().ip()
    }

    fn reject_request(&self, kind: Kind, failure: Failure) -> Response<Body> {
        record_failure(&self.rejections, self.session.remote(), failure, None);
        if kind == Kind::Other {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            return response;
        }
        let answer = match failure {
            Failure::HostRequests => {
                Status::resource_exhausted("too many requests of this host: retry later")
            }
            Failure::MessageTimeout => Status::unavailable("the message did not arrive in time: retry later"),
            _ => Status::unavailable("too many requests: retry later"),
        };
        answer.into_http()
    }

    async fn limit_request(&self, request: Request<Incoming>) -> Answer {
        let kind = classify_path(request.uri().path());
        if self.is_anonymous() && !self.admission.take_request(self.remote(), Instant::now()) {
            return Ok(self.reject_request(kind, Failure::SourceRequests));
        }
        if let Some(peer) = self.session.peer()
            && !self.admission.take_host_request(&peer.key, Instant::now())
        {
            return Ok(self.reject_request(kind, Failure::HostRequests));
        }
        let request = self.count_bytes(request);
        if matches!(kind, Kind::Attach | Kind::Other) {
            return self.forward_request(request).await;
        }
        let is_shared = self.is_anonymous() || kind == Kind::Registration;
        let answered = async {
            if !is_shared {
                return self.forward_request(request).await;
            }
            let Some(_share) = self.admission.start_registration(self.remote()) else {
                return Ok(self.reject_request(kind, Failure::SourceRegistrations));
            };
            // The message is read before the permit is taken, so that slow messages hold none.
            let reading = self.admission.wait_message(self.remote()).await;
            let Ok(request) = tokio::time::timeout(MESSAGE_TIMEOUT, read_message(request)).await else {
                return Ok(self.reject_request(kind, Failure::MessageTimeout));
            };
            let _permit = self.admission.wait_registration().await;
            drop(reading);
            self.forward_request(request).await
        };
        let timeout = self.admission.limits().call_timeout;
        tokio::time::timeout(timeout, answered).await.unwrap_or_else(|_| {
            record_failure(&self.rejections, self.session.remote(), Failure::CallTimeout, None);
            Ok(Status::deadline_exceeded("the call took too long: retry").into_http())
        })
    }

    /// Counts the bytes that a host sends, before a message is decoded. The request fails above the limit.
    fn count_bytes(&self, request: Request<Incoming>) -> Request<Body> {
        let Some(host) = self.session.peer().map(|peer| peer.key.clone()) else {
            return request.map(Body::new);
        };
        let admission = self.admission.clone();
        request.map(|body| {
            let frames = body.into_data_stream().map(move |data| {
                let data = data.map_err(io::Error::other)?;
                if admission.take_host_bytes(&host, data.len(), Instant::now()) {
                    return Ok(data);
                }
                Err(io::Error::other("the host sends too much"))
            });
            Body::from_stream(frames)
        })
    }

    async fn forward_request(&self, mut request: Request<Body>) -> Answer {
        request.extensions_mut().insert(self.session.clone());
        self.router.clone().oneshot(request).await
    }
}

/// Reads the message of a request. Of one that is too large the start is kept, which tells its size.
async fn read_message(request: Request<Body>) -> Request<Body> {
    let (parts, mut body) = request.into_parts();
    let mut message = vec![];
    while message.len() <= limits::REGISTRATION_BYTES + FRAME_BYTES {
        // A request that breaks off has a message that cannot be decoded.
        let Some(Ok(frame)) = body.frame().await else { break };
        if let Ok(data) = frame.into_data() {
            message.extend_from_slice(&data);
        }
    }
    Request::from_parts(parts, Body::from(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_says_what_is_called() {
        for (path, want) in [
            ("/baremetal.v1alpha1.Registration/Complete", Kind::Registration),
            ("/baremetal.v1alpha1.Host/Attach", Kind::Attach),
            ("/baremetal.v1alpha1.Host/ReportStep", Kind::Call),
            ("/elemental/seedimage/token/a.iso", Kind::Other),
            ("/", Kind::Other),
        ] {
            assert_eq!(classify_path(path), want, "{path}");
        }
    }
}
