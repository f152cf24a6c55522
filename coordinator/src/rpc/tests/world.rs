//! A coordinator on a loopback port, its API in memory, and hosts that speak
//! the real protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::registration::MachineRegistration;
use coordinator_core::plan::Stored;
use fake_apiserver::{Counts, FakeApi};
use futures::StreamExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use kube::Api;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use proto::proof::{self, EXPORTER_LABEL, Exporter};
use proto::refusal::{METADATA_KEY, Refusal};
use proto::v1alpha1 as wire;
use proto::v1alpha1::host_client::HostClient;
use proto::v1alpha1::registration_client::RegistrationClient;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SigningKey as _};
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tower::util::BoxCloneService;

use crate::ca::{Authority, Peer, RequestedKey, Role, Subject};
use crate::listener;
use crate::metrics::Metrics;
use crate::rpc::announcements::Announcements;
use crate::rpc::presence::Presence;
use crate::rpc::{Context, Seen};
use crate::tls::Acceptor;

type Wire =
    BoxCloneService<http::Request<tonic::body::Body>, http::Response<hyper::body::Incoming>, hyper::Error>;

pub(super) struct World {
    pub(super) fake: FakeApi,
    pub(super) context: Context,
    pub(super) authority: Arc<Authority>,
    metrics: Metrics,
    address: SocketAddr,
    marks: std::sync::Mutex<usize>,
    _tasks: JoinSet<()>,
}

pub(super) struct Link {
    registration: RegistrationClient<Wire>,
    host: HostClient<Wire>,
    /// The host's half of its stream: open as long as the link.
    half: Option<tokio::sync::oneshot::Sender<()>>,
    pub(super) exporter: Exporter,
}

pub(super) struct Host {
    name: String,
    key: KeyPair,
}

pub(super) fn refusal(status: &tonic::Status) -> Option<Refusal> {
    Refusal::from_code(status.metadata().get(METADATA_KEY)?.to_str().ok()?)
}

pub(super) fn decode(value: &Value) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or_default()).unwrap()
}

fn encode(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn registration(name: &str, ready: &str, emulate: bool) -> MachineRegistration {
    serde_json::from_value(json!({
        "apiVersion": "elemental.cattle.io/v1beta1",
        "kind": "MachineRegistration",
        "metadata": { "name": name, "namespace": "fleet" },
        "spec": {
            "machineName": "m-${System Information/UUID}",
            "machineInventoryLabels": { "site": "${System Information/UUID}" },
            "config": { "elemental": { "registration": { "emulate-tpm": emulate } } },
        },
        "status": {
            "registrationToken": name,
            "conditions": [{
                "type": "Ready", "status": ready, "reason": "SuccessfullyCreated", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    }))
    .unwrap()
}

async fn follow(api: Api<MachineInventory>, mut writer: Writer<MachineInventory>, news: Arc<Announcements>) {
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
    while let Some(event) = events.next().await {
        let event = event.unwrap();
        writer.apply_watcher_event(&event);
        news.event(&event);
    }
}

/// The store that a watch would have filled.
fn registrations() -> Store<MachineRegistration> {
    let mut writer = Writer::default();
    for registration in [
        registration("token", "True", true),
        registration("token-not-ready", "False", true),
        registration("token-tpm-only", "True", false),
    ] {
        writer.apply_watcher_event(&watcher::Event::Apply(registration));
    }
    writer.as_reader()
}

impl World {
    pub(super) async fn start() -> Self {
        Self::with_presence(Presence::default()).await
    }

    pub(super) async fn with_presence(presence: Presence) -> Self {
        let fake = FakeApi::new();
        for crd in coordinator_api::crds::all() {
            fake.register_crd(&crd);
        }
        let mut tasks = JoinSet::new();
        let (writer, announcements) = (Writer::default(), Arc::<Announcements>::default());
        let inventories = writer.as_reader();
        tasks.spawn(follow(Api::all(fake.client("watcher")), writer, announcements.clone()));
        inventories.wait_until_ready().await.unwrap();
        let authority = Arc::new(Authority::generate(Timestamp::now()).unwrap());
        let metrics = Metrics::default();
        let mut context = Context::new(
            fake.client("coordinator"),
            Seen { inventories, registrations: registrations(), announcements },
            authority.clone(),
            metrics.clone(),
        );
        context.presence = Arc::new(presence);
        let identity = authority.server(&["127.0.0.1".to_owned()], Timestamp::now()).unwrap();
        let acceptor = Acceptor::new(&authority, identity).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = listener::router(&context, None);
        tasks.spawn(listener::run(listener, acceptor, router, std::future::pending()));
        Self { fake, context, authority, metrics, address, marks: 0.into(), _tasks: tasks }
    }

    /// Requests of the coordinator since the last time this was asked.
    pub(super) fn spent(&self) -> Counts {
        let journal = self.fake.journal();
        let mut mark = self.marks.lock().unwrap();
        let entries = journal.since(*mark);
        *mark = journal.mark();
        Counts::of(entries.iter().filter(|entry| entry.request.user == "coordinator"))
    }

    pub(super) fn metrics(&self) -> String {
        self.metrics.encode().unwrap()
    }

    pub(super) fn inventory(&self, name: &str) -> Option<Value> {
        self.fake.look("machineinventories.elemental.cattle.io", "fleet", name)
    }

    pub(super) fn secret(&self, name: &str) -> Option<Value> {
        self.fake.look("secrets", "fleet", name)
    }

    pub(super) async fn until(&self, mut done: impl FnMut() -> bool) {
        let waiting = async {
            while !done() {
                // Real sockets are on the other side: there is no clock to move.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("in time");
    }

    /// Waits until the watch has brought the object as it is now.
    pub(super) async fn settled(&self, name: &str) {
        let key = ObjectRef::<MachineInventory>::new(name).within("fleet");
        self.until(|| {
            let seen = self.context.inventories.get(&key);
            let version = seen.and_then(|seen| seen.metadata.resource_version.clone());
            let now = self.inventory(name).unwrap();
            version.as_deref() == now["metadata"]["resourceVersion"].as_str()
        })
        .await;
    }

    pub(super) fn write_secret(&self, name: &str, plan: &[u8]) {
        let plan = encode(plan);
        self.fake.edit(("secrets", "fleet", name), |secret| {
            secret["data"] = json!({ "plan": plan, "failure-count": encode(b"0") });
        });
    }

    pub(super) fn announce_status(&self, name: &str, stored: &Stored) {
        let key = ("machineinventories.elemental.cattle.io", "fleet", name);
        let (id, generation) = (stored.plan.id.to_string(), stored.plan.generation.0);
        self.fake.edit(key, |inventory| {
            let secret = inventory["status"]["plan"]["secretRef"].clone();
            inventory["status"]["plan"] = json!({ "secretRef": secret, "id": id, "generation": generation });
        });
    }

    /// What the controllers do: the Secret first, then the announcement.
    pub(super) fn announce(&self, name: &str, stored: &Stored) {
        self.write_secret(name, stored.bytes.expose());
        self.announce_status(name, stored);
    }

    pub(super) async fn connect(&self, identity: Option<(&Host, &str)>) -> Link {
        self.try_connect(&self.authority, identity).await.unwrap()
    }

    pub(super) async fn try_connect(
        &self,
        authority: &Authority,
        identity: Option<(&Host, &str)>,
    ) -> std::io::Result<Link> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((host, chain)) => {
                let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap);
                let key = PrivatePkcs8KeyDer::from(host.key.serialize_der());
                builder.with_client_auth_cert(chain.collect(), key.into()).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect(self.address).await?;
        let name = "127.0.0.1".try_into().unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let exporter = stream.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, None).unwrap();
        let io = TokioIo::new(stream);
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await;
        let (sender, connection) = handshake.map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        let wire = BoxCloneService::new(tower::service_fn(move |request| {
            let mut sender = sender.clone();
            async move { sender.send_request(request).await }
        }));
        let origin: http::Uri = "https://127.0.0.1".parse().unwrap();
        Ok(Link {
            registration: RegistrationClient::with_origin(wire.clone(), origin.clone()),
            host: HostClient::with_origin(wire, origin),
            half: None,
            exporter,
        })
    }
}

type Answer<T> = Result<T, tonic::Status>;

impl Link {
    pub(super) async fn begin(&mut self, host: &Host, token: &str) -> Answer<Vec<u8>> {
        let request = wire::BeginRequest {
            registration_token: token.into(),
            public_key: host.public_key(),
            attestation: Some(wire::begin_request::Attestation::SoftwareKey(wire::SoftwareKey {})),
        };
        Ok(self.registration.begin(request).await?.into_inner().nonce)
    }

    pub(super) async fn complete(
        &mut self,
        request: wire::CompleteRequest,
    ) -> Answer<wire::CompleteResponse> {
        Ok(self.registration.complete(request).await?.into_inner())
    }

    pub(super) async fn register(&mut self, host: &Host, token: &str) -> Answer<wire::CompleteResponse> {
        let nonce = self.begin(host, token).await?;
        let request = host.complete(&nonce, &self.exporter);
        self.complete(request).await
    }

    pub(super) async fn attach(
        &mut self,
        hello: wire::Hello,
    ) -> Answer<tonic::Streaming<wire::CoordinatorMessage>> {
        let hello = wire::HostMessage { message: Some(wire::host_message::Message::Hello(hello)) };
        let (half, gone) = tokio::sync::oneshot::channel::<()>();
        self.half = Some(half);
        let open = futures::stream::once(gone).filter_map(async |_| None);
        let messages = futures::stream::iter([hello]).chain(open);
        Ok(self.host.attach(messages).await?.into_inner())
    }

    pub(super) async fn report_step(&mut self, report: wire::StepReport) -> Answer<()> {
        self.host.report_step(report).await.map(|_| ())
    }

    pub(super) async fn report_install(&mut self, report: wire::InstallReport) -> Answer<String> {
        Ok(self.host.report_install(report).await?.into_inner().install_device)
    }

    pub(super) async fn report_observed(&mut self, network: wire::ObservedNetwork) -> Answer<()> {
        let report = wire::ObservedReport { network: Some(network), system: None };
        self.host.report_observed(report).await.map(|_| ())
    }

    pub(super) async fn renew(&mut self, host: &Host) -> Answer<String> {
        let request = wire::RenewCertificateRequest { certificate_request: host.request() };
        Ok(self.host.renew_certificate(request).await?.into_inner().certificate_chain)
    }
}

impl Host {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.into(), key: KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap() }
    }

    fn public_key(&self) -> Vec<u8> {
        self.key.subject_public_key_info()
    }

    pub(super) fn hash(&self) -> String {
        proof::identity(&self.public_key())
    }

    fn request(&self) -> Vec<u8> {
        CertificateParams::default().serialize_request(&self.key).unwrap().der().to_vec()
    }

    pub(super) fn complete(&self, nonce: &[u8], exporter: &Exporter) -> wire::CompleteRequest {
        let binding = proof::binding(nonce.try_into().unwrap(), exporter, &self.public_key());
        let uuid = (!self.name.is_empty()).then(|| ("UUID".to_owned(), self.name.clone()));
        wire::CompleteRequest {
            proof: self.key.sign(&binding).unwrap(),
            certificate_request: self.request(),
            facts: Some(wire::HostFacts {
                smbios: vec![wire::SmbiosSection {
                    title: "System Information".into(),
                    values: uuid.into_iter().collect(),
                }],
                ..Default::default()
            }),
            observed_network: Some(Self::network("192.0.2.1/24")),
        }
    }

    pub(super) fn certificate(&self, authority: &Authority, role: Role, uid: &str) -> String {
        let key = RequestedKey::parse(&self.request()).unwrap();
        let name = format!("m-{}", self.name);
        let subject = Subject { namespace: "fleet", name: &name, uid, role };
        authority.host(&key, &subject, Timestamp::now()).unwrap()
    }

    pub(super) fn role(chain: &str) -> Role {
        Peer::parse(&CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()).unwrap().role
    }

    pub(super) fn hello(boot_id: &str, generation: u64) -> wire::Hello {
        wire::Hello {
            system: Some(wire::SystemState { boot_id: boot_id.into(), ..Default::default() }),
            agent_version: "1".into(),
            plan_id: String::new(),
            generation,
        }
    }

    pub(super) fn started() -> wire::InstallReport {
        let started = wire::InstallStarted { device: "/dev/sda".into() };
        wire::InstallReport { outcome: Some(wire::install_relistener::Outcome::Started(started)) }
    }

    pub(super) fn installed() -> wire::InstallReport {
        let done = wire::InstallDone { device: "/dev/sda".into(), image: "os:v1".into() };
        wire::InstallReport { outcome: Some(wire::install_relistener::Outcome::Done(done)) }
    }

    pub(super) fn network(address: &str) -> wire::ObservedNetwork {
        wire::ObservedNetwork {
            interfaces: vec![wire::Interface {
                name: "eth0".into(),
                mac: "52:54:00:00:00:01".into(),
                permanent_mac: "52:54:00:00:00:01".into(),
                mtu: 1500,
                addresses: vec![address.into()],
                ..Default::default()
            }],
            ..Default::default()
        }
    }
}
