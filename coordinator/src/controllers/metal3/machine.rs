//! `Metal3Machine`: chooses a `BareMetalHost`, claims it, gives it image and data, and releases it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::conditions::{ConditionUpdate, Reason, Type, find_condition};
use coordinator_api::explain::EventReason;
use coordinator_api::inventory::CarriedNode;
use coordinator_api::metal3::cluster::Metal3Cluster;
use coordinator_api::metal3::data::{Metal3Data, Metal3DataClaim};
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::{Metal3Machine, Metal3MachineTemplate};
use coordinator_api::metal3::names;
use coordinator_api::names::label;
use coordinator_core::assignment::NodesRead;
use coordinator_core::metal3::machine::{
    Outcome, Situation, Step, decide_machine, deciding_control_plane, is_consumer, named_host,
    project_status, template_of_control_plane,
};
use coordinator_core::problem::{Blocker, Severity};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::controllers::context::Context;
use crate::controllers::failures::{announce_blocker, describe_failure};
use crate::controllers::front_door::EXHAUSTED_RECHECK;
use crate::controllers::metal3::host;
use crate::controllers::reconciled::{Failure, Reconciled};
use crate::controllers::spread;
use crate::index::Wait;
use crate::index::metal3::template_of_machine;
use crate::key::{Key, Namespace, OfKind as _};
use crate::store::{self, Class, StoreError, metal3, open_api, status};

/// The interval between two comparisons of labels with those of the Node.
const LABEL_INTERVAL: Duration = Duration::from_mins(1);

/// The objects of a decision, from the stores.
struct Gathered {
    machine: Arc<Metal3Machine>,
    owner: Option<Arc<Machine>>,
    cluster: Option<Arc<Cluster>>,
    infrastructure: Option<Arc<Metal3Cluster>>,
    template: Option<Arc<Metal3MachineTemplate>>,
    host: Option<Arc<BareMetalHost>>,
    owned: Vec<String>,
    catalog: Option<Arc<ConfigMap>>,
    data_claim: Option<Arc<Metal3DataClaim>>,
    data: Option<Arc<Metal3Data>>,
    carried: Option<CarriedNode>,
    nodes: NodesRead,
    now: Timestamp,
}

impl Gathered {
    fn read(machine: Arc<Metal3Machine>, context: &Context) -> Self {
        let key = Key::of(&*machine);
        let owner = context.find_owner(&*machine);
        let cluster = machine.labels().get(label::CLUSTER_NAME).map(String::as_str);
        let cluster = cluster.or_else(|| owner.as_ref().map(|owner| owner.spec.cluster_name.as_str()));
        let cluster = cluster.and_then(|name| context.cache.get::<Cluster>(&key.in_namespace_of(name)));
        let reference = cluster.as_ref().and_then(|cluster| cluster.spec.infrastructure_ref.as_ref());
        let infrastructure = reference.filter(|reference| reference.kind == "Metal3Cluster");
        let template = template_of_machine(&machine);
        let host = named_host(&machine)
            .and_then(|name| context.cache.get::<BareMetalHost>(&key.in_namespace_of(name)));
        let inventory = host.as_deref().and_then(|host| host::find_inventory(host, context));
        let carried = inventory
            .and_then(|inventory| inventory.status.as_ref()?.host.as_ref()?.carried.as_ref()?.node.clone());
        Self {
            infrastructure: infrastructure.and_then(|reference| {
                context.cache.get::<Metal3Cluster>(&key.in_namespace_of(&reference.name))
            }),
            template: template.and_then(|template| context.cache.get::<Metal3MachineTemplate>(&template)),
            host,
            owned: context.metal3.hosts_of_machine(&key),
            catalog: context.cache.image_catalog(),
            data_claim: context.cache.get::<Metal3DataClaim>(&key),
            data: context.metal3.data_of_claim(&key).and_then(|data| context.cache.get::<Metal3Data>(&data)),
            carried,
            nodes: NodesRead::NotRead,
            now: context.clock.now(),
            machine,
            owner,
            cluster,
        }
    }

    fn situation(&self) -> Situation<'_> {
        Situation {
            machine: &self.machine,
            owner: self.owner.as_deref(),
            cluster: self.cluster.as_deref(),
            infrastructure: self.infrastructure.as_deref(),
            template: self.template.as_deref(),
            host: self.host.as_deref(),
            owned: &self.owned,
            catalog: self.catalog.as_ref().and_then(|catalog| catalog.data.as_ref()),
            data_claim: self.data_claim.as_deref(),
            data: self.data.as_deref(),
            carried: self.carried.as_ref(),
            nodes: &self.nodes,
            now: self.now,
        }
    }
}

impl Reconciled for Metal3Machine {
    async fn reconcile(machine: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        let key = Key::of(&*machine);
        if !context.serves(&*machine) {
            context.metal3.set_wait(&key, None);
            context.router.send_keys(context.metal3.release_host(&key));
            return Ok(Action::await_change());
        }
        // The machine waits before the stores are read, so that no event is missed.
        context.metal3.set_wait(&key, Some(Wait::Decision));
        let mut gathered = Gathered::read(machine, &context);
        let outcome = match decide_outcome(&context, &mut gathered).await {
            Ok(outcome) => outcome,
            Err(error) => {
                context.metal3.set_wait(&key, None);
                show_state(&context, &gathered, None, Some(describe_failure(&error))).await?;
                return Err(Failure::Shown(error));
            }
        };
        let blocker = apply_outcome(&context, &gathered, &outcome).await?;
        if outcome.is_retried {
            return Ok(Action::requeue(context.backoffs.next_wait(Self::KIND, &key)));
        }
        context.backoffs.reset_waits(Self::KIND, &key);
        let is_exhausted = blocker.is_some_and(|blocker| blocker.problem.reason == Reason::NoHostAvailable);
        Ok(match (is_exhausted, outcome.is_rechecked) {
            (true, _) => Action::requeue(spread(EXHAUSTED_RECHECK, &key)),
            (false, true) => Action::requeue(LABEL_INTERVAL),
            (false, false) => Action::await_change(),
        })
    }
}

/// Applies the step of an outcome and writes the status; the answer is the blocker that is shown.
async fn apply_outcome(
    context: &Context,
    gathered: &Gathered,
    outcome: &Outcome,
) -> Result<Option<Blocker>, StoreError> {
    let applied = apply_step(context, gathered, &outcome.step).await;
    let (blocker, failed) = match &applied {
        Err(error) if error.class() == Class::Conflict => return applied,
        Err(error) => (outcome.blocker.clone(), Some(describe_failure(error))),
        Ok(refused) => (refused.clone().or_else(|| outcome.blocker.clone()), None),
    };
    note_wait(context, &Key::of(&*gathered.machine), blocker.as_ref());
    // The change of any other step comes back as an event and is shown then, except that of a Node.
    let step = &outcome.step;
    let is_silent = matches!(step, Step::Rest | Step::LinkNode { .. } | Step::LabelNode { .. });
    if is_silent || blocker.is_some() || failed.is_some() {
        show_state(context, gathered, blocker.as_ref(), failed).await?;
    }
    applied.map(|_| blocker)
}

/// Sets the wait of the machine. It waits for a host since none could be chosen.
fn note_wait(context: &Context, key: &Key, blocker: Option<&Blocker>) {
    let is_exhausted = blocker.is_some_and(|blocker| blocker.problem.reason == Reason::NoHostAvailable);
    if !is_exhausted {
        let needs_operator = blocker.is_some_and(|blocker| blocker.severity != Severity::Waiting);
        context.metal3.set_wait(key, needs_operator.then_some(Wait::Catalog));
    }
}

/// Reads the control plane if its template decides. A deleted control plane has no successors.
async fn read_template(context: &Context, gathered: &mut Gathered) -> Result<(), StoreError> {
    let Some(reference) = deciding_control_plane(&gathered.situation()).cloned() else { return Ok(()) };
    let key = Key::of(&*gathered.machine);
    let (group, version) = reference.api_version.split_once('/').unwrap_or_default();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &reference.kind));
    let api: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), &key.namespace, &resource);
    let found = api.get_opt(&reference.name).await;
    let found = found.map_err(StoreError::request("get", "control plane", &reference.name))?;
    let template = found.as_ref().and_then(|found| template_of_control_plane(&found.data));
    let template = template.map(|name| key.in_namespace_of(name));
    gathered.template = template.and_then(|template| context.cache.get::<Metal3MachineTemplate>(&template));
    Ok(())
}

/// Decides. Objects that are in no store are read only when the decision asks for them.
async fn decide_outcome(context: &Context, gathered: &mut Gathered) -> Result<Outcome, StoreError> {
    read_template(context, gathered).await?;
    let outcome = decide_machine(&gathered.situation());
    let Step::FindNodes(search) = &outcome.step else { return Ok(outcome) };
    let namespace = Namespace::of(&*gathered.machine);
    gathered.nodes = context.workloads.read_nodes(&context.client, &namespace, search).await?;
    Ok(decide_machine(&gathered.situation()))
}

/// Writes the status, and an Event if an operator has to act.
async fn show_state(
    context: &Context,
    gathered: &Gathered,
    blocker: Option<&Blocker>,
    failure: Option<ConditionUpdate>,
) -> Result<(), StoreError> {
    let shown = project_status(&gathered.situation(), blocker, failure, gathered.now);
    let written = status::write_status(&context.client, &*gathered.machine, &shown).await?;
    if let (Some(_), Some(blocker)) = (written, blocker) {
        let conditions =
            gathered.machine.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
        let before = find_condition(conditions, Type::Ready).map(|ready| ready.reason.as_str());
        announce_blocker(context, &*gathered.machine, blocker, before);
    }
    Ok(())
}

/// Applies a step; the answer is a blocker if no host can be chosen.
async fn apply_step(
    context: &Context,
    gathered: &Gathered,
    step: &Step,
) -> Result<Option<Blocker>, StoreError> {
    let (client, machine) = (&context.client, &*gathered.machine);
    let namespace = Namespace::of(machine);
    match step {
        Step::Rest | Step::FindNodes(_) => {}
        Step::Choose => return choose(context, gathered).await,
        Step::NameHost(host) => name_host(context, machine, host).await?,
        Step::Hold => metal3::add_finalizer(client, machine, names::MACHINE_FINALIZER).await?,
        Step::Unchoose => {
            context.router.send_keys(context.metal3.release_host(&Key::of(machine)));
            metal3::drop_choice(client, machine, &[names::HOST_OF_MACHINE, names::CHOSEN_HOST]).await?;
        }
        Step::ChangeHost { change, event } => {
            let Some(host) = gathered.host.as_deref() else { return Ok(None) };
            store::check_unchanged(client, machine).await?;
            store::patch(client, host, "change", change.clone()).await?;
            let note = format!("BareMetalHost {}", host.name_any());
            context.events.publish(machine, *event, &note);
            tracing::info!(host = host.name_any(), event = event.as_str(), "host changed");
        }
        Step::PauseHost(change) => {
            let Some(host) = gathered.host.as_deref() else { return Ok(None) };
            store::patch(client, host, "change the pause of", change.clone()).await?;
            tracing::info!(host = host.name_any(), %change, "host paused or continued with its Cluster");
        }
        Step::SetCleaningMode(mode) => {
            let change = json!({ "spec": { "automatedCleaningMode": mode } });
            store::patch(client, machine, "set the cleaning mode of", change).await?;
            tracing::info!(?mode, "machine has the cleaning mode of its template");
        }
        Step::ClaimData(claim) => {
            metal3::create(client, &namespace, &**claim).await?;
        }
        Step::ReleaseData => {
            if let Some(claim) = gathered.data_claim.as_deref() {
                metal3::delete(client, claim).await?;
            }
        }
        Step::Provide(provider_id) => {
            let change = json!({ "spec": { "providerID": provider_id } });
            store::patch(client, machine, "set spec.providerID of", change).await?;
            let note = format!("the host runs as {provider_id}");
            context.events.publish(machine, EventReason::Provisioned, &note);
            tracing::info!(provider_id, "machine provisioned");
        }
        Step::LinkNode { node, provider_id } => {
            context.workloads.set_provider_id(client, &namespace, node, provider_id).await?;
            let note = format!("Node {} has the providerID {provider_id} now", node.name);
            context.events.publish(machine, EventReason::NodeLinked, &note);
            tracing::info!(node = node.name, provider_id, "Node linked");
        }
        Step::LabelNode { node, labels } => {
            context.workloads.set_labels(client, &namespace, node, labels).await?;
            tracing::info!(node = node.name, ?labels, "labels of the host written to its Node");
        }
        Step::RemoveFinalizer => remove_finalizer(context, gathered).await?,
    }
    Ok(None)
}

/// Records the host that the machine will claim. The precondition of the write prevents the choice
/// of a second host from a stale cache.
async fn choose(context: &Context, gathered: &Gathered) -> Result<Option<Blocker>, StoreError> {
    let (machine, Some(owner)) = (&*gathered.machine, gathered.owner.as_deref()) else { return Ok(None) };
    match context.metal3.choose_host(machine, owner, gathered.now) {
        Ok(host) => name_host(context, machine, &host).await.map(|()| None),
        Err(blocker) => Ok(Some(blocker)),
    }
}

async fn name_host(context: &Context, machine: &Metal3Machine, host: &str) -> Result<(), StoreError> {
    let chosen = format!("{}/{host}", Namespace::of(machine));
    let notes = [names::HOST_OF_MACHINE, names::CHOSEN_HOST].map(|key| (key, chosen.clone()));
    metal3::record_choice(&context.client, machine, notes, names::MACHINE_FINALIZER).await
}

/// A host that the machine still holds, which the cache may not have seen yet. A machine that lost the
/// name of its host looks at all hosts of its Cluster.
async fn find_held_host(context: &Context, gathered: &Gathered) -> Result<Option<String>, StoreError> {
    let machine = &*gathered.machine;
    let api: Api<BareMetalHost> = open_api(&context.client, machine);
    let names: BTreeSet<_> =
        named_host(machine).into_iter().chain(gathered.owned.iter().map(String::as_str)).collect();
    let mut hosts = vec![];
    for name in &names {
        hosts.extend(api.get_opt(name).await.map_err(StoreError::request("get", "BareMetalHost", name))?);
    }
    if let Some(cluster) = gathered.cluster.as_deref().filter(|_| names.is_empty()) {
        let cluster = cluster.name_any();
        let labelled = ListParams::default().labels(&format!("{}={cluster}", label::CLUSTER_NAME));
        let listed = api.list(&labelled).await;
        hosts = listed.map_err(StoreError::request("list", "BareMetalHost", &cluster))?.items;
    }
    Ok(hosts.into_iter().find(|host| is_consumer(host, machine)).map(|host| host.name_any()))
}

/// Removes the finalizer, unless the machine holds a host or a claim on data, which the cache may
/// not have seen yet.
async fn remove_finalizer(context: &Context, gathered: &Gathered) -> Result<(), StoreError> {
    let machine = &*gathered.machine;
    if let Some(name) = find_held_host(context, gathered).await? {
        return Err(StoreError::Changed { kind: "BareMetalHost", name });
    }
    let name = machine.name_any();
    let claims: Api<Metal3DataClaim> = open_api(&context.client, machine);
    let claim = claims.get_opt(&name).await.map_err(StoreError::request("get", "Metal3DataClaim", &name))?;
    if claim.is_some() {
        return Err(StoreError::Changed { kind: "Metal3DataClaim", name });
    }
    metal3::drop_finalizer(&context.client, machine, names::MACHINE_FINALIZER).await
}
