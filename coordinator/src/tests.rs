//! One coordinator on an API server in memory, in virtual time, for the tests
//! beside the code.

use std::time::Duration;

use clap::Parser as _;
use coordinator_api::{capi, crds};
use fake_apiserver::{Entry, FakeApi, Kind, Rules, Verb};
use jiff::Timestamp;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::cluster_api;
use crate::config::Config;
use crate::controllers::context::Context;
use crate::controllers::lead_controllers;
use crate::health::Readiness;
use crate::metrics::Metrics;
use crate::run::{Setup, assemble_parts};

/// Of every object that is not the coordinator's own.
pub(crate) const NAMESPACE: &str = "fleet";
/// Of the coordinator.
pub(crate) const OWN_NAMESPACE: &str = "baremetal-system";
const USER: &str = "coordinator";
pub(crate) const RIGHTS: &str =
    concat!(include_str!("../config/rbac.yaml"), "---\n", include_str!("../config/all-namespaces.yaml"));
/// What no test waits for longer, in virtual time.
const DEADLINE: Duration = Duration::from_mins(10);

pub(crate) struct Setting {
    pub(crate) fake: FakeApi,
    pub(crate) readiness: Readiness,
    setup: Setup,
    tasks: JoinSet<()>,
    _directory: tempfile::TempDir,
}

impl Setting {
    /// An API server; the coordinator is not started yet.
    pub(crate) fn new(flags: &[&str]) -> Self {
        let fake = FakeApi::new();
        for crd in crds::all() {
            fake.register_crd(&crd);
        }
        for (kind, plural) in [("Machine", "machines"), ("Cluster", "clusters")] {
            fake.register(Kind::namespaced(capi::GROUP, "v1beta2", kind, plural).with_status());
        }
        let rules = Rules::of_service_account(RIGHTS, OWN_NAMESPACE, "baremetal-coordinator").unwrap();
        fake.authorize(USER, rules);
        let directory = tempfile::tempdir().unwrap();
        let namespace = format!("--own-namespace={OWN_NAMESPACE}");
        let cache = format!("--cache-directory={}", directory.path().display());
        let fixed = ["coordinator", "--server-url=https://c.example:1", &namespace, &cache];
        let (epoch, start) = (Timestamp::now(), Instant::now());
        let readiness = Readiness::default();
        let setup = Setup {
            config: Config::parse_from(fixed.iter().chain(flags)),
            client: fake.client(USER),
            versions: cluster_api::at_version("v1beta2"),
            metrics: Metrics::default(),
            traces: crate::traces::Traces::default(),
            readiness: readiness.clone(),
            clock: Clock::new(move || epoch + start.elapsed()),
            workloads: crate::workload::WorkloadClients::default(),
        };
        Self { fake, readiness, setup, tasks: JoinSet::new(), _directory: directory }
    }

    /// As [`Self::new`], and the coordinator leads.
    pub(crate) async fn leading() -> Self {
        let mut setting = Self::new(&[]);
        setting.start();
        setting.settle().await;
        setting
    }

    /// Starts the coordinator, which leads once it has its authority.
    pub(crate) fn start(&mut self) {
        let setup = self.setup.clone();
        self.tasks.spawn(async move {
            let parts = assemble_parts(&setup).await.unwrap();
            setup.readiness.set_ready();
            Box::pin(lead_controllers(parts.context, std::future::pending())).await;
        });
    }

    /// What its controllers share; none of them is started.
    pub(crate) async fn context(&self) -> Context {
        assemble_parts(&self.setup).await.unwrap().context
    }

    fn resource(kind: &str) -> ApiResource {
        let (group, version) = match kind {
            "Secret" => ("", "v1"),
            "Cluster" => (capi::GROUP, "v1beta2"),
            "MachineInventoryPool" | "BaremetalCluster" => ("infrastructure.cluster.x-k8s.io", "v1beta1"),
            _ => ("elemental.cattle.io", "v1beta1"),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    }

    fn api(&self, namespace: &str, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.fake.client("operator"), namespace, &Self::resource(kind))
    }

    /// Creates an object of [`NAMESPACE`] as an operator.
    pub(crate) async fn create(&self, kind: &str, name: &str, object: Value) {
        self.create_in(NAMESPACE, kind, name, object).await;
    }

    /// Creates an object of another namespace as an operator.
    pub(crate) async fn create_in(&self, namespace: &str, kind: &str, name: &str, mut object: Value) {
        object["metadata"]["name"] = json!(name);
        object["apiVersion"] = json!(Self::resource(kind).api_version);
        object["kind"] = json!(kind);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.api(namespace, kind).create(&PostParams::default(), &object).await.unwrap();
    }

    /// Changes an object of [`NAMESPACE`] as an operator.
    pub(crate) async fn patch(&self, kind: &str, name: &str, patch: Value) {
        self.api(NAMESPACE, kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until the coordinator has asked for nothing for ten seconds.
    pub(crate) async fn settle(&self) {
        let end = Instant::now() + DEADLINE;
        loop {
            let mark = self.fake.journal().mark();
            tokio::time::sleep(Duration::from_secs(10)).await;
            if self.requests(mark).is_empty() {
                return;
            }
            assert!(Instant::now() < end, "the coordinator does not settle: {:?}", self.requests(mark));
        }
    }

    /// What the coordinator asked for since `mark`, watches left out.
    pub(crate) fn requests(&self, mark: usize) -> Vec<Entry> {
        let mut entries = self.fake.journal().since(mark);
        entries.retain(|entry| entry.request.user == USER && entry.request.verb != Verb::Watch);
        entries
    }

    /// How often the coordinator asked for `verb` on `resource` since `mark`.
    pub(crate) fn count(&self, mark: usize, verb: Verb, resource: &str) -> usize {
        let is_meant = |entry: &&Entry| entry.request.verb == verb && entry.request.resource == resource;
        self.requests(mark).iter().filter(is_meant).count()
    }
}
