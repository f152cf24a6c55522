//! `Metal3Remediation`: asks the host of an unhealthy machine to reboot, and replaces the machine
//! if that does not help.

use std::sync::Arc;

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::explain::EventReason;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::Metal3Machine;
use coordinator_api::metal3::names;
use coordinator_api::metal3::remediation::{Metal3Remediation, Metal3RemediationStatus, Phase};
use coordinator_core::assignment::Wake;
use coordinator_core::host::HostRecord;
use coordinator_core::metal3::machine::named_host;
use coordinator_core::metal3::remediation::{Outcome, Situation, Step, decide_remediation, project_status};
use kube::ResourceExt as _;
use kube::runtime::controller::Action;

use super::host::find_inventory;
use crate::clock::time_until;
use crate::controllers::context::Context;
use crate::controllers::failures::describe_failure;
use crate::controllers::reconciled::{Failure, Reconciled};
use crate::key::Key;
use crate::store::{self, Class, StoreError, metal3, status};

/// The objects of a decision, from the stores.
struct Gathered {
    owner: Option<Arc<Machine>>,
    cluster: Option<Arc<Cluster>>,
    host: Option<Arc<BareMetalHost>>,
    record: Option<HostRecord>,
}

impl Gathered {
    fn read(remediation: &Metal3Remediation, context: &Context) -> Self {
        let key = Key::of(remediation);
        let owner = context.find_owner(remediation);
        let machine = owner.as_ref().and_then(|owner| {
            let reference = &owner.spec.infrastructure_ref;
            context.cache.get::<Metal3Machine>(&key.in_namespace_of(&reference.name))
        });
        let host = machine.as_deref().and_then(named_host);
        let host = host.and_then(|name| context.cache.get::<BareMetalHost>(&key.in_namespace_of(name)));
        let inventory = host.as_deref().and_then(|host| find_inventory(host, context));
        Self {
            cluster: owner.as_ref().and_then(|owner| {
                context.cache.get::<Cluster>(&key.in_namespace_of(&owner.spec.cluster_name))
            }),
            record: inventory.as_deref().and_then(HostRecord::parse),
            owner,
            host,
        }
    }
}

impl Reconciled for Metal3Remediation {
    async fn reconcile(remediation: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        if !context.serves(&*remediation) {
            return Ok(Action::await_change());
        }
        let gathered = Gathered::read(&remediation, &context);
        let now = context.clock.now();
        let Outcome { step, problem, wake } = decide_remediation(&Situation {
            remediation: &remediation,
            owner: gathered.owner.as_deref(),
            cluster: gathered.cluster.as_deref(),
            host: gathered.host.as_deref(),
            record: gathered.record.as_ref(),
            now,
        });
        let applied = apply_step(&context, &remediation, &gathered, &step).await;
        let failed = applied.as_ref().err().filter(|error| error.class() != Class::Conflict);
        // The change of any other step comes back as an event and is shown then.
        if failed.is_some() || (step == Step::Rest && applied.is_ok()) {
            let failed = failed.map(describe_failure);
            let shown = project_status(&remediation, problem.as_ref(), failed, now);
            status::write_status(&context.client, &*remediation, &shown).await?;
        }
        applied?;
        Ok(match wake {
            Wake::At(at) => Action::requeue(time_until(at, now)),
            Wake::OnChange | Wake::Backoff => Action::await_change(),
        })
    }
}

async fn apply_step(
    context: &Context,
    remediation: &Metal3Remediation,
    gathered: &Gathered,
    step: &Step,
) -> Result<(), StoreError> {
    let client = &context.client;
    match step {
        Step::Rest => Ok(()),
        Step::AddFinalizer => metal3::add_finalizer(client, remediation, names::REMEDIATION_FINALIZER).await,
        Step::RemoveFinalizer => {
            metal3::drop_finalizer(client, remediation, names::REMEDIATION_FINALIZER).await
        }
        Step::ChangeHost(change) => {
            let Some(host) = gathered.host.as_deref() else { return Ok(()) };
            store::patch(client, host, "change the request of a reboot of", change.clone()).await.map(drop)
        }
        Step::Enter(entered) => enter_phase(context, remediation, entered).await,
        Step::GiveUp { host, status: entered } => {
            give_up(context, remediation, gathered, host.as_ref()).await?;
            status::write_status(client, remediation, entered).await.map(drop)
        }
    }
}

async fn enter_phase(
    context: &Context,
    remediation: &Metal3Remediation,
    entered: &Metal3RemediationStatus,
) -> Result<(), StoreError> {
    status::write_status(&context.client, remediation, entered).await?;
    if entered.phase == Some(Phase::Running) {
        let note =
            format!("the host is rebooted; tries before this one: {}", entered.retry_count.unwrap_or(0));
        context.events.publish(remediation, EventReason::Remediating, &note);
    }
    Ok(())
}

/// Requests a replacement and marks the host. After a crash between the two, the written part is
/// found.
async fn give_up(
    context: &Context,
    remediation: &Metal3Remediation,
    gathered: &Gathered,
    change: Option<&serde_json::Value>,
) -> Result<(), StoreError> {
    let client = &context.client;
    if let Some(owner) = gathered.owner.as_deref() {
        metal3::request_replacement(client, owner, &context.versions.machine, context.clock.now()).await?;
    }
    if let Some((host, change)) = gathered.host.as_deref().zip(change) {
        store::patch(client, host, "mark as unhealthy", change.clone()).await?;
        let note = format!("{} is not chosen until its annotation is removed", host.name_any());
        context.events.publish(remediation, EventReason::RemediationGivenUp, &note);
    }
    Ok(())
}
