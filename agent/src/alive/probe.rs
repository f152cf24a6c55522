//! One question to an API server: `/readyz`, over TLS that the cluster's authority vouches for.
//!
//! The request shows the kubelet's certificate where there is one, for clusters that answer no
//! anonymous request.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, HeaderValue};
use http::{Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::ground::error::NextAction;
use crate::ground::paths::Root;
use crate::state::duty::DutyFileError;

/// The authority of the cluster, as kubeadm lays it.
const AUTHORITY: &str = "/etc/kubernetes/pki/ca.crt";
/// Certificate and key of the kubelet.
const KUBELET: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
/// In every certificate of an API server that kubeadm makes.
const NAME: &str = "kubernetes";
/// An answer by then is in time.
pub(super) const IN_TIME: Duration = Duration::from_millis(1800);
/// What a busy API server has beyond that, while the other members are asked. Both together are less
/// than the limit of keepalived, which kills, and than that of the coordinator, which asks too.
pub(super) const LATE: Duration = Duration::from_secs(3);
/// The kernel accepts connections, however busy the API server is.
const CONNECT_DEADLINE: Duration = Duration::from_secs(1);

/// Why this host does not hold the address.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// There is no duty.
    #[error("this host has no duty for a load balancer")]
    NoDuty,
    /// The duty is unknown.
    #[error(transparent)]
    Duty(#[from] DutyFileError),
    /// kubeadm has not laid the authority yet, or it is damaged.
    #[error("cannot read the cluster's authority {path}")]
    Authority { path: PathBuf, source: rustls::pki_types::pem::Error },
    /// Certificates that cannot be used.
    #[error("cannot use the certificates of this node")]
    Certificates(#[from] rustls::Error),
    /// No connection, or none with TLS.
    #[error("the API server at {address} does not answer")]
    Connect {
        /// This host's own address and port.
        address: SocketAddr,
        /// The error of the system call.
        source: io::Error,
    },
    #[error("the API server does not speak HTTP")]
    Protocol(#[from] hyper::Error),
    /// It is not ready.
    #[error("/readyz of the API server answers {0}")]
    NotReady(StatusCode),
    #[error("/readyz of the API server did not answer in time")]
    TimedOut,
}

impl NextAction for CheckError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::NoDuty => {
                Some("none: only control-plane hosts of a cluster with an internal endpoint have one")
            }
            Self::Duty(error) => error.next_action(),
            Self::Authority { .. } => Some("none before kubeadm has run; else check /etc/kubernetes/pki"),
            Self::Certificates(_) => Some("check /etc/kubernetes/pki/ca.crt and the kubelet's certificate"),
            Self::NotReady(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Some("let members of system:authenticated read /readyz")
            }
            Self::Connect { .. } | Self::Protocol(_) | Self::NotReady(_) | Self::TimedOut => {
                Some("read the logs of kube-apiserver and etcd on this host")
            }
        }
    }
}

impl CheckError {
    /// Whether the API server is there: it accepts connections.
    pub(super) fn is_overload(&self) -> bool {
        match self {
            Self::TimedOut => true,
            Self::NotReady(status) => status.is_server_error(),
            _ => false,
        }
    }
}

/// Connects to the API server at that address: it is the cluster's.
pub(super) async fn connect_api(
    connector: &TlsConnector,
    address: IpAddr,
    port: u16,
) -> Result<TlsStream<TcpStream>, CheckError> {
    let address = SocketAddr::new(address, port);
    let failed = |source| CheckError::Connect { address, source };
    let connected = timeout(CONNECT_DEADLINE, TcpStream::connect(address)).await;
    let stream = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)?;
    let name = ServerName::try_from(NAME).map_err(|error| failed(io::Error::other(error)))?;
    connector.connect(name, stream).await.map_err(failed)
}

/// Whether the API server is ready.
pub(super) async fn ask_ready(stream: TlsStream<TcpStream>) -> Result<(), CheckError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = Uri::from_static("/readyz");
    request.headers_mut().insert(HOST, HeaderValue::from_static(NAME));
    // Its end comes with the answer where the server closes the connection.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    if answer.status() == StatusCode::OK { Ok(()) } else { Err(CheckError::NotReady(answer.status())) }
}

/// TLS that trusts the cluster's authority alone.
pub(super) fn open_connector(root: &Root) -> Result<TlsConnector, CheckError> {
    let path = root.join(AUTHORITY);
    let failed = |source| CheckError::Authority { path: path.clone(), source };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&path).map_err(failed)? {
        roots.add(certificate.map_err(failed)?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(roots);
    let config = match read_kubelet(&root.join(KUBELET)) {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Without it the request is anonymous, which clusters answer by default.
fn read_kubelet(path: &Path) -> Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let chain = CertificateDer::pem_file_iter(path).ok()?.collect::<Result<Vec<_>, _>>().ok()?;
    let key = PrivateKeyDer::from_pem_file(path).ok()?;
    (!chain.is_empty()).then_some((chain, key))
}
