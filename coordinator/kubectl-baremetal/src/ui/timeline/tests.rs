use serde_json::{Value, json};

use super::*;
use crate::fleet::Kind;
use crate::samples::{attached, clean_plan, condition, object, set_plan};

fn time(text: &str) -> Timestamp {
    format!("2026-01-01T{text}Z").parse().unwrap()
}

fn host(plan: &Value, session: &Value) -> Object {
    let mut body = attached();
    set_plan(&mut body, &clean_plan(), plan);
    body["metadata"]["annotations"]["baremetal.cluster.io/registration"] = json!("lab");
    body["status"]["conditions"] = json!([condition("Installed", "True", "Installed", "")]);
    body["status"]["host"]["session"] = session.clone();
    object(Kind::MachineInventory, "h", body)
}

fn session(boot: &str, since: &str, ended: Option<&str>) -> Value {
    let mut session = json!({ "replica": "r", "bootId": boot, "since": format!("2026-01-01T{since}Z") });
    if let Some(ended) = ended {
        session["ended"] = json!(format!("2026-01-01T{ended}Z"));
    }
    session
}

fn step(name: &str) -> Value {
    json!({ "step": { "name": name, "attempt": 1 } })
}

fn event(reason: &str, note: &str, at: &str) -> EventView {
    EventView {
        kind: "Normal".to_owned(),
        reason: reason.to_owned(),
        note: note.to_owned(),
        first: Some(time(at)),
        last: Some(time(at)),
        count: 1,
    }
}

fn note(trace: &mut Trace, host: &Object, now: &str) {
    trace.note(host.inventory().unwrap(), time(now));
}

#[test]
fn host_timeline_runs_from_newest_to_oldest() {
    let id = clean_plan().plan.id.to_string();
    let first = session("aaaa-1", "00:35:00", None);
    let mut trace = Trace::default();
    note(&mut trace, &host(&step("stop-kubelet"), &first), "00:41:00");
    note(&mut trace, &host(&step("remove-workload"), &first), "00:43:00");
    let done = json!({ "state": "Applied", "ended": "2026-01-01T00:44:10Z" });
    let last = host(&done, &session("bbbb-2", "00:50:00", None));
    note(&mut trace, &host(&done, &session("aaaa-1", "00:35:00", Some("00:48:00"))), "00:48:00");
    note(&mut trace, &last, "00:50:00");
    let events = [
        event("PlanAssigned", &format!("plan {id} for MachineInventory h"), "00:40:00"),
        event("Released", "the host is available", "00:45:00"),
    ];
    let moments = draw_timeline(&last, &events, &trace);
    let told: Vec<_> = moments.iter().map(|moment| (moment.topic, moment.title.as_str())).collect();
    let want = [
        (Topic::Boot, "Booted and attached"),
        (Topic::Event, "Released"),
        (Topic::Plan, "Plan clean is done"),
        (Topic::Boot, "Booted and attached"),
        (Topic::Installed, "Installed"),
        (Topic::Registered, "Registered"),
    ];
    assert_eq!(told, want);
    let plan = &moments[2];
    assert_eq!((plan.since, plan.until), (Some(time("00:40:00")), Some(time("00:44:10"))));
    let times: Vec<_> = plan.steps.iter().map(|step| (step.since, step.until)).collect();
    assert_eq!(times[0], (Some(time("00:41:00")), Some(time("00:43:00"))));
    assert_eq!(times[1], (Some(time("00:43:00")), Some(time("00:44:10"))));
    assert_eq!((plan.steps.len(), times[2], plan.steps[2].state), (7, (None, None), "done"));
    assert_eq!((moments[0].until, moments[3].until), (None, Some(time("00:48:00"))));
    assert_eq!(
        (moments[4].detail.as_str(), moments[5].detail.as_str()),
        ("on /dev/disk/by-id/one, image os:v1, agent 1", "by lab")
    );
}

#[test]
fn sessions_of_one_boot_are_one_moment() {
    let mut trace = Trace::default();
    let done = json!({ "state": "Applied" });
    note(&mut trace, &host(&done, &session("aaaa-1", "00:35:00", Some("00:40:00"))), "00:40:00");
    let last = host(&done, &session("aaaa-1", "00:41:00", None));
    note(&mut trace, &last, "00:41:00");
    let moments = draw_timeline(&last, &[], &trace);
    let boots: Vec<_> = moments.iter().filter(|moment| moment.topic == Topic::Boot).collect();
    assert_eq!((boots.len(), boots[0].since, boots[0].until), (1, Some(time("00:35:00")), None));
    assert_eq!(boots[0].detail, "boot aaaa-1, served by r, attached 2 times");
}

#[test]
fn plan_is_dated_without_event_or_page() {
    let plan = json!({
        "state": "Applied", "announced": "2026-01-01T00:38:00Z", "ended": "2026-01-01T00:44:10Z",
    });
    let host = host(&plan, &session("aaaa-1", "00:35:00", None));
    let mut trace = Trace::default();
    note(&mut trace, &host, "23:00:00");
    let id = clean_plan().plan.id.to_string();
    let later = event("PlanAssigned", &format!("plan {id} for MachineInventory h"), "00:38:01");
    for events in [&[][..], &[later]] {
        let moments = draw_timeline(&host, events, &trace);
        let plan = moments.iter().find(|moment| moment.topic == Topic::Plan).unwrap();
        let want = (Some(time("00:38:00")), Some(time("00:44:10")), true);
        assert_eq!((plan.since, plan.until, plan.lasts), want);
    }
}

#[test]
fn running_and_failed_plans_are_distinguished() {
    let open = session("aaaa-1", "00:35:00", None);
    let mut trace = Trace::default();
    let before = object(Kind::MachineInventory, "h", attached());
    note(&mut trace, &before, "00:39:00");
    let running = host(&step("remove-workload"), &open);
    note(&mut trace, &running, "00:41:00");
    let plan =
        draw_timeline(&running, &[], &trace).into_iter().find(|moment| moment.topic == Topic::Plan).unwrap();
    assert_eq!((plan.title.as_str(), plan.attention, plan.lasts), ("Plan clean runs", Attention::Wait, true));
    assert_eq!((plan.since, plan.steps[1].state), (Some(time("00:41:00")), "running"));
    let failed = json!({ "state": "Failed", "reason": "NoSpace", "message": "step remove-workload: full" });
    let failed = host(&failed, &open);
    note(&mut trace, &failed, "00:42:00");
    let plan =
        draw_timeline(&failed, &[], &trace).into_iter().find(|moment| moment.topic == Topic::Plan).unwrap();
    assert_eq!((plan.title.as_str(), plan.attention), ("Plan clean failed: NoSpace", Attention::Act));
    assert_eq!((plan.lasts, plan.steps[1].state), (false, "failed"));
}

#[test]
fn trace_of_a_host_is_bounded() {
    let mut trace = Trace::default();
    for number in 0..40 {
        let session = session(&format!("{number}-0"), &format!("00:{number:02}:00"), None);
        note(&mut trace, &host(&json!({ "state": "Applied" }), &session), "01:00:00");
    }
    assert_eq!((trace.sessions.len(), trace.plans.len()), (16, 1));
}

#[test]
fn boot_ends_the_one_before() {
    let mut trace = Trace::default();
    let done = json!({ "state": "Applied" });
    note(&mut trace, &host(&done, &session("aaaa-1", "00:35:00", None)), "00:35:00");
    let last = host(&done, &session("bbbb-2", "00:41:00", None));
    note(&mut trace, &last, "00:41:00");
    let moments = draw_timeline(&last, &[], &trace);
    let boots = moments.iter().filter(|moment| moment.topic == Topic::Boot);
    let ends: Vec<_> = boots.map(|moment| moment.until).collect();
    assert_eq!(ends, [None, Some(time("00:41:00"))]);
}
