//! Replicas of the coordinator on loopback ports, their API in memory, and
//! hosts that speak the real protocol.

use std::collections::HashSet;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::registration::{ApprovalPolicy, MachineRegistration, MachineRegistrationSpec};
use coordinator_core::plan::PlanRecord;
use fake_apiserver::{Counts, FakeApi};
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher;
use kube::{Api, Resource};
use proto::proof::{self, EXPORTER_LABEL, Exporter};
use proto::refusal::{METADATA_KEY, Refusal};
use proto::v1alpha1 as wire;
use proto::v1alpha1::host_client::HostClient;
use proto::v1alpha1::registration_client::RegistrationClient;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SigningKey as _};
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tower::Service as _;
use tower::util::BoxCloneService;

use crate::agent_file::AgentFile;
use crate::ca::{Authority, HostKey, Peer, RequestedKey, Role, Subject};
use crate::cache::Presence;
use crate::clock::Clock;
use crate::listener;
use crate::metrics::Metrics;
use crate::rpc::plan_notifications::PlanNotifications;
use crate::rpc::registration_tokens::RegistrationTokens;
use crate::rpc::{Caches, Context, Replica, SessionTiming};
use crate::tls::Acceptor;

/// What every replica serves to hosts.
pub(super) const AGENT: &[u8] = b"baremetal-agent-version:0.2.0:x86_64;";
pub(super) const INVENTORIES: &str = "machineinventories.elemental.cattle.io";
pub(super) const REGISTRATIONS: &str = "machineregistrations.elemental.cattle.io";

type Wire =
    BoxCloneService<http::Request<tonic::body::Body>, http::Response<hyper::body::Incoming>, hyper::Error>;

/// One process of the coordinator.
pub(super) struct ReplicaServer {
    pub(super) context: Context,
    pub(super) address: SocketAddr,
}

pub(super) struct World {
    pub(super) fake: FakeApi,
    pub(super) authority: Arc<Authority>,
    pub(super) replicas: Vec<ReplicaServer>,
    /// Names of replicas whose Lease has expired.
    pub(super) dead: Arc<Mutex<HashSet<String>>>,
    /// The time, when it stands still.
    pub(super) frozen: Arc<Mutex<Option<Timestamp>>>,
    metrics: Metrics,
    marks: Mutex<usize>,
    tasks: JoinSet<()>,
}

pub(super) struct Link {
    wire: Wire,
    registration: RegistrationClient<Wire>,
    host: HostClient<Wire>,
    /// The host's half of its stream: open as long as the link.
    half: Option<mpsc::Sender<wire::HostMessage>>,
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

/// The boot of every live system.
pub(super) const LIVE_BOOT: &str = "live-1";
const URL: Option<&str> = Some("https://c.example/elemental/registration/token");

fn registration(name: &str, url: Option<&str>, emulate: bool) -> MachineRegistration {
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
            "registrationURL": url,
        },
    }))
    .unwrap()
}

/// One that no host can register with.
fn unsupported(name: &str) -> MachineRegistration {
    let mut registration = registration(name, URL, true);
    let elemental = registration.spec.config.as_mut().unwrap().elemental.as_mut().unwrap();
    elemental.registration.as_mut().unwrap().auth = Some("mac".into());
    registration
}

async fn follow<K>(api: Api<K>, mut writer: Writer<K>, apply_change: impl Fn(&K, Presence))
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
    while let Some(event) = events.next().await {
        let event = event.unwrap();
        writer.apply_watcher_event(&event);
        match &event {
            watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                apply_change(object, Presence::Exists);
            }
            watcher::Event::Delete(object) => apply_change(object, Presence::Deleted),
            watcher::Event::Init | watcher::Event::InitDone => {}
        }
    }
}

fn with_spec(name: &str, change: impl FnOnce(&mut MachineRegistrationSpec)) -> MachineRegistration {
    let mut registration = registration(name, URL, true);
    change(&mut registration.spec);
    registration
}

async fn create_registrations(fake: &FakeApi) {
    let api: Api<MachineRegistration> = Api::namespaced(fake.client("operator"), "fleet");
    for registration in [
        registration("token", URL, true),
        registration("token-not-ready", None, true),
        registration("token-tpm-only", URL, false),
        unsupported("token-unsupported"),
        with_spec("token-manual", |spec| spec.approval = ApprovalPolicy::Manual),
        with_spec("token-of-two", |spec| spec.max_hosts = Some(2)),
        with_spec("token-expired", |spec| spec.token_expires_at = Some(Time(Timestamp::UNIX_EPOCH))),
    ] {
        api.create(&PostParams::default(), &registration).await.unwrap();
        let key = (REGISTRATIONS, "fleet", registration.metadata.name.as_deref().unwrap());
        fake.edit(key, |object| object["status"] = json!(registration.status));
    }
}

/// Timing for tests in which something has to time out.
pub(super) fn short() -> SessionTiming {
    SessionTiming {
        probe: Duration::from_millis(50),
        end_delay: Duration::from_millis(50),
        deletion_grace: Duration::from_millis(50),
        step_delay: Duration::from_millis(50),
        step_interval: Duration::from_millis(50),
    }
}

impl World {
    pub(super) async fn start() -> Self {
        Self::with_replicas(1, SessionTiming::default()).await
    }

    pub(super) async fn with_replicas(count: usize, timing: SessionTiming) -> Self {
        let fake = FakeApi::new();
        for crd in coordinator_api::crds::all() {
            fake.register_crd(&crd);
        }
        create_registrations(&fake).await;
        let authority = Arc::new(Authority::generate(Timestamp::now()).unwrap());
        let mut world = Self {
            fake,
            authority,
            replicas: vec![],
            dead: Arc::default(),
            frozen: Arc::default(),
            metrics: Metrics::default(),
            marks: Mutex::new(0),
            tasks: JoinSet::new(),
        };
        for index in 0..count {
            let replica = world.start_replica(format!("coordinator-{index}"), timing).await;
            world.replicas.push(replica);
        }
        world
    }

    async fn start_replica(&mut self, name: String, timing: SessionTiming) -> ReplicaServer {
        let watching = self.fake.client("watcher");
        let (writer, notifications) = (Writer::default(), Arc::<PlanNotifications>::default());
        let (inventories, followed) = (writer.as_reader(), notifications.clone());
        let apply_change = move |object: &_, presence| followed.apply_change(object, presence);
        self.tasks.spawn(follow(Api::all(watching.clone()), writer, apply_change));
        let (writer, tokens) = (Writer::default(), Arc::<RegistrationTokens>::default());
        let (registrations, followed) = (writer.as_reader(), tokens.clone());
        let apply_change = move |object: &_, presence| followed.apply_change(object, presence);
        self.tasks.spawn(follow(Api::all(watching), writer, apply_change));
        inventories.wait_until_ready().await.unwrap();
        registrations.wait_until_ready().await.unwrap();
        let (frozen, dead) = (self.frozen.clone(), self.dead.clone());
        let mut context = Context::new(
            self.fake.client(&name),
            Caches { inventories, registrations, notifications, tokens },
            self.authority.clone(),
            self.metrics.clone(),
            Clock::new(move || frozen.lock().unwrap().unwrap_or_else(Timestamp::now)),
            Replica { name, is_dead: Arc::new(move |name| dead.lock().unwrap().contains(name)) },
        );
        context.timing = timing;
        let agent = AgentFile::sign(AGENT.to_vec(), "agent".as_ref(), &self.authority).unwrap();
        context = context.with_agent(Some(Arc::new(agent)));
        let identity = self.authority.server(&["127.0.0.1".to_owned()], Timestamp::now()).unwrap();
        let acceptor = Acceptor::new(&self.authority, identity).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = listener::build_router(&context, None);
        self.tasks.spawn(listener::run_listener(listener, acceptor, router, std::future::pending()));
        ReplicaServer { context, address }
    }

    pub(super) fn context(&self) -> &Context {
        &self.replicas[0].context
    }

    /// Requests of the coordinator since the last time this was asked.
    pub(super) fn spent(&self) -> Counts {
        let journal = self.fake.journal();
        let mut mark = self.marks.lock().unwrap();
        let entries = journal.since(*mark);
        *mark = journal.mark();
        Counts::of(entries.iter().filter(|entry| entry.request.user.starts_with("coordinator")))
    }

    pub(super) fn metrics(&self) -> String {
        self.metrics.encode_text().unwrap()
    }

    pub(super) fn inventory(&self, name: &str) -> Option<Value> {
        self.fake.look(INVENTORIES, "fleet", name)
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
        tokio::time::timeout(Duration::from_mins(1), waiting).await.expect("in time");
    }

    /// Waits until every watch has brought the object as it is now.
    pub(super) async fn settled(&self, name: &str) {
        let key = ObjectRef::<MachineInventory>::new(name).within("fleet");
        self.until(|| {
            let now = self.inventory(name).unwrap();
            let version = now["metadata"]["resourceVersion"].as_str();
            self.replicas.iter().all(|replica| {
                let seen = replica.context.caches.inventories.get(&key);
                seen.is_some_and(|seen| seen.metadata.resource_version.as_deref() == version)
            })
        })
        .await;
    }

    /// Annotates an inventory, and waits until every watch has brought it.
    pub(super) async fn annotate(&self, name: &str, key: &str, value: &str) {
        self.fake.edit((INVENTORIES, "fleet", name), |inventory| {
            inventory["metadata"]["annotations"][key] = json!(value);
        });
        self.settled(name).await;
    }

    pub(super) fn write_secret(&self, name: &str, plan: &[u8]) {
        let plan = encode(plan);
        self.fake.edit(("secrets", "fleet", name), |secret| {
            secret["data"] = json!({ "plan": plan, "failure-count": encode(b"0") });
        });
    }

    pub(super) fn announce_status(&self, name: &str, record: &PlanRecord) {
        let plan = &record.plan;
        self.fake.edit((INVENTORIES, "fleet", name), |inventory| {
            let secret = inventory["status"]["plan"]["secretRef"].clone();
            inventory["status"]["plan"] = json!({
                "secretRef": secret, "id": plan.id.as_str(), "generation": plan.generation.0,
                "type": plan.kind.as_str(), "checksum": plan.checksum.as_str(),
            });
        });
    }

    /// What the controllers do: the Secret first, then the announcement.
    pub(super) fn announce(&self, name: &str, record: &PlanRecord) {
        self.write_secret(name, record.bytes.expose());
        self.announce_status(name, record);
    }

    /// Deletes the inventory, and creates it again as a restore does: without
    /// status, with another UID.
    pub(super) async fn recreate(&self, name: &str) {
        let mut inventory: MachineInventory = serde_json::from_value(self.inventory(name).unwrap()).unwrap();
        self.fake.take_out(INVENTORIES, "fleet", name);
        inventory.status = None;
        inventory.metadata.uid = None;
        inventory.metadata.resource_version = None;
        let api: Api<MachineInventory> = Api::namespaced(self.fake.client("operator"), "fleet");
        api.create(&PostParams::default(), &inventory).await.unwrap();
    }

    pub(super) async fn connect(&self, identity: Option<(&Host, &str)>) -> Link {
        self.connect_to(0, identity).await
    }

    pub(super) async fn connect_to(&self, replica: usize, identity: Option<(&Host, &str)>) -> Link {
        self.try_connect(&self.authority, replica, identity).await.unwrap()
    }

    pub(super) async fn try_connect(
        &self,
        authority: &Authority,
        replica: usize,
        identity: Option<(&Host, &str)>,
    ) -> std::io::Result<Link> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.roots().next().unwrap().clone()).unwrap();
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
        let stream = TcpStream::connect(self.replicas[replica].address).await?;
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
            wire: wire.clone(),
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

    pub(super) async fn get(&mut self, path: &str) -> (u16, String) {
        let request = http::Request::get(format!("https://127.0.0.1{path}"));
        let request = request.body(tonic::body::Body::empty()).unwrap();
        let response = self.wire.call(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
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
        let (half, messages) = mpsc::channel(8);
        let hello = wire::HostMessage { message: Some(wire::host_message::Message::Hello(hello)) };
        half.send(hello).await.unwrap();
        self.half = Some(half);
        let messages = tokio_stream::wrappers::ReceiverStream::new(messages);
        Ok(self.host.attach(messages).await?.into_inner())
    }

    pub(super) async fn send(&self, message: wire::host_message::Message) {
        let message = wire::HostMessage { message: Some(message) };
        self.half.as_ref().unwrap().send(message).await.unwrap();
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

    /// The agent that every replica of the world serves.
    pub(super) async fn read_agent(&mut self) -> Answer<Vec<u8>> {
        let request = wire::ReadAgentRequest { checksum: proto::proof::identity(AGENT), offset: 0 };
        Ok(self.host.read_agent(request).await?.into_inner().data)
    }

    pub(super) async fn renew(&mut self, host: &Host, boot_id: &str) -> Answer<String> {
        let request =
            wire::RenewCertificateRequest { certificate_request: host.request(), boot_id: boot_id.into() };
        Ok(self.host.renew_certificate(request).await?.into_inner().certificate_chain)
    }
}

impl Host {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.into(), key: KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap() }
    }

    pub(super) fn inventory_name(&self) -> String {
        format!("m-{}", self.name)
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
            boot_id: LIVE_BOOT.into(),
            tpm_quote: None,
        }
    }

    pub(super) fn host_key(&self) -> HostKey {
        HostKey { namespace: "fleet".into(), tpm_hash: self.hash() }
    }

    pub(super) fn certificate(&self, authority: &Authority, role: Role) -> String {
        let requested = RequestedKey::parse(&self.request()).unwrap();
        let (key, name) = (self.host_key(), self.inventory_name());
        let subject = Subject { key: &key, name: &name, role };
        authority.sign_host(&requested, &subject, Timestamp::now()).unwrap()
    }

    pub(super) fn peer(chain: &str) -> Peer {
        Peer::parse(&CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()).unwrap()
    }

    pub(super) fn hello(boot_id: &str) -> wire::Hello {
        let installed = wire::InstallDone { device: "/dev/sda".into(), image: "os:v1".into() };
        wire::Hello {
            system: Some(wire::SystemState { boot_id: boot_id.into(), ..Default::default() }),
            agent_version: "1".into(),
            carried: Some(wire::Carried { installed: Some(installed), ..Default::default() }),
            facts: None,
            network: None,
            settings: String::new(),
            agent_update: None,
        }
    }

    pub(super) fn started() -> wire::InstallReport {
        let started = wire::InstallStarted { device: "/dev/sda".into() };
        wire::InstallReport { outcome: Some(wire::install_report::Outcome::Started(started)) }
    }

    pub(super) fn installed() -> wire::InstallReport {
        let done = wire::InstallDone { device: "/dev/sda".into(), image: "os:v1".into() };
        wire::InstallReport { outcome: Some(wire::install_report::Outcome::Done(done)) }
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
