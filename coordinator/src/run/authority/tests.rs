use std::time::Duration;

use fake_apiserver::{OwnerReferences, Verb};
use serde_json::{Value, json};

use super::SECRET_NAME;
use crate::tests::{OWN_NAMESPACE, Setting};

fn read_authority(setting: &Setting) -> Option<Value> {
    setting.fake.look("secrets", OWN_NAMESPACE, SECRET_NAME)
}

/// As a new installation creates it.
async fn make_authority() -> Value {
    let mut earlier = Setting::new(&[]);
    earlier.start();
    earlier.settle().await;
    read_authority(&earlier).unwrap()
}

async fn register_host(setting: &Setting) {
    setting.create("MachineInventory", "host-1", json!({ "spec": { "tpmHash": "0a0b" } })).await;
}

#[tokio::test(start_paused = true)]
async fn new_installation_creates_its_authority() {
    let mut setting = Setting::new(&[]);
    // No host has proven a key yet.
    setting.create("MachineInventory", "host-1", json!({ "spec": {} })).await;
    setting.start();
    setting.settle().await;
    let created = read_authority(&setting).unwrap();
    assert_eq!((&created["immutable"], setting.readiness.reason()), (&json!(true), None));
}

#[tokio::test(start_paused = true)]
async fn lost_authority_is_awaited_while_hosts_trust_it() {
    let authority = make_authority().await;

    let mut setting = Setting::new(&[]);
    register_host(&setting).await;
    setting.start();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(setting.count(0, Verb::Create, "secrets"), 0);
    let reason = setting.readiness.reason().unwrap();
    for part in [SECRET_NAME, "restore it", "--create-authority"] {
        assert!(reason.contains(part), "{reason}");
    }
    setting.fake.put_back(authority.clone(), OwnerReferences::Keep).unwrap();
    setting.settle().await;
    assert_eq!(setting.readiness.reason(), None);
    assert_eq!(read_authority(&setting).unwrap()["data"], authority["data"]);
}

#[tokio::test(start_paused = true)]
async fn lost_authority_is_replaced_on_request() {
    let mut setting = Setting::new(&["--create-authority"]);
    register_host(&setting).await;
    setting.start();
    setting.settle().await;
    assert!(read_authority(&setting).is_some());
    assert_eq!(setting.readiness.reason(), None);
}

#[tokio::test(start_paused = true)]
async fn authority_from_outside_is_awaited() {
    let mut setting = Setting::new(&["--provided-authority"]);
    setting.start();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(setting.count(0, Verb::Create, "secrets"), 0);
    let reason = setting.readiness.reason().unwrap();
    for part in [SECRET_NAME, "tls.crt", "cert-manager"] {
        assert!(reason.contains(part), "{reason}");
    }
    let mut given = make_authority().await;
    let data = given["data"].take();
    given["data"] = json!({ "tls.crt": data["ca.crt"], "tls.key": data["ca.key"], "ca.crt": "" });
    setting.fake.put_back(given, OwnerReferences::Keep).unwrap();
    setting.settle().await;
    assert_eq!(setting.readiness.reason(), None);
}
