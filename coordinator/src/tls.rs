//! The TLS end of the one port. The acceptor is our own, because a proof of identity is bound to
//! the exporter of its session, which no framework passes on.
//!
//! TLS 1.3 only; no resumption, because a resumed session would outlive the certificate that opened
//! it; client certificates are verified when shown.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use coordinator_api::inventory::KeyClass;
use coordinator_api::object::Key;
use coordinator_core::attestation::Opened;
use proto::proof::{EXPORTER_BYTES, EXPORTER_LABEL, Exporter, Nonce};
use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::UnixTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake, TlsAcceptor};

use crate::ca::{Authority, Peer, PeerError, ServerIdentity};
use crate::clock::Clock;

/// The cause for which no connection was opened.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The configuration is contradictory.
    #[error("cannot set up TLS")]
    Setup(#[source] rustls::Error),
    /// The authority cannot verify any client.
    #[error("cannot set up the verification of client certificates")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
    /// Either end refused the handshake.
    #[error("the handshake failed")]
    Handshake(#[source] io::Error),
    #[error("the session has no keying material")]
    Exporter(#[source] rustls::Error),
    /// The authority signed the certificate, which names no host.
    #[error("the client certificate is not a host's")]
    Peer(#[source] PeerError),
}

/// The challenge of an open registration, valid once and on this connection only.
#[derive(Clone, PartialEq, Eq)]
pub struct Challenge {
    /// The bytes that the host signs.
    pub nonce: Nonce,
    /// The identity named in Begin, PKIX DER.
    pub public_key: Vec<u8>,
    /// The software key that signs, PKIX DER, and its last certificate.
    pub software_key: Option<SoftwareKey>,
    /// The class of the key; that of a TPM is not proven yet.
    pub class: KeyClass,
    /// The TPM that must answer.
    pub tpm: Option<Opened>,
    pub registration: Key,
    /// The host showed the token that its installed disk keeps.
    pub is_installed: bool,
}

/// The key of a host without TPM.
#[derive(Clone, PartialEq, Eq)]
pub struct SoftwareKey {
    /// The first key of the host, or the one that replaced it.
    pub current: Vec<u8>,
    /// The host of its last certificate, if the authority signed one.
    pub evidence: Option<Peer>,
}

struct Inner {
    exporter: Exporter,
    peer: Option<Peer>,
    remote: SocketAddr,
    /// The challenge is boxed, because no connection with a certificate has one.
    challenge: Mutex<Option<Box<Challenge>>>,
}

/// A TLS connection, in the extensions of every request.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Session({})", self.0.remote)
    }
}

impl Session {
    /// A session with these properties.
    pub fn new(exporter: Exporter, peer: Option<Peer>, remote: SocketAddr) -> Self {
        Self(Arc::new(Inner { exporter, peer, remote, challenge: Mutex::new(None) }))
    }

    /// Keying material of the session.
    pub fn exporter(&self) -> &Exporter {
        &self.0.exporter
    }

    /// The host, if it showed a certificate.
    pub fn peer(&self) -> Option<&Peer> {
        self.0.peer.as_ref()
    }

    /// The address of the other end, for logs.
    pub fn remote(&self) -> SocketAddr {
        self.0.remote
    }

    /// Opens a challenge; an older one is not valid any more.
    pub fn set_challenge(&self, challenge: Challenge) {
        *self.0.challenge.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(challenge));
    }

    /// Takes the open challenge, so that a second proof finds none.
    pub fn take_challenge(&self) -> Option<Challenge> {
        self.0.challenge.lock().unwrap_or_else(PoisonError::into_inner).take().map(|challenge| *challenge)
    }
}

/// The present server certificate; it may be replaced while connections are open.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// Client certificates are verified at the time of the clock that signs them.
impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.now().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// Waits for a `ClientHello`.
pub async fn read_hello<S>(stream: S) -> Result<StartHandshake<S>, TlsError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await.map_err(TlsError::Handshake)
}

#[derive(Clone)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    current: Arc<Current>,
}

fn certified_key(identity: ServerIdentity) -> Result<Arc<CertifiedKey>, TlsError> {
    let key = any_supported_type(&identity.key).map_err(TlsError::Setup)?;
    Ok(Arc::new(CertifiedKey::new(identity.chain, key)))
}

impl Acceptor {
    /// Sets up TLS: `identity` is shown, and `authority` verifies the hosts at the time of `clock`.
    pub fn new(authority: &Authority, identity: ServerIdentity, clock: Clock) -> Result<Self, TlsError> {
        let provider = Arc::new(default_provider());
        let mut roots = RootCertStore::empty();
        for root in authority.roots() {
            roots.add(root.clone()).map_err(TlsError::Setup)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(TlsError::Verifier)?;
        let current = Arc::new(Current(RwLock::new(certified_key(identity)?)));
        let mut config = ServerConfig::builder_with_details(provider, Arc::new(clock))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsError::Setup)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), current })
    }

    /// TLS for callers that are no hosts, such as API servers, with the same certificate.
    pub fn for_callers(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.clone())
    }

    /// Shows another certificate from now on; open connections stay.
    pub fn renew_identity(&self, identity: ServerIdentity) -> Result<(), TlsError> {
        let new = certified_key(identity)?;
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// Completes a handshake.
    ///
    /// # Errors
    /// [`TlsError`] if no connection was opened.
    pub async fn finish_handshake<S>(
        &self,
        hello: StartHandshake<S>,
        remote: SocketAddr,
    ) -> Result<(TlsStream<S>, Session), TlsError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = hello.into_stream(self.config.clone()).await.map_err(TlsError::Handshake)?;
        let (_, connection) = stream.get_ref();
        let exporter = connection
            .export_keying_material([0; EXPORTER_BYTES], EXPORTER_LABEL, None)
            .map_err(TlsError::Exporter)?;
        let leaf = connection.peer_certificates().and_then(<[_]>::first);
        let peer = leaf.map(|leaf| Peer::parse(leaf)).transpose().map_err(TlsError::Peer)?;
        Ok((stream, Session::new(exporter, peer, remote)))
    }
}
