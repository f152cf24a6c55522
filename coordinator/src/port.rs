//! A port with few clients, such as kubelet, Prometheus and API servers: HTTP with bounds of connections
//! and of what a client sends before its answer.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use futures::FutureExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower::Layer as _;

use crate::permits::Permits;

/// Bounds of connections at a time.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// From all addresses.
    pub connections: usize,
    /// From one address.
    pub source_connections: usize,
}

/// Kubelet and Prometheus need few connections, and any pod may open some.
pub const PROBES: Bounds = Bounds { connections: 256, source_connections: 8 };

/// Longest time until the end of the handshake, until the head of a request, and of a connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTION_TIMEOUT: Duration = Duration::from_mins(5);
/// Time for the requests of a connection to end after its time.
const GRACE: Duration = Duration::from_secs(30);
/// Most bytes of the head of a request; a larger one is answered with 431.
const HEAD_BYTES: usize = 16 << 10;
/// Requests of an HTTP/2 connection at a time, and bytes that each may send before they are read.
const STREAMS: u32 = 64;
const WINDOW: u32 = 64 << 10;
/// The pause after a failure to accept, as when file descriptors are used up.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers on the port; never returns. A connection above a limit is closed. Each request has the
/// [`ConnectInfo`] of its connection.
pub async fn serve_port(port: TcpListener, tls: Option<TlsAcceptor>, routes: Router, bounds: Bounds) {
    let permits = Permits::new(bounds.connections, bounds.source_connections);
    loop {
        let Ok((stream, remote)) = port.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let permit = permits.acquire(&remote.ip().to_canonical()).now_or_never().flatten();
        if let Some(permit) = permit {
            let served = serve_connection((stream, remote), tls.clone(), routes.clone());
            tokio::spawn(async move {
                served.await;
                drop(permit);
            });
        }
    }
}

async fn serve_connection(
    (stream, remote): (TcpStream, SocketAddr),
    tls: Option<TlsAcceptor>,
    routes: Router,
) {
    let Some(tls) = tls else { return serve_requests(stream, remote, routes).await };
    // A client without TLS, or one that refuses the certificate, gets no answer.
    if let Ok(Ok(stream)) = timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
        serve_requests(stream, remote, routes).await;
    }
}

/// Serves a connection until its time ends, and then the requests that it has.
async fn serve_requests<S>(stream: S, remote: SocketAddr, routes: Router)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(HEAD_TIMEOUT)
        .keep_alive_timeout(HEAD_TIMEOUT)
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX));
    let routes = Extension(ConnectInfo(remote)).layer(routes);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes)));
    // The end of a connection concerns its client alone.
    if timeout(CONNECTION_TIMEOUT, served.as_mut()).await.is_err() {
        served.as_mut().graceful_shutdown();
        let _ = timeout(GRACE, served).await;
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpSocket;
    use tokio::time::Instant;

    use super::*;

    async fn start() -> SocketAddr {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = port.local_addr().unwrap();
        tokio::spawn(serve_port(port, None, Router::new().route("/", get(|| async { "ok\n" })), PROBES));
        address
    }

    /// The bytes that come until the end of the connection.
    async fn send(mut stream: TcpStream, request: &[u8]) -> String {
        let mut answer = vec![];
        // A connection that was closed answers nothing.
        if stream.write_all(request).await.is_ok() {
            let _ = stream.read_to_end(&mut answer).await;
        }
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn connections_of_an_address_are_bounded() {
        const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        let address = start().await;
        let ask = async |stream| send(stream, REQUEST).await.starts_with("HTTP/1.1 200");
        let mut held = vec![];
        for _ in 0..PROBES.source_connections {
            held.push(TcpStream::connect(address).await.unwrap());
        }
        assert!(!ask(TcpStream::connect(address).await.unwrap()).await, "one too many");
        let other = TcpSocket::new_v4().unwrap();
        other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        assert!(ask(other.connect(address).await.unwrap()).await, "another address is answered");
        for stream in held {
            assert!(ask(stream).await, "those that are open are answered");
        }
    }

    #[tokio::test]
    async fn head_of_a_request_is_bounded() {
        let address = start().await;
        for (bytes, is_answered) in [(HEAD_BYTES / 2, true), (2 * HEAD_BYTES, false)] {
            let value = "a".repeat(bytes);
            let request = format!("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nA: {value}\r\n\r\n");
            let answer = send(TcpStream::connect(address).await.unwrap(), request.as_bytes()).await;
            // The reset of a connection with unread bytes may overtake the 431.
            assert_eq!(answer.starts_with("HTTP/1.1 200"), is_answered, "{bytes}: {answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_head_ends_the_connection() {
        let (address, start) = (start().await, Instant::now());
        let answer = send(TcpStream::connect(address).await.unwrap(), b"GET / HTTP/1.1\r\nHo").await;
        assert!(!answer.contains("200 OK"), "{answer}");
        let passed = start.elapsed();
        assert!(passed >= HEAD_TIMEOUT && passed < CONNECTION_TIMEOUT, "{passed:?}");
    }
}
