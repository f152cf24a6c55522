use coordinator_api::inventory::MachineInventory;
use coordinator_api::registration::MachineRegistration;
use kube::runtime::reflector;
use kube::runtime::watcher::Event;
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::tests::{NAMESPACE, Setting};

async fn wait_again(object: Arc<MachineRegistration>, context: Arc<Context>) -> Result<Action, Failure> {
    Ok(Action::requeue(context.backoffs.next_wait(Kind::MachineRegistration, &Key::of(&*object))))
}

#[tokio::test(start_paused = true)]
async fn deleted_object_is_waited_for_no_more() {
    let setting = Setting::new(&[]);
    let context = Arc::new(setting.context().await);
    let (store, mut writer) = reflector::store();
    let mut object = MachineRegistration::new("hosts", serde_json::from_str("{}").unwrap());
    object.metadata.namespace = Some("fleet".to_owned());
    for event in [Event::Init, Event::InitApply(object.clone()), Event::InitDone] {
        writer.apply_watcher_event(&event);
    }
    let (_queue, keys) = unbounded_channel();
    let controller = tokio::spawn(run_controller(wait_again, context.clone(), store, keys));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let next = || context.backoffs.next_wait(Kind::MachineRegistration, &Key::of(&object));
    assert!(next() > Duration::from_secs(4), "it waited several times");
    writer.apply_watcher_event(&Event::Delete(object.clone()));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(next() < Duration::from_secs(2), "its count is gone");
    controller.abort();
}

#[tokio::test(start_paused = true)]
async fn panic_is_an_error_of_its_object() {
    let setting = Setting::new(&[]);
    let context = Arc::new(setting.context().await);
    setting.create("MachineRegistration", "hosts", json!({ "metadata": {}, "spec": {} })).await;
    let known = setting.fake.look("machineregistrations.elemental.cattle.io", NAMESPACE, "hosts").unwrap();
    let object: Arc<MachineRegistration> = Arc::new(serde_json::from_value(known).unwrap());
    let panicked = futures::future::lazy(|_| panic!("a defect of a library"));
    let error = reconcile_object(panicked, object.clone(), context.clone()).await.unwrap_err();
    assert_eq!(error.class(), Class::Transient);
    let retry = handle_failure(&*object, &error, &context);
    let interval = spread(retry::failure_backoff(1), &Key::of(&*object));
    assert_eq!(retry, Action::requeue(interval), "it is tried again, and not together with others");
}

#[test]
fn quiet_objects_are_reconciled_hourly() {
    let intervals: Vec<_> =
        ["a", "b", "c"].iter().map(|name| spread(RESYNC, &Key::new("fleet", *name))).collect();
    assert!(intervals.iter().all(|interval| (RESYNC..=RESYNC * 6 / 5).contains(interval)), "{intervals:?}");
    assert!(intervals.windows(2).any(|two| two[0] != two[1]), "they do not return together");
    let soon = Action::requeue(Duration::from_secs(1));
    let key = Key::new("fleet", "a");
    assert_eq!(or_resync::<MachineInventory>(soon.clone(), &key), soon);
    let quiet = Action::await_change();
    assert_eq!(or_resync::<MachineInventory>(quiet.clone(), &key), Action::requeue(spread(RESYNC, &key)));
    assert_eq!(or_resync::<MachineRegistration>(quiet.clone(), &key), quiet, "it would read a Secret");
}
