use super::*;
use crate::samples;
use coordinator_api::inventory::MachineInventory;

const UID: &str = "uid-of-m-1";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn request() -> String {
    format!("reboot.metal3.io/metal3-remediation-{UID}")
}

fn remediation(status: Value) -> Metal3Remediation {
    let mut object = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Remediation",
        "metadata": {
            "name": "m-1", "namespace": "default", "uid": UID,
            "finalizers": [names::REMEDIATION_FINALIZER],
        },
        "spec": { "strategy": { "type": "Reboot", "retryLimit": 1, "timeout": "300s" } },
    });
    if !status.is_null() {
        object["status"] = status;
    }
    serde_json::from_value(object).unwrap()
}

/// In a phase since second 0.
fn in_phase(phase: &str, retries: i32) -> Metal3Remediation {
    remediation(json!({ "phase": phase, "retryCount": retries, "lastRemediated": "1970-01-01T00:00:00Z" }))
}

/// `record` is what the host has recorded of requests, or nothing.
fn host(is_asked: bool, record: &Value) -> BareMetalHost {
    let mut annotations = json!({});
    if is_asked {
        annotations[request()] = json!("{\"mode\":\"hard\"}");
    }
    if !record.is_null() {
        annotations[names::REBOOT_RECORD] = json!(record.to_string());
    }
    serde_json::from_value(json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": { "name": "bmh-1", "namespace": "default", "annotations": annotations },
        "spec": { "online": true },
    }))
    .unwrap()
}

fn taken() -> Value {
    json!({ "from": "boot-1", "requests": [request()] })
}

fn done() -> Value {
    json!({ "requests": [request()] })
}

fn decide(remediation: &Metal3Remediation, host: Option<&BareMetalHost>, second: i64) -> Outcome {
    let inventory: MachineInventory = samples::inventory("host-1");
    decide_remediation(&Situation {
        remediation,
        owner: Some(&samples::owner()),
        cluster: None,
        host,
        record: Some(&samples::record(&inventory)),
        now: at(second),
    })
}

fn describe(outcome: &Outcome) -> String {
    let phase = |status: &Metal3RemediationStatus| {
        let phase = serde_json::to_value(status.phase).unwrap();
        format!("{} {}", phase.as_str().unwrap(), status.retry_count.unwrap_or_default())
    };
    match (&outcome.step, &outcome.problem) {
        (Step::Rest, Some(problem)) => problem.reason.as_str().to_owned(),
        (Step::Rest, None) => "rest".to_owned(),
        (Step::AddFinalizer, _) => "hold".to_owned(),
        (Step::RemoveFinalizer, _) => "forget".to_owned(),
        (Step::ChangeHost(change), _) => {
            let is_removed = change["metadata"]["annotations"][request()].is_null();
            (if is_removed { "withdraw" } else { "ask" }).to_owned()
        }
        (Step::Enter(status), _) => format!("enter {}", phase(status)),
        (Step::GiveUp { status, .. }, _) => format!("give up, {}", phase(status)),
    }
}

#[test]
fn a_remediation_goes_through_the_phases_of_capm3() {
    let mut unheld = in_phase("Running", 0);
    unheld.metadata.finalizers = None;
    for (name, remediation, host, second, want) in [
        ("new", remediation(Value::Null), host(false, &Value::Null), 7, "enter Running 0"),
        ("running, not held", unheld, host(false, &Value::Null), 7, "hold"),
        ("running", in_phase("Running", 0), host(false, &Value::Null), 7, "ask"),
        ("asked", in_phase("Running", 0), host(true, &Value::Null), 7, "RemediationRunning"),
        ("taken", in_phase("Running", 0), host(true, &taken()), 7, "RebootInProgress"),
        ("rebooted", in_phase("Running", 0), host(true, &done()), 7, "enter Waiting 0"),
        ("rebooted too late", in_phase("Running", 0), host(true, &done()), 900, "enter Waiting 0"),
        ("waiting", in_phase("Waiting", 0), host(true, &done()), 7, "withdraw"),
        ("withdrawn", in_phase("Waiting", 0), host(false, &done()), 7, "RemediationWaiting"),
        ("forgotten", in_phase("Waiting", 0), host(false, &Value::Null), 299, "RemediationWaiting"),
        ("not healthy in time", in_phase("Waiting", 0), host(false, &Value::Null), 300, "enter Running 1"),
        ("not forgotten in time", in_phase("Waiting", 0), host(false, &done()), 300, "RemediationWaiting"),
        ("no answer in time", in_phase("Running", 0), host(true, &taken()), 300, "enter Running 1"),
        ("asked again", in_phase("Running", 1), host(false, &Value::Null), 7, "ask"),
        ("former try not forgotten", in_phase("Running", 1), host(false, &done()), 7, "RemediationRunning"),
        (
            "retries used up",
            in_phase("Waiting", 1),
            host(false, &Value::Null),
            300,
            "give up, Deleting machine 1",
        ),
        ("never answered", in_phase("Running", 1), host(true, &taken()), 300, "give up, Deleting machine 1"),
        ("given up", in_phase("Deleting machine", 1), host(false, &Value::Null), 900, "RemediationExhausted"),
        ("refused", in_phase("Failed", 0), host(false, &Value::Null), 900, "RemediationRefused"),
    ] {
        assert_eq!(describe(&decide(&remediation, Some(&host), second)), want, "{name}");
    }
}

#[test]
fn host_with_online_false_is_not_remediated() {
    let mut off = host(false, &Value::Null);
    off.spec.online = false;
    for (name, remediation) in [("new", remediation(Value::Null)), ("running", in_phase("Running", 0))] {
        assert_eq!(describe(&decide(&remediation, Some(&off), 7)), "enter Failed 0", "{name}");
    }
}

#[test]
fn given_up_machine_marks_host_unhealthy() {
    let outcome = decide(&in_phase("Waiting", 1), Some(&host(true, &Value::Null)), 900);
    assert_eq!(describe(&outcome), "withdraw", "first");
    let Step::GiveUp { host: Some(change), .. } =
        decide(&in_phase("Running", 1), Some(&host(true, &taken())), 900).step
    else {
        panic!()
    };
    let annotations = &change["metadata"]["annotations"];
    assert_eq!(annotations["capi.metal3.io/unhealthy"], "capm3/UnhealthyNode");
    assert!(annotations.as_object().unwrap().contains_key(&request()) && annotations[request()].is_null());
}

#[test]
fn released_host_gets_no_remediation_request() {
    let running = in_phase("Running", 0);
    let asked = host(true, &taken());
    let mut owner = samples::owner();
    let situation = |owner| Situation {
        remediation: &running,
        owner,
        cluster: None,
        host: Some(&asked),
        record: None,
        now: at(900),
    };
    assert_eq!(describe(&decide_remediation(&situation(None))), "OwnerWaiting");
    owner.metadata.deletion_timestamp = Some(Time(at(0)));
    assert_eq!(describe(&decide_remediation(&situation(Some(&owner)))), "withdraw");
    let idle = host(false, &Value::Null);
    let ended = decide_remediation(&Situation { host: Some(&idle), ..situation(Some(&owner)) });
    assert_eq!(describe(&ended), "RemediationEnded");
    assert_eq!(describe(&decide(&running, None, 900)), "RemediationHostMissing");
}

#[test]
fn deleted_remediation_withdraws_its_request() {
    let mut deleted = in_phase("Running", 0);
    deleted.metadata.deletion_timestamp = Some(Time(at(0)));
    for (name, host, want) in [
        ("asked", Some(host(true, &taken())), "withdraw"),
        ("withdrawn", Some(host(false, &taken())), "forget"),
        ("without a host", None, "forget"),
    ] {
        assert_eq!(describe(&decide(&deleted, host.as_ref(), 7)), want, "{name}");
    }
    deleted.metadata.finalizers = None;
    assert_eq!(describe(&decide(&deleted, None, 7)), "rest");
}

#[test]
fn a_pause_holds_everything() {
    let paused: Cluster = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": { "name": "c1" }, "spec": { "paused": true },
    }))
    .unwrap();
    let mut remediation = in_phase("Running", 0);
    remediation.metadata.deletion_timestamp = Some(Time(at(0)));
    let outcome = decide_remediation(&Situation {
        remediation: &remediation,
        owner: None,
        cluster: Some(&paused),
        host: None,
        record: None,
        now: at(900),
    });
    assert_eq!(describe(&outcome), "Paused");
    let shown = project_status(&remediation, outcome.problem.as_ref(), None, at(900));
    let shown: Vec<_> =
        shown.conditions.iter().map(|found| (found.type_.as_str(), found.status.as_str())).collect();
    assert_eq!(shown, [("Paused", "True"), ("Ready", "False")]);
}

#[test]
fn a_try_ends_after_its_timeout() {
    for (timeout, second, want) in
        [("0s", 599, "RemediationWaiting"), ("0s", 600, "enter Running 1"), ("2m", 120, "enter Running 1")]
    {
        let mut waiting = in_phase("Waiting", 0);
        waiting.spec.strategy.timeout = Some(serde_json::from_value(json!(timeout)).unwrap());
        assert_eq!(describe(&decide(&waiting, Some(&host(false, &Value::Null)), second)), want, "{timeout}");
    }
    let waiting = decide(&in_phase("Waiting", 0), Some(&host(false, &Value::Null)), 7);
    assert_eq!(waiting.wake, Wake::At(at(300)));
}

#[test]
fn the_owner_of_a_machine_is_asked_once() {
    let other = json!({ "type": "HealthCheckSucceeded", "status": "False" });
    let remediated = json!({ "type": "OwnerRemediated", "status": "True" });
    for (version, severity) in [("v1beta2", Value::Null), ("v1beta1", json!("Warning"))] {
        let asked = request_replacement(&[other.clone(), remediated.clone()], version, at(7)).unwrap();
        assert_eq!((asked.len(), &asked[0]), (2, &other));
        assert_eq!((&asked[1]["status"], &asked[1]["severity"]), (&json!("False"), &severity), "{version}");
        assert_eq!(request_replacement(&asked, version, at(9)), None, "{version}");
    }
}
