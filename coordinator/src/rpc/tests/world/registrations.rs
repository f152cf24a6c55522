//! The registrations of a world, one for each case.

use coordinator_api::registration::{ApprovalPolicy, MachineRegistration, MachineRegistrationSpec};
use fake_apiserver::FakeApi;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::REGISTRATIONS;

const URL: Option<&str> = Some("https://c.example/elemental/registration/token");

fn registration(name: &str, url: Option<&str>, emulate: bool) -> MachineRegistration {
    serde_json::from_value(json!({
        "apiVersion": "elemental.cattle.io/v1beta1",
        "kind": "MachineRegistration",
        "metadata": { "name": name, "namespace": "fleet" },
        "spec": {
            "machineName": "m-${System Information/UUID}",
            "machineInventoryLabels": { "site": "${System Information/UUID}" },
            "config": { "elemental": { "registration": { "emulate-tpm": emulate } } },
        },
        "status": {
            "registrationToken": name,
            "registrationURL": url,
        },
    }))
    .unwrap()
}

/// One that no host can register with.
fn unsupported(name: &str) -> MachineRegistration {
    let mut registration = registration(name, URL, true);
    let elemental = registration.spec.config.as_mut().unwrap().elemental.as_mut().unwrap();
    elemental.registration.as_mut().unwrap().auth = Some("mac".into());
    registration
}

fn with_spec(name: &str, change: impl FnOnce(&mut MachineRegistrationSpec)) -> MachineRegistration {
    let mut registration = registration(name, URL, true);
    change(&mut registration.spec);
    registration
}

pub(super) async fn create_registrations(fake: &FakeApi) {
    let api: Api<MachineRegistration> = Api::namespaced(fake.client("operator"), "fleet");
    for registration in [
        registration("token", URL, true),
        registration("token-not-ready", None, true),
        registration("token-tpm-only", URL, false),
        unsupported("token-unsupported"),
        with_spec("token-manual", |spec| spec.approval = ApprovalPolicy::Manual),
        with_spec("token-of-two", |spec| spec.max_hosts = Some(2)),
        with_spec("token-expired", |spec| spec.token_expires_at = Some(Time(Timestamp::UNIX_EPOCH))),
    ] {
        api.create(&PostParams::default(), &registration).await.unwrap();
        let key = (REGISTRATIONS, "fleet", registration.metadata.name.as_deref().unwrap());
        fake.edit(key, |object| object["status"] = json!(registration.status));
    }
}
