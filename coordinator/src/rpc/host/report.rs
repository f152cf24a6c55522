//! Reports of a host: judged by `coordinator-core`, stored when they say
//! something new.

use std::sync::Arc;

use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use coordinator_core::host::{self, End};
use coordinator_core::network;
use coordinator_core::plan::{self, Judgement};
use jiff::Timestamp;
use kube::ResourceExt as _;
use proto::plan::{Generation, Plan};
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use wire::step_report::Outcome;

use crate::ca::Peer;
use crate::rpc::{Context, RpcError};
use crate::store::report::{self, PlanSecret, PlanSecretError, ReportError};

/// How often a report is judged anew because the plan Secret was changed.
const TRIES: usize = 3;

/// A step of the newest plan. Only the end of the plan is written: the Secret
/// first, since it is the record, then the status that announces it.
pub(super) async fn step(context: &Context, peer: &Peer, report: &wire::StepReport) -> Result<(), RpcError> {
    let inventory = context.inventory(peer).await?;
    if is_settled(&inventory, report) {
        return Ok(());
    }
    for _ in 0..TRIES {
        let plan = judged_by(context, peer, &inventory, report).await?;
        let end = match plan::judge(&plan.stored.plan, report) {
            Judgement::Stale => return Err(stale(report)),
            Judgement::Progress => {
                print(context, peer, &plan.stored.plan, report);
                return Ok(());
            }
            Judgement::Applied => End::Applied,
            Judgement::Failed { message } => End::Failed { message },
        };
        let outputs = print(context, peer, &plan.stored.plan, report);
        let secrets = context.secret_api(&peer.namespace);
        match report::record(&secrets, &plan, &end, &outputs, Timestamp::now()).await {
            Err(ReportError::Superseded { .. }) => context.plans.forget(&peer.uid),
            Err(error) => return Err(error.into()),
            Ok(()) => {
                let system = system(report);
                settle(context, peer, inventory, (&plan, &end, system)).await?;
                return Ok(());
            }
        }
    }
    Err(ReportError::Contended { name: peer.name.clone() }.into())
}

/// A host that will not take a plan ends it: nobody else would.
pub(super) async fn refused(
    context: &Context,
    peer: &Peer,
    acknowledgement: &wire::PlanAcknowledgement,
) -> Result<(), RpcError> {
    let report = wire::StepReport {
        plan_id: acknowledgement.plan_id.clone(),
        generation: acknowledgement.generation,
        step: 0,
        outcome: Some(Outcome::Failed(wire::StepFailed {
            reason: wire::FailureReason::Refused.into(),
            message: format!("the host refuses the plan: {}", acknowledgement.refusal),
            output: String::new(),
        })),
    };
    step(context, peer, &report).await
}

fn stale(report: &wire::StepReport) -> RpcError {
    let detail = format!("plan {} generation {}", report.plan_id, report.generation);
    RpcError::refused(Refusal::StalePlan, detail)
}

/// Whether the end of this plan is stored: the host did not hear so and tells
/// it again.
fn is_settled(inventory: &MachineInventory, report: &wire::StepReport) -> bool {
    is_of(inventory, report) && inventory.plan().is_some_and(|plan| plan.state.is_some())
}

/// Whether the report is of the plan that was announced last.
fn is_of(inventory: &MachineInventory, report: &wire::StepReport) -> bool {
    inventory.plan().is_some_and(|plan| {
        let generation = plan.generation.and_then(|generation| u64::try_from(generation).ok());
        plan.id.as_deref() == Some(&*report.plan_id) && generation == Some(report.generation)
    })
}

/// The plan that a report is judged by: the one that was streamed to the host,
/// or what the Secret holds when that is not what the host speaks of.
async fn judged_by(
    context: &Context,
    peer: &Peer,
    inventory: &MachineInventory,
    report: &wire::StepReport,
) -> Result<Arc<PlanSecret>, RpcError> {
    let streamed = context.plans.find(&peer.uid);
    let is_meant = |plan: &Arc<PlanSecret>| {
        let plan = &plan.stored.plan;
        plan.id.as_str() == report.plan_id && plan.generation.0 == report.generation
    };
    if let Some(plan) = streamed.filter(is_meant) {
        return Ok(plan);
    }
    let secret = inventory.plan().and_then(|plan| plan.secret_ref.as_ref()?.name.clone());
    let secret = secret.unwrap_or_else(|| peer.name.clone());
    let secrets = context.secret_api(&peer.namespace);
    let read = report::plan(&secrets, &secret, Generation(report.generation)).await;
    match read {
        Ok(plan) => {
            let plan = Arc::new(plan);
            context.plans.keep(&peer.uid, plan.clone());
            Ok(plan)
        }
        Err(error @ PlanSecretError::Read { .. }) => Err(RpcError::Plan(error)),
        // No plan, an older or a garbled one. The host keeps what it has to say
        // of its newest plan until the Secret is restored or another is written.
        Err(
            error @ (PlanSecretError::Missing { .. }
            | PlanSecretError::Invalid { .. }
            | PlanSecretError::Older { .. }),
        ) => {
            let api = context.inventory_api(&peer.namespace);
            // Not from the cache: it may not have seen the announcement yet.
            let fresh = report::read(&api, &peer.name, Some(&peer.uid)).await?;
            Err(if is_of(&fresh, report) { RpcError::Plan(error) } else { stale(report) })
        }
    }
}

fn print(
    context: &Context,
    peer: &Peer,
    plan: &Plan,
    report: &wire::StepReport,
) -> std::collections::BTreeMap<String, String> {
    let step = usize::try_from(report.step).ok().and_then(|index| plan.steps.get(index));
    let step = format!("{:02}-{}", report.step, step.map_or("", proto::plan::Step::name));
    let output = match &report.outcome {
        Some(Outcome::Done(done)) => done.output.clone(),
        Some(Outcome::Failed(failed)) => format!("{}\n{}", failed.message, failed.output),
        Some(Outcome::Started(_)) | None => String::new(),
    };
    context.plans.print(&peer.uid, &step, &output)
}

fn system(report: &wire::StepReport) -> Option<&wire::SystemState> {
    match &report.outcome {
        Some(Outcome::Done(done)) => done.system.as_ref(),
        Some(Outcome::Started(_) | Outcome::Failed(_)) | None => None,
    }
}

async fn settle(
    context: &Context,
    peer: &Peer,
    inventory: Arc<MachineInventory>,
    (plan, end, system): (&PlanSecret, &End, Option<&wire::SystemState>),
) -> Result<(), RpcError> {
    let now = Timestamp::now();
    let checksum = &plan.stored.checksum;
    let generation = i64::try_from(plan.stored.plan.generation.0).unwrap_or(i64::MAX);
    let project = |known: &MachineInventory| {
        // A newer plan was announced meanwhile: its state is not this one's.
        let announced = known.plan().and_then(|plan| plan.generation);
        if announced.is_some_and(|announced| announced > generation) {
            return known.status.clone().unwrap_or_default();
        }
        host::ended(known, checksum, (end, system), now)
    };
    report::status(&context.inventory_api(&peer.namespace), inventory, project).await?;
    context.plans.forget(&peer.uid);
    tracing::info!(inventory = peer.name, plan = plan.stored.plan.id.as_str(), ?end, "a plan ended");
    Ok(())
}

/// How the installation goes; the answer is the disk that a person has chosen.
pub(super) async fn install(
    context: &Context,
    peer: &Peer,
    report: &wire::InstallReport,
) -> Result<String, RpcError> {
    if report.outcome.is_none() {
        return Err(RpcError::refused(Refusal::BadRequest, "the install report is empty"));
    }
    let inventory = context.inventory(peer).await?;
    let now = Timestamp::now();
    let project = |known: &MachineInventory| host::install(known, report, now);
    let api = context.inventory_api(&peer.namespace);
    let inventory = report::status(&api, inventory, project).await?;
    let device = inventory.annotations().get(annotation::INSTALL_DEVICE);
    Ok(device.cloned().unwrap_or_default())
}

/// The network as it is now, where the host could tell. The intended one does
/// not change by it.
pub(super) async fn observed(
    context: &Context,
    peer: &Peer,
    report: wire::ObservedReport,
) -> Result<(), RpcError> {
    let network = report.network.map(network::observed).transpose();
    let network = network.map_err(|error| RpcError::refused(Refusal::BadRequest, error.to_string()))?;
    let inventory = context.inventory(peer).await?;
    let now = Timestamp::now();
    let project = |known: &MachineInventory| {
        let Some(network) = &network else {
            return host::seen(known, report.system.as_ref());
        };
        let intended = known.spec.observed_network.as_ref();
        let drift = intended.and_then(|intended| network::drift(intended, network));
        host::observed(known, network.clone(), drift, report.system.as_ref(), now)
    };
    report::status(&context.inventory_api(&peer.namespace), inventory, project).await?;
    Ok(())
}
