//! The TLS port, for the gRPC calls of hosts, registration files, and seed ISOs.

mod activity;
mod admission;
mod failure;
mod known_hosts;
mod requests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use proto::limits;
use proto::v1alpha1::host_server::HostServer;
use proto::v1alpha1::registration_server::RegistrationServer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use crate::ca::{Authority, SERVER_LIFE};
use crate::clock::Clock;
use crate::config::ConnectionLimits;
use crate::rpc::host::HostService;
use crate::rpc::registration::{RegistrationService, registration_router};
use crate::rpc::{Context, KEEPALIVE, KEEPALIVE_ANSWER, Rejections};
use crate::seed_iso::{SeedIsos, download};
use crate::telemetry::chain;
use crate::tls::{self, Acceptor, Session, TlsError};
use activity::Activity;
use admission::{Admission, Connection};
use failure::{Failure, classify_handshake, record_failure};
use requests::Requests;

pub use known_hosts::{KnownHosts, Source};

/// Streams of a connection. A host needs three, and each stream can hold a message.
const STREAMS: u32 = 8;
/// Bytes that an HTTP/2 stream may send before they are read, so that an idle host holds no memory.
const WINDOW: u32 = 64 * 1024;
const HEADER_BYTES: u32 = 16 * 1024;
/// Time for open connections to end at a shutdown.
const GRACE: Duration = Duration::from_secs(5);
/// Pause after an accept that failed for want of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Everything that the port answers.
#[derive(Clone)]
pub struct Routes {
    router: Router,
    /// Counts and logs rejected connections.
    rejections: Arc<Rejections>,
    admission: Arc<Admission>,
    clock: Clock,
}

impl Routes {
    /// Replaces the default limits, and adds a reserve for known hosts.
    pub fn with_admission(self, limits: ConnectionLimits, known: Arc<KnownHosts>) -> Self {
        Self { admission: Arc::new(Admission::new(limits, known)), ..self }
    }
}

/// Routes for the calls of hosts, registration files and, if there are any, seed ISOs.
pub fn build_router(context: &Context, isos: Option<Arc<SeedIsos>>) -> Routes {
    let registration = RegistrationServer::new(RegistrationService::new(context.clone()))
        .max_decoding_message_size(limits::REGISTRATION_BYTES)
        .max_encoding_message_size(limits::REGISTRATION_BYTES);
    let host = HostServer::new(HostService::new(context.clone()))
        .max_decoding_message_size(limits::REPORT_BYTES)
        .max_encoding_message_size(limits::PLAN_BYTES);
    let calls = tonic::service::Routes::new(registration).add_service(host).prepare();
    let downloads = isos.map_or_else(Router::new, download::download_router);
    Routes {
        router: calls.into_axum_router().merge(downloads).merge(registration_router(context.clone())),
        rejections: context.rejections.clone(),
        admission: Arc::new(Admission::new(ConnectionLimits::default(), Arc::default())),
        clock: context.clock.clone(),
    }
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
            start_connection(&acceptor, &routes, (stream, remote), connections.watcher());
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

/// The source of connections: TCP, or memory in a test.
pub trait Port: Send {
    /// An accepted stream, before TLS.
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
                    // Messages are small, and the other side waits for each.
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

/// Serves a connection, or rejects it before a byte is read.
fn start_connection<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    acceptor: &Acceptor,
    routes: &Routes,
    (stream, remote): (S, SocketAddr),
    watcher: Watcher,
) {
    match routes.admission.admit_connection(remote.ip(), Instant::now()) {
        Ok(connection) => {
            let (acceptor, routes) = (acceptor.clone(), routes.clone());
            tokio::spawn(async move {
                let served = serve_connection(&acceptor, &routes, (stream, remote), connection, watcher);
                if let Err((failure, error)) = served.await {
                    record_failure(&routes.rejections, remote, failure, error.as_ref());
                }
            });
        }
        Err(failure) => record_failure(&routes.rejections, remote, failure, None),
    }
}

async fn serve_connection<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    acceptor: &Acceptor,
    routes: &Routes,
    (stream, remote): (S, SocketAddr),
    mut connection: Connection,
    watcher: Watcher,
) -> Result<(), (Failure, Option<TlsError>)> {
    let limits = routes.admission.limits();
    // Boxed, because the future of the connection would else hold memory for the handshake to its end.
    let accepted = Box::pin(accept_tls(acceptor, limits.handshake_timeout, (stream, remote), &connection));
    let (stream, session) = accepted.await?;
    let now = routes.clock.now();
    connection.end_handshake(session.peer(), now).map_err(|failure| (failure, None))?;
    let left = session.peer().map(|peer| {
        // The streams of the connection end by themselves at that time.
        Duration::try_from(peer.not_after.duration_since(now)).unwrap_or(Duration::ZERO) + GRACE
    });
    let activity = Activity::new();
    let requests = Requests {
        router: routes.router.clone(),
        admission: routes.admission.clone(),
        rejections: routes.rejections.clone(),
        session,
        activity: activity.clone(),
    };
    let service = service_fn(move |request| requests.clone().answer_request(request));
    let builder = http_builder();
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        served = watcher.watch(serving.into_owned()) => {
            if let Err(error) = served {
                tracing::debug!(%remote, %error, "connection ended");
            }
            Ok(())
        }
        failure = activity.wait_unused(limits, left) => Err((failure, None)),
    }
}

/// Reads the `ClientHello`, which costs nothing, before it waits for a permit, because only a limited
/// number of handshakes may run at a time.
async fn accept_tls<S: AsyncRead + AsyncWrite + Unpin>(
    acceptor: &Acceptor,
    timeout: Duration,
    (stream, remote): (S, SocketAddr),
    connection: &Connection,
) -> Result<(TlsStream<S>, Session), (Failure, Option<TlsError>)> {
    let hello = tokio::time::timeout(timeout, tls::read_hello(stream))
        .await
        .map_err(|_| (Failure::HelloTimeout, None))?
        .map_err(handshake_failed)?;
    let finished = async {
        let _permit = connection.wait_handshake().await;
        acceptor.finish_handshake(hello, remote).await
    };
    tokio::time::timeout(timeout, finished)
        .await
        .map_err(|_| (Failure::HandshakeTimeout, None))?
        .map_err(handshake_failed)
}

fn handshake_failed(error: TlsError) -> (Failure, Option<TlsError>) {
    (classify_handshake(&error), Some(error))
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

/// Renews the server certificate at two thirds of its life; never returns.
pub async fn renew_certificate(
    acceptor: Acceptor,
    authority: Arc<Authority>,
    names: Vec<String>,
    clock: Clock,
) {
    loop {
        tokio::time::sleep(SERVER_LIFE * 2 / 3).await;
        let renewed = match authority.server(&names, clock.now()) {
            Ok(identity) => acceptor.renew_identity(identity).map_err(|error| chain(&error)),
            Err(error) => Err(chain(&error)),
        };
        if let Err(error) = renewed {
            tracing::error!(error, "cannot renew the server certificate");
        }
    }
}
