use std::time::Duration;

use coordinator_api::names::{label, registration_secret};
use fake_apiserver::{Matching, Refusal, Verb};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::*;
use crate::tests::{NAMESPACE, Setting};

const REGISTRATIONS: &str = "machineregistrations.elemental.cattle.io";
const SECRET: &str = "hosts-registration-token";

struct Shown {
    token: String,
    url: String,
    ready: Value,
}

async fn registered() -> Setting {
    let setting = Setting::leading().await;
    setting.create("MachineRegistration", "hosts", json!({ "spec": {} })).await;
    setting.settle().await;
    setting
}

fn read_shown(setting: &Setting) -> Shown {
    let status = setting.fake.look(REGISTRATIONS, NAMESPACE, "hosts").unwrap()["status"].clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ready = status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Ready");
    Shown {
        token: text(&status["registrationToken"]),
        url: text(&status["registrationURL"]),
        ready: ready.unwrap().clone(),
    }
}

fn read_secret(setting: &Setting) -> Value {
    setting.fake.look("secrets", NAMESPACE, SECRET).unwrap()
}

fn read_token(setting: &Setting) -> String {
    let bytes: ByteString = serde_json::from_value(read_secret(setting)["data"]["token"].clone()).unwrap();
    String::from_utf8(bytes.0).unwrap()
}

/// Any change has the registration reconciled.
async fn touch(setting: &Setting) {
    let label = json!({ "metadata": { "labels": { "touched": "true" } } });
    setting.patch("MachineRegistration", "hosts", label).await;
    setting.settle().await;
}

#[tokio::test(start_paused = true)]
async fn token_is_created_in_a_secret_without_owner() {
    let setting = registered().await;
    let (secret, shown) = (read_secret(&setting), read_shown(&setting));
    assert_eq!(secret["type"], registration_secret::TYPE);
    assert_eq!(secret["metadata"]["labels"][label::MANAGED], "true");
    assert_eq!(secret["metadata"]["ownerReferences"], Value::Null);
    assert_eq!((shown.token.len(), &shown.token), (32, &read_token(&setting)));
    assert!(shown.url.ends_with(&format!("/elemental/registration/{}", shown.token)), "{}", shown.url);
    assert_eq!(shown.ready["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn unsupported_field_is_shown_until_it_is_corrected() {
    let setting = registered().await;
    let change = |auth| {
        json!({ "spec": { "config": { "elemental": {
            "registration": { "auth": auth }, "install": { "tty": "ttyS0" },
        } } } })
    };
    for (auth, want) in [("mac", ("False", "FieldUnsupported")), ("tpm", ("True", "SuccessfullyCreated"))] {
        setting.patch("MachineRegistration", "hosts", change(auth)).await;
        setting.settle().await;
        let ready = read_shown(&setting).ready;
        assert_eq!((&ready["status"], &ready["reason"]), (&json!(want.0), &json!(want.1)));
        let status = setting.fake.look(REGISTRATIONS, NAMESPACE, "hosts").unwrap()["status"].clone();
        let conditions = status["conditions"].as_array().unwrap();
        let ignored = conditions.iter().find(|one| one["type"] == "FieldsIgnored").unwrap();
        assert_eq!(ignored["status"], "True");
        assert!(ignored["message"].as_str().unwrap().contains("install.tty"), "{ignored}");
    }
}

#[tokio::test(start_paused = true)]
async fn annotation_rotates_the_token_once() {
    let setting = registered().await;
    let (former, mark) = (read_token(&setting), setting.fake.journal().mark());
    let rotate = json!({ "metadata": { "annotations": { annotation::ROTATE_TOKEN: "" } } });
    setting.patch("MachineRegistration", "hosts", rotate).await;
    setting.settle().await;
    let (token, shown) = (read_token(&setting), read_shown(&setting));
    assert_ne!(token, former);
    assert_eq!(shown.token, token);
    assert!(shown.url.ends_with(&token), "{}", shown.url);
    let registration = setting.fake.look(REGISTRATIONS, NAMESPACE, "hosts").unwrap();
    assert_eq!(registration["metadata"]["annotations"].get(annotation::ROTATE_TOKEN), None);
    assert_eq!(setting.count(mark, Verb::Patch, "secrets"), 1);
    let events = setting.fake.look_at_all("events");
    assert_eq!(events.iter().filter(|event| event["reason"] == "TokenRotated").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn refused_rotation_is_shown_until_it_succeeds() {
    let setting = registered().await;
    // One by this test, one that clears the annotation, two of the status; and the two that are refused.
    for (resource, cause, most) in [
        ("secrets", "replace the token of", 4),
        ("machineregistrations", "clear annotation rotate-token of", 6),
    ] {
        let writes = Matching::any().user("coordinator").verb(Verb::Patch).resource(resource);
        let refused = setting.fake.faults().fail(writes.subresource(""), 2, Refusal::Forbidden);
        let (former, mark) = (read_token(&setting), setting.fake.journal().mark());
        let rotate = json!({ "metadata": { "annotations": { annotation::ROTATE_TOKEN: "" } } });
        setting.patch("MachineRegistration", "hosts", rotate).await;
        setting.settle().await;
        assert!(refused.is_met(), "{cause}");
        let ready = read_shown(&setting).ready;
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("ApiRequestFailed")));
        assert!(ready["message"].as_str().unwrap().contains(cause), "{ready}");
        tokio::time::sleep(Duration::from_mins(12)).await;
        let shown = read_shown(&setting);
        assert_eq!((&shown.ready["status"], &shown.token), (&json!("True"), &read_token(&setting)));
        assert_ne!(shown.token, former);
        let patches = setting.count(mark, Verb::Patch, "machineregistrations");
        assert_eq!(patches, most, "requests for one rotation");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_secret_is_recreated_with_its_token() {
    let setting = registered().await;
    let token = read_token(&setting);
    setting.fake.take_out("secrets", NAMESPACE, SECRET);
    touch(&setting).await;
    assert_eq!(read_token(&setting), token, "seed ISOs stay usable");
    assert_eq!(read_secret(&setting)["type"], registration_secret::TYPE);
}

#[tokio::test(start_paused = true)]
async fn lost_status_shows_the_token_again() {
    let setting = registered().await;
    let (token, mark) = (read_token(&setting), setting.fake.journal().mark());
    setting.fake.edit((REGISTRATIONS, NAMESPACE, "hosts"), |object| {
        object.as_object_mut().unwrap().remove("status");
    });
    setting.settle().await;
    assert_eq!((read_shown(&setting).token, read_token(&setting)), (token.clone(), token));
    assert_eq!(setting.count(mark, Verb::Create, "secrets"), 0);
}

#[tokio::test(start_paused = true)]
async fn other_secret_of_that_name_is_kept() {
    let setting = Setting::leading().await;
    let other = json!({ "type": "Opaque", "stringData": { "token": "of-an-operator" } });
    setting.create("Secret", SECRET, other).await;
    setting.create("MachineRegistration", "hosts", json!({ "spec": {} })).await;
    let mark = setting.fake.journal().mark();
    tokio::time::sleep(std::time::Duration::from_mins(1)).await;
    let shown = read_shown(&setting);
    assert_eq!(shown.ready["status"], "False");
    assert_eq!(shown.ready["reason"], Reason::ApiRequestFailed.as_str());
    assert!(shown.ready["message"].as_str().unwrap().contains("delete it"), "{}", shown.ready);
    assert_eq!((shown.token.as_str(), read_token(&setting).as_str()), ("", "of-an-operator"));
    assert_eq!(setting.count(mark, Verb::Patch, "secrets"), 0);
}

fn read_condition(setting: &Setting, name: &str, kind: &str) -> (String, String) {
    let status = setting.fake.look(REGISTRATIONS, NAMESPACE, name).unwrap()["status"].clone();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default();
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

/// As manifests of the elemental operator may be.
#[tokio::test(start_paused = true)]
async fn registration_without_a_spec_can_be_used() {
    let setting = Setting::leading().await;
    setting.create("MachineRegistration", "hosts", json!({})).await;
    let empty = json!({ "spec": { "labelPrefix": "-", "config": { "cloud-config": null } } });
    setting.create("MachineRegistration", "empty", empty).await;
    setting.settle().await;
    assert_eq!(setting.fake.look(REGISTRATIONS, NAMESPACE, "hosts").unwrap().get("spec"), None);
    for name in ["hosts", "empty"] {
        assert_eq!(read_condition(&setting, name, "Ready"), pair("True", "SuccessfullyCreated"), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn token_of_the_spec_is_used() {
    let setting = registered().await;
    let token = "rack-7-of-the-hall";
    setting.patch("MachineRegistration", "hosts", json!({ "spec": { "token": token } })).await;
    setting.settle().await;
    assert_eq!((read_shown(&setting).token, read_token(&setting)), (token.into(), token.into()));
    let rotate = json!({ "metadata": { "annotations": { annotation::ROTATE_TOKEN: "" } } });
    setting.patch("MachineRegistration", "hosts", rotate).await;
    setting.settle().await;
    assert_eq!(read_token(&setting), token);
    let events = setting.fake.look_at_all("events");
    assert!(events.iter().any(|event| event["reason"] == "TokenFixed"), "{events:?}");
}

#[tokio::test]
async fn token_that_can_be_guessed_is_refused() {
    let setting = Setting::leading().await;
    let client = setting.fake.client("operator");
    let api: kube::Api<MachineRegistration> = kube::Api::namespaced(client, NAMESPACE);
    for (token, is_taken) in
        [("a", false), ("rack-7-of-a-hall", true), ("rack-7-of-hall-", false), ("rack-7-of-halls", false)]
    {
        let registration = json!({
            "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineRegistration",
            "metadata": { "name": token.trim_end_matches('-') }, "spec": { "token": token },
        });
        let created = api
            .create(&kube::api::PostParams::default(), &serde_json::from_value(registration).unwrap())
            .await;
        assert_eq!(created.is_ok(), is_taken, "{token}: {created:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn token_is_used_once() {
    let setting = registered().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let token = read_token(&setting);
    setting.create("MachineRegistration", "second", json!({ "spec": { "token": token } })).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(read_condition(&setting, "second", "Ready"), pair("False", "DuplicateToken"));
    let status = setting.fake.look(REGISTRATIONS, NAMESPACE, "second").unwrap()["status"].clone();
    assert_eq!((status.get("registrationToken"), status.get("registrationURL")), (None, None));
    assert_eq!(read_shown(&setting).token, token, "the first keeps it");
    setting.fake.take_out(REGISTRATIONS, NAMESPACE, "hosts");
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(read_condition(&setting, "second", "Ready"), pair("True", "SuccessfullyCreated"));
}

/// A backup lists objects in any order, and the API server makes new times.
#[tokio::test(start_paused = true)]
async fn restored_times_give_the_token_to_nobody_else() {
    let setting = Setting::leading().await;
    for name in ["zone-b", "zone-a"] {
        setting
            .create("MachineRegistration", name, json!({ "spec": { "token": "rack-7-of-the-hall" } }))
            .await;
        setting.settle().await;
    }
    let holds = |setting: &Setting, name: &str| read_condition(setting, name, "Ready");
    assert_eq!(holds(&setting, "zone-b"), pair("True", "SuccessfullyCreated"), "it came first");
    assert_eq!(holds(&setting, "zone-a"), pair("False", "DuplicateToken"));
    setting.fake.edit((REGISTRATIONS, NAMESPACE, "zone-a"), |registration| {
        registration["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    });
    setting.settle().await;
    assert_eq!(holds(&setting, "zone-b"), pair("True", "SuccessfullyCreated"));
    assert_eq!(holds(&setting, "zone-a"), pair("False", "DuplicateToken"));
}

#[tokio::test(start_paused = true)]
async fn token_expiry_is_shown_when_it_comes() {
    let setting = registered().await;
    let expiry = jiff::Timestamp::now() + Duration::from_hours(1);
    setting.patch("MachineRegistration", "hosts", json!({ "spec": { "tokenExpiresAt": expiry } })).await;
    setting.settle().await;
    assert_eq!(read_condition(&setting, "hosts", "Ready"), pair("True", "SuccessfullyCreated"));
    tokio::time::sleep(Duration::from_hours(2)).await;
    assert_eq!(read_condition(&setting, "hosts", "Ready"), pair("False", "TokenExpired"));
}

#[tokio::test(start_paused = true)]
async fn open_admission_is_warned_of() {
    let setting = registered().await;
    assert_eq!(read_condition(&setting, "hosts", "AdmissionOpen"), pair("True", "UnverifiedTpmsApproved"));
    setting.create("Secret", "tpm-ca", json!({ "data": { "tls.crt": "" } })).await;
    setting.patch("MachineRegistration", "hosts", json!({ "spec": { "maxHosts": 7 } })).await;
    setting.settle().await;
    assert_eq!(read_condition(&setting, "hosts", "AdmissionOpen"), pair("False", "AdmissionGuarded"));
    let elemental = json!({ "registration": { "emulate-tpm": true } });
    for (approval, want) in
        [("Automatic", pair("True", "SoftwareKeysApproved")), ("Manual", pair("False", "AdmissionGuarded"))]
    {
        let spec = json!({ "spec": { "approval": approval, "config": { "elemental": elemental } } });
        setting.patch("MachineRegistration", "hosts", spec).await;
        setting.settle().await;
        assert_eq!(read_condition(&setting, "hosts", "AdmissionOpen"), want, "{approval}");
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_is_shown_until_the_registration_changes() {
    let setting = registered().await;
    setting.fake.edit((REGISTRATIONS, NAMESPACE, "hosts"), |object| {
        object["status"]["lastRefusal"] = json!({
            "reason": "NameTaken", "message": "a", "time": jiff::Timestamp::now(),
            "observedGeneration": object["metadata"]["generation"],
        });
    });
    setting.settle().await;
    assert_eq!(read_condition(&setting, "hosts", "HostsRefused"), pair("True", "HostRefused"));
    setting.patch("MachineRegistration", "hosts", json!({ "spec": { "machineName": "other" } })).await;
    setting.settle().await;
    assert_eq!(read_condition(&setting, "hosts", "HostsRefused"), pair("False", "NoHostRefused"));
    let status = setting.fake.look(REGISTRATIONS, NAMESPACE, "hosts").unwrap()["status"].clone();
    assert_eq!(status.get("lastRefusal"), None);
}

// Fault: a registration is paused.
// Shown: condition `Paused` of the MachineRegistration.
#[tokio::test(start_paused = true)]
async fn paused_registration_is_left_alone() {
    let setting = Setting::leading().await;
    let paused = json!({ "annotations": { annotation::PAUSED: "" } });
    setting.create("MachineRegistration", "hosts", json!({ "metadata": paused, "spec": {} })).await;
    setting.settle().await;
    assert!(setting.fake.look("secrets", NAMESPACE, SECRET).is_none(), "no token");
    let shown = setting.fake.look(REGISTRATIONS, NAMESPACE, "hosts").unwrap()["status"].clone();
    assert_eq!(
        (&shown["conditions"][0]["type"], &shown["conditions"][0]["status"]),
        (&json!("Paused"), &json!("True"))
    );
    let resumed = json!({ "metadata": { "annotations": { annotation::PAUSED: null } } });
    setting.patch("MachineRegistration", "hosts", resumed).await;
    setting.settle().await;
    assert!(!read_shown(&setting).token.is_empty());
}
