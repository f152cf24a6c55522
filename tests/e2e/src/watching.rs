//! One line for every change of a phase or a condition, and waits whose
//! error shows what was seen last.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use coordinator_api::capi;
use coordinator_api::cluster::BaremetalCluster;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::pool::MachineInventoryPool;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use futures::StreamExt as _;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::control_planes;
use crate::progress::Progress;

/// Prints every change until it is dropped.
#[derive(Debug)]
pub struct Watching(JoinSet<()>);

impl Watching {
    pub fn start(client: &Client, progress: &Arc<Progress>) -> Self {
        let mut tasks = JoinSet::new();
        let ours = [
            api::<MachineRegistration>(),
            api::<SeedImage>(),
            api::<MachineInventory>(),
            api::<MachineInventoryPool>(),
            api::<BaremetalCluster>(),
            api::<BaremetalMachine>(),
        ];
        let theirs = ["Cluster", "MachineDeployment", "Machine"].map(cluster_api);
        for kind in ours.into_iter().chain(theirs) {
            tasks.spawn(print_changes(
                Api::all_with(client.clone(), &kind),
                kind.kind.clone(),
                progress.clone(),
            ));
        }
        Self(tasks)
    }

    /// Prints the changes of one more kind.
    pub fn with(mut self, client: &Client, kind: &ApiResource, progress: &Arc<Progress>) -> Self {
        let api = Api::all_with(client.clone(), kind);
        self.0.spawn(print_changes(api, kind.kind.clone(), progress.clone()));
        self
    }
}

fn api<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

fn cluster_api(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(capi::GROUP, "v1beta2", kind))
}

async fn print_changes(api: Api<DynamicObject>, kind: String, progress: Arc<Progress>) {
    let mut seen = HashMap::<String, Vec<(String, String)>>::new();
    let mut objects =
        std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    while let Some(object) = objects.next().await {
        // A watch that breaks is opened again by the stream itself.
        let Ok(object) = object else { continue };
        let name = object.name_any();
        let new = read_facts(&object);
        let old = seen.insert(name.clone(), new.clone()).unwrap_or_default();
        for (key, value) in new {
            if !old.contains(&(key.clone(), value.clone())) {
                progress.detail(&format!("{kind}/{name}: {key} {value}"));
            }
        }
    }
}

/// What of an object is worth a line.
fn read_facts(object: &DynamicObject) -> Vec<(String, String)> {
    let status = &object.data["status"];
    let mut facts = vec![];
    let mut fact = |key: &str, value: &Value| {
        if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
            facts.push((key.to_owned(), text.to_owned()));
        }
    };
    fact("phase", &status["phase"]);
    fact("state", &status["state"]);
    fact("plan", &status["plan"]["id"]);
    fact("plan is", &status["plan"]["state"]);
    fact("runs", &status["host"]["image"]);
    fact("node", &status["nodeRef"]["name"]);
    fact("providerID", &object.data["spec"]["providerID"]);
    let state = object.annotations().get("baremetal.alauda.io/allocation-state");
    facts.extend(state.map(|state| ("is".to_owned(), state.clone())));
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let text = |key: &str| condition[key].as_str().unwrap_or_default();
        // Cluster API has two dozen types; what is in the way is in Ready.
        let theirs = [capi::GROUP, control_planes::GROUP];
        let is_of = |group: &str| object.types.as_ref().is_some_and(|it| it.api_version.starts_with(group));
        let is_ours = !theirs.into_iter().any(is_of);
        if is_ours || text("type") == "Ready" || text("type") == "Available" {
            // Cluster API lists causes one to a line; here each change has one.
            let message = text("message").split_whitespace().collect::<Vec<_>>().join(" ");
            let why = if text("status") == "True" { String::new() } else { format!(" {message}") };
            facts.push((text("type").to_owned(), format!("{} {}{why}", text("status"), text("reason"))));
        }
    }
    facts
}

/// Waits until `is` holds for the object; the error shows what was seen last.
///
/// # Errors
/// When the deadline passes.
pub async fn until<K>(api: &Api<K>, name: &str, limit: Duration, is: impl Fn(&K) -> bool) -> anyhow::Result<K>
where
    K: Resource + Clone + Debug + serde::de::DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let found = |objects: &BTreeMap<String, K>| Ok(objects.values().find(|object| is(object)).cloned());
    until_all(api, config, limit, found).await.with_context(|| format!("wait for {name}"))
}

/// Waits until `check` finds what it wants in the objects of a kind; the error
/// shows what was seen last.
///
/// # Errors
/// Those of `check`, and when the deadline passes.
pub async fn until_all<K, T>(
    api: &Api<K>,
    config: watcher::Config,
    limit: Duration,
    mut check: impl FnMut(&BTreeMap<String, K>) -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T>
where
    K: Resource + Clone + Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let mut objects = BTreeMap::new();
    let found = tokio::time::timeout(limit, async {
        let mut listed = BTreeMap::new();
        // An error ends a watch, and the stream opens another one.
        let mut events = std::pin::pin!(watcher(api.clone(), config).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => {
                    listed.clear();
                    continue;
                }
                Ok(Event::InitApply(object)) => {
                    listed.insert(object.name_any(), object);
                    continue;
                }
                Ok(Event::InitDone) => objects = std::mem::take(&mut listed),
                Ok(Event::Apply(object)) => drop(objects.insert(object.name_any(), object)),
                Ok(Event::Delete(object)) => drop(objects.remove(&object.name_any())),
                Err(_) => continue,
            }
            if let Some(found) = check(&objects)? {
                return Ok(found);
            }
        }
        bail!("the watch ended")
    })
    .await;
    let kind = std::any::type_name::<K>().rsplit("::").next().unwrap_or("object").to_owned();
    found.unwrap_or_else(|_| {
        let last: Vec<_> = objects.values().collect();
        bail!("no {kind} was as wanted within {} s; last seen: {last:#?}", limit.as_secs())
    })
}
