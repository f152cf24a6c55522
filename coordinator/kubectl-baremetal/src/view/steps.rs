//! The steps of a plan, and their outputs.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator_api::explain::Attention;
use coordinator_api::inventory::{PlanState, PlanStatus, PlanType};
use coordinator_api::names::plan_secret;
use coordinator_core::plan::{read_record, step_names};
use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::Secret;
use proto::plan::{Plan, Step};
use serde::Serialize;

use super::text::with_ends;
use crate::fleet::Object;

/// Bound of the unpacked outputs, far above the bytes that the coordinator keeps.
const OUTPUT_BYTES: u64 = 4 * 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum StepState {
    Done,
    Running,
    Failed,
    Pending,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StepView {
    pub(crate) name: String,
    pub(crate) state: StepState,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) output: String,
    /// Known of the running step alone, like `last_failure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<u64>,
    /// Why the attempt before failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_failure: Option<String>,
}

/// The newest plan of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlanView {
    pub(crate) host: String,
    pub(crate) id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) generation: i64,
    /// `Applied`, `Failed` or `Running`.
    pub(crate) state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// Empty if the plan Secret was not read.
    pub(crate) steps: Vec<StepView>,
    /// The reason for which there are no steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) steps_missing: Option<String>,
}

impl StepView {
    pub(crate) fn attention(&self) -> Attention {
        match self.state {
            StepState::Failed => Attention::Act,
            StepState::Running => Attention::Wait,
            StepState::Done | StepState::Pending => Attention::None,
        }
    }

    /// State, attempt, and the failure of the attempt before.
    pub(crate) fn describe_state(&self) -> String {
        let state: &str = self.state.into();
        let attempt = with_ends(", attempt ", self.attempt.filter(|attempt| *attempt > 1), "");
        format!("{state}{attempt}{}", with_ends(": ", self.last_failure.as_ref(), ""))
    }
}

impl PlanView {
    pub(crate) fn is_running(&self) -> bool {
        self.state == "Running"
    }

    pub(crate) fn attention(&self) -> Attention {
        match self.state.as_str() {
            "Applied" => Attention::None,
            "Failed" => Attention::Act,
            _ => Attention::Wait,
        }
    }

    /// The number of steps that are done.
    pub(crate) fn done(&self) -> usize {
        self.steps.iter().take_while(|step| step.state == StepState::Done).count()
    }
}

/// The newest plan of a host from its inventory and its plan Secret; `None` for a host that never
/// had a plan.
pub(crate) fn read_plan(host: &Object, secret: Result<Option<&Secret>, String>) -> Option<PlanView> {
    let plan = host.inventory()?.plan()?;
    let steps = match secret {
        Err(error) => Err(error),
        Ok(None) => Err("the plan Secret does not exist".to_owned()),
        Ok(Some(secret)) => read_steps(secret, plan.checksum.as_deref())
            .map(|read| list_steps(&read, secret, plan.state, plan.step.as_ref().map(|step| &*step.name))),
    };
    view_plan(host, plan, steps)
}

/// The newest plan without its Secret: outputs are not known, and the steps follow from the type
/// of the plan. The steps of an operator's plan are not known.
pub(crate) fn outline_plan(host: &Object) -> Option<PlanView> {
    let plan = host.inventory()?.plan()?;
    let names = match plan.kind? {
        PlanType::Clean => step_names(proto::plan::Kind::Clean),
        PlanType::Reprovision => step_names(proto::plan::Kind::Reprovision),
        PlanType::Custom => &[],
    };
    let current = match plan.state {
        Some(PlanState::Applied) => Some(names.len()),
        Some(PlanState::Failed) => {
            // The message of a failed plan begins with the step.
            let message = plan.message.as_deref().unwrap_or("");
            names.iter().position(|name| message.starts_with(&format!("step {name}:")))
        }
        None => {
            let running = plan.step.as_ref().map(|step| step.name.as_str());
            Some(names.iter().position(|name| running == Some(name)).unwrap_or(0))
        }
    };
    let unknown = "the steps are not known without the plan Secret".to_owned();
    let current = current.filter(|_| !names.is_empty()).ok_or(unknown);
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    view_plan(host, plan, current.map(|current| place_steps(names, current, plan.state)))
}

fn view_plan(host: &Object, plan: &PlanStatus, steps: Result<Vec<StepView>, String>) -> Option<PlanView> {
    let (id, kind, generation) = (plan.id.clone()?, plan.kind?, plan.generation?);
    let kind: &str = kind.into();
    let (steps, steps_missing) = match steps {
        Ok(steps) => (steps, None),
        Err(error) => (vec![], Some(error)),
    };
    let mut view = PlanView {
        host: host.id.name.clone(),
        id,
        kind: kind.to_owned(),
        generation,
        state: plan.state.map_or("Running", Into::into).to_owned(),
        reason: plan.reason.clone(),
        message: plan.message.clone(),
        steps,
        steps_missing,
    };
    if let Some((step, running)) =
        plan.step.as_ref().zip(view.steps.iter_mut().find(|step| step.state == StepState::Running))
    {
        running.attempt = Some(u64::from(step.attempt));
        running.last_failure.clone_from(&step.last_failure);
    }
    Some(view)
}

fn read_steps(secret: &Secret, announced: Option<&str>) -> Result<Plan, String> {
    let bytes = secret.data.as_ref().and_then(|data| data.get(plan_secret::PLAN));
    let bytes = bytes.ok_or("the plan Secret has no plan")?;
    let plan = read_record(&bytes.0).map_err(|error| format!("the plan Secret holds no plan: {error}"))?;
    let plan = plan.ok_or("the plan Secret holds the empty plan")?;
    if announced.is_some_and(|announced| announced != plan.checksum.as_str()) {
        return Err("the plan Secret holds another plan than the one that was announced".to_owned());
    }
    Ok(plan)
}

fn list_steps(
    plan: &Plan,
    secret: &Secret,
    state: Option<PlanState>,
    running: Option<&str>,
) -> Vec<StepView> {
    let names: Vec<_> = plan.steps.iter().map(step_name).collect();
    let outputs = read_outputs(secret, plan.checksum.as_str());
    let reported = outputs.keys().next_back().copied();
    let current = match state {
        Some(PlanState::Applied) => names.len(),
        Some(PlanState::Failed) => reported.unwrap_or(0),
        None => running
            .and_then(|name| {
                plan.steps.iter().position(|step| step.name() == name || step_name(step) == name)
            })
            .unwrap_or(0),
    };
    let mut steps = place_steps(names, current, state);
    for (index, output) in outputs {
        if let Some(step) = steps.get_mut(index) {
            step.output = output;
        }
    }
    steps
}

/// The steps before `current` are done; the step at `current` runs or failed.
fn place_steps(names: Vec<String>, current: usize, state: Option<PlanState>) -> Vec<StepView> {
    let steps = names.into_iter().enumerate().map(|(index, name)| StepView {
        state: match (index.cmp(&current), state) {
            (Ordering::Less, _) => StepState::Done,
            (Ordering::Equal, Some(PlanState::Failed)) => StepState::Failed,
            (Ordering::Equal, None) => StepState::Running,
            _ => StepState::Pending,
        },
        output: String::new(),
        attempt: None,
        last_failure: None,
        name,
    });
    steps.collect()
}

fn step_name(step: &Step) -> String {
    match step {
        Step::RunCustomInstruction(instruction) if !instruction.name.is_empty() => instruction.name.clone(),
        step => step.name().to_owned(),
    }
}

/// The outputs of the steps by their position. Results of another plan are left out.
fn read_outputs(secret: &Secret, checksum: &str) -> BTreeMap<usize, String> {
    let Some(data) = &secret.data else { return BTreeMap::new() };
    let pairs = [
        (plan_secret::APPLIED_CHECKSUM, plan_secret::APPLIED_OUTPUT),
        (plan_secret::FAILED_CHECKSUM, plan_secret::FAILED_OUTPUT),
    ];
    let mut own =
        pairs.into_iter().filter(|(of, _)| data.get(*of).is_some_and(|bytes| bytes.0 == checksum.as_bytes()));
    let Some(packed) = own.next().and_then(|(_, output)| data.get(output)) else { return BTreeMap::new() };
    let unpacked = GzDecoder::new(packed.0.as_slice()).take(OUTPUT_BYTES);
    let outputs: BTreeMap<String, String> = serde_json::from_reader(unpacked).unwrap_or_default();
    outputs.into_iter().filter_map(|(key, value)| decode_output(&key, &value)).collect()
}

/// `NUMBER-NAME` and the output in base64.
fn decode_output(key: &str, value: &str) -> Option<(usize, String)> {
    let index = key.split('-').next()?.parse().ok()?;
    let bytes = STANDARD.decode(value).ok()?;
    Some((index, String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests;
