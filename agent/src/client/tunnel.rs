//! A tunnel to the coordinator through a proxy, by CONNECT. TLS with the coordinator is inside of
//! it, so that the proxy sees neither certificates nor calls.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::upgrade::{self, Upgraded};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::CallError;
use super::server_verifier::ServerVerifier;
use super::transport::CONNECT_DEADLINE;
use crate::ground::failure::{Failure, describe_cause};
use crate::ground::paths::Root;
use crate::host::authorities;
use crate::host::proxy::Proxy;

/// Largest answer of a proxy, in bytes; hyper takes no smaller bound.
const MAX_ANSWER: usize = 8192;

/// The end of a tunnel: bytes to and from the coordinator.
pub(super) type Tunnel = TokioIo<Upgraded>;

/// Opens a tunnel to the coordinator at `authority` over a connection to the proxy.
pub(super) async fn open_tunnel(
    root: &Root,
    proxy: &Proxy,
    authority: &str,
    stream: TcpStream,
) -> Result<Tunnel, CallError> {
    if !proxy.over_tls {
        return request_tunnel(proxy, authority, stream).await;
    }
    let secured = timeout(CONNECT_DEADLINE, secure_stream(root, proxy, stream)).await;
    let stream = secured.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
    let stream = stream.map_err(|error| {
        let message = describe_cause(&format!("no TLS connection to the {proxy}"), &error);
        let next_action =
            format!("add its CA to those of the image, or name it by http:// in {}", proxy.source);
        CallError::from(Failure::input_output(message, next_action))
    })?;
    request_tunnel(proxy, authority, stream).await
}

/// TLS with the proxy itself, which has a certificate of an authority that the image trusts.
async fn secure_stream(root: &Root, proxy: &Proxy, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    let bundle = authorities::read_bundle(root)?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bundle).filter_map(Result::ok));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = ServerVerifier::new(roots, provider.clone(), Duration::ZERO).map_err(io::Error::other)?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let name = ServerName::try_from(proxy.host.clone()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

async fn request_tunnel<S>(proxy: &Proxy, authority: &str, stream: S) -> Result<Tunnel, CallError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let request = connect_request(proxy, authority)?;
    match timeout(CONNECT_DEADLINE, send_request(request, stream)).await {
        Ok(Ok(Ok(tunnel))) => Ok(TokioIo::new(tunnel)),
        Ok(Ok(Err(status))) => Err(refused(proxy, authority, status).into()),
        Ok(Err(error)) => {
            let message = describe_cause(&format!("the {proxy} does not answer CONNECT by HTTP"), &error);
            let next_action = format!("check which server listens there, and correct {}", proxy.source);
            Err(Failure::input_output(message, next_action).into())
        }
        Err(_elapsed) => Err(CallError::proxy_away(proxy, &io::ErrorKind::TimedOut.into())),
    }
}

fn connect_request(proxy: &Proxy, authority: &str) -> Result<Request<Empty<Bytes>>, Failure> {
    let invalid = || Failure::input_output(format!("{authority} is no address of a server"), "");
    let mut request = Request::new(Empty::new());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = authority.parse::<Uri>().map_err(|_| invalid())?;
    let host = HeaderValue::from_str(authority).map_err(|_| invalid())?;
    request.headers_mut().insert(HOST, host);
    if let Some(credentials) = &proxy.credentials {
        request.headers_mut().insert(PROXY_AUTHORIZATION, credentials.clone());
    }
    Ok(request)
}

/// The tunnel, or the status by which the proxy refuses it.
async fn send_request<S>(
    request: Request<Empty<Bytes>>,
    stream: S,
) -> hyper::Result<Result<Upgraded, StatusCode>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = http1::Builder::new();
    let (mut sender, connection) = builder.max_buf_size(MAX_ANSWER).handshake(TokioIo::new(stream)).await?;
    let answered = async move {
        let answer = sender.send_request(request).await?;
        match answer.status() {
            status if status.is_success() => upgrade::on(answer).await.map(Ok),
            status => Ok(Err(status)),
        }
    };
    tokio::pin!(answered);
    // The connection ends once the tunnel is taken from it, or by an error that the answer repeats.
    tokio::select! {
        result = &mut answered => result,
        _ended = connection.with_upgrades() => answered.await,
    }
}

/// The proxy answers, and with no tunnel. Its own text is not repeated.
fn refused(proxy: &Proxy, authority: &str, status: StatusCode) -> Failure {
    let next_action = match status {
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            format!("put the user and password that the proxy wants into {}", proxy.source)
        }
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            format!("check that the proxy reaches {authority}, or name the coordinator in NO_PROXY")
        }
        _ => format!("allow CONNECT to {authority} in the proxy, or name the coordinator in NO_PROXY"),
    };
    Failure::input_output(format!("the {proxy} refuses CONNECT to {authority} with {status}"), next_action)
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;
    use crate::client::error::Answer;
    use crate::host::proxy::ProxySettings;

    const TARGET: &str = "c.example:8443";

    fn proxy() -> Proxy {
        let settings = ProxySettings::configured("a test", Some("http://user:secret@proxy:3128"), None);
        settings.choose(TARGET).unwrap().unwrap()
    }

    async fn read_request(stream: &mut DuplexStream) -> String {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        String::from_utf8(request).unwrap()
    }

    /// Asks a proxy that is played by `serve`.
    async fn ask<F: Future<Output = ()> + Send + 'static>(
        serve: impl FnOnce(DuplexStream) -> F,
    ) -> Result<Tunnel, CallError> {
        let (here, there) = tokio::io::duplex(64 * 1024);
        let served = tokio::spawn(serve(there));
        let asked = request_tunnel(&proxy(), TARGET, here).await;
        served.abort();
        asked
    }

    #[tokio::test]
    async fn tunnel_carries_bytes_after_the_answer() {
        let (here, mut there) = tokio::io::duplex(1024);
        let served = tokio::spawn(async move {
            let request = read_request(&mut there).await;
            // The first bytes of the server may arrive with the answer.
            there.write_all(b"HTTP/1.1 200 Connection established\r\n\r\nab").await.unwrap();
            let mut bytes = [0; 2];
            there.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"cd");
            request
        });
        let mut tunnel = request_tunnel(&proxy(), TARGET, here).await.unwrap();
        let mut bytes = [0; 2];
        tunnel.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"ab");
        tunnel.write_all(b"cd").await.unwrap();
        let request = served.await.unwrap().to_ascii_lowercase();
        assert!(request.starts_with("connect c.example:8443 http/1.1\r\n"), "{request}");
        assert!(request.contains("\r\nhost: c.example:8443\r\n"), "{request}");
        assert!(request.contains("\r\nproxy-authorization: basic dxnlcjpzzwnyzxq=\r\n"), "{request}");
    }

    #[tokio::test]
    async fn refusal_names_status_and_next_action() {
        for (answer, status, action) in [
            ("407 Please", "407 Proxy Authentication Required", "put the user and password"),
            ("403 Forbidden", "403 Forbidden", "allow CONNECT to c.example:8443"),
            ("502 Bad", "502 Bad Gateway", "check that the proxy reaches c.example:8443"),
            ("301 Moved", "301 Moved Permanently", "allow CONNECT"),
        ] {
            let text = format!("HTTP/1.1 {answer}\r\nContent-Length: 1000000\r\n\r\nwhy");
            let asked = ask(|mut stream| async move {
                read_request(&mut stream).await;
                stream.write_all(text.as_bytes()).await.unwrap();
                std::future::pending::<()>().await;
            });
            let error = asked.await.err().unwrap();
            assert_eq!(error.answer, Answer::Other, "{answer}");
            let Failure { message, next_action, .. } = &error.failure;
            let want = format!("the proxy http://proxy:3128 refuses CONNECT to {TARGET} with {status}");
            assert_eq!(message, &want, "{answer}");
            assert!(next_action.starts_with(action), "{answer}: {next_action}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[tokio::test]
    async fn answer_that_is_no_http_is_refused() {
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(20 * 1024));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(500));
        for (name, answer) in [
            ("garbage", "SSH-2.0-server\r\n\r\n"),
            ("endless header", endless.as_str()),
            ("many headers", many.as_str()),
            ("another status", "HTTP/1.1 2000 OK\r\n\r\n"),
            ("the end", ""),
        ] {
            let answer = answer.to_owned();
            let error = ask(|mut stream| async move {
                read_request(&mut stream).await;
                // The agent may hang up before it has read the whole answer.
                let _ = stream.write_all(answer.as_bytes()).await;
            });
            let error = error.await.err().unwrap();
            assert!(error.failure.message.contains("does not answer CONNECT by HTTP"), "{name}: {error}");
            assert!(error.failure.next_action.contains("correct a test"), "{name}: {error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_proxy_is_given_up() {
        let dripping = |mut stream: DuplexStream| async move {
            read_request(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let _ = stream.write_all(b"A: b\r\n").await;
            }
        };
        let silent = |stream: DuplexStream| async move {
            let _open = stream;
            std::future::pending::<()>().await;
        };
        for (name, asked) in [("silent", ask(silent).await), ("dripping", ask(dripping).await)] {
            let error = asked.err().unwrap();
            assert_eq!(error.answer, Answer::Nothing, "{name}");
            assert!(error.to_string().contains("the proxy http://proxy:3128 does not answer"), "{error}");
        }
    }
}
