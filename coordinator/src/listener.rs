//! One TLS port: the gRPC calls of hosts, and seed ISOs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use proto::limits;
use proto::v1alpha1::host_server::HostServer;
use proto::v1alpha1::registration_server::RegistrationServer;
use rustls::{AlertDescription, CertificateError, Error as Rustls};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt as _;

use crate::ca::{Authority, SERVER_LIFE};
use crate::rpc::host::HostService;
use crate::rpc::registration::RegistrationService;
use crate::rpc::{Context, KEEPALIVE, KEEPALIVE_ANSWER, Rejections};
use crate::seed_iso::{SeedIsos, download};
use crate::telemetry::chain;
use crate::tls::{Acceptor, TlsError};

/// Streams of one connection: a host needs three.
const STREAMS: u32 = 32;
/// What one HTTP/2 stream may send before it is read: an idle host must not
/// hold memory.
const WINDOW: u32 = 64 * 1024;
const HEADER_BYTES: u32 = 16 * 1024;
/// How long open connections may take to end at a shutdown.
const GRACE: Duration = Duration::from_secs(5);
/// Pause after an accept that failed for want of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Everything that the port answers.
#[derive(Clone)]
pub struct Routes {
    router: Router,
    /// Counts hosts whose connection ends before a call.
    rejections: Arc<Rejections>,
}

/// The hosts' calls, and the seed ISOs where there are any.
pub fn build_router(context: &Context, isos: Option<Arc<SeedIsos>>) -> Routes {
    let registration = RegistrationServer::new(RegistrationService::new(context.clone()))
        .max_decoding_message_size(limits::REGISTRATION_BYTES)
        .max_encoding_message_size(limits::REGISTRATION_BYTES);
    let host = HostServer::new(HostService::new(context.clone()))
        .max_decoding_message_size(limits::REPORT_BYTES)
        .max_encoding_message_size(limits::PLAN_BYTES);
    let calls = tonic::service::Routes::new(registration).add_service(host).prepare();
    let downloads = isos.map(download::download_router).unwrap_or_default();
    Routes { router: calls.into_axum_router().merge(downloads), rejections: context.rejections.clone() }
}

/// Serves until `shutdown`, then lets open requests end for a few seconds.
/// Streams of hosts end with [`crate::rpc::sessions::SessionTable::close_all`].
pub async fn run_listener(
    mut port: impl Port,
    acceptor: Acceptor,
    routes: Routes,
    shutdown: impl Future<Output = ()>,
) {
    let connections = GracefulShutdown::new();
    let accept = async {
        loop {
            let (stream, remote) = port.accept_stream().await;
            let (acceptor, routes) = (acceptor.clone(), routes.clone());
            tokio::spawn(serve_connection(acceptor, routes, (stream, remote), connections.watcher()));
        }
    };
    tokio::select! {
        () = accept => {}
        () = shutdown => {}
    }
    drop(port);
    if tokio::time::timeout(GRACE, connections.shutdown()).await.is_err() {
        tracing::info!("some connections did not end in time");
    }
}

/// Where connections come from: TCP, or memory in a test.
pub trait Port: Send {
    /// What is accepted, before TLS.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next connection, and the other end's address for logs.
    fn accept_stream(&mut self) -> impl Future<Output = (Self::Stream, SocketAddr)> + Send;
}

impl Port for TcpListener {
    type Stream = TcpStream;

    async fn accept_stream(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match Self::accept(self).await {
                Ok((stream, remote)) => {
                    // Small messages, each waited for.
                    let _ = stream.set_nodelay(true);
                    return (stream, remote);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

async fn serve_connection<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    acceptor: Acceptor,
    Routes { router, rejections }: Routes,
    (stream, remote): (S, SocketAddr),
    watcher: Watcher,
) {
    let (stream, session) = match acceptor.accept_tls(stream, remote).await {
        Ok(accepted) => accepted,
        Err(error) => return record_failure(&rejections, remote, &error),
    };
    let service = router.map_request(move |request: http::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(session.clone());
        request
    });
    let builder = http_builder();
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    if let Err(error) = watcher.watch(serving.into_owned()).await {
        tracing::debug!(%remote, %error, "a connection ended");
    }
}

/// A flood of these must not flood the log: an untrusted host is logged with
/// the next action at a limited rate, those that are too many are not.
fn record_failure(rejections: &Rejections, remote: SocketAddr, error: &TlsError) {
    match classify_handshake(error) {
        Failure::Untrusted => rejections.record_untrusted(&format!("{remote}: {}", chain(error))),
        Failure::Overload => {}
        Failure::Other => tracing::info!(%remote, error = chain(error), "no TLS session"),
    }
}

/// Why a connection ended before the first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// One side has a certificate that the other's authority did not sign.
    Untrusted,
    /// Too many, or too slow.
    Overload,
    /// Anything else: a scanner, a proxy, a clock.
    Other,
}

fn classify_handshake(error: &TlsError) -> Failure {
    let source = match error {
        TlsError::Busy | TlsError::Timeout => return Failure::Overload,
        TlsError::Handshake(source) => source,
        TlsError::Setup(_) | TlsError::Verifier(_) | TlsError::Exporter(_) | TlsError::Peer(_) => {
            return Failure::Other;
        }
    };
    match source.get_ref().and_then(|cause| cause.downcast_ref()) {
        // The first two are the host's word on our certificate. The second is
        // what it says when two authorities have one name and two keys, as
        // those of two coordinators have.
        Some(
            Rustls::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError)
            | Rustls::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature),
        ) => Failure::Untrusted,
        _ => Failure::Other,
    }
}

fn http_builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(10))
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_ANSWER)
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .max_header_list_size(HEADER_BYTES);
    builder
}

/// Renews the server certificate at two thirds of its life, for ever.
pub async fn renew_certificate(acceptor: Acceptor, authority: Arc<Authority>, names: Vec<String>) {
    loop {
        tokio::time::sleep(SERVER_LIFE * 2 / 3).await;
        let renewed = match authority.server(&names, Timestamp::now()) {
            Ok(identity) => acceptor.renew_identity(identity).map_err(|error| chain(&error)),
            Err(error) => Err(chain(&error)),
        };
        if let Err(error) = renewed {
            tracing::error!(error, "cannot renew the server certificate");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::log;
    use std::io;

    fn handshake(error: Rustls) -> TlsError {
        TlsError::Handshake(io::Error::new(io::ErrorKind::InvalidData, error))
    }

    #[test]
    fn another_authority_is_recognised_by_the_handshake() {
        let alert = |alert| handshake(Rustls::AlertReceived(alert));
        let bad = |error| handshake(Rustls::InvalidCertificate(error));
        for (error, want) in [
            (alert(AlertDescription::UnknownCA), Failure::Untrusted),
            (alert(AlertDescription::DecryptError), Failure::Untrusted),
            (bad(CertificateError::UnknownIssuer), Failure::Untrusted),
            (bad(CertificateError::BadSignature), Failure::Untrusted),
            (alert(AlertDescription::CertificateExpired), Failure::Other),
            (bad(CertificateError::Expired), Failure::Other),
            (TlsError::Handshake(io::ErrorKind::UnexpectedEof.into()), Failure::Other),
            (TlsError::Busy, Failure::Overload),
            (TlsError::Timeout, Failure::Overload),
        ] {
            assert_eq!(classify_handshake(&error), want, "{error:?}");
        }
    }

    #[tokio::test]
    async fn untrusted_hosts_are_logged_at_a_limited_rate() {
        let client = fake_apiserver::FakeApi::new().client("coordinator");
        let rejections = Rejections::new(client, crate::metrics::Metrics::default());
        let error = handshake(Rustls::AlertReceived(AlertDescription::UnknownCA));
        let remote = SocketAddr::from(([192, 0, 2, 7], 4711));
        let lines = log::capture_log(|| (0..90).for_each(|_| record_failure(&rejections, remote, &error)));
        // One, unless the test machine is suspended for a second.
        assert!(lines.lines().count() < 9, "{lines}");
        for part in ["192.0.2.7:4711", "of another coordinator: download a fresh seed ISO"] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
    }
}
