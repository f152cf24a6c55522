//! A cluster: its machines, their hosts, their plans and steps.

use std::collections::BTreeSet;

use coordinator_api::explain::Attention;
use jiff::Timestamp;
use serde::Serialize;

use crate::finding::{find, serialize_attention};
use crate::fleet::{Fleet, Id, Object};
use crate::kind::Kind;
use crate::steps::{PlanView, StepView};

/// A node of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Branch {
    /// `kind/name`.
    pub(crate) name: String,
    pub(crate) state: String,
    #[serde(serialize_with = "serialize_attention")]
    pub(crate) attention: Attention,
    /// Steps that are done, of all; where a plan runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<(usize, usize)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) children: Vec<Self>,
}

/// Draws the plan of a host, where it is known.
pub(crate) type DrawPlan<'a> = &'a dyn Fn(&Object) -> Option<Branch>;

/// The tree of a cluster.
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
                None if self.fleet.covers(&id) => children.push(missing_branch(&id)),
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
        Branch {
            name: object.id.short(),
            state: format!("{deleting}{state}"),
            attention: finding.attention,
            progress: None,
            children,
        }
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

fn missing_branch(id: &Id) -> Branch {
    Branch {
        name: id.short(),
        state: "does not exist".to_owned(),
        attention: Attention::Act,
        progress: None,
        children: vec![],
    }
}

/// What is worth a word where all is as intended.
fn describe_fine(object: &Object) -> String {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let (spec, status) = (object.spec(), object.status());
    match object.id.kind {
        Kind::Machine => {
            let node = text(&status["nodeRef"]["name"]);
            let node = if node.is_empty() { String::new() } else { format!(", Node {node}") };
            format!("{} {}{node}", text(&status["phase"]), text(&spec["version"])).trim().to_owned()
        }
        Kind::MachineDeployment | Kind::KubeadmControlPlane | Kind::MachineSet => {
            let count = |value: &serde_json::Value| value.as_i64().unwrap_or(0);
            format!("{} of {} ready", count(&status["readyReplicas"]), count(&spec["replicas"]))
        }
        Kind::MachineInventory => format!("runs {}", text(&status["host"]["image"])),
        Kind::BaremetalMachine | Kind::Metal3Machine => text(&status["phase"]),
        _ => "ready".to_owned(),
    }
}

/// A plan that is done needs one line; of one that is not, each step has one.
pub(crate) fn draw_plan(plan: &PlanView) -> Branch {
    let attention = match plan.state.as_str() {
        "Applied" => Attention::None,
        "Failed" => Attention::Act,
        _ => Attention::Wait,
    };
    let steps = if attention == Attention::None { &[][..] } else { &plan.steps[..] };
    let step = |step: &StepView| Branch {
        name: step.name.clone(),
        state: step.describe_state(),
        attention: step.attention(),
        progress: None,
        children: vec![],
    };
    let reason = plan.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    Branch {
        name: format!("plan/{}", plan.id),
        state: format!("{}{reason}", plan.state),
        attention,
        progress: plan.is_running().then(|| (plan.done(), plan.steps.len())).filter(|(_, all)| *all > 0),
        children: steps.iter().map(step).collect(),
    }
}

#[cfg(test)]
mod tests;
