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

fn plan_of(host: &Object) -> Moment {
    draw_timeline(host, &[]).into_iter().find(|moment| moment.topic == Topic::Plan).unwrap()
}

#[test]
fn host_timeline_runs_from_newest_to_oldest() {
    let done = json!({
        "state": "Applied", "announced": "2026-01-01T00:38:00Z", "ended": "2026-01-01T00:44:10Z",
    });
    let host = host(&done, &session("aaaa-1", "00:35:00", None));
    let moments = draw_timeline(&host, &[event("Released", "the host is available", "00:45:00")]);
    let told: Vec<_> = moments.iter().map(|moment| (moment.topic, moment.title.as_str())).collect();
    let want = [
        (Topic::Event, "Released"),
        (Topic::Plan, "Plan clean is done"),
        (Topic::Boot, "Booted and attached"),
        (Topic::Installed, "Installed"),
        (Topic::Registered, "Registered"),
    ];
    assert_eq!(told, want);
    let plan = &moments[1];
    let id = clean_plan().id.to_string();
    assert_eq!((plan.detail.as_str(), plan.attention), (id.as_str(), Attention::None));
    assert_eq!((plan.since, plan.until, plan.lasts), (Some(time("00:38:00")), Some(time("00:44:10")), true));
    let details: Vec<_> = moments[2..].iter().map(|moment| moment.detail.as_str()).collect();
    let installed = "on /dev/disk/by-id/one, image os:v1, agent 1";
    assert_eq!(details, ["boot aaaa-1, served by r", installed, "by lab"]);
}

#[test]
fn boot_lasts_until_the_session_has_ended() {
    for (ended, until) in [(None, None), (Some("00:48:00"), Some(time("00:48:00")))] {
        let host = host(&json!({ "state": "Applied" }), &session("aaaa-1", "00:35:00", ended));
        let moments = draw_timeline(&host, &[]);
        let boot = moments.iter().find(|moment| moment.topic == Topic::Boot).unwrap();
        assert_eq!((boot.since, boot.until, boot.lasts), (Some(time("00:35:00")), until, true));
    }
}

#[test]
fn running_and_failed_plans_are_distinguished() {
    let open = session("aaaa-1", "00:35:00", None);
    let running = json!({
        "announced": "2026-01-01T00:40:00Z", "step": { "name": "remove-workload", "attempt": 1 },
    });
    let plan = plan_of(&host(&running, &open));
    assert_eq!((plan.title.as_str(), plan.attention, plan.lasts), ("Plan clean runs", Attention::Wait, true));
    assert_eq!((plan.since, plan.until), (Some(time("00:40:00")), None));
    let failed = json!({ "state": "Failed", "reason": "NoSpace", "message": "step remove-workload: full" });
    let plan = plan_of(&host(&failed, &open));
    assert_eq!((plan.title.as_str(), plan.attention), ("Plan clean failed: NoSpace", Attention::Act));
    assert!(!plan.lasts, "its end is not known");
}
