//! A host as the coordinator sees it: the real protocol over TLS, without an agent's files.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent::identity::tpm::Attestor;
use anyhow::Context as _;
use hyper_util::rt::TokioIo;
use proto::proof::{self, Exporter, NONCE_BYTES};
use proto::v1alpha1 as wire;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SigningKey as _};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint as HttpEndpoint};
use wire::begin_request::Attestation;
use wire::host_client::HostClient;
use wire::host_message::Message;
use wire::registration_client::RegistrationClient;

/// As the agent has it.
const KEEPALIVE: Duration = Duration::from_mins(1);
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(20);
/// End of the URI in the certificate of an installed system.
const ROLE: &[u8] = b"/installed";
/// Renewals are limited to a burst of 12.
const RENEWAL_PAUSE: Duration = Duration::from_millis(500);

/// Where hosts register and attach.
#[derive(Clone)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    roots: Arc<RootCertStore>,
    token: Arc<str>,
}

impl Endpoint {
    /// `authority` is PEM.
    pub(crate) fn new(address: SocketAddr, authority: &[u8], token: &str) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority) {
            roots.add(certificate?)?;
        }
        Ok(Self { address, roots: Arc::new(roots), token: token.into() })
    }

    fn tls(&self, credentials: Option<(&KeyPair, &str)>) -> anyhow::Result<Arc<ClientConfig>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(self.roots.clone());
        let mut config = match credentials {
            None => builder.with_no_client_auth(),
            Some((key, chain)) => {
                let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>()?;
                let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
                builder.with_client_auth_cert(chain, key)?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }

    async fn connect(&self, config: Arc<ClientConfig>) -> anyhow::Result<(Channel, Exporter)> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        let stream = TlsConnector::from(config).connect(name, stream).await?;
        let (_, session) = stream.get_ref();
        let exporter =
            session.export_keying_material([0; proof::EXPORTER_BYTES], proof::EXPORTER_LABEL, None)?;
        let mut once = Some(TokioIo::new(stream));
        let channel = HttpEndpoint::from_shared(format!("http://{}", self.address))?
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_ANSWER)
            .keep_alive_while_idle(true)
            .connect_with_connector(tower::service_fn(move |_: http::Uri| {
                let stream = once.take();
                async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
            }))
            .await?;
        Ok((channel, exporter))
    }
}

/// A key whose host is registered, in the live system.
pub(crate) struct Registered {
    endpoint: Endpoint,
    key: KeyPair,
    name: String,
    chain: String,
}

/// A host that is installed: it has the certificate that opens the stream.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) name: String,
    endpoint: Endpoint,
    tls: Arc<ClientConfig>,
}

pub(crate) struct Attached {
    pub(crate) client: HostClient<Channel>,
    pub(crate) inbound: Streaming<wire::CoordinatorMessage>,
    pub(crate) outbound: mpsc::Sender<wire::HostMessage>,
}

/// What a host is called, by its number.
pub(crate) fn host_name(number: usize) -> String {
    format!("bench-{number:05}")
}

/// Registers a host with a new key.
pub(crate) async fn register(endpoint: &Endpoint, number: usize) -> anyhow::Result<Registered> {
    register_by(endpoint, number, None).await
}

/// Registers a host by its TPM, where it has one.
pub(crate) async fn register_by(
    endpoint: &Endpoint,
    number: usize,
    attestor: Option<Attestor>,
) -> anyhow::Result<Registered> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let (public_key, attestation) = match &attestor {
        Some(attestor) => (attestor.public_key.clone(), Attestation::TpmKeys(attestor.keys.clone())),
        None => (key.subject_public_key_info(), Attestation::SoftwareKey(wire::SoftwareKey::default())),
    };
    let (channel, exporter) = endpoint.connect(endpoint.tls(None)?).await?;
    let mut client = RegistrationClient::new(channel);
    let begin = wire::BeginRequest {
        registration_token: endpoint.token.to_string(),
        public_key: public_key.clone(),
        attestation: Some(attestation),
    };
    let opened = client.begin(begin).await?.into_inner();
    let nonce: [u8; NONCE_BYTES] = opened.nonce.try_into().ok().context("the nonce has another length")?;
    let certificate_request = certificate_request(&key)?;
    let (proof, tpm_quote) = match attestor {
        None => (key.sign(&proof::binding(&nonce, &exporter, &public_key))?, None),
        Some(attestor) => {
            let challenge = opened.tpm_challenge.context("no challenge for the TPM")?;
            let binding = proof::tpm_binding(&nonce, &exporter, &public_key, &certificate_request);
            let (proof, quote) = attestor.answer(challenge, binding).await?;
            (proof, Some(quote))
        }
    };
    let answer = wire::CompleteRequest {
        proof,
        certificate_request,
        facts: Some(facts(number)),
        observed_network: Some(network(number)),
        boot_id: format!("live-{number}"),
        tpm_quote,
        proves_renewals: false,
    };
    let completed = client.complete(answer).await?.into_inner();
    let (name, chain) = (completed.inventory_name, completed.certificate_chain);
    Ok(Registered { endpoint: endpoint.clone(), key, name, chain })
}

impl Registered {
    /// Reports the install and exchanges the certificate.
    pub(crate) async fn install(self) -> anyhow::Result<Host> {
        let Self { endpoint, key, name, chain } = self;
        let (channel, _) = endpoint.connect(endpoint.tls(Some((&key, &chain)))?).await?;
        let mut client = HostClient::new(channel);
        let done = wire::install_report::Outcome::Done(installed());
        client.report_install(wire::InstallReport { outcome: Some(done) }).await?;
        let request = wire::RenewCertificateRequest {
            certificate_request: certificate_request(&key)?,
            boot_id: "installed".to_owned(),
            boot_proof: None,
        };
        // The coordinator signs for the live system until its cache has the report.
        let chain = loop {
            let renewed = client.renew_certificate(request.clone()).await?.into_inner();
            let leaf = CertificateDer::from_pem_slice(renewed.certificate_chain.as_bytes())?;
            if leaf.windows(ROLE.len()).any(|part| part == ROLE) {
                break renewed.certificate_chain;
            }
            tokio::time::sleep(RENEWAL_PAUSE).await;
        };
        let tls = endpoint.tls(Some((&key, &chain)))?;
        Ok(Host { name, endpoint, tls })
    }
}

impl Host {
    /// Opens the stream and states what the host runs and carries.
    pub(crate) async fn attach(&self, hello: wire::Hello) -> anyhow::Result<Attached> {
        let (channel, _) = self.endpoint.connect(self.tls.clone()).await?;
        let mut client = HostClient::new(channel);
        let (outbound, messages) = mpsc::channel(4);
        outbound.try_send(wire::HostMessage { message: Some(Message::Hello(hello)) })?;
        let inbound = client.attach(ReceiverStream::new(messages)).await?.into_inner();
        Ok(Attached { client, inbound, outbound })
    }
}

fn certificate_request(key: &KeyPair) -> anyhow::Result<Vec<u8>> {
    Ok(CertificateParams::default().serialize_request(key)?.der().to_vec())
}

pub(crate) fn installed() -> wire::InstallDone {
    wire::InstallDone { device: "/dev/vda".to_owned(), image: "registry.example/os:v0".to_owned() }
}

fn facts(number: usize) -> wire::HostFacts {
    let values = [("UUID", host_name(number)), ("Manufacturer", "bench".to_owned())];
    let values = values.map(|(key, value)| (key.to_owned(), value)).into();
    wire::HostFacts {
        smbios: vec![wire::SmbiosSection { title: "System Information".to_owned(), values }],
        cpu_threads: 32,
        cpu_model: "bench".to_owned(),
        memory_bytes: 1 << 36,
        hostname: host_name(number),
        ..wire::HostFacts::default()
    }
}

/// One interface with an address of DHCP.
pub(crate) fn network(number: usize) -> wire::ObservedNetwork {
    let [.., high, low] = number.to_be_bytes();
    let address = format!("10.9.{high}.{low}/16");
    let interface = wire::Interface {
        name: "eth0".to_owned(),
        mac: format!("52:54:00:00:{high:02x}:{low:02x}"),
        permanent_mac: format!("52:54:00:00:{high:02x}:{low:02x}"),
        mtu: 1500,
        addresses: vec![address.clone()],
        dynamic_addresses: vec![address],
        dhcp4: true,
        ..wire::Interface::default()
    };
    wire::ObservedNetwork { interfaces: vec![interface], ..wire::ObservedNetwork::default() }
}
