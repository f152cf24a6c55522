use coordinator_api::conditions::Reason;
use coordinator_api::inventory::AllocationState;
use proto::plan::Generation;

use super::*;
use crate::ids::Uid;
use crate::plan::render;
use crate::problem::Problem;
use crate::samples;

const UID: &str = "0f3a5c1e-9d42-4b67-8a10-5b2c7d9e4f60";
const AT: fn(i64) -> Timestamp = |second| Timestamp::from_second(1_800_000_000 + second).unwrap();

fn key(uid: Option<&str>) -> MachineKey {
    MachineKey {
        kind: "BaremetalMachine",
        namespace: "fleet".into(),
        name: "worker-1".into(),
        uid: uid.and_then(Uid::parse),
    }
}

fn claim(uid: Option<&str>) -> Claim {
    let mut inventory = samples::inventory("host-1");
    samples::claim(&mut inventory, AllocationState::Allocated, 2);
    Claim { uid: uid.map(str::to_owned), ..inventory.claim().unwrap() }
}

fn period(start: i64, end: i64) -> Period {
    Period { start: AT(start), end: AT(end) }
}

#[test]
fn the_trace_is_the_uid_of_the_machine() {
    let trace = TraceId::of_machine(UID).unwrap();
    assert_eq!(trace.to_string(), UID.replace('-', ""));
    assert_eq!(TraceId::of_claim(&claim(Some(UID))), Some(trace), "the host's side of it");
    for no_uuid in ["", "uid-of-worker-1", "00000000-0000-0000-0000-000000000000", &UID.replace('-', "")] {
        assert_eq!(TraceId::of_machine(no_uuid), None, "{no_uuid}");
    }
    assert_eq!(TraceId::of_claim(&claim(None)), None);
    assert_eq!(claim_span(&key(None), "host-1", period(0, 1)), None);
}

#[test]
fn spans_nest_by_machine_plan_and_step() {
    let plan = render(&samples::reprovision(), Generation(3), "a").unwrap().0;
    let claim = claim(Some(UID));
    let machine = machine_span(&key(Some(UID)), "host-1", samples::PROVIDER_ID, period(0, 90)).unwrap();
    let claimed = claim_span(&key(Some(UID)), "host-1", period(0, 2)).unwrap();
    let planned = plan_span(&claim, "host-1", &plan, &PlanEnd::Applied, period(3, 80)).unwrap();
    let steps: Vec<_> = (0..)
        .zip(&plan.steps)
        .map(|step| step_span(&claim, "host-1", &plan, step, None, period(3, 4)).unwrap())
        .collect();
    assert_eq!(machine.parent, None);
    assert_eq!((claimed.parent, planned.parent), (Some(machine.id), Some(machine.id)));
    assert_eq!((claimed.name, planned.name), ("claim", "reprovision"));
    assert!(steps.iter().all(|step| step.parent == Some(planned.id) && step.trace == machine.trace));
    let mut ids: Vec<_> = steps.iter().chain([&machine, &claimed, &planned]).map(|span| span.id.0).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), steps.len() + 3, "every span has an id of its own");
    let again = Generation(4);
    let repeated = render(&samples::reprovision(), again, "a").unwrap().0;
    let repeated = plan_span(&claim, "host-1", &repeated, &PlanEnd::Applied, period(3, 80)).unwrap();
    assert_ne!(repeated.id, planned.id, "the same plan, given again");
}

#[test]
fn a_failure_is_its_reason_alone() {
    let plan = render(&samples::clean(), Generation(3), "a").unwrap().0;
    let problem = Problem::of_cause(Reason::BootFallback, "what the command printed");
    let failed = PlanEnd::Failed(problem);
    let span = plan_span(&claim(Some(UID)), "host-1", &plan, &failed, period(9, 5)).unwrap();
    assert_eq!(span.failure, Some("BootFallback"));
    assert!(!format!("{span:?}").contains("printed"), "outputs can hold secrets");
    assert_eq!((span.start, span.end), (AT(5), AT(5)), "the clock was set back");
}
