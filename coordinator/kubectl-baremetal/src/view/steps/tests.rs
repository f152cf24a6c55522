use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::*;
use crate::fleet::Kind;
use crate::samples::{clean_plan, held_by, object, plan_secret, set_plan};

fn host(plan: &Value) -> Object {
    let mut body = held_by("m");
    set_plan(&mut body, &clean_plan(), plan);
    object(Kind::MachineInventory, "h", body)
}

fn pack(outputs: &Value) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::default());
    encoder.write_all(outputs.to_string().as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn states(view: &PlanView) -> Vec<&'static str> {
    view.steps.iter().map(|step| step.state.into()).collect()
}

#[test]
fn steps_follow_from_the_record_and_the_status() {
    let running = json!({ "step": { "name": "stop-containerd", "attempt": 2, "lastFailure": "busy" } });
    let secret = plan_secret(&[]);
    let view = read_plan(&host(&running), Ok(Some(&secret))).unwrap();
    let want = ["done", "done", "running", "pending", "pending", "pending", "pending"];
    assert_eq!((states(&view), view.done()), (want.to_vec(), 2));
    assert_eq!((view.steps[2].attempt, view.steps[2].last_failure.as_deref()), (Some(2), Some("busy")));
    let applied = read_plan(&host(&json!({ "state": "Applied" })), Ok(Some(&secret))).unwrap();
    assert_eq!(applied.done(), applied.steps.len());
}

#[test]
fn outputs_are_those_of_this_plan() {
    let plan = clean_plan();
    let outputs = json!({ "00-stop-kubelet": "b2sK", "01-remove-workload": "YnVzeQo=" });
    let outputs = pack(&outputs);
    let failed =
        json!({ "state": "Failed", "reason": "StepTimedOut", "message": "step remove-workload: busy" });
    for (checksum, state, output) in [
        (plan.checksum.as_str(), vec!["done", "failed"], "busy\n"),
        ("of another plan", vec!["failed", "pending"], ""),
    ] {
        let results = [("failed-checksum", checksum.as_bytes()), ("failed-output", &outputs)];
        let view = read_plan(&host(&failed), Ok(Some(&plan_secret(&results)))).unwrap();
        assert_eq!((states(&view)[..2].to_vec(), view.steps[1].output.as_str()), (state, output));
        assert_eq!(view.reason.as_deref(), Some("StepTimedOut"));
    }
}

#[test]
fn plan_without_secret_explains_missing_steps() {
    let plan = json!({});
    let other = plan_secret(&[("plan", b"{}")]);
    let mut altered = other.clone();
    altered.data.as_mut().unwrap().insert("plan".to_owned(), k8s_openapi::ByteString(b"{}".to_vec()));
    for (secret, want) in [
        (Ok(None), "does not exist"),
        (Err("secrets \"h\" is forbidden".to_owned()), "forbidden"),
        (Ok(Some(&altered)), "empty plan"),
    ] {
        let view = read_plan(&host(&plan), secret).unwrap();
        assert!(view.steps.is_empty() && view.steps_missing.as_ref().unwrap().contains(want), "{view:?}");
    }
    let fresh = object(Kind::MachineInventory, "h", crate::samples::attached());
    assert!(read_plan(&fresh, Ok(None)).is_none());
}

#[test]
fn outline_needs_no_secret() {
    let running = json!({ "step": { "name": "stop-containerd", "attempt": 2 } });
    let failed = json!({ "state": "Failed", "message": "step remove-workload: busy", "nextAction": "look" });
    for (plan, want) in [
        (running, ["done", "done", "running", "pending"]),
        (failed, ["done", "failed", "pending", "pending"]),
        (json!({ "state": "Applied" }), ["done", "done", "done", "done"]),
        (json!({}), ["running", "pending", "pending", "pending"]),
    ] {
        let view = outline_plan(&host(&plan)).unwrap();
        assert_eq!((&states(&view)[..4], view.steps.len()), (&want[..], 7), "{plan}");
        assert!(view.steps.iter().all(|step| step.output.is_empty()));
    }
    for plan in [json!({ "state": "Failed", "message": "no session" }), json!({})] {
        let mut body = held_by("m");
        set_plan(&mut body, &clean_plan(), &plan);
        if plan["state"].is_null() {
            body["status"]["plan"]["type"] = json!("custom");
        }
        let view = outline_plan(&object(Kind::MachineInventory, "h", body)).unwrap();
        assert!(view.steps.is_empty() && view.steps_missing.is_some(), "{view:?}");
    }
}
