//! A coordinator that remembers what it was told and answers what a test says.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use proto::proof::{self, Exporter};
use proto::refusal::{METADATA_KEY, Refusal};
use proto::v1alpha1::complete_response::Next;
use proto::v1alpha1::coordinator_message::Message as FromCoordinator;
use proto::v1alpha1::host_message::Message as FromHost;
use proto::v1alpha1::host_server::{Host, HostServer};
use proto::v1alpha1::install_report::Outcome;
use proto::v1alpha1::registration_server::{Registration, RegistrationServer};
use proto::v1alpha1::*;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer, KeyPair,
    PublicKeyData as _, SanType, SigningKey as _,
};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status, Streaming};
use x509_parser::extensions::GeneralName;

use super::verifier::Verifier;

pub(crate) const TOKEN: &str = "token-1";
/// The name in its certificate, which no name server knows.
pub(crate) const NAME: &str = "c.example";

type InstallHook = Box<dyn FnMut(&Outcome) + Send>;

/// What was told and what is answered.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) refusals: VecDeque<Refusal>,
    pub(crate) next: Option<Next>,
    pub(crate) install_device: String,
    pub(crate) plans: Vec<Plan>,
    /// Announced on every stream.
    pub(crate) settings: Option<CoordinatorSettings>,
    pub(crate) settings_refusals: Vec<SettingsRefusal>,
    /// Announced on every stream.
    pub(crate) update: Option<AgentUpdate>,
    pub(crate) agent: Vec<u8>,
    pub(crate) updates: Vec<AgentUpdateState>,
    pub(crate) registrations: Vec<CompleteRequest>,
    pub(crate) installs: Vec<Outcome>,
    /// Runs when a report of an install arrives, before it is answered.
    pub(crate) at_install_report: Option<InstallHook>,
    pub(crate) hellos: Vec<Hello>,
    pub(crate) acknowledgements: Vec<PlanAcknowledgement>,
    pub(crate) steps: Vec<StepReport>,
    pub(crate) progress: Vec<StepProgress>,
    /// Sent on each stream.
    pub(crate) duties: Vec<LoadBalancerDuty>,
    pub(crate) states: Vec<LoadBalancerState>,
    pub(crate) stale: Vec<u32>,
    pub(crate) observed: Vec<ObservedReport>,
    /// Boot ids of renewals.
    pub(crate) renewals: Vec<String>,
    /// Answers to the next calls of Attach.
    pub(crate) attach_failures: VecDeque<Status>,
    /// How many handshakes with a client certificate end with "it has expired".
    pub(crate) rejected_certificates: usize,
    /// Whether the install is known; where it is not, a renewal gives the role
    /// of the live system.
    pub(crate) installed: Option<bool>,
    /// The role of every renewed certificate.
    pub(crate) renewed_role: Option<&'static str>,
    nonces: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone)]
pub(crate) struct Coordinator {
    pub(crate) address: SocketAddr,
    pub(crate) authority: String,
    shared: Arc<Shared>,
}

struct Shared {
    memory: Mutex<Memory>,
    issuer: Issuer<'static, KeyPair>,
    changed: watch::Sender<u64>,
    cut: Notify,
}

fn authority() -> (Issuer<'static, KeyPair>, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "test authority");
    let pem = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), pem)
}

impl Coordinator {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (issuer, authority) = authority();
        let coordinator = Self {
            address: listener.local_addr().unwrap(),
            authority,
            shared: Arc::new(Shared {
                memory: Mutex::default(),
                issuer,
                changed: watch::Sender::new(0),
                cut: Notify::new(),
            }),
        };
        coordinator.clone().serve(listener);
        coordinator
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.shared.memory.lock().unwrap()
    }

    /// Waits until what was told holds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Memory) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        let wait = async {
            while !holds(&self.memory()) {
                changed.changed().await.unwrap();
            }
        };
        let limit = std::time::Duration::from_mins(3);
        tokio::time::timeout(limit, wait).await.unwrap_or_else(|_| panic!("never came: {what}"));
    }

    /// Ends every stream, as a restart does.
    pub(crate) fn cut(&self) {
        self.shared.cut.notify_waiters();
    }

    /// The seed ISO's document.
    pub(crate) fn config(&self) -> String {
        let authority = self.authority.trim_end().replace('\n', "\n      ");
        format!(
            "elemental:\n  registration:\n    url: https://{}/elemental/registration/{TOKEN}\n    ca-cert: |\n      {authority}\n    emulate-tpm: true\n",
            self.address
        )
    }

    fn told(&self, tell: impl FnOnce(&mut Memory)) {
        tell(&mut self.memory());
        self.shared.changed.send_modify(|count| *count += 1);
    }

    fn sign(&self, request: &[u8], role: &str) -> String {
        let request = CertificateSigningRequestDer::from(request);
        let mut request = CertificateSigningRequestParams::from_der(&request).unwrap();
        let hash = proof::identity(&request.public_key.subject_public_key_info());
        let uri = format!("baremetal://default/{hash}/{role}").try_into().unwrap();
        request.params.subject_alt_names = vec![SanType::URI(uri)];
        request.params.distinguished_name.push(DnType::CommonName, "host-1");
        request.signed_by(&self.shared.issuer).unwrap().pem() + &self.authority
    }

    pub(crate) fn sign_agent(&self, message: &[u8]) -> Vec<u8> {
        self.shared.issuer.key().sign(message).unwrap()
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        use rustls::pki_types::pem::PemObject as _;
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1", NAME].map(str::to_owned)).unwrap();
        let certificate = params.signed_by(&key, &self.shared.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .unwrap();
        let verifier = Arc::new(Verifier { coordinator: self.clone(), webpki: verifier });
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    fn serve(self, listener: TcpListener) -> JoinHandle<()> {
        let (connections, incoming) = mpsc::channel(4);
        let acceptor = self.acceptor();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                if let Ok(stream) = acceptor.accept(stream).await {
                    let _ = connections.send(Ok::<_, std::io::Error>(Accepted(stream))).await;
                }
            }
        });
        tokio::spawn(async move {
            tonic::transport::Server::builder()
                .add_service(RegistrationServer::new(self.clone()))
                .add_service(HostServer::new(self))
                .serve_with_incoming(ReceiverStream::new(incoming))
                .await
                .unwrap();
        })
    }
}

/// What a call knows of its connection.
#[derive(Clone)]
struct Peer {
    exporter: Exporter,
    role: Option<String>,
}

struct Accepted(TlsStream<TcpStream>);

impl Connected for Accepted {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        let session = self.0.get_ref().1;
        let role = session.peer_certificates().map(|chain| {
            let (_, leaf) = x509_parser::parse_x509_certificate(&chain[0]).unwrap();
            let names = leaf.subject_alternative_name().unwrap().unwrap();
            let [GeneralName::URI(uri)] = names.value.general_names[..] else { panic!("{names:?}") };
            uri.rsplit('/').next().unwrap().to_owned()
        });
        let exporter = session.export_keying_material([0; 32], proof::EXPORTER_LABEL, None).unwrap();
        Peer { exporter, role }
    }
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

pub(crate) fn refused(refusal: Refusal) -> Status {
    let mut status = Status::permission_denied("as the test says");
    status.metadata_mut().insert(METADATA_KEY, refusal.code().parse().unwrap());
    status
}

fn peer<T>(request: &Request<T>) -> Peer {
    request.extensions().get::<Peer>().unwrap().clone()
}

fn only<T>(request: &Request<T>, role: &str) -> Result<(), Status> {
    if peer(request).role.as_deref() == Some(role) {
        return Ok(());
    }
    Err(refused(Refusal::RoleNotAllowed))
}

#[tonic::async_trait]
impl Registration for Coordinator {
    async fn begin(&self, request: Request<BeginRequest>) -> Result<Response<BeginResponse>, Status> {
        let request = request.into_inner();
        if let Some(refusal) = self.memory().refusals.pop_front() {
            return Err(refused(refusal));
        }
        if request.registration_token != TOKEN {
            return Err(refused(Refusal::UnknownToken));
        }
        let nonce = vec![7; proof::NONCE_BYTES];
        self.memory().nonces.push((nonce.clone(), request.public_key));
        Ok(Response::new(BeginResponse { nonce, tpm_challenge: None }))
    }

    async fn complete(
        &self,
        request: Request<CompleteRequest>,
    ) -> Result<Response<CompleteResponse>, Status> {
        let exporter = peer(&request).exporter;
        let request = request.into_inner();
        let (nonce, public_key) = self.memory().nonces.pop().unwrap();
        let binding = proof::binding(&nonce.try_into().unwrap(), &exporter, &public_key);
        // The point is the end of the PKIX structure of a P-256 key.
        let point = &public_key[public_key.len() - 65..];
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point)
            .verify(&binding, &request.proof)
            .map_err(|_| refused(Refusal::BadProof))?;
        let response = CompleteResponse {
            inventory_namespace: "default".to_owned(),
            inventory_name: "host-1".to_owned(),
            certificate_chain: self.sign(&request.certificate_request, "live"),
            next: self.memory().next.clone(),
            installed_url: String::new(),
        };
        self.told(|memory| memory.registrations.push(request));
        Ok(Response::new(response))
    }
}

#[tonic::async_trait]
impl Host for Coordinator {
    type AttachStream = ReceiverStream<Result<CoordinatorMessage, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<HostMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        only(&request, "installed")?;
        if let Some(failure) = self.memory().attach_failures.pop_front() {
            return Err(failure);
        }
        let mut messages = request.into_inner();
        let (outbound, stream) = mpsc::channel(8);
        if let Some(settings) = self.memory().settings.clone() {
            let message = CoordinatorMessage { message: Some(FromCoordinator::Settings(settings)) };
            outbound.try_send(Ok(message)).unwrap();
        }
        if let Some(update) = self.memory().update.clone() {
            let message = CoordinatorMessage { message: Some(FromCoordinator::AgentUpdate(update)) };
            outbound.try_send(Ok(message)).unwrap();
        }
        for plan in self.memory().plans.clone() {
            let message = CoordinatorMessage { message: Some(FromCoordinator::Plan(plan)) };
            outbound.try_send(Ok(message)).unwrap();
        }
        for duty in self.memory().duties.clone() {
            let message = CoordinatorMessage { message: Some(FromCoordinator::LoadBalancer(duty)) };
            outbound.try_send(Ok(message)).unwrap();
        }
        let coordinator = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = coordinator.shared.cut.notified() => return drop(outbound),
                    message = messages.message() => match message {
                        Ok(Some(message)) => coordinator.told(|memory| match message.message.unwrap() {
                            FromHost::Hello(hello) => memory.hellos.push(hello),
                            FromHost::SettingsRefusal(refusal) => memory.settings_refusals.push(refusal),
                            FromHost::Acknowledgement(answer) => memory.acknowledgements.push(answer),
                            FromHost::Progress(progress) => memory.progress.push(progress),
                            FromHost::LoadBalancer(state) => memory.states.push(state),
                            FromHost::AgentUpdate(state) => memory.updates.push(state),
                        }),
                        _ => return,
                    },
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn report_step(
        &self,
        request: Request<StepReport>,
    ) -> Result<Response<ReportStepResponse>, Status> {
        only(&request, "installed")?;
        let report = request.into_inner();
        let stale = self.memory().stale.contains(&report.step);
        self.told(|memory| memory.steps.push(report));
        if stale {
            return Err(refused(Refusal::StalePlan));
        }
        Ok(Response::new(ReportStepResponse {}))
    }

    async fn report_install(
        &self,
        request: Request<InstallReport>,
    ) -> Result<Response<ReportInstallResponse>, Status> {
        only(&request, "live")?;
        let outcome = request.into_inner().outcome.unwrap();
        self.told(|memory| {
            memory.installed =
                memory.installed.map(|installed| installed || matches!(outcome, Outcome::Done(_)));
            if let Some(run) = &mut memory.at_install_report {
                run(&outcome);
            }
            memory.installs.push(outcome);
        });
        Ok(Response::new(ReportInstallResponse { install_device: self.memory().install_device.clone() }))
    }

    async fn report_observed(
        &self,
        request: Request<ObservedReport>,
    ) -> Result<Response<ReportObservedResponse>, Status> {
        only(&request, "installed")?;
        self.told(|memory| memory.observed.push(request.into_inner()));
        Ok(Response::new(ReportObservedResponse {}))
    }

    async fn renew_certificate(
        &self,
        request: Request<RenewCertificateRequest>,
    ) -> Result<Response<RenewCertificateResponse>, Status> {
        let role = {
            let memory = self.memory();
            let default = if memory.installed == Some(false) { "live" } else { "installed" };
            memory.renewed_role.unwrap_or(default)
        };
        let request = request.into_inner();
        let certificate_chain = self.sign(&request.certificate_request, role);
        self.told(|memory| memory.renewals.push(request.boot_id));
        Ok(Response::new(RenewCertificateResponse { certificate_chain }))
    }

    async fn read_agent(
        &self,
        request: Request<ReadAgentRequest>,
    ) -> Result<Response<ReadAgentResponse>, Status> {
        only(&request, "installed")?;
        let offset = usize::try_from(request.into_inner().offset).unwrap();
        let memory = self.memory();
        let rest = &memory.agent[offset.min(memory.agent.len())..];
        // Larger parts than the coordinator's: a development build is large.
        Ok(Response::new(ReadAgentResponse { data: rest[..rest.len().min(2 << 20)].to_vec() }))
    }
}
