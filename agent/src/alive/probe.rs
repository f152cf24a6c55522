//! Asks an API server for `/readyz`, over TLS that the cluster's authority vouches for.
//!
//! The request shows the kubelet's certificate if there is one, for clusters that answer no
//! anonymous request.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, HeaderValue};
use http::{Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use proto::distribution::{DISTRIBUTIONS, Distribution};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::ground::failure::{Failure, describe_cause};
use crate::ground::paths::Root;

/// Every certificate of an API server has this name, whichever distribution makes it.
const NAME: &str = "kubernetes";
/// An answer within this time is in time.
pub(super) const IN_TIME: Duration = Duration::from_millis(1800);
/// Further time of a busy API server, during which the other members are asked. Both times together
/// are below the limit of keepalived, which kills the check, and below the limit of the
/// coordinator, which asks too.
pub(super) const LATE: Duration = Duration::from_secs(3);
/// The limit is short, because the kernel accepts connections even if the API server is busy.
const CONNECT_DEADLINE: Duration = Duration::from_secs(1);

/// Why an API server is not ready.
#[derive(Clone, Debug)]
pub(super) struct ProbeError {
    pub(super) failure: Failure,
    pub(super) server: ServerState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerState {
    /// The API server accepts connections, and is slow or not ready.
    Overloaded,
    /// The host refuses the connection, so it can be reached.
    Stopped,
    Unknown,
}

const READ_LOGS: &str = "read the logs of kube-apiserver and etcd on this host";

impl ProbeError {
    fn unknown(message: String, next_action: &str) -> Self {
        Self { failure: Failure::input_output(message, next_action), server: ServerState::Unknown }
    }

    fn connect(address: SocketAddr, error: &io::Error) -> Self {
        let message = describe_cause(&format!("the API server at {address} does not answer"), error);
        let is_refused = error.kind() == io::ErrorKind::ConnectionRefused;
        let server = if is_refused { ServerState::Stopped } else { ServerState::Unknown };
        Self { server, ..Self::unknown(message, READ_LOGS) }
    }

    fn not_ready(status: StatusCode) -> Self {
        let next_action = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                "let members of system:authenticated read /readyz"
            }
            _ => READ_LOGS,
        };
        let server = if status.is_server_error() { ServerState::Overloaded } else { ServerState::Unknown };
        Self { server, ..Self::unknown(format!("/readyz of the API server answers {status}"), next_action) }
    }

    pub(super) fn timed_out() -> Self {
        let message = "/readyz of the API server did not answer in time".to_owned();
        Self { server: ServerState::Overloaded, ..Self::unknown(message, READ_LOGS) }
    }
}

/// Connects to the API server at this address and verifies that it belongs to the cluster.
pub(super) async fn connect_api(
    connector: &TlsConnector,
    address: IpAddr,
    port: u16,
) -> Result<TlsStream<TcpStream>, ProbeError> {
    let address = SocketAddr::new(address, port);
    let connected = timeout(CONNECT_DEADLINE, TcpStream::connect(address)).await;
    let stream = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let stream = stream.map_err(|error| ProbeError::connect(address, &error))?;
    let name =
        ServerName::try_from(NAME).map_err(|error| ProbeError::connect(address, &io::Error::other(error)))?;
    connector.connect(name, stream).await.map_err(|error| ProbeError::connect(address, &error))
}

/// Succeeds if the API server is ready.
pub(super) async fn ask_ready(stream: TlsStream<TcpStream>) -> Result<(), ProbeError> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| no_http(&error))?;
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = Uri::from_static("/readyz");
    request.headers_mut().insert(HOST, HeaderValue::from_static(NAME));
    // The connection may end together with the answer.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(|error| no_http(&error))?;
    if answer.status() == StatusCode::OK { Ok(()) } else { Err(ProbeError::not_ready(answer.status())) }
}

fn no_http(error: &hyper::Error) -> ProbeError {
    ProbeError::unknown(describe_cause("the API server does not speak HTTP", error), READ_LOGS)
}

/// The distribution of this control plane, with the authority of the cluster: the first file of the
/// table that exists.
fn find_authority(root: &Root) -> Option<(&'static Distribution, PathBuf)> {
    DISTRIBUTIONS.iter().find_map(|row| {
        let mut paths = row.authorities.iter().map(|path| root.join(path));
        paths.find(|path| path.exists()).map(|path| (row, path))
    })
}

/// TLS that trusts only the cluster's authority.
pub(super) fn open_connector(root: &Root) -> Result<TlsConnector, Failure> {
    let (distribution, path) = find_authority(root).ok_or_else(no_authority)?;
    let certificates = CertificateDer::pem_file_iter(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| {
        let message = format!("cannot read the cluster's authority {}", path.display());
        let next_action = format!("check {} on the host", path.display());
        Failure::input_output(describe_cause(&message, &error), next_action)
    })?;
    let config = configure_tls(certificates, read_kubelet(root, distribution)).map_err(|error| {
        Failure::input_output(
            describe_cause("cannot use the certificates of this node", &error),
            format!("check {} and {} on the host", path.display(), distribution.kubelet_certificate),
        )
    })?;
    Ok(TlsConnector::from(Arc::new(config)))
}

fn no_authority() -> Failure {
    let paths: Vec<_> = DISTRIBUTIONS.iter().flat_map(|row| row.authorities).copied().collect();
    Failure::input_output(
        format!("no authority of a cluster is on this host ({})", paths.join(", ")),
        "none before the control plane has started; else check that kubeadm, RKE2 or k3s installed it",
    )
}

fn configure_tls(
    authorities: Vec<CertificateDer<'_>>,
    kubelet: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for certificate in authorities {
        roots.add(certificate)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(roots);
    match kubelet {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key),
        None => Ok(builder.with_no_client_auth()),
    }
}

/// `None` for an anonymous request, which clusters answer by default.
fn read_kubelet(
    root: &Root,
    distribution: &Distribution,
) -> Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let certificates = CertificateDer::pem_file_iter(root.join(distribution.kubelet_certificate)).ok()?;
    let chain = certificates.collect::<Result<Vec<_>, _>>().ok()?;
    let key = PrivateKeyDer::from_pem_file(root.join(distribution.kubelet_key)).ok()?;
    (!chain.is_empty()).then_some((chain, key))
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn every_distribution_brings_authority_and_kubelet() {
        for row in &DISTRIBUTIONS {
            let directory = tempfile::tempdir().unwrap();
            let root = Root::at(directory.path());
            let missing = open_connector(&root).err().unwrap();
            assert!(missing.message.contains(row.authorities[0]), "{missing}");
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = rcgen::CertificateParams::new([NAME.to_owned()]).unwrap();
            let certificate = certificate.self_signed(&key).unwrap().pem();
            let put = |path: &str, text: &str| {
                std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
                std::fs::write(root.join(path), text).unwrap();
            };
            put(row.authorities[0], &certificate);
            assert!(open_connector(&root).is_ok() && read_kubelet(&root, row).is_none(), "{}", row.name);
            put(row.kubelet_key, &key.serialize_pem());
            // kubeadm has both in one file.
            put(row.kubelet_certificate, &format!("{certificate}{}", key.serialize_pem()));
            assert!(open_connector(&root).is_ok() && read_kubelet(&root, row).is_some(), "{}", row.name);
        }
    }

    #[test]
    fn refusals_are_answers_and_no_overload() {
        let connect =
            |kind: ErrorKind| ProbeError::connect((IpAddr::from([10, 0, 0, 2]), 6443).into(), &kind.into());
        for (error, want) in [
            (ProbeError::not_ready(StatusCode::INTERNAL_SERVER_ERROR), ServerState::Overloaded),
            (ProbeError::not_ready(StatusCode::FORBIDDEN), ServerState::Unknown),
            (ProbeError::timed_out(), ServerState::Overloaded),
            (connect(ErrorKind::ConnectionRefused), ServerState::Stopped),
            (connect(ErrorKind::TimedOut), ServerState::Unknown),
            (connect(ErrorKind::HostUnreachable), ServerState::Unknown),
        ] {
            assert_eq!(error.server, want, "{}", error.failure);
        }
    }
}
