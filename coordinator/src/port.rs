//! A port with few clients, such as kubelet and Prometheus: HTTP/1.1 with bounds of connections and
//! of what a client sends before its answer.

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use futures::FutureExt as _;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower::Layer as _;

use crate::permits::Permits;

/// Connections at a time, and those of one address: kubelet and Prometheus need few, and any pod may
/// open some.
const CONNECTIONS: usize = 256;
const SOURCE_CONNECTIONS: usize = 8;
/// Longest time until the end of the handshake, until the head of a request, and of a connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTION_TIMEOUT: Duration = Duration::from_mins(5);
/// Most bytes of the head of a request; a larger one is answered with 431.
const HEAD_BYTES: usize = 16 << 10;
/// The pause after a failure to accept, as when file descriptors are used up.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers on the port; never returns. A connection above a limit is closed. Each request has the
/// [`ConnectInfo`] of its connection.
pub async fn serve_port(port: TcpListener, tls: Option<TlsAcceptor>, routes: Router) {
    let permits = Permits::new(CONNECTIONS, SOURCE_CONNECTIONS);
    loop {
        let Ok((stream, remote)) = port.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let permit = permits.acquire(&remote.ip().to_canonical()).now_or_never().flatten();
        if let Some(permit) = permit {
            let served = serve_connection((stream, remote), tls.clone(), routes.clone());
            tokio::spawn(async move {
                // The end of a connection concerns its client alone.
                let _ = timeout(CONNECTION_TIMEOUT, served).await;
                drop(permit);
            });
        }
    }
}

async fn serve_connection(
    (stream, remote): (TcpStream, SocketAddr),
    tls: Option<TlsAcceptor>,
    routes: Router,
) -> Result<(), hyper::Error> {
    let Some(tls) = tls else { return serve_requests(stream, remote, routes).await };
    match timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve_requests(stream, remote, routes).await,
        // A client without TLS, or one that refuses the certificate, gets no answer.
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}

async fn serve_requests<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    remote: SocketAddr,
    routes: Router,
) -> Result<(), hyper::Error> {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES);
    let routes = Extension(ConnectInfo(remote)).layer(routes);
    builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes)).await
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
        tokio::spawn(serve_port(port, None, Router::new().route("/", get(|| async { "ok\n" }))));
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
        for _ in 0..SOURCE_CONNECTIONS {
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
