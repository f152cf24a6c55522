use futures::channel::mpsc as changes;
use kube::client::Body;
use serde_json::Value;

use super::*;
use crate::cluster::Change;
use crate::fleet::Object;
use crate::samples::{NAMESPACE, attached, condition, id, object};

/// The senders of the watches that a test plays.
pub(in crate::ui) struct Watches {
    objects: changes::UnboundedSender<Vec<Change>>,
    pub(in crate::ui) events: changes::UnboundedSender<Vec<EventChange>>,
}

impl Watches {
    pub(in crate::ui) fn list(&self, objects: &[Object]) {
        let listed = objects.iter().map(|object| Ok(watcher::Event::InitApply(object.data.clone())));
        let all = std::iter::once(Ok(watcher::Event::Init)).chain(listed);
        let all = all.chain([Ok(watcher::Event::InitDone)]);
        self.objects.unbounded_send(all.map(|event| (Kind::MachineInventory, event)).collect()).unwrap();
    }

    pub(in crate::ui) fn apply(&self, object: &Object) {
        let event = watcher::Event::Apply(object.data.clone());
        self.objects.unbounded_send(vec![(object.id.kind, Ok(event))]).unwrap();
    }

    fn fail(&self) {
        let error = watcher::Error::NoResourceVersion;
        self.objects.unbounded_send(vec![(Kind::MachineInventory, Err(error))]).unwrap();
    }
}

/// A host with this image.
pub(in crate::ui) fn host(name: &str, image: &str) -> Object {
    let mut body = attached();
    body["status"]["host"]["image"] = json!(image);
    object(Kind::MachineInventory, name, body)
}

/// A follower of a watch of hosts, running.
pub(in crate::ui) fn start() -> (Watches, Followed) {
    let (objects, received) = changes::unbounded();
    let live = Live::new(received.boxed(), [Kind::MachineInventory].into(), Some(NAMESPACE));
    let (events, received) = changes::unbounded();
    let answer = async |_: http::Request<Body>| {
        let version = json!({
            "major": "1", "minor": "36", "gitVersion": "", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
        });
        Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(version.to_string().into_bytes())))
    };
    let client = Client::new(tower::service_fn(answer), NAMESPACE);
    let (owner, followed) = Follower::of(client, live, received.boxed());
    tokio::spawn(owner.run());
    (Watches { objects, events }, followed)
}

async fn next(subscription: &mut Subscription) -> (String, Value) {
    match subscription.messages.recv().await.unwrap() {
        Message::Lines(text) => ("lines".to_owned(), serde_json::from_str(&text).unwrap()),
        Message::Notes(text) => ("notes".to_owned(), serde_json::from_str(&text).unwrap()),
        Message::Restart => ("restart".to_owned(), Value::Null),
    }
}

#[tokio::test]
async fn pages_are_told_what_changed() {
    let (watches, followed) = start();
    let mut early = followed.subscribe().await.unwrap();
    assert!(!early.is_complete && early.lines.is_empty());
    watches.list(&[host("a", "os:v1"), host("b", "os:v1")]);
    assert_eq!(next(&mut early).await.0, "restart");
    let mut page = followed.subscribe().await.unwrap();
    assert!(page.is_complete && page.lines.len() == 2, "{page:?}");
    watches.apply(&host("b", "os:v2"));
    let (_, told) = next(&mut page).await;
    let names: Vec<_> = told["changed"].as_array().unwrap().iter().map(|line| line["name"].clone()).collect();
    assert_eq!((names, &told["changed"][0]["image"]), (vec![json!("b")], &json!("os:v2")));
    assert_eq!(told["touched"], json!(["machineinventory/site/b"]));
    let shown = followed.show(id(Kind::MachineInventory, "b")).await.unwrap();
    assert!(shown.contains("\"timeline\"") && shown.contains("os:v2"), "{shown}");
    assert_eq!(followed.show(id(Kind::MachineInventory, "c")).await, None);
    assert!(followed.explain(id(Kind::MachineInventory, "b")).await.unwrap().contains("\"links\""));
}

#[tokio::test]
async fn pages_are_told_of_objects_without_line() {
    let (watches, followed) = start();
    let mut page = followed.subscribe().await.unwrap();
    watches.list(&[host("a", "os:v1")]);
    assert_eq!(next(&mut page).await.0, "restart");
    let fetching = condition("Ready", "False", "SeedImageBuildOngoing", "the base ISO is being fetched");
    let body = json!({ "status": { "conditions": [fetching] } });
    watches.apply(&object(Kind::SeedImage, "i", body));
    watches.apply(&host("a", "os:v2"));
    let (_, told) = next(&mut page).await;
    assert_eq!(told, json!({ "changed": [], "gone": [], "touched": [] }));
}

#[tokio::test]
async fn event_about_a_host_touches_it() {
    let (watches, followed) = start();
    watches.list(&[host("a", "os:v1")]);
    let mut page = followed.subscribe().await.unwrap();
    while !page.is_complete {
        page = followed.subscribe().await.unwrap();
    }
    let event = json!({
        "metadata": { "name": "e", "namespace": NAMESPACE }, "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": { "kind": "BaremetalMachine", "name": "m", "namespace": NAMESPACE },
        "reason": "PlanAssigned", "note": "plan clean-1 for MachineInventory a",
    });
    let event: Event = serde_json::from_value(event).unwrap();
    watches.events.unbounded_send(vec![Ok(watcher::Event::Apply(event))]).unwrap();
    let (_, told) = next(&mut page).await;
    assert_eq!(told["touched"], json!(["machineinventory/site/a"]));
    let shown = followed.show(id(Kind::MachineInventory, "a")).await.unwrap();
    assert!(shown.contains("PlanAssigned"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn interruption_is_told_until_the_api_server_answers() {
    let (watches, followed) = start();
    watches.list(&[]);
    let mut page = followed.subscribe().await.unwrap();
    watches.fail();
    let mut told = vec![];
    while told.len() < 2 {
        let (name, notes) = next(&mut page).await;
        told.extend(Some(notes).filter(|_| name == "notes"));
    }
    assert!(told[0][0].as_str().unwrap().contains("was interrupted"), "{told:?}");
    assert_eq!(told[1], json!([]));
}
