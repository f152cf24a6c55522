//! Reboots that are asked for: of an inventory by its annotation, of a
//! `BareMetalHost` by those of Metal3; and of a free host whose kernel holds
//! something of its former node.
//!
//! A request ends one boot of the host, which is recorded before the host is
//! asked. The host does nothing in another boot, and one that states another boot
//! has rebooted: no crash, and no message that comes twice, reboots it twice.

use coordinator_api::conditions::Reason;
use jiff::Timestamp;

use crate::host::HostRecord;
use crate::problem::Problem;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebootStep {
    /// Record which boot ends.
    Begin(String),
    /// The host runs another boot: remove request and record.
    Finish,
    Wait(Problem),
}

/// Decides; `None` where nothing is asked for.
pub fn decide_reboot(host: &HostRecord, now: Timestamp) -> Option<RebootStep> {
    let boot = current_boot(host);
    match &host.rebooting_from {
        Some(from) if has_left(host, from) => Some(RebootStep::Finish),
        Some(_) => Some(RebootStep::Wait(describe_progress(host, now))),
        None if host.is_reboot_requested || host.needs_fresh_kernel() => {
            Some(match (find_obstacle(host), boot) {
                (None, Some(boot)) => RebootStep::Begin(boot.to_owned()),
                (obstacle, _) => RebootStep::Wait(obstacle.unwrap_or_else(never_attached)),
            })
        }
        None => None,
    }
}

/// The boot that the host attached from last, which may have ended.
pub fn current_boot(host: &HostRecord) -> Option<&str> {
    host.session.as_ref().map(|session| session.boot_id.as_str()).filter(|boot| !boot.is_empty())
}

/// True if the host has attached from another boot.
pub fn has_left(host: &HostRecord, boot: &str) -> bool {
    current_boot(host).is_some_and(|current| current != boot)
}

/// Why no request can be taken now. A host that is away is asked when it attaches;
/// where it comes back from another boot, it has been rebooted.
pub fn find_obstacle(host: &HostRecord) -> Option<Problem> {
    if host.refusal().is_some() {
        let message = "the host is not admitted, and gets no request";
        return Some(Problem::new(Reason::RebootWaiting, message, "see its condition Approved"));
    }
    if host.plan.as_ref().is_some_and(|plan| plan.state.is_none()) {
        let message = "the host executes a plan, and is asked to reboot after it";
        return Some(Problem::of_cause(Reason::RebootWaiting, message));
    }
    current_boot(host).is_none().then(never_attached)
}

fn never_attached() -> Problem {
    let message = "the host has never attached, and only its agent could reboot it";
    Problem::new(Reason::RebootWaiting, message, "boot it from its disk")
}

/// How far a request is that was taken.
pub fn describe_progress(host: &HostRecord, now: Timestamp) -> Problem {
    if host.unreachable_since(now).is_some() {
        return Problem::new(
            Reason::HostUnreachable,
            "the host has no connection, and only its agent could reboot it",
            "switch its power off and on, which ends the request too",
        );
    }
    if !host.is_attached() {
        let message = "the host is down, or has lost its connection";
        return Problem::of_cause(Reason::RebootInProgress, message);
    }
    Problem::new(
        Reason::RebootInProgress,
        "the host was asked to reboot",
        "if it stays in this boot for ten minutes, look at its console",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use coordinator_api::inventory::{AllocationState, Approval, MachineInventory, PlanState, PlanType};
    use coordinator_api::names::annotation;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn asked(from: Option<&str>) -> MachineInventory {
        let mut inventory = samples::inventory("host-1");
        samples::annotate(&mut inventory, annotation::REBOOT, "");
        if let Some(from) = from {
            samples::annotate(&mut inventory, annotation::REBOOTING_FROM, from);
        }
        inventory
    }

    fn gone(mut inventory: MachineInventory) -> MachineInventory {
        let session = samples::host_status(&mut inventory).session.as_mut().unwrap();
        session.ended = Some(Time(Timestamp::UNIX_EPOCH));
        inventory
    }

    #[test]
    fn a_request_ends_one_boot() {
        let mut busy = asked(None);
        samples::announce(&mut busy, PlanType::Clean, 1, None);
        let mut idle = asked(None);
        samples::announce(&mut idle, PlanType::Reprovision, 1, Some(PlanState::Failed));
        let mut pending = asked(None);
        samples::annotate(&mut pending, annotation::APPROVAL, Approval::Pending.into());
        let mut new = asked(None);
        samples::host_status(&mut new).session = None;
        let mut restored = asked(Some("boot-1"));
        restored.status = None;
        let mut left = samples::inventory("host-1");
        samples::host_status(&mut left).left_in_kernel = vec!["link cni0".into()];
        let mut with_node = left.clone();
        samples::announce(&mut with_node, PlanType::Reprovision, 1, Some(PlanState::Applied));
        let mut claimed = left.clone();
        samples::claim(&mut claimed, AllocationState::Preparing, 0);
        for (name, inventory, second, want) in [
            ("a former node is in the kernel", left.clone(), 0, "begin boot-1"),
            ("and the host is away", gone(left), 900, "nothing"),
            ("and the host carries a node", with_node, 0, "nothing"),
            ("and its machine is not gone yet", claimed, 0, "nothing"),
            ("nothing asked for", samples::inventory("host-1"), 0, "nothing"),
            ("asked for", asked(None), 0, "begin boot-1"),
            ("asked for of a host whose plan failed", idle, 0, "begin boot-1"),
            ("a plan runs", busy, 0, "RebootWaiting after it"),
            ("not admitted", pending, 0, "RebootWaiting Approved"),
            ("never attached", new, 0, "RebootWaiting boot it from its disk"),
            ("away, as after a crash of the node", gone(asked(None)), 900, "begin boot-1"),
            ("taken", asked(Some("boot-1")), 0, "RebootInProgress ten minutes"),
            ("down", gone(asked(Some("boot-1"))), 60, "RebootInProgress is down"),
            ("stays away", gone(asked(Some("boot-1"))), 900, "HostUnreachable switch its power"),
            ("restored without status", restored, 0, "RebootInProgress is down"),
            ("back", asked(Some("boot-0")), 0, "finish"),
        ] {
            let now = Timestamp::from_second(second).unwrap();
            let step = match decide_reboot(&samples::record(&inventory), now) {
                None => "nothing".to_owned(),
                Some(RebootStep::Begin(boot)) => format!("begin {boot}"),
                Some(RebootStep::Finish) => "finish".to_owned(),
                Some(RebootStep::Wait(problem)) => {
                    format!("{} {}", problem.reason.as_str(), problem.text())
                }
            };
            let (word, part) = want.split_once(' ').unwrap_or((want, ""));
            assert!(step.starts_with(word) && step.contains(part), "{name}: {step}");
        }
    }
}
