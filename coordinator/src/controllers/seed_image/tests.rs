//! The whole coordinator on an API server in memory: the states of a seed
//! image, in their order.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use clap::Parser as _;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use coordinator_api::{capi, crds};
use fake_apiserver::{FakeApi, Kind, Matching, Refusal, Verb};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::*;
use crate::clock::Clock;
use crate::cluster_api;
use crate::config::Config;
use crate::controllers::lead_controllers;
use crate::health::Readiness;
use crate::lease::replica::ReplicaLease;
use crate::metrics::Metrics;
use crate::run::{Parts, Setup, assemble_parts};
use crate::seed_iso::tests::by_hand;
use crate::seed_iso::tests::fetcher::start_fetcher;
use crate::tests::RIGHTS;

const USER: &str = "coordinator";
const SEED: (&str, &str, &str) = ("seedimages.elemental.cattle.io", "fleet", "seed");

/// State, token, and whether a rebuild is asked for.
type Shown = (String, String, bool);

struct Setting {
    fake: FakeApi,
    seed_images: Api<SeedImage>,
    shown: Arc<Mutex<Vec<Shown>>>,
    changes: watch::Receiver<()>,
    directory: tempfile::TempDir,
    tasks: JoinSet<()>,
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn read_shown(object: &Value) -> Shown {
    let asked = object["spec"]["retriggerBuild"] == true;
    (text(object, "/status/state"), text(object, "/status/downloadToken"), asked)
}

async fn base_server(tasks: &mut JoinSet<()>) -> String {
    let router = axum::Router::new().route("/base.iso", axum::routing::get(|| async { by_hand() }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/base.iso", listener.local_addr().unwrap());
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

/// What a replica of the coordinator is made of.
fn setup(fake: &FakeApi, directory: &Path, instance: &str, flags: &[String]) -> Setup {
    let cache = format!("--cache-directory={}", directory.join(instance).display());
    let own =
        ["c", "--server-url=https://c.example:1", "--own-namespace=here", "--allow-base=127.0.0.1", &cache];
    let config = Config::parse_from(own.into_iter().chain(flags.iter().map(String::as_str)));
    Setup {
        config,
        client: fake.client(USER),
        versions: cluster_api::at_version("v1beta2"),
        metrics: Metrics::default(),
        traces: crate::traces::Traces::default(),
        readiness: Readiness::default(),
        clock: Clock::system(),
        workloads: crate::workload::WorkloadClients::default(),
    }
}

impl Setting {
    async fn new() -> Self {
        Self::with_flags(&[]).await
    }

    async fn with_flags(flags: &[String]) -> Self {
        let (fake, mut tasks) = (FakeApi::new(), JoinSet::new());
        for crd in crds::all() {
            fake.register_crd(&crd);
        }
        for (kind, plural) in [("Machine", "machines"), ("Cluster", "clusters")] {
            fake.register(Kind::namespaced(capi::GROUP, "v1beta2", kind, plural).with_status());
        }
        let shown = Arc::<Mutex<Vec<Shown>>>::default();
        let (tell, changes) = watch::channel(());
        let noted = shown.clone();
        fake.observe(move |key, object| {
            if let Some(object) = object.filter(|_| key == SEED) {
                let mut noted = noted.lock().unwrap();
                if noted.last() != Some(&read_shown(object)) {
                    noted.push(read_shown(object));
                }
            }
            tell.send_replace(());
        });
        let directory = tempfile::tempdir().unwrap();
        let setup = setup(&fake, directory.path(), "leader", flags);
        tasks.spawn(async move {
            let parts = assemble_parts(&setup).await.unwrap();
            Box::pin(lead_controllers(parts.context, std::future::pending())).await;
        });
        let base = base_server(&mut tasks).await;
        let object = |kind: &str, name: &str, spec: Value| {
            let metadata = json!({ "name": name, "namespace": "fleet" });
            json!({ "apiVersion": "elemental.cattle.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec })
        };
        let operator = fake.client_in("operator", "fleet");
        let registration = object("MachineRegistration", "reg", json!({}));
        let registrations: Api<MachineRegistration> = Api::default_namespaced(operator.clone());
        let made = serde_json::from_value(registration).unwrap();
        registrations.create(&PostParams::default(), &made).await.unwrap();
        let seed = json!({ "registrationRef": { "name": "reg" }, "baseImage": base });
        let seed_images: Api<SeedImage> = Api::default_namespaced(operator);
        let made = serde_json::from_value(object("SeedImage", "seed", seed)).unwrap();
        seed_images.create(&PostParams::default(), &made).await.unwrap();
        Self { fake, seed_images, shown, changes, directory, tasks }
    }

    /// Another replica, which does not lead, and its Lease.
    async fn start_replica(&self) -> (Parts, ReplicaLease) {
        let parts = assemble_parts(&setup(&self.fake, self.directory.path(), "other", &[])).await.unwrap();
        let (isos, leases) = (parts.context.isos.clone(), Api::namespaced(self.fake.client(USER), "here"));
        let lease = ReplicaLease::new(leases, "other", parts.replica.clone(), Clock::system());
        let lease = lease.with_bases(move || isos.announce_bases());
        lease.renew_lease().await.unwrap();
        (parts, lease)
    }

    /// Reason and message of a condition.
    fn find_condition(&self, kind: &str) -> Option<(String, String)> {
        let object = self.fake.look(SEED.0, SEED.1, SEED.2).unwrap();
        let mut conditions = object["status"]["conditions"].as_array()?.iter();
        let found = conditions.find(|condition| condition["type"] == kind)?;
        Some((text(found, "/reason"), text(found, "/message")))
    }

    async fn wait_until(&mut self, what: &str, wanted: impl Fn(&Shown) -> bool) -> Shown {
        let fake = self.fake.clone();
        let found = async {
            loop {
                let now = fake.look(SEED.0, SEED.1, SEED.2).map(|object| read_shown(&object));
                if let Some(now) = now.filter(&wanted) {
                    return now;
                }
                self.changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_mins(1), found).await.unwrap_or_else(|_| {
            let found = self.fake.look(SEED.0, SEED.1, SEED.2);
            panic!("never {what}: {found:#?}")
        })
    }

    async fn request_rebuild(&self) {
        let patch = Patch::Merge(json!({ "spec": { "retriggerBuild": true } }));
        self.seed_images.patch("seed", &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Whether a rule of the coordinator names it.
fn is_allowed(verb: Verb, resource: &str) -> bool {
    use serde::Deserialize as _;
    let documents = serde_norway::Deserializer::from_str(RIGHTS).map(|one| Value::deserialize(one).unwrap());
    let ours = documents.filter(|one| one["metadata"]["name"] == "baremetal-coordinator");
    let has = |list: &Value, word: &str| list.as_array().is_some_and(|list| list.contains(&json!(word)));
    let rules: Vec<_> = ours.filter_map(|one| one["rules"].as_array().cloned()).flatten().collect();
    rules.iter().any(|rule| has(&rule["resources"], resource) && has(&rule["verbs"], verb.as_str()))
}

// Fault: the request for a rebuild cannot be taken back because of conflicts.
// Shown: nothing: it is done once.
#[tokio::test]
async fn a_rebuild_happens_once_despite_conflicts() {
    let mut setting = Setting::new().await;
    let (_, old, _) = setting.wait_until("completed", |(state, ..)| state == "Completed").await;
    let clear_request = Matching::any().user(USER).verb(Verb::Patch).resource("seedimages");
    setting.fake.faults().fail(clear_request, 3, Refusal::Conflict);
    let before = setting.shown.lock().unwrap().len();
    setting.request_rebuild().await;
    let (_, new, _) = setting
        .wait_until("rebuilt", |(state, token, asked)| state == "Completed" && *token != old && !asked)
        .await;
    let shown = |state: &str, token: &str, asked| (state.to_owned(), token.to_owned(), asked);
    let want = [
        shown("Completed", &old, true),
        shown("Started", "", true),
        shown("Completed", &new, true),
        shown("Completed", &new, false),
    ];
    assert_eq!(setting.shown.lock().unwrap()[before..], want);
    for ((verb, resource), _) in setting.fake.journal().counts_of(USER).by_resource {
        assert!(is_allowed(verb, &resource), "no right to {} {resource}", verb.as_str());
    }
}

// Fault: a replica of the coordinator does not have the base of a SeedImage yet.
// Shown: `SeedImageReady=False` of the SeedImage, reason `SeedImageBuildOngoing`, with the name of its pod.
#[tokio::test]
async fn download_opens_once_other_replica_has_base() {
    let mut setting = Setting::new().await;
    setting.wait_until("completed", |(state, ..)| state == "Completed").await;
    let (parts, lease) = setting.start_replica().await;
    setting.request_rebuild().await;
    let waits = async {
        while !setting.find_condition("SeedImageReady").unwrap().1.contains("by other of the coordinator") {
            setting.changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_mins(1), waits).await.unwrap();
    assert_eq!(setting.find_condition("SeedImageReady").unwrap().0, "SeedImageBuildOngoing");
    let (state, token, _) = read_shown(&setting.fake.look(SEED.0, SEED.1, SEED.2).unwrap());
    assert_eq!((&*state, &*token), ("Started", ""));
    setting.tasks.spawn(parts.context.isos.clone().keep_prepared());
    let opened = async {
        // Until the renewal that announces the base.
        while setting.shown.lock().unwrap().last().unwrap().0 != "Completed" {
            lease.renew_lease().await.unwrap();
            let _ = tokio::time::timeout(Duration::from_millis(100), setting.changes.changed()).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), opened).await.unwrap();
}

// Fault: a replica of the coordinator ends that a SeedImage waits for.
// Shown: nothing: the download is opened.
#[tokio::test]
async fn download_opens_once_lacking_replica_ends() {
    let mut setting = Setting::new().await;
    setting.wait_until("completed", |(state, ..)| state == "Completed").await;
    let (_parts, lease) = setting.start_replica().await;
    setting.request_rebuild().await;
    setting.wait_until("closed", |(state, ..)| state == "Started").await;
    let (stop, shutdown) = watch::channel(true);
    lease.keep_renewed(shutdown).await;
    setting.wait_until("opened", |(state, ..)| state == "Completed").await;
    drop(stop);
}

#[tokio::test]
async fn refused_clearing_is_shown_until_it_succeeds() {
    let mut setting = Setting::new().await;
    let (_, old, _) = setting.wait_until("completed", |(state, ..)| state == "Completed").await;
    let clear_request = Matching::any().user(USER).verb(Verb::Patch).resource("seedimages").subresource("");
    let refused = setting.fake.faults().fail(clear_request, 2, Refusal::Forbidden);
    let mark = setting.fake.journal().mark();
    setting.request_rebuild().await;
    setting.wait_until("rebuilt", |(state, token, _)| state == "Completed" && *token != old).await;
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let ready = |setting: &Setting| {
        let object = setting.fake.look(SEED.0, SEED.1, SEED.2).unwrap();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap()
    };
    assert!(refused.is_met());
    let failed = ready(&setting);
    assert_eq!(
        (text(&failed, "/status"), text(&failed, "/reason")),
        ("False".into(), "ApiRequestFailed".into())
    );
    assert!(text(&failed, "/message").contains("clear spec.retriggerBuild of"), "{failed}");
    tokio::time::sleep(Duration::from_mins(12)).await;
    let (state, _, asked) = read_shown(&setting.fake.look(SEED.0, SEED.1, SEED.2).unwrap());
    assert_eq!(
        (state.as_str(), asked, text(&ready(&setting), "/status")),
        ("Completed", false, "True".into())
    );
    let counts = setting.fake.journal().since(mark).into_iter().filter(|entry| {
        let request = &entry.request;
        request.user == USER && request.resource == "seedimages" && request.verb == Verb::Patch
    });
    // Started, completed, two refusals and how they are shown, cleared, ready.
    assert!(counts.count() <= 7, "the failure is written again and again");
}

#[tokio::test]
async fn imported_networks_change_an_image_once() {
    let mut setting = Setting::new().await;
    setting.wait_until("completed", |(state, ..)| state == "Completed").await;
    let fake = setting.fake.clone();
    let url = || fake.look(SEED.0, SEED.1, SEED.2).map(|object| text(&object, "/status/downloadURL"));
    let (old, mark) = (url(), fake.journal().mark());
    let inventories: Api<MachineInventory> = Api::default_namespaced(fake.client_in("operator", "fleet"));
    for number in 0..50 {
        let card = json!({ "match": { "macaddress": format!("02:00:00:00:00:{number:02}") }, "dhcp4": true });
        let network = json!({ "config": { "version": 2, "ethernets": { "eno1": card } } });
        let annotations = json!({ annotation::REGISTRATION: "reg" });
        let metadata =
            json!({ "name": format!("h-{number}"), "namespace": "fleet", "annotations": annotations });
        let object = json!({ "metadata": metadata, "spec": { "network": network } });
        let object = serde_json::from_value(object).unwrap();
        inventories.create(&PostParams::default(), &object).await.unwrap();
    }
    tokio::time::pause();
    tokio::time::sleep(Duration::from_mins(10)).await;
    tokio::time::resume();
    assert_ne!(url(), old, "the image has the networks");
    let is_write = |entry: &&fake_apiserver::Entry| {
        let request = &entry.request;
        request.user == USER
            && request.resource.starts_with("seedimages")
            && matches!(request.verb, Verb::Patch | Verb::Update | Verb::Create)
    };
    let entries = fake.journal().since(mark);
    let writes: Vec<_> = entries.iter().filter(is_write).collect();
    assert_eq!(writes.len(), 1, "{writes:#?}");
}

#[tokio::test]
async fn image_catalog_is_compared_when_it_changes() {
    let mut setting = Setting::new().await;
    setting.wait_until("completed", |(state, ..)| state == "Completed").await;
    let base = json!({ "spec": { "baseImage": "127.0.0.1:1/os-iso:v1" } });
    setting.seed_images.patch("seed", &PatchParams::default(), &Patch::Merge(base)).await.unwrap();
    setting.wait_until("failed", |(state, ..)| state == "Failed").await;
    assert_eq!(setting.find_condition("BaseImageInCatalog"), None, "there is no catalog");
    let catalogs: Api<ConfigMap> = Api::namespaced(setting.fake.client("operator"), "here");
    let catalog = json!({ "metadata": { "name": "elemental-image-catalog" }, "data": { "v1": "os:v2" } });
    catalogs.create(&PostParams::default(), &serde_json::from_value(catalog).unwrap()).await.unwrap();
    wait_for_reason(&mut setting, "BaseImageUnlisted").await;
    let corrected = Patch::Merge(json!({ "data": { "v1": "os:v1" } }));
    catalogs.patch("elemental-image-catalog", &PatchParams::default(), &corrected).await.unwrap();
    wait_for_reason(&mut setting, "BaseImageListed").await;
}

async fn wait_for_reason(setting: &mut Setting, want: &str) {
    let compared = async {
        while setting.find_condition("BaseImageInCatalog").is_none_or(|(reason, _)| reason != want) {
            setting.changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_mins(1), compared).await.expect(want);
}

#[tokio::test]
async fn paused_image_is_built_after_the_pause() {
    let mut setting = Setting::new().await;
    setting.wait_until("completed", |(state, ..)| state == "Completed").await;
    let pause = async |seeds: &Api<SeedImage>, value: Value| {
        let change = json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": value } } });
        seeds.patch("seed", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    };
    pause(&setting.seed_images, json!("")).await;
    setting.request_rebuild().await;
    let look = |setting: &Setting| setting.fake.look(SEED.0, SEED.1, SEED.2).unwrap();
    let is_seen = |seed: &Value| {
        let mut conditions = seed["status"]["conditions"].as_array().unwrap().iter();
        let paused = conditions.find(|condition| condition["type"] == "Paused").unwrap();
        paused["status"] == "True" && paused["observedGeneration"] == seed["metadata"]["generation"]
    };
    let seen = async {
        while !is_seen(&look(&setting)) {
            setting.changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_mins(1), seen).await.expect("the request is seen");
    assert_eq!(look(&setting)["spec"]["retriggerBuild"], true, "nothing is built");
    pause(&setting.seed_images, Value::Null).await;
    let built = async {
        while look(&setting)["spec"]["retriggerBuild"] == true {
            setting.changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_mins(1), built).await.expect("it is built");
}

// Fault: a SeedImage names a file that is not below `--base-image-directory`.
// Shown: condition `Ready` of the SeedImage: `BaseImageInvalid`, with the next action.
#[tokio::test]
async fn conditions_have_the_cause_beside_the_known_reason() {
    let mut setting = Setting::new().await;
    setting.wait_until("completed", |(state, ..)| state == "Completed").await;
    let patch =
        Patch::Merge(json!({ "spec": { "baseImage": "file:///etc/passwd", "retriggerBuild": true } }));
    setting.seed_images.patch("seed", &PatchParams::default(), &patch).await.unwrap();
    setting.wait_until("failed", |(state, ..)| state == "Failed").await;
    for (kind, want) in [("Ready", "BaseImageInvalid"), ("SeedImageReady", "SeedImageBuildFailure")] {
        let (reason, message) = setting.find_condition(kind).unwrap();
        assert_eq!(reason, want);
        assert!(message.contains("--base-image-directory"), "{message}");
    }
    // An Event is written beside the reconcile.
    let fake = setting.fake.clone();
    let noted = async {
        while fake.look_at_events("SeedImage", "seed").len() < 2 {
            setting.changes.changed().await.unwrap();
        }
        fake.look_at_events("SeedImage", "seed")
    };
    let noted = tokio::time::timeout(Duration::from_mins(1), noted).await.unwrap();
    let reasons: BTreeSet<_> = noted.iter().map(|event| text(event, "/reason")).collect();
    assert_eq!(reasons, ["BaseImageInvalid", "SeedImageReady"].map(str::to_owned).into());
}

// Fault: `fetch-base-images` is away, and comes back.
// Shown: condition `Ready` of the SeedImage: `BaseImageFetcherUnavailable` with the container to look at; then nothing.
#[tokio::test]
async fn away_fetcher_is_shown_until_it_returns() {
    let between = tempfile::tempdir().unwrap();
    let socket = between.path().join("socket");
    let mut setting = Setting::with_flags(&[format!("--base-image-socket={}", socket.display())]).await;
    setting.wait_until("failed", |(state, ..)| state == "Failed").await;
    let (reason, message) = setting.find_condition("Ready").unwrap();
    assert_eq!(reason, "BaseImageFetcherUnavailable");
    assert!(message.contains("container base-images") && message.contains("tried again"), "{message}");
    let _end = start_fetcher(&socket);
    tokio::time::pause();
    tokio::time::sleep(RETRY_INTERVAL + Duration::from_secs(1)).await;
    tokio::time::resume();
    setting.wait_until("completed", |(state, ..)| state == "Completed").await;
    assert_eq!(setting.find_condition("Ready").unwrap().0, "ResourcesSuccessfullyCreated");
}
