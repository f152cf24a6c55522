use coordinator_api::registration::MachineRegistration;
use kube::runtime::reflector;
use kube::runtime::watcher::Event;
use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::key::Kind;
use crate::tests::Setting;

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
    assert_eq!(next(), Duration::from_secs(1), "its count is gone");
    controller.abort();
}
