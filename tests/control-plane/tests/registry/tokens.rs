//! A server of tokens as registries have one: it signs what their users may do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use control_plane::pki::Authority;
use control_plane::registry::{PASSWORD, USER};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

pub(crate) struct TokenServer {
    shared: Arc<Shared>,
    port: u16,
    _tasks: JoinSet<()>,
}

struct Shared {
    authority: Authority,
    requests: AtomicUsize,
}

impl TokenServer {
    pub(crate) async fn start() -> Self {
        let authority = Authority::new("tokens").unwrap();
        let pair = authority.server("tokens", &[]).unwrap();
        let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.unwrap().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let shared = Arc::new(Shared { authority, requests: AtomicUsize::new(0) });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mut tasks, answering) = (JoinSet::new(), shared.clone());
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, shared) = (acceptor.clone(), answering.clone());
                // A client that does not trust the certificate ends the handshake.
                tokio::spawn(async move { shared.answer(acceptor, stream).await });
            }
        });
        Self { shared, port, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}/token", self.port)
    }

    /// PEM; it signs for the server and for the tokens.
    pub(crate) fn certificate(&self) -> String {
        self.shared.authority.pair().certificate.clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn issue(&self, repositories: &[&str], actions: &[&str]) -> String {
        self.shared.issue(repositories, actions)
    }
}

impl Shared {
    async fn answer(&self, acceptor: TlsAcceptor, stream: TcpStream) -> Option<()> {
        let mut stream = acceptor.accept(stream).await.ok()?;
        let mut request = vec![];
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.ok()?);
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (status, body) = self.decide(&String::from_utf8(request).ok()?);
        let head =
            format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
        stream.shutdown().await.ok()
    }

    /// Every client with the password may pull from `public/`, from every address.
    fn decide(&self, request: &str) -> (&'static str, String) {
        let scope = request.split(['?', '&', ' ']).find_map(|part| part.strip_prefix("scope="));
        let scope = scope.unwrap_or_default().replace("%3A", ":").replace("%2F", "/");
        let repository = scope.strip_prefix("repository:").and_then(|rest| rest.strip_suffix(":pull"));
        let Some(repository) = repository else { return ("400 Bad Request", String::new()) };
        let header = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("authorization").then(|| value.to_owned())
        };
        let right = format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
        let granted: &[&str] = match request.lines().find_map(header) {
            Some(given) if given == right => &[repository],
            Some(_) => return ("401 Unauthorized", String::new()),
            None if repository.starts_with("public/") => &[repository],
            None => &[],
        };
        ("200 OK", json!({ "token": self.issue(granted, &["pull"]) }).to_string())
    }

    fn issue(&self, repositories: &[&str], actions: &[&str]) -> String {
        let pair = self.authority.pair();
        let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let entry = |name: &&str| json!({ "type": "repository", "name": name, "actions": actions });
        let access: Vec<_> = repositories.iter().map(entry).collect();
        let header = json!({ "typ": "JWT", "alg": "ES256", "x5c": [STANDARD.encode(certificate)] });
        let claims = json!({
            "iss": "tokens", "aud": "registry", "sub": "", "jti": now.to_string(),
            "iat": now, "nbf": now - 60, "exp": now + 600, "access": access,
        });
        let encode = |part: &serde_json::Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let text = format!("{}.{}", encode(&header), encode(&claims));
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.secret_der(), &random);
        let signature = key.unwrap().sign(&random, text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}
