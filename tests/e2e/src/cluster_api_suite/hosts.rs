//! Hosts for the namespaces of the specs. One spec runs at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use coordinator_api::inventory::MachineInventory;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::environment::Environment;
use crate::host::{Host as _, Simulated};
use crate::lifecycle::await_attached;
use crate::progress::Progress;
use crate::requests::retry;
use crate::seed::{self, Seed};
use crate::watching::until_all;

/// How many hosts a spec asks for, on its namespace.
const HOSTS: &str = "lab/hosts";
const READY: &str = "lab/ready";
/// A suite has ended by then.
const NEVER: Duration = Duration::from_hours(24);
const REGISTRATION: Duration = Duration::from_mins(4);

/// Answers each spec that asks for hosts, until it is dropped. Those of the spec before are switched off,
/// and the cluster that they joined is empty again.
pub(super) async fn provide(
    environment: &Environment,
    progress: &Arc<Progress>,
    base: &str,
) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(environment.management.admin.clone());
    let mut used = 0;
    // Of the last spec.
    let mut hosts: Vec<Simulated> = vec![];
    loop {
        let (namespace, count) = await_request(&namespaces).await?;
        hosts.clear();
        environment.workload.clear().await?;
        for number in (used + 1..).take(count.into()) {
            hosts.push(Simulated::new(environment.workload.clone(), number)?);
        }
        used += count;
        register(environment, progress, &mut hosts, Seed { namespace: &namespace, base }).await?;
        let patch = Patch::Merge(json!({ "metadata": { "labels": { READY: "true" } } }));
        let answer = async || namespaces.patch(&namespace, &PatchParams::default(), &patch).await;
        retry("answer a spec", answer).await?;
        progress.step(&format!("a spec runs in {namespace} with {count} hosts"));
    }
}

/// The namespace of a spec that waits, and how many hosts it wants.
async fn await_request(namespaces: &Api<Namespace>) -> anyhow::Result<(String, u8)> {
    let unanswered = watcher::Config::default().labels(&format!("{HOSTS},!{READY}"));
    until_all(namespaces, unanswered, NEVER, |found: &BTreeMap<String, Namespace>| {
        let Some(namespace) = found.values().find(|one| one.metadata.deletion_timestamp.is_none()) else {
            return Ok(None);
        };
        let count = namespace.labels().get(HOSTS).context("a request without a number")?;
        Ok(Some((namespace.name_any(), count.parse()?)))
    })
    .await
}

async fn register(
    environment: &Environment,
    progress: &Progress,
    hosts: &mut [Simulated],
    seed: Seed<'_>,
) -> anyhow::Result<()> {
    let first = hosts.first().context("a spec asks for no host")?;
    let iso = seed::create(environment, seed, first, progress).await?;
    progress.step(&format!("{} hosts register in {}", hosts.len(), seed.namespace));
    for host in hosts.iter_mut() {
        host.boot(&iso).await?;
    }
    let inventories: Api<MachineInventory> =
        Api::namespaced(environment.management.admin.clone(), seed.namespace);
    for host in hosts.iter() {
        await_attached(&inventories, &host.inventory(), REGISTRATION).await?;
    }
    Ok(())
}
