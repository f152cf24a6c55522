//! A cluster: its machines, their hosts, their plans and steps.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anstyle::Style;
use coordinator_api::explain::Attention;
use jiff::Timestamp;
use serde::Serialize;

use super::steps::{PlanView, StepView};
use super::text::{paint, style_of, with_ends};
use crate::fleet::{Fleet, Id, Kind, Object, text_of};
use crate::why::find;

/// Length of the bar of a running plan.
const BAR: usize = 12;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Branch {
    /// `kind/name`.
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) attention: Attention,
    /// Steps that are done, and all steps, of a running plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<(usize, usize)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) children: Vec<Self>,
}

/// Draws the plan of a host; `None` for a plan that is not known.
pub(crate) type DrawPlan<'a> = &'a dyn Fn(&Object) -> Option<Branch>;

pub(crate) fn draw_tree(fleet: &Fleet, cluster: &Object, plan: DrawPlan<'_>, now: Timestamp) -> Branch {
    let mut drawing = Drawing { fleet, plan, now, drawn: BTreeSet::new() };
    drawing.draw(cluster)
}

struct Drawing<'a> {
    fleet: &'a Fleet,
    plan: DrawPlan<'a>,
    now: Timestamp,
    drawn: BTreeSet<Id>,
}

impl Drawing<'_> {
    fn draw(&mut self, object: &Object) -> Branch {
        self.drawn.insert(object.id.clone());
        let finding = find(self.fleet, object, false, self.now);
        let mut children = vec![];
        for id in self.list_parts(object) {
            if self.drawn.contains(&id) {
                continue;
            }
            match self.fleet.get(&id) {
                Some(part) => children.push(self.draw(part)),
                None if self.fleet.covers(&id) => {
                    children.push(Branch::leaf(id.short(), "does not exist".to_owned(), Attention::Act));
                }
                None => {}
            }
        }
        if object.id.kind == Kind::MachineInventory {
            children.extend((self.plan)(object));
        }
        let deleting = if object.is_deleting() { "in deletion " } else { "" };
        let state = match (finding.attention, finding.reason.as_str()) {
            (Attention::None, _) => describe_fine(object),
            (_, "") => finding.message.clone(),
            (_, reason) if finding.message.is_empty() => reason.to_owned(),
            (_, reason) => format!("{reason}: {}", finding.message),
        };
        let state = format!("{deleting}{state}");
        Branch { children, ..Branch::leaf(object.id.short(), state, finding.attention) }
    }

    fn list_parts(&self, object: &Object) -> Vec<Id> {
        let fleet = self.fleet;
        match object.id.kind {
            Kind::Cluster => {
                let groups = fleet.groups_of_cluster(object);
                let found = groups.iter().filter_map(|id| fleet.get(id));
                let grouped: BTreeSet<_> = found.flat_map(|group| fleet.machines_of(group)).collect();
                let mut others = fleet.machines_of(object);
                others.retain(|machine| !grouped.contains(machine));
                [object.parts(), groups, others].concat()
            }
            Kind::KubeadmControlPlane | Kind::MachineDeployment | Kind::MachineSet => {
                fleet.machines_of(object)
            }
            Kind::Machine => object.infrastructure().into_iter().collect(),
            Kind::BaremetalMachine | Kind::BareMetalHost => object.named_host().into_iter().collect(),
            Kind::Metal3Machine => object.bare_metal_host().into_iter().collect(),
            _ => vec![],
        }
    }
}

impl Branch {
    fn leaf(name: String, state: String, attention: Attention) -> Self {
        Self { name, state, attention, progress: None, children: vec![] }
    }
}

/// The short state of an object that is as intended.
fn describe_fine(object: &Object) -> String {
    let (spec, status) = (object.spec(), object.status());
    match object.id.kind {
        Kind::Machine => {
            let node = status["nodeRef"]["name"].as_str().filter(|name| !name.is_empty());
            let (phase, version) = (text_of(&status["phase"]), text_of(&spec["version"]));
            format!("{phase} {version}{}", with_ends(", Node ", node, "")).trim().to_owned()
        }
        Kind::MachineDeployment | Kind::KubeadmControlPlane | Kind::MachineSet => {
            let ready = status["readyReplicas"].as_i64().unwrap_or(0);
            format!("{ready} of {} ready", spec["replicas"].as_i64().unwrap_or(0))
        }
        Kind::MachineInventory => format!("runs {}", text_of(&status["host"]["image"])),
        Kind::BaremetalMachine | Kind::Metal3Machine => text_of(&status["phase"]).to_owned(),
        _ => "ready".to_owned(),
    }
}

/// The branch of a plan. The steps of an applied plan are left out.
pub(crate) fn draw_plan(plan: &PlanView) -> Branch {
    let attention = plan.attention();
    let steps = if attention == Attention::None { &[][..] } else { &plan.steps[..] };
    let state = format!("{}{}", plan.state, with_ends(" (", plan.reason.as_ref(), ")"));
    Branch {
        progress: plan.is_running().then(|| (plan.done(), plan.steps.len())).filter(|(_, all)| *all > 0),
        children: steps.iter().map(draw_step).collect(),
        ..Branch::leaf(format!("plan/{}", plan.id), state, attention)
    }
}

fn draw_step(step: &StepView) -> Branch {
    Branch::leaf(step.name.clone(), step.describe_state(), step.attention())
}

/// A tree. With `has_bars`, a running plan has a bar.
pub(crate) fn format_tree(branch: &Branch, has_bars: bool) -> String {
    let mut text = String::new();
    write_branch(&mut text, branch, ("", ""), has_bars);
    text
}

fn write_branch(text: &mut String, branch: &Branch, (arm, below): (&str, &str), has_bars: bool) {
    let state = paint(style_of(branch.attention), &branch.state);
    let progress = branch.progress.map(|(done, all)| format_progress(done, all, has_bars));
    let name = paint(Style::new().bold(), &branch.name);
    let _ = writeln!(text, "{arm}{name}  {state}{}", with_ends(" ", progress, ""));
    for (index, child) in branch.children.iter().enumerate() {
        let is_last = index + 1 == branch.children.len();
        let (arm, next) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        write_branch(text, child, (&format!("{below}{arm}"), &format!("{below}{next}")), has_bars);
    }
}

fn format_progress(done: usize, all: usize, has_bars: bool) -> String {
    if !has_bars {
        return format!("{done}/{all}");
    }
    let full = BAR * done / all.max(1);
    format!("{}{} {done}/{all}", "█".repeat(full), "░".repeat(BAR - full))
}

#[cfg(test)]
mod tests;
