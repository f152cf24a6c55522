//! What an operator sees: the answer of `kubectl baremetal why`, the Events that
//! `kubectl describe` shows, metrics, and what the coordinator tells the host.

use std::time::Duration;

use coordinator_api::conditions::set_conditions;
use coordinator_api::explain::Attention;
use coordinator_api::registration::MachineRegistration;
use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject};
use kubectl_baremetal::{Explanation, explain, list_kinds};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::World;
use crate::controllers::registration::registration_conditions;

/// Of the objects that these tests have.
const GROUP: &str = "elemental.cattle.io";
const DEADLINE: Duration = Duration::from_mins(1);

impl World {
    fn now(&self) -> Timestamp {
        self.frozen.lock().unwrap().unwrap_or_else(Timestamp::now)
    }

    /// What `kubectl baremetal why KIND/NAME` answers now.
    fn why(&self, object: &str) -> Explanation {
        let now = self.now();
        let lists = list_kinds().filter(|kind| kind.group == GROUP).map(|kind| {
            let ApiResource { plural, group, .. } = ApiResource::from_gvk(&kind);
            let objects = self.fake.look_at_all(&format!("{plural}.{group}"));
            let is_registration = kind.kind == "MachineRegistration";
            let objects = objects
                .into_iter()
                .map(|object| parse(if is_registration { with_conditions(object, now) } else { object }));
            (kind, objects.collect())
        });
        explain(object, "fleet", lists, now).unwrap()
    }

    /// Waits until `why KIND/NAME` names this reason, with these words of its cause, and as
    /// the next action these.
    pub(in crate::rpc::tests) async fn expect_why(
        &self,
        object: &str,
        reason: &str,
        cause: &str,
        action: &str,
    ) {
        let end = Instant::now() + DEADLINE;
        loop {
            let found = self.why(object);
            if found.names(reason, cause, action) {
                return;
            }
            let wanted = format!("{reason} because {cause:?}, next {action:?}");
            assert!(Instant::now() < end, "`why {object}` lacks {wanted}:\n{}", found.text);
            // Real sockets are on the other side: there is no clock to move.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until `why KIND/NAME` says that nothing is in the way.
    pub(in crate::rpc::tests) async fn expect_nothing(&self, object: &str) {
        self.until(|| self.why(object).attention == Attention::None).await;
    }

    /// Waits until a scrape of the metrics counts this reason.
    pub(in crate::rpc::tests) async fn expect_metric(&self, name: &str, reason: &str) {
        let counted = format!("_{name}_total{{reason=\"{reason}\"}}");
        self.until(|| self.metrics().contains(&counted)).await;
    }

    /// Asserts that `kubectl describe KIND NAME` shows an Event with this reason, and with
    /// these words of its cause and action.
    pub(in crate::rpc::tests) async fn expect_event(
        &self,
        kind: &str,
        name: &str,
        reason: &str,
        words: &str,
    ) {
        self.flush_events().await;
        let about = self.fake.look_at_events(kind, name);
        let is_it = |event: &Value| {
            event["reason"] == reason && event["message"].as_str().unwrap_or_default().contains(words)
        };
        assert!(about.iter().any(is_it), "no Event {reason} of {kind} {name} with {words:?}: {about:#?}");
    }
}

/// Asserts that the agent has these words for the console of its host.
pub(in crate::rpc::tests) fn expect_console(answer: &tonic::Status, words: &str) {
    assert!(answer.message().contains(words), "no {words:?} in {answer:?}");
}

fn parse(object: Value) -> DynamicObject {
    serde_json::from_value(object).unwrap()
}

/// No controller runs here: what it makes of a registration.
fn with_conditions(mut object: Value, now: Timestamp) -> Value {
    let registration: MachineRegistration = serde_json::from_value(object.clone()).unwrap();
    let updates = registration_conditions(&registration, false, now);
    let mut conditions = registration.status.unwrap_or_default().conditions;
    set_conditions(&mut conditions, &updates, registration.metadata.generation, now);
    object["status"]["conditions"] = json!(conditions);
    object
}
