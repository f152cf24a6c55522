//! A coordinator that is reached through a proxy alone: its name has no address.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use proto::v1alpha1::BootDisk;
use proto::v1alpha1::complete_response::Next;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::coordinator::{Coordinator, NAME};
use super::register::Host;

const SEED: &str = "/run/initramfs/live/livecd-cloud-config.yaml";
const SYSCONFIG: &str = "/etc/sysconfig/proxy";

/// A proxy whose tunnels end at the coordinator, whatever the requests name.
#[derive(Clone)]
struct Proxy {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    async fn start(coordinator: &Coordinator, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self { address: listener.local_addr().unwrap(), requests: Arc::default() };
        let (served, end) = (proxy.clone(), coordinator.address);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // A host that does not trust the proxy ends the connection early.
                let _ = match &tls {
                    None => served.serve(stream, end).await,
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => served.serve(stream, end).await,
                        Err(error) => Err(error),
                    },
                };
            }
        });
        proxy
    }

    async fn serve(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        end: SocketAddr,
    ) -> io::Result<()> {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await?);
        }
        self.requests.lock().unwrap().push(String::from_utf8(request).unwrap().to_ascii_lowercase());
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
        copy_bidirectional(&mut stream, &mut TcpStream::connect(end).await?).await?;
        Ok(())
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// A coordinator whose hosts are installed.
async fn start_coordinator() -> Coordinator {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(Next::BootDisk(BootDisk {}));
    coordinator
}

/// The seed of a coordinator that is known by its name.
fn seed(coordinator: &Coordinator) -> String {
    coordinator.config().replace("127.0.0.1", NAME)
}

#[tokio::test]
async fn coordinator_is_reached_through_a_proxy() {
    let coordinator = start_coordinator().await;
    let proxy = Proxy::start(&coordinator, None).await;
    let url = format!("http://user:secret@{}", proxy.address);
    let file = format!("PROXY_ENABLED=\"yes\"\nHTTPS_PROXY=\"{url}\"\nNO_PROXY=\"localhost, 127.0.0.1\"\n");
    let field = format!("{}    https-proxy: {url}\n", seed(&coordinator));
    for (name, sysconfig, seed) in
        [("/etc/sysconfig/proxy", file, seed(&coordinator)), ("the seed", String::new(), field)]
    {
        let host = Host::live(&coordinator);
        host.write(SEED, &seed);
        host.write(SYSCONFIG, &sysconfig);
        host.register_once().await.unwrap();
        let port = coordinator.address.port();
        let requests = proxy.requests();
        let last = requests.last().unwrap();
        assert!(last.starts_with(&format!("connect {NAME}:{port} http/1.1\r\n")), "{name}: {last}");
        assert!(last.contains("\r\nproxy-authorization: basic dxnlcjpzzwnyzxq=\r\n"), "{name}: {last}");
    }
    assert_eq!((coordinator.memory().registrations.len(), proxy.requests().len()), (2, 2));
}

#[tokio::test]
async fn proxy_with_tls_is_verified() {
    let coordinator = start_coordinator().await;
    // The certificate of the coordinator names the proxy's address as well.
    let proxy = Proxy::start(&coordinator, Some(coordinator.acceptor())).await;
    let host = Host::live(&coordinator);
    host.write(SEED, &seed(&coordinator));
    host.write(SYSCONFIG, &format!("HTTPS_PROXY=https://{}\n", proxy.address));
    let error = host.register_once().await.unwrap_err().to_string();
    assert!(error.contains(&format!("no TLS connection to the proxy https://{}", proxy.address)), "{error}");
    assert!(error.contains("; next: add its CA to those of the image"), "{error}");
    assert!(proxy.requests().is_empty());
    host.write("/etc/ssl/ca-bundle.pem", &coordinator.authority);
    host.register_once().await.unwrap();
    assert_eq!((coordinator.memory().registrations.len(), proxy.requests().len()), (1, 1));
}

#[tokio::test]
async fn direct_servers_are_not_asked_through_it() {
    let coordinator = start_coordinator().await;
    let proxy = Proxy::start(&coordinator, None).await;
    let host = Host::live(&coordinator);
    host.write(SEED, &seed(&coordinator));
    host.write("/etc/hosts", &format!("127.0.0.1 {NAME}\n"));
    host.write(SYSCONFIG, &format!("HTTPS_PROXY=http://{}\nNO_PROXY=.example\n", proxy.address));
    host.register_once().await.unwrap();
    assert_eq!((coordinator.memory().registrations.len(), proxy.requests().len()), (1, 0));
}

// Fault: the proxy is away, has no address, or is named in another form.
// Shown: host console: the proxy without its password, and the file to correct.
#[tokio::test]
async fn proxy_that_is_away_is_named() {
    let coordinator = Coordinator::start().await;
    let host = Host::live(&coordinator);
    host.write(SEED, &seed(&coordinator));
    for (url, want) in [
        ("http://user:secret@127.0.0.1:1", "the proxy http://127.0.0.1:1 does not answer: "),
        ("http://user:secret@proxy.example:1", "cannot reach the proxy http://proxy.example:1: the name"),
        (
            "socks5://user:secret@proxy.example:1",
            "HTTPS_PROXY in /etc/sysconfig/proxy is not http://HOST:PORT",
        ),
    ] {
        host.write(SYSCONFIG, &format!("HTTPS_PROXY={url}\n"));
        let error = host.register_once().await.unwrap_err();
        let message = error.to_string();
        assert!(message.contains(want), "{url}: {message}");
        assert!(message.contains("/etc/sysconfig/proxy") && !message.contains("secret"), "{url}: {message}");
        assert!(!error.failure.next_action.is_empty(), "{url}");
    }
    assert!(coordinator.memory().registrations.is_empty());
}
