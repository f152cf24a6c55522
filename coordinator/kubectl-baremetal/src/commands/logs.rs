//! The command `logs`.

use coordinator_api::inventory::PlanType;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output::{is_terminal, print_document};
use crate::arguments::{Format, LogsArguments};
use crate::change::{deployment_of, find_ending_holder};
use crate::cluster::Cluster;
use crate::failure::{Exit, Failure, explain_error, is_forbidden};
use crate::fleet::{Fleet, Id, Kind, Object, holders_of};
use crate::view::{PlanView, StepState, paint, read_plan, style_of, with_ends};

pub(super) async fn show_logs(cluster: &Cluster, arguments: &LogsArguments) -> Result<Exit, Failure> {
    let id = Id::new(Kind::MachineInventory, cluster.one_namespace()?, &arguments.host);
    if arguments.follow {
        return follow_plan(cluster, arguments, &id).await;
    }
    let fleet = cluster.get(&id).await?;
    let plan = read_plan_of(cluster, fleet.require(&id)?).await?;
    let plan = plan.ok_or_else(|| no_plan(&id))?;
    match arguments.output.output {
        Format::Text | Format::Wide => print_plan(&plan),
        format => print_document(format, &plan)?,
    }
    Ok(Exit::Done)
}

/// The newest plan of a host, with its steps if its Secret may be read.
pub(super) async fn read_plan_of(cluster: &Cluster, host: &Object) -> Result<Option<PlanView>, Failure> {
    let named = host.status()["plan"]["secretRef"]["name"].as_str();
    let name = named.unwrap_or(&host.id.name);
    match cluster.plan_secret(&host.id.namespace, name).await {
        Ok(secret) => Ok(read_plan(host, Ok(secret.as_ref()))),
        Err(error) if is_forbidden(&error) => Ok(read_plan(host, Err(explain_error(&error)))),
        Err(error) => Err(Failure::request(format!("read the plan Secret {name}"))(error)),
    }
}

fn no_plan(id: &Id) -> Failure {
    Failure::NotFound(format!(
        "{} never had a plan: `kubectl baremetal why {}` says what it waits for",
        id.short(),
        id.short()
    ))
}

fn print_head(plan: &PlanView) {
    anstream::println!("plan {} ({}, generation {})", plan.id, plan.kind, plan.generation);
}

fn print_plan(plan: &PlanView) {
    print_head(plan);
    for index in 0..plan.steps.len() {
        print_step(plan, index);
    }
    print_end(plan);
}

fn print_step(plan: &PlanView, index: usize) {
    let Some(step) = plan.steps.get(index) else { return };
    let state = paint(style_of(step.attention()), &step.describe_state());
    anstream::println!("{:>3}/{} {:<26} {state}", index + 1, plan.steps.len(), step.name);
    for line in step.output.lines() {
        anstream::println!("      {line}");
    }
}

fn print_end(plan: &PlanView) {
    if let Some(missing) = &plan.steps_missing {
        anstream::println!("the steps are not shown: {missing}");
    }
    let reason = with_ends(" ", plan.reason.as_ref(), "");
    let message = with_ends(": ", plan.message.as_ref(), "");
    anstream::println!("{}{reason}{message}", plan.state.to_lowercase());
}

/// Prints each step when it begins, and the outputs when the plan has ended.
async fn follow_plan(cluster: &Cluster, arguments: &LogsArguments, id: &Id) -> Result<Exit, Failure> {
    let is_text = matches!(arguments.output.output, Format::Text | Format::Wide);
    let mut live = cluster.watch_one(id)?;
    let mut shown: Option<PlanView> = None;
    let mut awaited = None;
    let bar = progress_bar(is_text);
    while live.next().await?.is_some() {
        let host = live.fleet.require(id)?;
        let plan = read_plan_of(cluster, host).await?.ok_or_else(|| no_plan(id))?;
        if let Some(holder) = find_clean_to_come(cluster, host, &plan).await? {
            if awaited.as_ref() != Some(&holder) {
                bar.suspend(|| print_wait(id, &holder));
                awaited = Some(holder);
            }
            continue;
        }
        if shown.as_ref() == Some(&plan) {
            continue;
        }
        if !is_text {
            print_document(arguments.output.output, &plan)?;
        } else if plan.is_running() {
            bar.suspend(|| print_progress(shown.as_ref(), &plan));
            show_progress(&bar, &plan);
        }
        if !plan.is_running() {
            bar.finish_and_clear();
            if is_text {
                print_plan(&plan);
            }
            return Ok(Exit::Done);
        }
        shown = Some(plan);
    }
    Ok(Exit::Done)
}

/// The holder that releases the host, as long as the host has no clean plan.
async fn find_clean_to_come(
    cluster: &Cluster,
    host: &Object,
    plan: &PlanView,
) -> Result<Option<Id>, Failure> {
    let is_clean = plan.kind == Into::<&str>::into(PlanType::Clean);
    if plan.is_running() || is_clean {
        return Ok(None);
    }
    let mut known = Fleet::new(cluster.namespace.as_deref());
    let holders: Vec<_> = host.host().iter().flat_map(holders_of).collect();
    cluster.add_readable(&mut known, &holders).await?;
    let groups: Vec<_> = known.of(Kind::Machine).filter_map(deployment_of).collect();
    cluster.add_readable(&mut known, &groups).await?;
    Ok(find_ending_holder(&known, host))
}

fn print_wait(host: &Id, holder: &Id) {
    anstream::eprintln!(
        "{} releases {}: waiting for its clean plan; `kubectl baremetal why {}` says what is in the way",
        holder.short(),
        host.short(),
        holder.short()
    );
}

/// Prints the steps that changed since the plan was shown last.
fn print_progress(shown: Option<&PlanView>, plan: &PlanView) {
    let former = shown.filter(|shown| shown.id == plan.id);
    if former.is_none() {
        print_head(plan);
    }
    for (index, step) in plan.steps.iter().enumerate() {
        let before = former.and_then(|former| former.steps.get(index));
        if step.state != StepState::Pending && before != Some(step) {
            print_step(plan, index);
        }
    }
}

/// A bar that is drawn on a terminal alone.
fn progress_bar(is_text: bool) -> ProgressBar {
    let target =
        if is_text && is_terminal() { ProgressDrawTarget::stdout() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {elapsed}");
    ProgressBar::with_draw_target(None, target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show_progress(bar: &ProgressBar, plan: &PlanView) {
    bar.set_length(plan.steps.len() as u64);
    bar.set_position(plan.done() as u64);
    let running = plan.steps.iter().find(|step| step.state == StepState::Running);
    bar.set_message(running.map_or("", |step| &step.name).to_owned());
    bar.tick();
}

#[cfg(test)]
mod tests;
