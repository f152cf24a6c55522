//! Reboot requests by annotations: `reboot.metal3.io`, which is removed when the host has rebooted,
//! and `reboot.metal3.io/KEY`, which its writer removes. Each request is performed once.

use std::collections::BTreeSet;

use coordinator_api::conditions::{ConditionUpdate, Reason, Type, condition_true};
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::names;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::host::HostRecord;
use crate::reboot;

/// The accepted requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct RebootRecord {
    /// The boot to end; `None` after it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(default)]
    requests: BTreeSet<String>,
}

/// The step of the requests of a host.
#[derive(Clone, Debug, PartialEq)]
pub enum RebootStep {
    /// Record the boot to end.
    Begin(Value),
    /// Request the end of this boot from the agent.
    Ask(String),
    /// Record that the host runs another boot.
    Finish(Value),
    /// Remove the records of requests whose annotations were removed.
    Forget(Value),
}

pub fn decide_reboot(host: &BareMetalHost, record: Option<&HostRecord>) -> Option<RebootStep> {
    let requests = list_requests(host);
    let known = read_record(host);
    let record = record?;
    if let Some(from) = &known.from {
        if reboot::has_left(record, from) {
            return Some(RebootStep::Finish(finish_change(&requests, known.requests)));
        }
        let is_asked = record.rebooting_from.as_ref() == Some(from);
        return (!is_asked).then(|| RebootStep::Ask(from.clone()));
    }
    if requests.difference(&known.requests).next().is_some() {
        let boot = reboot::current_boot(record).filter(|_| reboot::find_obstacle(record).is_none())?;
        let taken = RebootRecord { from: Some(boot.to_owned()), requests };
        return Some(RebootStep::Begin(record_change(&taken)));
    }
    let left: BTreeSet<_> = known.requests.intersection(&requests).cloned().collect();
    let is_stale = left != known.requests;
    is_stale.then(|| RebootStep::Forget(record_change(&RebootRecord { from: None, requests: left })))
}

/// The request is done, and its writer may remove it.
pub fn is_done(host: &BareMetalHost, request: &str) -> bool {
    let known = read_record(host);
    known.from.is_none() && known.requests.contains(request)
}

/// The request is not recorded, and may be written again.
pub fn is_forgotten(host: &BareMetalHost, request: &str) -> bool {
    !read_record(host).requests.contains(request)
}

/// The condition about the requests; `None` if there is none.
pub fn project_reboot(
    host: &BareMetalHost,
    record: Option<&HostRecord>,
    now: Timestamp,
) -> Option<ConditionUpdate> {
    let known = read_record(host);
    if known.from.is_some() {
        return record.map(|record| reboot::describe_progress(record, now).condition_false(Type::Rebooted));
    }
    let requests = list_requests(host);
    if requests.difference(&known.requests).next().is_some() {
        return record.and_then(reboot::find_obstacle).map(|problem| problem.condition_false(Type::Rebooted));
    }
    let names: Vec<_> = requests.into_iter().collect();
    let message = format!(
        "done, and repeated only if the annotation is removed and written again: {}",
        names.join(", ")
    );
    (!names.is_empty()).then(|| condition_true(Type::Rebooted, Reason::RebootDone, message))
}

fn list_requests(host: &BareMetalHost) -> BTreeSet<String> {
    host.annotations().keys().filter(|key| is_request(key)).cloned().collect()
}

fn is_request(key: &str) -> bool {
    let rest = key.strip_prefix(names::REBOOT);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn read_record(host: &BareMetalHost) -> RebootRecord {
    let text = host.annotations().get(names::REBOOT_RECORD);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Removes the request without a key and its record in one write.
fn finish_change(requests: &BTreeSet<String>, mut taken: BTreeSet<String>) -> Value {
    let is_bare = taken.remove(names::REBOOT);
    taken.retain(|name| requests.contains(name));
    let mut change = record_change(&RebootRecord { from: None, requests: taken });
    if is_bare {
        change["metadata"]["annotations"][names::REBOOT] = Value::Null;
    }
    change
}

fn record_change(record: &RebootRecord) -> Value {
    let is_empty = record.from.is_none() && record.requests.is_empty();
    let text = (!is_empty).then(|| json!(record).to_string());
    json!({ "metadata": { "annotations": { names::REBOOT_RECORD: text } } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use coordinator_api::inventory::{MachineInventory, PlanType};
    use coordinator_api::metal3::host::BareMetalHostSpec;
    use coordinator_api::names::annotation;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    const KEYED: &str = "reboot.metal3.io/capm3";

    fn host(requests: &[&str], record: Option<Value>) -> BareMetalHost {
        let mut host = BareMetalHost::new("bmh-1", BareMetalHostSpec::default());
        let annotations = host.annotations_mut();
        annotations.extend(requests.iter().map(|name| ((*name).to_owned(), String::new())));
        annotations.extend(record.map(|record| (names::REBOOT_RECORD.to_owned(), record.to_string())));
        host
    }

    fn in_boot(boot: &str) -> MachineInventory {
        let mut inventory = samples::inventory("host-1");
        samples::host_status(&mut inventory).session.as_mut().unwrap().boot_id = boot.into();
        inventory
    }

    fn asked(boot: &str, from: &str) -> MachineInventory {
        let mut inventory = in_boot(boot);
        samples::annotate(&mut inventory, annotation::REBOOTING_FROM, from);
        inventory
    }

    /// The host after a change.
    fn changed(mut host: BareMetalHost, change: &Value) -> BareMetalHost {
        for (key, value) in change["metadata"]["annotations"].as_object().unwrap() {
            match value.as_str() {
                Some(text) => host.annotations_mut().insert(key.clone(), text.to_owned()),
                None => host.annotations_mut().remove(key),
            };
        }
        host
    }

    #[test]
    fn every_request_is_carried_out_once() {
        for (name, request, left) in
            [("removed when done", names::REBOOT, false), ("its writer's", KEYED, true)]
        {
            let record = |inventory: &MachineInventory| samples::record(inventory);
            let Some(RebootStep::Begin(change)) =
                decide_reboot(&host(&[request], None), Some(&record(&in_boot("b1"))))
            else {
                panic!("{name}")
            };
            let taken = changed(host(&[request], None), &change);
            assert!(!is_done(&taken, request) && !is_forgotten(&taken, request), "{name}");
            let step = |inventory: &MachineInventory| decide_reboot(&taken, Some(&record(inventory)));
            assert_eq!(step(&in_boot("b1")), Some(RebootStep::Ask("b1".into())), "{name}");
            assert_eq!(step(&asked("b1", "b1")), None, "{name}: wait");
            let Some(RebootStep::Finish(change)) = step(&asked("b2", "b1")) else { panic!("{name}") };
            let done = changed(taken.clone(), &change);
            assert_eq!(done.annotations().contains_key(request), left, "{name}");
            assert_eq!((is_done(&done, request), is_forgotten(&done, request)), (left, !left), "{name}");
            assert_eq!(decide_reboot(&done, Some(&record(&in_boot("b2")))), None, "{name}: never twice");
            if left {
                let record_only =
                    host(&[], serde_json::from_str(&done.annotations()[names::REBOOT_RECORD]).unwrap());
                let Some(RebootStep::Forget(change)) =
                    decide_reboot(&record_only, Some(&record(&in_boot("b2"))))
                else {
                    panic!("{name}")
                };
                assert!(
                    changed(record_only, &change).annotations().is_empty(),
                    "{name}: may be written again"
                );
            }
        }
    }

    #[test]
    fn new_request_beside_done_one_reboots_again() {
        let done = json!({ "requests": [KEYED] });
        let both = host(&[KEYED, names::REBOOT], Some(done));
        let record = samples::record(&in_boot("b2"));
        let Some(RebootStep::Begin(change)) = decide_reboot(&both, Some(&record)) else { panic!() };
        let text = change["metadata"]["annotations"][names::REBOOT_RECORD].as_str().unwrap();
        assert!(text.contains("\"from\":\"b2\"") && text.contains(KEYED), "{text}");
        let other = host(&["reboot.metal3.iox", "x/reboot.metal3.io"], None);
        assert_eq!(decide_reboot(&other, Some(&record)), None, "other annotations");
    }

    #[test]
    #[allow(clippy::large_stack_arrays, reason = "a table of objects")]
    fn the_condition_says_how_far_a_request_is() {
        let now = Timestamp::from_second(900).unwrap();
        let taken = || host(&[KEYED], Some(json!({ "from": "boot-1", "requests": [KEYED] })));
        let mut busy = in_boot("boot-1");
        samples::announce(&mut busy, PlanType::Reprovision, 1, None);
        let mut away = in_boot("boot-1");
        samples::host_status(&mut away).session.as_mut().unwrap().ended = Some(Time(Timestamp::UNIX_EPOCH));
        for (name, host, inventory, want) in [
            ("nothing", host(&[], None), in_boot("boot-1"), None),
            ("a plan runs", host(&[KEYED], None), busy, Some(("False", Reason::RebootWaiting))),
            ("asked", taken(), in_boot("boot-1"), Some(("False", Reason::RebootInProgress))),
            ("away", taken(), away, Some(("False", Reason::HostUnreachable))),
            (
                "done",
                host(&[KEYED], Some(json!({ "requests": [KEYED] }))),
                in_boot("boot-2"),
                Some(("True", Reason::RebootDone)),
            ),
        ] {
            let shown = project_reboot(&host, Some(&samples::record(&inventory)), now);
            let status = |shown: &ConditionUpdate| <&str>::from(shown.status);
            let shown = shown.as_ref().map(|shown| (status(shown), shown.reason));
            assert_eq!(shown, want, "{name}");
        }
    }
}
