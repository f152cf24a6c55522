//! Reports of a host. `coordinator-core` interprets them, and only new facts are stored.

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use coordinator_core::host::certified::record_key;
use coordinator_core::host::{AnnouncedPlan, HostRecord, facts};
use coordinator_core::inventory::reinstall_device;
use coordinator_core::network;
use coordinator_core::plan::{PlanEnd, Progress, read_progress};
use coordinator_core::trace::{Period, TraceId, plan_span, step_span};
use kube::ResourceExt as _;
use proto::plan::{Kind, Step};
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use tokio::time::Instant;
use wire::install_report::Outcome as Installation;
use wire::step_report::Outcome;

use crate::ca::Peer;
use crate::rpc::running_plans::{Outputs, PlanReadError, RunningPlan, read_plan};
use crate::rpc::{Context, RpcError};
use crate::store::{StoreError, host, plan_record};
use crate::traces::note_trace;

/// Number of times that a report is read because the plan Secret was changed.
const TRIES: usize = 3;

/// Records a step of the newest plan. Only the end of the plan is written: first the Secret, because it
/// is the record, then the status.
pub(super) async fn record_step_report(
    context: &Context,
    peer: &Peer,
    report: &wire::StepReport,
) -> Result<(), RpcError> {
    let inventory = context.find_inventory(peer).await?;
    note_trace(inventory.claim().as_ref().and_then(TraceId::of_claim));
    for _ in 0..TRIES {
        let Some(running) = find_plan(context, peer, &inventory, report).await? else {
            return Ok(());
        };
        let progress = read_progress(&running.plan, report);
        if progress == Progress::Stale {
            return Err(refuse_stale(report));
        }
        time_step(context, peer, &inventory, &running, (report, &progress));
        let Progress::Ended(end) = progress else {
            record_output(context, peer, &running, report);
            return Ok(());
        };
        refuse_clean_of_former_key(context, peer, &inventory, &running, &end)?;
        let outputs = record_output(context, peer, &running, report);
        let secrets = context.secret_api(&peer.key.namespace);
        let checksum = &running.plan.checksum;
        let recorded =
            plan_record::record_end(&secrets, &running.secret, checksum, &end, &outputs, context.now());
        match recorded.await {
            Err(error) if error.is_changed() => context.running_plans.remove_plan(&peer.key),
            Err(error) => return Err(error.into()),
            Ok(()) => return record_plan_end(context, peer, inventory, &running, &end, report).await,
        }
    }
    Err(StoreError::Contended { kind: "Secret", name: inventory.name_any() }.into())
}

/// Refuses the end of a clean by a key of the tenancy before it.
fn refuse_clean_of_former_key(
    context: &Context,
    peer: &Peer,
    inventory: &MachineInventory,
    running: &RunningPlan,
    end: &PlanEnd,
) -> Result<(), RpcError> {
    let ends_clean = running.plan.kind == Kind::Clean && *end == PlanEnd::Applied;
    let may =
        !ends_clean || HostRecord::parse(inventory).is_some_and(|record| record.may_end_clean(peer.key_time));
    if may { Ok(()) } else { Err(context.refuse_key_of(peer, inventory)) }
}

/// Ends a plan that the host refuses, because nothing else would end it.
pub(super) async fn record_acknowledgement(
    context: &Context,
    peer: &Peer,
    acknowledgement: wire::PlanAcknowledgement,
) -> Result<(), RpcError> {
    let wire::PlanAcknowledgement { plan_id, generation, failure } = acknowledgement;
    let Some(failure) = failure else { return Ok(()) };
    tracing::warn!(
        plan = plan_id,
        cause = failure.message,
        next_action = failure.next_action,
        "host refused its plan"
    );
    let failure = wire::Failure {
        reason: wire::FailureReason::Refused.into(),
        message: format!("the host refused the plan: {}", failure.message),
        next_action: failure.next_action,
    };
    let failed = wire::StepFailed { failure: Some(failure), output: String::new() };
    let report = wire::StepReport { plan_id, generation, step: 0, outcome: Some(Outcome::Failed(failed)) };
    match record_step_report(context, peer, &report).await {
        // The host refused a plan that is not its newest one.
        Err(RpcError::Refused { refusal: Refusal::StalePlan, .. }) => Ok(()),
        recorded => recorded,
    }
}

fn refuse_stale(report: &wire::StepReport) -> RpcError {
    let plan: String = report.plan_id.chars().take(64).collect();
    RpcError::from_refusal(Refusal::StalePlan, format!("plan {plan} generation {}", report.generation))
}

fn is_meant(plan: &AnnouncedPlan, report: &wire::StepReport) -> bool {
    plan.id.as_str() == report.plan_id && plan.generation.0 == report.generation
}

/// The verified plan of a report; `None` if the end of the plan is stored already.
async fn find_plan(
    context: &Context,
    peer: &Peer,
    inventory: &MachineInventory,
    report: &wire::StepReport,
) -> Result<Option<Arc<RunningPlan>>, RpcError> {
    let newer;
    let mut inventory = inventory;
    let mut record = HostRecord::parse(inventory).ok_or_else(|| refuse_stale(report))?;
    let newest = record.plan.as_ref();
    if newest.is_some_and(|plan| plan.generation.0 > report.generation) {
        return Err(refuse_stale(report));
    }
    if newest.is_some_and(|plan| is_meant(plan, report) && plan.state.is_some()) {
        return Ok(None);
    }
    let known = context.running_plans.find_plan(&peer.key, &report.plan_id, report.generation);
    if known.is_some() {
        return Ok(known);
    }
    if !newest.is_some_and(|plan| is_meant(plan, report)) {
        // The caches may not have the announcement yet.
        newer = context.read_inventory(peer).await?;
        inventory = &newer;
        record = HostRecord::parse(inventory).ok_or_else(|| refuse_stale(report))?;
    }
    if !record.plan.as_ref().is_some_and(|plan| is_meant(plan, report)) {
        return Err(refuse_stale(report));
    }
    // The end of the plan is stored.
    let Some(announced) = record.plan_in_flight() else { return Ok(None) };
    match read_plan(&context.secret_api(&peer.key.namespace), announced, Some(inventory)).await {
        Ok(running) => {
            let running = Arc::new(running);
            // Only the end of a stream removes a plan, so that a plan without stream is not kept.
            if context.sessions.contains_host(&peer.key) {
                context.running_plans.insert_plan(&peer.key, running.clone());
            }
            Ok(Some(running))
        }
        Err(PlanReadError::Store(error)) => Err(error.into()),
        Err(PlanReadError::Newer(problem) | PlanReadError::Unusable(problem)) => {
            tracing::warn!(plan = %announced.id, cause = problem.text(), "cannot judge a report, the host retries");
            Err(RpcError::PlanUnavailable(problem.text()))
        }
    }
}

/// Records the duration of the step, if this replica saw it begin and end.
fn time_step(
    context: &Context,
    peer: &Peer,
    inventory: &MachineInventory,
    running: &RunningPlan,
    (report, progress): (&wire::StepReport, &Progress),
) {
    let plan = &running.plan;
    let step = usize::try_from(report.step).ok().and_then(|index| plan.steps.get(index));
    let took = context.step_times.note_report(&peer.key, &plan.checksum, report.step, Instant::now());
    let (Some(step), Some(took)) = (step, took) else { return };
    let failure = match progress {
        Progress::Ended(PlanEnd::Failed(problem)) => Some(problem.reason.as_str()),
        _ => None,
    };
    context.metrics.observe_step(step.name(), failure.is_none(), took);
    let end = context.now();
    let period = Period { start: end - took, end };
    context.traces.record_span(|| {
        let (claim, host) = (inventory.claim()?, inventory.name_any());
        step_span(&claim, &host, plan, (report.step, step), failure, period)
    });
}

fn record_output(
    context: &Context,
    peer: &Peer,
    running: &RunningPlan,
    report: &wire::StepReport,
) -> Outputs {
    let step = usize::try_from(report.step).ok().and_then(|index| running.plan.steps.get(index));
    let name = match step {
        Some(Step::RunCustomInstruction(instruction)) if !instruction.name.is_empty() => &instruction.name,
        Some(step) => step.name(),
        None => "",
    };
    let output = match &report.outcome {
        Some(Outcome::Done(done)) => done.output.clone(),
        Some(Outcome::Failed(failed)) => {
            let message = failed.failure.as_ref().map_or("", |failure| failure.message.as_str());
            format!("{message}\n{}", failed.output)
        }
        None => String::new(),
    };
    context.running_plans.record_output(&peer.key, report.step, name, &output)
}

async fn record_plan_end(
    context: &Context,
    peer: &Peer,
    inventory: Arc<MachineInventory>,
    running: &RunningPlan,
    end: &PlanEnd,
    report: &wire::StepReport,
) -> Result<(), RpcError> {
    let system = match &report.outcome {
        Some(Outcome::Done(done)) => done.system.as_deref(),
        Some(Outcome::Failed(_)) | None => None,
    };
    let (plan, now) = (&running.plan, context.clock.now());
    let written =
        context.update_host(peer, inventory, |status| facts::record_plan_end(status, plan, end, system, now));
    let inventory = written.await?;
    context.running_plans.remove_plan(&peer.key);
    let problem = match end {
        PlanEnd::Applied => None,
        PlanEnd::Failed(problem) => Some(problem),
    };
    context.step_times.forget_plan(&peer.key);
    // A newer plan may have been announced meanwhile.
    let known = inventory.plan().filter(|known| known.id.as_deref() == Some(plan.id.as_str()));
    let announced = known.and_then(|known| known.announced.as_ref());
    let period = announced.map(|announced| Period { start: announced.0.min(now), end: now });
    let took = period.and_then(|period| Duration::try_from(period.end.duration_since(period.start)).ok());
    context.metrics.count_plan(plan.kind, problem, took);
    context.traces.record_span(|| plan_span(&inventory.claim()?, &inventory.name_any(), plan, end, period?));
    tracing::info!(plan = %plan.id, generation = %plan.generation, ?end, "plan ended");
    Ok(())
}

/// Records the progress of the install. Returns the disk that an operator chose, or nothing.
pub(super) async fn record_install_report(
    context: &Context,
    peer: &Peer,
    report: &wire::InstallReport,
) -> Result<String, RpcError> {
    if report.outcome.is_none() {
        return Err(RpcError::from_refusal(Refusal::BadRequest, "the install report is empty"));
    }
    let inventory = context.find_inventory(peer).await?;
    let is_reinstall = reinstall_device(&inventory).is_some();
    let is_started = matches!(&report.outcome, Some(Installation::Started(_)));
    let now = context.now();
    let is_done = matches!(&report.outcome, Some(Installation::Done(_)));
    let written = context.update_status(inventory, |status| {
        facts::record_install(status, report, now);
        // The disk has the key by now, and the former system is gone.
        if is_done {
            record_key(status, peer.shown_key());
        }
        if is_reinstall && is_started {
            facts::record_reinstall(status);
        }
    });
    let inventory = written.await?;
    if is_reinstall && is_done {
        host::forget_reinstall(&context.client, &inventory).await?;
    }
    let device = inventory.annotations().get(annotation::INSTALL_DEVICE);
    Ok(device.cloned().unwrap_or_default())
}

/// Records the running system and its network. The intended network does not change.
pub(super) async fn record_observed_report(
    context: &Context,
    peer: &Peer,
    report: wire::ObservedReport,
) -> Result<(), RpcError> {
    let network = report.network.and_then(|network| parse_smaller_network(network, &peer.name_hint));
    let inventory = context.find_inventory(peer).await?;
    let written = context.update_status(inventory, |status| {
        if let Some(network) = &network {
            facts::record_observed_network(status, network);
        }
        if let Some(system) = &report.system {
            facts::record_system(status, system);
        }
    });
    written.await.map(drop)
}

/// Records the state of the host's duty for the load balancer.
pub(super) async fn record_load_balancer(
    context: &Context,
    peer: &Peer,
    state: &wire::LoadBalancerState,
) -> Result<(), RpcError> {
    let mut inventory = context.find_inventory(peer).await?;
    // A cache that lags does not know the duty yet.
    if HostRecord::parse(&inventory).is_none_or(|record| record.load_balancer.is_none()) {
        inventory = context.read_inventory(peer).await?;
    }
    let written = context.update_status(inventory, |status| facts::record_load_balancer(status, state));
    written.await.map(drop)
}

/// Like [`parse_network`]. A network that is too large to be stored is left out, because a host that is
/// in use is not refused for its network.
pub(super) fn parse_smaller_network(
    reported: wire::ObservedNetwork,
    name: &str,
) -> Option<coordinator_api::network::ObservedNetwork> {
    let network = parse_network(reported, name);
    let checked = network::check_size(&network);
    checked
        .inspect_err(|error| tracing::warn!(name, %error, "reported network left out"))
        .ok()
        .map(|()| network)
}

/// The part of a reported network that can be replayed; the rest is logged.
pub(in crate::rpc) fn parse_network(
    reported: wire::ObservedNetwork,
    name: &str,
) -> coordinator_api::network::ObservedNetwork {
    let network::Observation { network, dropped } = network::parse_observed(reported);
    for cause in &dropped {
        tracing::info!(name, %cause, "part of the reported network left out, it cannot be replayed");
    }
    network
}
