//! Replicas of the coordinator on loopback ports, their API in memory, and
//! hosts that speak the real protocol.

mod host;
mod link;
mod registrations;
mod seen;

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::registration::MachineRegistration;
use fake_apiserver::{Counts, FakeApi};
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::PostParams;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher;
use kube::{Api, Resource};
use proto::plan::{Plan, Secret};
use proto::refusal::{METADATA_KEY, Refusal};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::agent_file::AgentFile;
use crate::ca::Authority;
use crate::clock::Clock;
use crate::events::Events;
use crate::key::Presence;
use crate::lease::replica::ReplicaLife;
use crate::listener;
use crate::metrics::Metrics;
use crate::rpc::host::end_lost_sessions;
use crate::rpc::host_token::render_url;
use crate::rpc::plan_notifications::PlanNotifications;
use crate::rpc::registration_tokens::RegistrationTokens;
use crate::rpc::{Caches, Context, Replica, SessionTiming};
use crate::tls::Acceptor;
use registrations::create_registrations;

pub(super) use host::Host;
pub(super) use link::Link;
pub(super) use seen::expect_console;

/// What every replica serves to hosts.
pub(super) const AGENT: &[u8] = b"baremetal-agent-version:0.2.0:x86_64;";
pub(super) const INVENTORIES: &str = "machineinventories.elemental.cattle.io";
pub(super) const REGISTRATIONS: &str = "machineregistrations.elemental.cattle.io";

/// One process of the coordinator.
pub(super) struct ReplicaServer {
    pub(super) context: Context,
    pub(super) address: SocketAddr,
}

pub(super) struct World {
    pub(super) fake: FakeApi,
    pub(super) authority: Arc<Authority>,
    pub(super) replicas: Vec<ReplicaServer>,
    /// The knowledge about replicas that are not alive.
    pub(super) lives: Arc<Mutex<HashMap<String, ReplicaLife>>>,
    /// The time, when it stands still.
    pub(super) frozen: Arc<Mutex<Option<Timestamp>>>,
    metrics: Metrics,
    marks: Mutex<usize>,
    tasks: JoinSet<()>,
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
            lives: Arc::default(),
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
        let watching = self.fake.client(&format!("watcher-of-{name}"));
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
        let (frozen, lives) = (self.frozen.clone(), self.lives.clone());
        let life_of =
            move |name: &str| lives.lock().unwrap().get(name).copied().unwrap_or(ReplicaLife::Alive);
        let clock = Clock::new(move || frozen.lock().unwrap().unwrap_or_else(Timestamp::now));
        let (client, metrics) = (self.fake.client(&name), self.metrics.clone());
        let events =
            Events::start(client.clone(), name.clone(), clock.clone(), metrics.clone(), &mut self.tasks);
        let mut context = Context::new(
            client,
            Caches { inventories, registrations, notifications, tokens },
            self.authority.clone(),
            (metrics, events),
            clock,
            Replica { name, life_of: Arc::new(life_of) },
        );
        context.timing = timing;
        let agent = AgentFile::sign(AGENT.to_vec(), "agent".as_ref(), &self.authority).unwrap();
        context = context.with_agent(Some(Arc::new(agent)));
        self.tasks.spawn(end_lost_sessions(context.clone()));
        let identity = self.authority.server(&["127.0.0.1".to_owned()], Timestamp::now()).unwrap();
        let acceptor = Acceptor::new(&self.authority, identity, Clock::system()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = listener::build_router(&context, None);
        self.tasks.spawn(listener::run_listener(listener, acceptor, router, std::future::pending()));
        ReplicaServer { context, address }
    }

    pub(super) fn context(&self) -> &Context {
        &self.replicas[0].context
    }

    /// Waits until the Events so far are written.
    pub(super) async fn flush_events(&self) {
        for replica in &self.replicas {
            assert!(replica.context.events.flush(Duration::from_secs(10)).await);
        }
    }

    /// Requests of the coordinator since the last time this was asked.
    pub(super) async fn spent(&self) -> Counts {
        self.flush_events().await;
        let journal = self.fake.journal();
        let mut mark = self.marks.lock().unwrap();
        let entries = journal.since(*mark);
        *mark = journal.mark();
        Counts::of(entries.iter().filter(|entry| entry.request.user.starts_with("coordinator")))
    }

    pub(super) fn metrics(&self) -> String {
        self.metrics.encode_text().unwrap()
    }

    /// The token that the installed disk of the host keeps.
    pub(super) fn host_token(&self, registration: &str, host: &Host) -> String {
        let found = self.fake.look(REGISTRATIONS, "fleet", registration).unwrap();
        let found: MachineRegistration = serde_json::from_value(found).unwrap();
        let url = render_url(&self.authority, &found, &host.hash()).unwrap();
        url.rsplit_once('/').unwrap().1.to_owned()
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

    pub(super) fn announce_status(&self, name: &str, plan: &Plan) {
        self.fake.edit((INVENTORIES, "fleet", name), |inventory| {
            let secret = inventory["status"]["plan"]["secretRef"].clone();
            inventory["status"]["plan"] = json!({
                "secretRef": secret, "id": plan.id.as_str(), "generation": plan.generation.0,
                "type": plan.kind.as_str(), "checksum": plan.checksum.as_str(),
            });
        });
    }

    /// What the controllers do: the Secret first, then the announcement.
    pub(super) fn announce(&self, name: &str, (plan, bytes): &(Plan, Secret)) {
        self.write_secret(name, bytes.expose());
        self.announce_status(name, plan);
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
}
