//! What an operator sees and does: the answer of `kubectl baremetal why`, the Events that
//! `kubectl describe` shows, and `kubectl baremetal clean`.

use coordinator_api::explain::Attention;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kubectl_baremetal::{Explanation, annotations_of_clean, explain, list_kinds};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::cluster_api::NAMESPACE;
use crate::dump::text;
use crate::world::{DEADLINE, World};

/// Pause between two looks.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// No scenario has a control plane provider.
const NOT_SERVED: &str = "controlplane.cluster.x-k8s.io";
/// The group of Cluster API in which our kinds are.
const OURS: &str = "infrastructure.cluster.x-k8s.io";

fn is_here(object: &Value) -> bool {
    object["metadata"]["namespace"] == NAMESPACE
}

impl World {
    /// What `kubectl baremetal why KIND/NAME` answers now.
    pub fn why(&self, object: &str) -> Explanation {
        explain(object, NAMESPACE, self.list_served(), self.now()).unwrap()
    }

    /// Runs `kubectl baremetal clean HOST --owner OWNER`.
    pub async fn clean_by_owner(&self, host: &str, owner: &str) {
        let annotations = annotations_of_clean((host, owner), NAMESPACE, self.list_served(), self.now());
        for (key, value) in annotations.unwrap() {
            let change = json!({ "metadata": { "annotations": { (key): value } } });
            self.patch("MachineInventory", host, change).await;
        }
    }

    /// All objects of the kinds that the plugin reads.
    fn list_served(&self) -> impl Iterator<Item = (GroupVersionKind, Vec<DynamicObject>)> {
        let parse = |object| serde_json::from_value(object).unwrap();
        let kinds = list_kinds().filter(|kind| kind.group != NOT_SERVED);
        kinds.map(move |kind| {
            let objects = self.list_kind(&kind).into_iter().map(parse).collect();
            (kind, objects)
        })
    }

    /// The objects that `why` looks at, without those of Cluster API, and all Events.
    pub fn snapshot(&self) -> Vec<Value> {
        let is_ours =
            |kind: &GroupVersionKind| kind.group == OURS || !kind.group.ends_with("cluster.x-k8s.io");
        let objects = list_kinds().filter(is_ours).flat_map(|kind| self.list_kind(&kind));
        objects.chain(self.fake.look_at_all("events").into_iter().filter(is_here)).collect()
    }

    fn list_kind(&self, kind: &GroupVersionKind) -> Vec<Value> {
        let ApiResource { plural, group, .. } = ApiResource::from_gvk(kind);
        let objects = self.fake.look_at_all(&format!("{plural}.{group}"));
        objects.into_iter().filter(is_here).collect()
    }

    /// Waits until `why KIND/NAME` names this reason, with these words of its cause, and as
    /// the next action these.
    pub async fn expect_why(&self, object: &str, reason: impl Into<&'static str>, cause: &str, action: &str) {
        let reason = reason.into();
        let wanted = format!("{reason} because {cause:?}, next {action:?}");
        self.wait_for_answer(object, &wanted, |found| found.names(reason, cause, action)).await;
    }

    /// Waits until `why KIND/NAME` says that nothing is in the way.
    pub async fn expect_nothing(&self, object: &str) {
        let is_fine = |found: &Explanation| found.attention == Attention::None;
        self.wait_for_answer(object, "nothing is in the way", is_fine).await;
    }

    async fn wait_for_answer(&self, object: &str, wanted: &str, is: impl Fn(&Explanation) -> bool) {
        let end = Instant::now() + DEADLINE;
        loop {
            self.find_nodes();
            let found = self.why(object);
            if is(&found) {
                return;
            }
            assert!(Instant::now() < end, "`why {object}` lacks {wanted}:\n{}", found.text);
            self.advance_time(POLL_INTERVAL).await;
        }
    }

    /// Asserts that `kubectl describe KIND NAME` shows an Event with this reason, and with
    /// these words of its cause and action.
    pub fn expect_event(&self, kind: &str, name: &str, reason: &str, words: &str) {
        assert!(!words.is_empty(), "{reason} of {kind} {name} says something");
        let about = self.fake.look_at_events(kind, name);
        let is_it = |event: &Value| {
            let told = format!("{} {}", text(event, "/message"), text(event, "/note"));
            text(event, "/reason") == reason && told.contains(words)
        };
        assert!(about.iter().any(is_it), "no Event {reason} of {kind} {name} with {words:?}: {about:#?}");
    }
}
