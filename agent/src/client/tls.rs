//! A TLS connection to the coordinator, and the gRPC channel over it.
//!
//! This module opens the connection instead of tonic, because both ends need the exporter of the
//! session (`proto::proof`). A [`Session`] never reconnects by itself: a new connection is a new
//! session with a new exporter, and perhaps with a new certificate.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper_util::rt::TokioIo;
use proto::proof::{self, Exporter};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

use crate::client::config::Config;
use crate::client::error::CallError;
use crate::client::rejection::{Rejection, Watched};
use crate::client::server_verifier::ServerVerifier;
use crate::client::transport::{CONNECT_DEADLINE, Tap, Transport};
use crate::ground::failure::{Failure, describe_cause};
use crate::identity::{Certificate, Identity};

/// Interval of the pings on an idle connection, which is closed if the coordinator does not answer.
/// A ping costs the coordinator CPU for each host, so it only has to find failures that TCP does
/// not see, such as behind a proxy; the kernel probes the next hop more often.
const KEEPALIVE: Duration = Duration::from_mins(1);
/// Deadline of the answer to a ping.
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(20);
/// Deadline of a unary call.
pub const CALL_DEADLINE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Session {
    /// gRPC over the connection.
    pub channel: Channel,
    /// Keying material of the TLS session.
    pub exporter: Exporter,
}

#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    pub identity: &'a Identity,
    /// PEM.
    pub chain: &'a str,
    /// Records whether the server rejects the certificate.
    pub rejection: &'a Rejection,
}

/// Connects, with a client certificate if there are `credentials`.
pub async fn connect_tls(
    config: &Config,
    transport: &impl Transport,
    credentials: Option<Credentials<'_>>,
) -> Result<Session, CallError> {
    let time = Arc::new(DefaultTimeProvider);
    let client = client_config(&config.authority, credentials, time).map_err(|error| unusable(&error))?;
    let stream = transport.dial(config).await?;
    let rejection = credentials.map_or_else(Rejection::default, |credentials| credentials.rejection.clone());
    secure_stream(config, client, stream, (rejection, transport.tap())).await
}

async fn secure_stream<S>(
    config: &Config,
    client: ClientConfig,
    stream: S,
    (rejection, tap): (Rejection, Option<Tap>),
) -> Result<Session, CallError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let address = config.address();
    let stream =
        shake_hands(client, &config.host, stream).await.map_err(|error| classify_error(&error, &address))?;
    let exporter = stream
        .get_ref()
        .1
        .export_keying_material([0; proof::EXPORTER_BYTES], proof::EXPORTER_LABEL, None)
        .map_err(|error| unusable(&error))?;
    let stream = Watched { stream, rejection, tap };
    let channel = open_channel(config, stream).await.map_err(|error| {
        let message = format!("the coordinator at {address} does not serve gRPC");
        Failure::input_output(describe_cause(&message, &error), "correct the server URL")
    })?;
    Ok(Session { channel, exporter })
}

fn client_config(
    authority: &str,
    credentials: Option<Credentials<'_>>,
    time: Arc<dyn TimeProvider>,
) -> Result<ClientConfig, rustls::Error> {
    let unreadable = |_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(certificate.map_err(unreadable)?)?;
    }
    let floor = credentials.and_then(|Credentials { identity, chain, .. }| {
        let certificate = Certificate::parse(chain, &identity.public_key()).ok()?;
        certificate.not_before.duration_since(SystemTime::UNIX_EPOCH).ok()
    });
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = ServerVerifier::new(roots, provider.clone(), floor.unwrap_or(Duration::ZERO))?;
    let builder = ClientConfig::builder_with_details(provider, time)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut client = match credentials {
        None => builder.with_no_client_auth(),
        Some(Credentials { identity, chain, .. }) => {
            let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
                .collect::<Result<_, _>>()
                .map_err(unreadable)?;
            builder.with_client_auth_cert(chain, identity.private_key())?
        }
    };
    client.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session has no fresh handshake to which a proof could be bound.
    client.resumption = rustls::client::Resumption::disabled();
    Ok(client)
}

async fn shake_hands<S>(client: ClientConfig, host: &str, stream: S) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let handshake = TlsConnector::from(Arc::new(client)).connect(name, stream);
    timeout(CONNECT_DEADLINE, handshake).await.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()))
}

/// The CA or the certificate of this host cannot be used.
fn unusable(error: &rustls::Error) -> Failure {
    let message = describe_cause("cannot use the configured certificates", error);
    Failure::input_output(message, "download a fresh seed ISO and boot it")
}

fn classify_error(error: &io::Error, address: &str) -> CallError {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(cause)) = cause else {
        return CallError::handshake(address, error);
    };
    let (message, next_action) = match cause {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            format!("the certificate of the coordinator at {address} is for another name"),
            "use a server URL that its certificate names",
        ),
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
            (
                format!(
                    "the certificate of the coordinator at {address} is not valid at this host's time ({now})"
                ),
                "set the host's clock, or renew the certificate",
            )
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => (
            format!(
                "the certificate of the server at {address} is not signed by the CA of this configuration"
            ),
            "check which server listens there, or download a fresh seed ISO and boot it",
        ),
        _ => return CallError::handshake(address, error),
    };
    Failure::input_output(message, next_action).into()
}

async fn open_channel<S>(config: &Config, stream: S) -> Result<Channel, tonic::transport::Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut once = Some(TokioIo::new(stream));
    // For an https endpoint tonic would start TLS of its own.
    Endpoint::from_shared(format!("http://{}", config.address()))?
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_ANSWER)
        .keep_alive_while_idle(true)
        .connect_with_connector(tower::service_fn(move |_: http::Uri| {
            let stream = once.take();
            async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
        }))
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_errors_have_a_next_action() {
        let of = |error: rustls::Error| io::Error::new(io::ErrorKind::InvalidData, error);
        let bad = |error| of(rustls::Error::InvalidCertificate(error));
        for (name, source, want) in [
            (
                "another authority",
                bad(CertificateError::UnknownIssuer),
                "not signed by the CA of this configuration; next: check which server",
            ),
            ("another name", bad(CertificateError::NotValidForName), "; next: use a server URL"),
            ("another time", bad(CertificateError::Expired), "; next: set the host's clock"),
            ("an odd certificate", bad(CertificateError::BadEncoding), "; next: check which server"),
            ("no TLS at all", of(rustls::Error::General("no".into())), "no; next: check which server"),
            ("it hung up", io::ErrorKind::UnexpectedEof.into(), "; next: check which server"),
        ] {
            let message = classify_error(&source, "192.0.2.1:443").to_string();
            assert!(message.contains("192.0.2.1:443") && message.contains(want), "{name}: {message}");
        }
        let garbled = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        let error = client_config(garbled, None, Arc::new(DefaultTimeProvider)).unwrap_err();
        let message = unusable(&error).to_string();
        assert!(message.ends_with("; next: download a fresh seed ISO and boot it"), "{message}");
    }
}
